#!/bin/sh
# Packages: mlx 0.32.4 with its CPU backend; 4 processes over its ring.
# Guess: the gradient of a sum over the ranks adds up what all ranks make of it. Rank r weighs the sum by r + 1, so
#   each rank's gradient is 1 + 2 + 3 + 4 = 10, as with torch.distributed's all_reduce with gradients.
# Seen: each rank gets its own weight back: 1, 2, 3, 4. The forward derivative (jvp) of the same call does sum:
#   10 on all ranks. So the two disagree, and a loss that is not the same on all ranks has another gradient.
set -eu
work=$(mktemp -d); export TMPDIR="$work"; trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-compile 'mlx[cpu]==0.32.4'
cat >"$work/program.py" <<'END'
import sys

import mlx.core as mx

group = mx.distributed.init(strict=True, backend="ring")
weight = group.rank() + 1.0
x = mx.array([1.0])
gradient = mx.grad(lambda x: mx.distributed.all_sum(x).sum() * weight)(x).item()
_, (derivative,) = mx.jvp(lambda x: mx.distributed.all_sum(x), [x], [mx.array([weight])])
sys.stdout.write(f"rank {group.rank()}: gradient {gradient:g} derivative {derivative.item():g}\n")
sys.stdout.flush()
END
seen=$(timeout --foreground 120 "$work/venv/bin/mlx.launch" -n 4 --backend ring -- "$work/venv/bin/python" \
  "$work/program.py" 2>"$work/errors" | sort) || { cat "$work/errors"; exit 1; }
echo "$seen"
[ "$seen" = "rank 0: gradient 1 derivative 10
rank 1: gradient 2 derivative 10
rank 2: gradient 3 derivative 10
rank 3: gradient 4 derivative 10" ] || { echo "this has changed"; exit 1; }
