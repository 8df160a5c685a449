#!/bin/sh
# Packages: safetensors 0.8.0, numpy 2.4.6.
# Guess: safetensors.numpy writes the array's values in its own order, as np.save does; or it refuses an array
#   that is not C-contiguous, as safetensors.torch refuses a tensor.
# Seen: it writes the memory as it lies beside the shape: a Fortran-ordered or transposed array comes back
#   with its values in other places. No error, no warning. Big-endian arrays, which also need a copy, are right.
#   Of a reversed or broadcast array it writes memory outside of the array (seen once; not run here).
set -eu
work=$(mktemp -d); export TMPDIR="$work"; trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-compile safetensors==0.8.0 numpy==2.4.6
cat >"$work/program.py" <<'END'
import sys

import numpy as np
from safetensors.numpy import load_file, save_file

x = np.arange(6).reshape(2, 3)
for name, array in (("plain", x), ("Fortran order", np.asfortranarray(x)), ("transposed", x.T),
                    ("big-endian", x.astype(">i8"))):
    save_file({"x": array}, sys.argv[1])
    print(name, array.tolist(), "comes back as", load_file(sys.argv[1])["x"].tolist())
END
seen=$(timeout --foreground 120 "$work/venv/bin/python" "$work/program.py" "$work/file" 2>"$work/errors") ||
  { cat "$work/errors"; exit 1; }
echo "$seen"
[ "$seen" = "plain [[0, 1, 2], [3, 4, 5]] comes back as [[0, 1, 2], [3, 4, 5]]
Fortran order [[0, 1, 2], [3, 4, 5]] comes back as [[0, 3, 1], [4, 2, 5]]
transposed [[0, 3], [1, 4], [2, 5]] comes back as [[0, 1], [2, 3], [4, 5]]
big-endian [[0, 1, 2], [3, 4, 5]] comes back as [[0, 1, 2], [3, 4, 5]]" ] || { echo "this has changed"; exit 1; }
