#!/bin/sh
# Packages: jax and jaxlib 0.10.2, numpy 2.4.6, python-hostlist 2.3.0.
# Guess: under Slurm jax.distributed takes the first host of the step's list as the coordinator:
#   rack1n3 of "rack[1-2]n[3-4]", n1-ib of "n[1-2]-ib".
# Seen: it cuts the name at the first bracket: rack1, n1. Such hosts need not exist, or are others (n1 for
#   n1-ib). Names with one bracket at their end are right. python-hostlist reads all of them.
#   The class is JAX's own reader of Slurm's environment; no Slurm runs here.
set -eu
work=$(mktemp -d); export TMPDIR="$work"; trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-compile jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6 python-hostlist==2.3.0
cat >"$work/program.py" <<'END'
import os

from hostlist import expand_hostlist
from jax._src.clusters.slurm_cluster import SlurmCluster

os.environ["SLURM_JOB_ID"] = "1"
for hosts in ("n[08-10]", "rack[1-2]n[3-4]", "n[1-2]-ib", "n[1-2].example"):
    os.environ["SLURM_STEP_NODELIST"] = hosts
    coordinator = SlurmCluster.get_coordinator_address(None, None).rsplit(":", 1)[0]
    print(hosts, "jax", coordinator, "hostlist", expand_hostlist(hosts)[0])
END
seen=$(JAX_PLATFORMS=cpu timeout --foreground 120 "$work/venv/bin/python" "$work/program.py" 2>"$work/errors") ||
  { cat "$work/errors"; exit 1; }
echo "$seen"
[ "$seen" = "n[08-10] jax n08 hostlist n08
rack[1-2]n[3-4] jax rack1 hostlist rack1n3
n[1-2]-ib jax n1 hostlist n1-ib
n[1-2].example jax n1 hostlist n1.example" ] || { echo "this has changed"; exit 1; }
