#!/bin/sh
# Packages: torch 2.15.0, ml_dtypes 0.6.0, numpy 2.4.6.
# Guess: float8_e4m3fn has no infinity, so what is too large becomes NaN in both; their conversions agree.
# Seen: torch saturates (1e4 becomes 448) where ml_dtypes (NumPy, JAX) gives NaN: 30,512 of the 65,536
#   bfloat16 values convert to another number. In float8_e8m0fnu torch makes 0 the smallest power of two, and
#   ml_dtypes NaN. float8_e5m2 and the two fnuz types agree. So one rank's gradient overflows in silence and
#   the other's shows, by the framework that scaled it.
set -eu
work=$(mktemp -d); export TMPDIR="$work"; trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-compile torch==2.15.0 ml_dtypes==0.6.0 numpy==2.4.6
cat >"$work/program.py" <<'END'
import ml_dtypes
import numpy as np
import torch

np.seterr(all="ignore")
everything = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
same = everything.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"):
    convert_torch = lambda x: x.to(getattr(torch, name)).float().numpy()
    convert_numpy = lambda x: x.astype(getattr(ml_dtypes, name)).astype(np.float32)
    ours, theirs = convert_torch(everything), convert_numpy(same)
    differ = ~((ours == theirs) | (np.isnan(ours) & np.isnan(theirs)))
    values = [float(convert(x)[0]) for value in (1e4, 0.0) for convert, x in
              ((convert_torch, torch.tensor([value])), (convert_numpy, np.array([value], np.float32)))]
    print(name, "differ:", differ.sum(), "1e4: %g, %g" % tuple(values[:2]), "0: %.3g, %.3g" % tuple(values[2:]))
END
seen=$(timeout --foreground 120 "$work/venv/bin/python" "$work/program.py" 2>"$work/errors") ||
  { cat "$work/errors"; exit 1; }
echo "$seen"
[ "$seen" = "float8_e4m3fn differ: 30512 1e4: 448, nan 0: 0, 0
float8_e5m2 differ: 0 1e4: 10240, 10240 0: 0, 0
float8_e4m3fnuz differ: 0 1e4: nan, nan 0: 0, 0
float8_e5m2fnuz differ: 0 1e4: 10240, 10240 0: 0, 0
float8_e8m0fnu differ: 32577 1e4: 8192, 8192 0: 5.88e-39, nan" ] || { echo "this has changed"; exit 1; }
