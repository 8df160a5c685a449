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


def test_a_server_gets_a_trainers_weights(tmp_path):
    def start(ranks, port, what, versions):
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", ranks, "--master-port", port]
        return subprocess.Popen(
            [*command, EXAMPLES / "fsdp2_weights.py", what, tmp_path / "meet", versions],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    jobs = [start("3", "29611", "train", "30"), start("2", "29612", "serve", "30")]
    try:
        trainer, server = (job.communicate(timeout=200)[0] for job in jobs)
    finally:
        for job in jobs:
            job.kill()
            job.wait()
    assert [job.returncode for job in jobs] == [0, 0], trainer + server
    losses = [float(loss) for loss in re.findall(r"serves version \d+: loss ([0-9.]+)", server)]
    assert len(losses) == 30
    assert losses[-1] < min(losses[0], 0.01), losses  # the first server's version may be a good one already
