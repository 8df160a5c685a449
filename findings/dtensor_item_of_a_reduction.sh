#!/bin/sh
# Packages: torch 2.15.0, numpy 2.4.6.
# Guess: float(x.sum()) of a sharded DTensor is the whole sum on every rank (as printing full_tensor() shows), or is
#   refused as x.sum().tolist() is.
# Seen: it is the sum of the rank's own elements, without a word: 1, 5, 9 and 13 where the sum is 28. So it is with the
#   value of norm() and of max(). Compared with 6, the same max() is right on every rank.
set -eu
work=$(mktemp -d); export TMPDIR="$work"; trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-compile torch==2.15.0 numpy==2.4.6
cat >"$work/program.py" <<'END'
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

mesh = init_device_mesh("cpu", (4,))
x = distribute_tensor(torch.arange(8.0), mesh, [Shard(0)])

cases = {
    "x.sum().full_tensor()": lambda: x.sum().full_tensor().item(),
    "float(x.sum())": lambda: float(x.sum()),
    "x.max().item()": lambda: x.max().item(),
    "float(x.norm())": lambda: float(x.norm()),
    "x.max() > 6": lambda: 1 if x.max() > 6 else 0,
}
for name, read in cases.items():
    values = torch.zeros(4)
    values[dist.get_rank()] = read()
    dist.all_reduce(values)
    if dist.get_rank() == 0:
        print(name, "->", *("%.4g" % value for value in values), flush=True)
dist.destroy_process_group()
END
seen=$(OMP_NUM_THREADS=1 timeout --foreground 240 "$work/venv/bin/torchrun" --standalone --nproc-per-node 4 \
  "$work/program.py" 2>"$work/errors") || { cat "$work/errors"; exit 1; }
echo "$seen"
[ "$seen" = "x.sum().full_tensor() -> 28 28 28 28
float(x.sum()) -> 1 5 9 13
x.max().item() -> 1 3 5 7
float(x.norm()) -> 1 3.606 6.403 9.22
x.max() > 6 -> 1 1 1 1" ] || { echo "this has changed"; exit 1; }
