"""The type hints, as a type checker sees them."""

import pathlib
import subprocess
import sys

import pytest

import tutti

pytest.importorskip("mypy", reason="mypy is not installed")

USE = """
import numpy as np
import tutti

async def run(comm: tutti.Communicator) -> float:
    x = tutti.empty((2, 3), np.float16)
    comm.all_reduce(x, op=tutti.pre_multiplied_sum(0.5))
    gathered: np.ndarray = comm.all_gather(x)
    half = comm.split(color=comm.rank % 2)
    if half is not None:
        half.barrier()
    with tutti.group():
        comm.send(x, peer=0)
    await comm.all_reduce(x, async_op=True)
    for thread in tutti.Communicator.create_local(2, timeout=3.0):
        thread.destroy()
    with tutti.init() as job:
        return float(gathered[0]) + job.size
"""
WRONG = {
    "comm.all_gather(x, None, True)": "Too many positional arguments",
    "comm.broadcast(x, root='zero')": 'incompatible type "str"; expected "int"',
    "comm.all_reduce(x, asynch=True)": 'Unexpected keyword argument "asynch"',
    "comm.split(0).rank": 'Item "None"',
    "tutti.allreduce(x)": 'has no attribute "allreduce"',
}


def errors_of(folder: pathlib.Path, source: str) -> str:
    program = folder / "program.py"
    program.write_text(source)
    package = pathlib.Path(tutti.__file__).parent.parent
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", folder / "cache", program],
        env={"MYPYPATH": str(package), "PYTHONPATH": str(package)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    ours = [line for line in checked.stdout.splitlines() if line.startswith(str(program))]
    return "\n".join(ours) or checked.stderr


def test_a_program_with_hints_is_accepted(tmp_path):
    assert errors_of(tmp_path, USE) == ""


def test_wrong_lines_are_noticed(tmp_path):
    body = "".join(f"    {line}\n" for line in WRONG)
    head = "import tutti\n\ndef run(comm: tutti.Communicator, x: bytearray) -> None:\n"
    errors = errors_of(tmp_path, head + body).splitlines()
    for number, (line, expected) in enumerate(WRONG.items(), start=1 + head.count("\n")):
        assert any(f":{number}: error: " in e and expected in e for e in errors), line
