#!/bin/sh
# Packages: torch 2.15.0, numpy 2.4.6.
# Guess: torch's distributed checkpoint loads a list as it loads a dictionary: what the program's list has is
#   filled, what it has more than the file is an error, and what the file has more is left out.
# Seen: that holds for lists of tensors. A list of plain numbers is replaced whole: a list of 3 in the file turns
#   the program's 2 into 3, and 2 turn its 3 into 2, without a word.
set -eu
work=$(mktemp -d); export TMPDIR="$work"; trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-compile torch==2.15.0 numpy==2.4.6
cat >"$work/program.py" <<'END'
import sys

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException


def load(kind, saved, wanted):
    folder = f"{sys.argv[1]}/{kind.__name__}{saved}{wanted}"
    dcp.save({"list": [kind(i + 1) for i in range(saved)]}, checkpoint_id=folder, no_dist=True)
    state = {"list": [kind(0) for _ in range(wanted)]}
    try:
        dcp.load(state, checkpoint_id=folder, no_dist=True)
    except CheckpointException:
        return "an error"
    return [int(value) for value in state["list"]]


for kind in (int, torch.tensor):
    print(kind.__name__, "3 into 2:", load(kind, 3, 2), "2 into 3:", load(kind, 2, 3))
END
seen=$(timeout --foreground 120 "$work/venv/bin/python" "$work/program.py" "$work" 2>"$work/errors") ||
  { cat "$work/errors"; exit 1; }
echo "$seen"
[ "$seen" = "int 3 into 2: [1, 2, 3] 2 into 3: [1, 2]
tensor 3 into 2: [1, 2] 2 into 3: an error" ] || { echo "this has changed"; exit 1; }
