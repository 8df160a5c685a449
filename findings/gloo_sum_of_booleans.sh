#!/bin/sh
# Packages: torch 2.15.0, numpy 2.4.6.
# Guess: SUM over a boolean tensor is a logical or, and its bytes are 0 or 1 as in every other boolean tensor.
# Seen: where all 4 ranks have True the byte is 4. It prints True and compares as equal, but its bytes differ
#   from those of the same tensor made otherwise: a checksum of a checkpoint changes, and in NumPy
#   the sorted values have three different bytes. MAX gives 1.
set -eu
work=$(mktemp -d); export TMPDIR="$work"; trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-compile torch==2.15.0 numpy==2.4.6
cat >"$work/program.py" <<'END'
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for name in ("SUM", "MAX"):
    flags = torch.tensor([True, dist.get_rank() == 0, False])
    dist.all_reduce(flags, op=getattr(dist.ReduceOp, name))
    same = torch.tensor([True, True, False])
    if dist.get_rank() == 0:
        print(name, flags.tolist(), "equal", torch.equal(flags, same), "bytes", flags.view(torch.uint8).tolist(),
              "equal bytes", flags.numpy().tobytes() == same.numpy().tobytes(), flush=True)
dist.destroy_process_group()
END
seen=$(OMP_NUM_THREADS=1 timeout --foreground 240 "$work/venv/bin/torchrun" --standalone --nproc-per-node 4 \
  "$work/program.py" 2>"$work/errors") || { cat "$work/errors"; exit 1; }
echo "$seen"
[ "$seen" = "SUM [True, True, False] equal True bytes [4, 1, 0] equal bytes False
MAX [True, True, False] equal True bytes [1, 1, 0] equal bytes True" ] || { echo "this has changed"; exit 1; }
