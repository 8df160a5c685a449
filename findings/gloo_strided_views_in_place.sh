#!/bin/sh
# Packages: torch 2.15.0, numpy 2.4.6.
# Guess: gloo refuses a strided view (x[::2]) as NCCL's backend does, or reduces its elements.
# Seen: all_reduce, broadcast and reduce take the view's memory as if it was contiguous: they change the first
#   half of x, of which half does not belong to the view, and leave the rest of the view alone. No error.
#   all_gather of the same view is right.
set -eu
work=$(mktemp -d); export TMPDIR="$work"; trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-compile torch==2.15.0 numpy==2.4.6
cat >"$work/program.py" <<'END'
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()


def show(name, values):
    if rank == 1:
        print(name, [int(value) for value in values], flush=True)


x = torch.arange(8) + 100 * rank
dist.all_reduce(x[::2])
show("all_reduce of every second element", x)
x = torch.arange(8) + 100 * rank
dist.broadcast(x[::2], 0)
show("broadcast of every second element", x)
parts = [torch.zeros(4, dtype=torch.int64) for _ in range(2)]
dist.all_gather(parts, (torch.arange(8) + 100 * rank)[::2])
show("all_gather of every second element", torch.cat(parts))
dist.destroy_process_group()
END
seen=$(OMP_NUM_THREADS=1 timeout --foreground 240 "$work/venv/bin/torchrun" --standalone --nproc-per-node 2 \
  "$work/program.py" 2>"$work/errors") || { cat "$work/errors"; exit 1; }
echo "$seen"
[ "$seen" = "all_reduce of every second element [100, 102, 104, 106, 104, 105, 106, 107]
broadcast of every second element [0, 1, 2, 3, 104, 105, 106, 107]
all_gather of every second element [0, 2, 4, 6, 100, 102, 104, 106]" ] || { echo "this has changed"; exit 1; }
