#!/bin/sh
# Packages: torch 2.15.0, numpy 2.4.6.
# Guess: a checkpoint's int64 tensor does not load into a uint8 tensor of the same shape: an error, as another shape is.
# Seen: it loads, without a word: 300 is 44. 70000 in float32 is infinite in float16; 0.5 is 0 in int32. Another shape is
#   refused.
set -eu
work=$(mktemp -d); export TMPDIR="$work"; trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-compile torch==2.15.0 numpy==2.4.6
cat >"$work/program.py" <<'END'
import tempfile

import torch
import torch.distributed.checkpoint as dcp

folder = tempfile.mkdtemp()
dcp.save({"n": torch.tensor([1, 300]), "x": torch.tensor([0.5, 70000.0])}, checkpoint_id=folder)
for name, into in (
    ("n", torch.zeros(2, dtype=torch.uint8)),
    ("x", torch.zeros(2, dtype=torch.float16)),
    ("x", torch.zeros(2, dtype=torch.int32)),
    ("x", torch.zeros(3)),
):
    state = {name: into}
    try:
        dcp.load(state, checkpoint_id=folder)
        seen = state[name].tolist()
    except dcp.CheckpointException:
        seen = "refused"
    print(name, "as", into.dtype, tuple(into.shape), "->", seen)
END
seen=$(timeout --foreground 240 "$work/venv/bin/python" "$work/program.py" 2>"$work/errors") ||
  { cat "$work/errors"; exit 1; }
echo "$seen"
[ "$seen" = "n as torch.uint8 (2,) -> [1, 44]
x as torch.float16 (2,) -> [0.5, inf]
x as torch.int32 (2,) -> [0, 70000]
x as torch.float32 (3,) -> refused" ] || { echo "this has changed"; exit 1; }
