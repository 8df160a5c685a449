#!/bin/sh
# Packages: heat 1.6.0, torch 2.7.1, mpi4py 4.1.2, mpich 5.0.2, numpy 2.4.6.
# Guess: argmax of a distributed matrix is NumPy's index into the flattened matrix.
# Seen: on 4 ranks it is the index of another element, as if the rows before the rank's own were counted as single
#   elements; argmin too. max() and min() are right, and so is argmax of a vector, and all of them on one rank.
set -eu
work=$(mktemp -d); export TMPDIR="$work"; trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-compile heat==1.6.0 torch==2.7.1 mpi4py==4.1.2 mpich==5.0.2 numpy==2.4.6
cat >"$work/program.py" <<'END'
import heat as ht
import numpy as np

matrix = ((np.arange(60) * 37 + 1) % 61).astype(np.float32).reshape(10, 6)
for name in ("argmax", "argmin", "max", "min"):
    result = int(getattr(ht, name)(ht.array(matrix, split=0)).item())
    vector = int(getattr(ht, name)(ht.array(matrix.ravel(), split=0)).item())
    if ht.MPI_WORLD.rank == 0:
        expected = int(getattr(np, name)(matrix))
        print(name, "of the matrix", result, "of the vector", vector, "NumPy", expected, flush=True)
END
seen=$(for ranks in 1 4; do echo "$ranks:" &&
  OMP_NUM_THREADS=1 timeout --foreground 120 "$work/venv/bin/mpiexec" -n $ranks \
  "$work/venv/bin/python" "$work/program.py" 2>"$work/errors" || { cat "$work/errors"; exit 1; }; done)
echo "$seen"
[ "$seen" = "1:
argmax of the matrix 56 of the vector 56 NumPy 56
argmin of the matrix 28 of the vector 28 NumPy 28
max of the matrix 60 of the vector 60 NumPy 60
min of the matrix 0 of the vector 0 NumPy 0
4:
argmax of the matrix 53 of the vector 56 NumPy 56
argmin of the matrix 25 of the vector 28 NumPy 28
max of the matrix 60 of the vector 60 NumPy 60
min of the matrix 0 of the vector 0 NumPy 0" ] || { echo "this has changed"; exit 1; }
