"""The programs of examples/python that are PyTorch's, as a user starts them."""

import pathlib
import re
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).parents[4] / "examples/python"


@pytest.mark.parametrize("name", ["ddp", "fsdp2"])
def test_the_loss_falls(name):
    start = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3"]
    run = subprocess.run(
        [*start, EXAMPLES / f"{name}.py"], capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr
    losses = [float(loss) for loss in re.findall(r"loss ([0-9.]+)", run.stdout)]
    assert len(losses) == 4
    assert losses[0] > 0.1 and losses[-1] < 0.02
