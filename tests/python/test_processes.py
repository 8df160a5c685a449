"""Ranks as processes: the launcher, a killed rank, Ctrl-C, the examples."""

import importlib.util
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python"


def test_collectives(job):
    j = job(
        3,
        """
        with tutti.init() as comm:
            x = comm.all_reduce(np.full(100_000, comm.rank + 1.0))
            y = comm.all_gather(tutti.empty(3) + comm.rank)
            says(float(x[-1]), y[:, 0].tolist())
        """,
    )
    assert [s[2:] for s in j.next(3)] == [[6.0, [0, 1, 2]]] * 3
    assert j.finish()[0] == 0


def test_a_killed_rank_is_named_and_the_others_go_on(job):
    j = job(
        3,
        """
        comm = tutti.init()
        says("ready")
        x = np.ones(1000)
        try:
            while True:
                comm.all_reduce(x, op="max")
        except tutti.PeerLost as error:
            rest = comm.shrink([error.rank])
            says(error.rank, rest.all_reduce(np.array([comm.rank])).tolist())
        """,
        launcher=[sys.executable, "-m", "tutti", "run", "--keep-going", "-n", "3"],
    )
    ready = j.next(3)
    os.kill(ready[1][1], signal.SIGKILL)
    assert [s[2:] for s in j.next(2)] == [[1, [2]]] * 2


@pytest.mark.parametrize("call", ["comm.all_reduce(x)", "comm.all_reduce(x, async_op=True).wait()",
                                  "comm.split(0)"])
def test_ctrl_c_ends_a_wait(job, call):
    j = job(
        2,
        f"""
        comm = tutti.init()
        x = np.ones(10)
        comm.barrier()
        says("ready")
        if comm.rank == 0:
            try:
                {call}
            except KeyboardInterrupt:
                says("interrupted")
                comm.abort("Ctrl-C")
        else:
            time.sleep(2)
            try:
                {call}
            except tutti.Aborted as error:
                says(error.rank)
        """,
    )
    ready = j.next(2)
    time.sleep(0.3)
    begun = time.monotonic()
    os.kill(ready[0][1], signal.SIGINT)
    assert j.next(1)[0][2] == "interrupted"
    assert time.monotonic() - begun < 1
    assert j.next(1)[0][2] == 0
    assert j.finish()[0] == 0


def test_ctrl_c_while_ranks_meet():
    source = "import tutti; tutti.Communicator.create(tutti.make_unique_id(), 0, 2)"
    process = subprocess.Popen([sys.executable, "-c", source], stderr=subprocess.PIPE, text=True)
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    _, text = process.communicate(timeout=5)
    assert "KeyboardInterrupt" in text


LAUNCHERS = {
    "tutti run": [sys.executable, "-m", "tutti", "run", "-n", "2", sys.executable],
    "mpirun": ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", sys.executable],
    "mpiexec.hydra": ["mpiexec.hydra", "-n", "2", sys.executable],
    "torchrun": [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"],
}


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("example", sorted(p.name for p in EXAMPLES.glob("*.py")))
def test_examples(example, launcher, tmp_path):
    command = LAUNCHERS[launcher]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    if launcher == "torchrun" and importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    # Two jobs of Open MPI that start at once can fail on the directory that both make for their user.
    environment = os.environ | {"OMPI_MCA_orte_tmpdir_base": str(tmp_path)}
    run = subprocess.run(
        [*command, EXAMPLES / example], capture_output=True, text=True, timeout=60, env=environment
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout


def test_the_command_is_there():
    run = subprocess.run([sys.executable, "-m", "tutti", "--help"], capture_output=True, text=True)
    assert run.returncode == 0 and "plan" in run.stdout
