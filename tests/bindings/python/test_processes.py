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
import tutti

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples" / "python"


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


def test_an_elastic_job_replaces_the_ranks_that_die():
    command = [sys.executable, "-m", "tutti", "run", "--elastic", "1:3", "--timeout", "60"]
    program = [sys.executable, str(EXAMPLES / "elastic.py"), "100", "60"]
    job = subprocess.run(command + program, capture_output=True, text=True, timeout=90)
    assert job.returncode == 0, job.stderr
    assert "3 ranks go on from step 0" in job.stdout, job.stdout
    assert "step 80 on " in job.stdout or "go on from step " in job.stdout.split("step 60")[-1]


def test_an_elastic_job_needs_its_launcher():
    with pytest.raises(tutti.InvalidUsage, match="tutti run --elastic"):
        tutti.ElasticJob()


WAITS = [
    "comm.all_reduce(x)",
    "comm.barrier()",
    "comm.recv(x, 1 - comm.rank)",
    "comm.all_reduce(x, async_op=True).wait()",
    "comm.all_reduce(x, async_op=True); comm.all_gather(x)",
    "asyncio.run(awaits(comm.all_reduce(x, async_op=True)))",
    "in_a_group(lambda: comm.all_reduce(x))",
    "comm.split(0)",
    "comm.shrink([])",
]


@pytest.mark.parametrize("call", WAITS)
def test_ctrl_c_ends_a_wait(job, call):
    j = job(
        2,
        f"""
        import asyncio
        async def awaits(future):
            await future
        def in_a_group(call):
            with tutti.group():
                call()
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
            except (tutti.Aborted, tutti.PeerLost) as error:
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


def test_ctrl_c_ends_the_wait_of_one_who_leaves(job):
    j = job(
        2,
        """
        comm = tutti.init()
        x = np.ones(10)
        comm.barrier()
        says("ready")
        future = comm.recv(x, 1 - comm.rank, async_op=True)
        try:
            if comm.rank == 0:
                comm.destroy()
            else:
                time.sleep(2)
                comm.all_reduce(x)
        except KeyboardInterrupt:
            os.write(1, b'SAYS [0, "interrupted"]\\n')  # it has left
        except tutti.Aborted as error:
            says(str(error))
        """,
    )
    ready = j.next(2)
    time.sleep(0.3)
    begun = time.monotonic()
    os.kill(ready[0][1], signal.SIGINT)
    assert j.next(1) == [[0, "interrupted"]]
    assert time.monotonic() - begun < 1.5
    assert "rank 0 exits, or was interrupted, while it waits for what it has started" in j.next(1)[0][2]
    assert j.finish()[0] == 0


def test_an_exception_that_ends_the_block_is_told_to_all(job):
    j = job(
        3,
        """
        with tutti.init() as comm:
            comm.barrier()
            try:
                if comm.rank == 1:
                    comm.recv(np.ones(3), 0, async_op=True)
                    time.sleep(0.5)
                    raise ValueError("of the user")
                comm.all_reduce(np.ones(10))
            except tutti.Aborted as error:
                says(error.rank, str(error))
        """,
        launcher=[sys.executable, "-m", "tutti", "run", "--keep-going", "-n", "3"],
    )
    for said in j.next(2):
        assert said[2:] == [1, "rank 1 aborted the communicator: ValueError('of the user')"]
    assert j.finish()[0] != 0


def test_several_communicators_and_threads(job):
    """Each thread has a communicator of its own, over the same processes."""
    j = job(
        2,
        """
        import threading
        comm = tutti.init()
        each = [comm.split(0) for _ in range(4)]
        sums = [0] * 4
        def use(i):
            for k in range(50):
                sums[i] += int(each[i].all_reduce(np.array([k + i * comm.rank]))[0])
        threads = [threading.Thread(target=use, args=(i,)) for i in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        [c.destroy() for c in reversed(each)]
        says(sums, int(comm.all_reduce(np.array([1]))[0]))
        """,
    )
    assert [s[2:] for s in j.next(2)] == [[[2450, 2500, 2550, 2600], 2]] * 2
    assert j.finish()[0] == 0


def test_a_child_of_fork_is_told(job):
    j = job(
        2,
        """
        import asyncio
        comm = tutti.init()
        child = os.fork()
        if child == 0:
            try:
                comm.barrier()
            except tutti.InvalidUsage as error:
                os._exit(7 if "child" in str(error) else 8)
            os._exit(9)
        says(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        comm.barrier()

        future = comm.all_reduce(np.ones(1), async_op=True) if comm.rank == 0 else None
        child = os.fork()  # while it is running
        if child == 0:
            told = 0
            async def wait():
                await future
            for f in () if future is None else (future.wait, lambda: future.wait(30), lambda: asyncio.run(wait())):
                try:
                    f()
                except tutti.InvalidUsage as error:
                    told += "child" in str(error)
            os._exit(told)
        says(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        if future is None:
            comm.all_reduce(np.ones(1))
        else:
            assert future.wait() == [2]
        """,
    )
    assert [s[2] for s in j.next(2)] == [7, 7]
    assert [s[2] for s in j.next(2)] == [3, 0]
    assert j.finish()[0] == 0


def test_a_child_of_fork_leaves_while_another_thread_of_its_parent_is_in_a_call(job):
    j = job(
        2,
        """
        import threading, time
        comm = tutti.init()
        if comm.rank == 0:
            caller = threading.Thread(target=lambda: says(int(comm.all_reduce(np.array([1]))[0])))
            caller.start()
            time.sleep(0.3)  # it waits for rank 1
            child = os.fork()
            if child == 0:
                try:
                    comm.barrier()
                except tutti.InvalidUsage as error:
                    told = "child" in str(error)
                comm.destroy()
                os._exit(7 if told else 8)
            says(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            comm.check()
            says(3)
            caller.join()
        else:
            time.sleep(1)
            says(int(comm.all_reduce(np.array([1]))[0]))
        """,
    )
    assert sorted(s[2] for s in j.next(4)) == [2, 2, 3, 7]
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


def test_a_server_takes_the_versions_of_a_trainer_that_was_started_apart(tmp_path):
    def job(ranks, what):
        command = [sys.executable, "-m", "tutti", "run", "-n", str(ranks), sys.executable]
        command += [EXAMPLES / "weights.py", what, tmp_path / "meet", "3"]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    jobs = {"train": job(4, "train"), "serve": job(2, "serve")}
    said = {what: process.communicate(timeout=60)[0] for what, process in jobs.items()}
    assert said["serve"].count("serves version") == 6, said
    assert ": 2 ranks have it" in said["train"], said
    assert [process.returncode for process in jobs.values()] == [0, 0], said


# Not those that have tests of their own: the elastic one, two jobs', PyTorch's (torch/c10d), and vLLM's (torch/frameworks).
OTHERS = {"elastic.py", "weights.py", "ddp.py", "fsdp2.py", "fsdp2_weights.py", "batch_invariant.py", "serve.py"}


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("example", sorted({p.name for p in EXAMPLES.glob("*.py")} - OTHERS))
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
