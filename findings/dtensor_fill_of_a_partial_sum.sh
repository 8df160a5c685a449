#!/bin/sh
# Packages: torch 2.15.0, numpy 2.4.6.
# Guess: x.fill_(3) makes a DTensor 3 everywhere, whatever its placement; a sum that is not yet added up
#   (Partial) becomes 3, or is refused as add_() is.
# Seen: each of the 4 ranks' parts becomes 3, so the tensor is 12; x[0] = 5 makes it 20. Out of place,
#   full_like(x, 3) is 3 and x + 1 is right.
set -eu
work=$(mktemp -d); export TMPDIR="$work"; trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-compile torch==2.15.0 numpy==2.4.6
cat >"$work/program.py" <<'END'
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial

mesh = init_device_mesh("cpu", (4,))


def assign(x):
    x[0] = 5.0
    return x


cases = {
    "the sum": lambda x: x,
    "x + 1": lambda x: x + 1,
    "full_like(x, 3)": lambda x: torch.full_like(x, 3.0),
    "fill_(3)": lambda x: x.fill_(3.0),
    "x[0] = 5": assign,
    "add_(1)": lambda x: x.add_(1.0),
}
for name, change in cases.items():
    x = DTensor.from_local(torch.tensor([dist.get_rank() + 1.0]), mesh, [Partial()])
    try:
        result = "%g" % change(x).full_tensor().item()
    except RuntimeError:
        result = "refused"
    if dist.get_rank() == 0:
        print(name, "->", result, flush=True)
dist.destroy_process_group()
END
seen=$(OMP_NUM_THREADS=1 timeout --foreground 240 "$work/venv/bin/torchrun" --standalone --nproc-per-node 4 \
  "$work/program.py" 2>"$work/errors") || { cat "$work/errors"; exit 1; }
echo "$seen"
[ "$seen" = "the sum -> 10
x + 1 -> 11
full_like(x, 3) -> 3
fill_(3) -> 12
x[0] = 5 -> 20
add_(1) -> refused" ] || { echo "this has changed"; exit 1; }
