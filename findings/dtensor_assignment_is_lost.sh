#!/bin/sh
# Packages: torch 2.15.0, numpy 2.4.6.
# Guess: x[3] = 7 on a sharded DTensor writes into the rank that holds the element, or is refused.
# Seen: it changes nothing on any rank, without an error or a warning; a slice the same. The index along a
#   dimension that is not sharded, and fill_() of the whole, do write.
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


def after(change):
    x = distribute_tensor(torch.zeros(8, 2), mesh, [Shard(0)])
    change(x)
    return int((x.full_tensor() == 7).sum())


def element(x):
    x[3] = 7.0


def rows(x):
    x[2:5] = 7.0


def column(x):
    x[:, 1] = 7.0


for change, meant in ((element, 2), (rows, 6), (column, 8), (lambda x: x.fill_(7.0), 16)):
    count = after(change)
    if dist.get_rank() == 0:
        print(change.__name__.strip("<>"), count, "elements are 7, meant were", meant, flush=True)
dist.destroy_process_group()
END
seen=$(OMP_NUM_THREADS=1 timeout --foreground 240 "$work/venv/bin/torchrun" --standalone --nproc-per-node 4 \
  "$work/program.py" 2>"$work/errors") || { cat "$work/errors"; exit 1; }
echo "$seen"
[ "$seen" = "element 0 elements are 7, meant were 2
rows 0 elements are 7, meant were 6
column 8 elements are 7, meant were 8
lambda 16 elements are 7, meant were 16" ] || { echo "this has changed"; exit 1; }
