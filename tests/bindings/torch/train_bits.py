"""train_bits.py TUTTI TRAIN ON_HOSTS: `train --invariant` learns the same weights, bit for bit, in every memory
and whatever ranks share a host; and without it, by a ring, others."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

TUTTI, TRAIN, ON_HOSTS = sys.argv[1:]
MIX = ["--shard", "fsdp", "--steps", "3", "--every", "3", "--width", "32", "--layers", "1", "--text", __file__]


def tensors(file):
    """By name, of a safetensors file; its checksums are also over what tells runs apart."""
    data = file.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    places = json.loads(data[8:begin])
    return {
        name: data[begin + place["data_offsets"][0] : begin + place["data_offsets"][1]]
        for name, place in places.items()
        if name not in ("__metadata__", "tutti.checksums")
    }


def weights(*options, hosts=False, **settings):
    """What each rank has after three steps: parameters, and the optimizer's state."""
    with tempfile.TemporaryDirectory() as folder:
        command = [TUTTI, "run", "-n", "4", *([ON_HOSTS, "2"] if hosts else []), TRAIN, *MIX, *options]
        subprocess.run([*command, "--save", folder], check=True, timeout=60, env=os.environ | settings)
        files = sorted(pathlib.Path(folder).glob("*/rank-*"))
        assert len(files) == 4, files
        return [tensors(file) for file in files]


invariant = weights("--invariant")
assert all(invariant)
assert weights("--invariant", TUTTI_WINDOWS="0", TUTTI_CMA="0", TUTTI_SLOT_BYTES="2K") == invariant
assert weights("--invariant", hosts=True) == invariant
assert weights(TUTTI_INVARIANT="1", hosts=True) == invariant
assert weights(TUTTI_ALGORITHM="ring") != invariant
print("the same bits")
