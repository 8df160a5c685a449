#!/bin/sh
# Packages: torch 2.15.0, numpy 2.4.6.
# Guess: mse_loss of sharded DTensors has the plain tensors' value and gradient, as l1_loss and mean() have.
# Seen: over 4 ranks its gradient is 4 times too large, also where the rows divide by the ranks; smooth_l1_loss and
#   huber_loss the same. Where they do not divide, the loss is the mean of the ranks' means: 7 rows are 2, 2, 2 and
#   1, so the last one counts twice (446.375 for 325). 5 rows are 2, 2, 1 and none: the loss is NaN. No warning.
set -eu
work=$(mktemp -d); export TMPDIR="$work"; trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-compile torch==2.15.0 numpy==2.4.6
cat >"$work/program.py" <<'END'
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

mesh = init_device_mesh("cpu", (4,))
for rows in (7, 5, 8):
    x = torch.arange(float(rows)) ** 2
    shard = lambda tensor: distribute_tensor(tensor, mesh, [Shard(0)])
    sharded = shard(x.clone()).requires_grad_()
    plain = x.clone().requires_grad_()
    lines = []
    for loss in (F.mse_loss, F.l1_loss):
        value = loss(sharded, shard(torch.zeros(rows))).full_tensor()
        lines.append("%s %g for %g" % (loss.__name__, value.item(), loss(plain, torch.zeros(rows)).item()))
    F.mse_loss(sharded, shard(torch.zeros(rows))).backward()
    F.mse_loss(plain, torch.zeros(rows)).backward()
    gradient = sharded.grad.full_tensor()
    lines.append("last gradient %g for %g" % (gradient[-1].item(), plain.grad[-1].item()))
    lines.append("mean %g for %g" % (sharded.mean().full_tensor().item(), x.mean().item()))
    if dist.get_rank() == 0:
        print(rows, "rows:", ", ".join(lines), flush=True)
dist.destroy_process_group()
END
seen=$(OMP_NUM_THREADS=1 timeout --foreground 240 "$work/venv/bin/torchrun" --standalone --nproc-per-node 4 \
  "$work/program.py" 2>"$work/errors") || { cat "$work/errors"; exit 1; }
echo "$seen"
[ "$seen" = "7 rows: mse_loss 446.375 for 325, l1_loss 13 for 13, last gradient 72 for 10.2857, mean 13 for 13
5 rows: mse_loss nan for 70.8, l1_loss 6 for 6, last gradient 32 for 6.4, mean 6 for 6
8 rows: mse_loss 584.5 for 584.5, l1_loss 17.5 for 17.5, last gradient 49 for 12.25, mean 17.5 for 17.5" ] ||
  { echo "this has changed"; exit 1; }
