"""What goes wrong: everybody hears of it, soon, as a DistBackendError that names the right rank."""

import datetime
import os
import signal
import threading
import time

import pytest
import torch
import torch.distributed as dist
from ranks import OLDEST, run

ERROR = dist.DistBackendError


def calls(world):
    """Every collective, as a function without arguments; messages go around."""

    def x(n=1000):
        return torch.ones(n)

    def ring():
        rank = dist.get_rank()
        work = dist.isend(x(100000), (rank + 1) % world)
        dist.recv(x(100000), (rank - 1) % world)
        work.wait()

    return {
        "all_reduce": lambda: dist.all_reduce(x()),
        "all_reduce, large": lambda: dist.all_reduce(x(1 << 20)),
        "all_reduce, async": lambda: dist.all_reduce(x(), async_op=True).wait(),
        "all_reduce, future": lambda: dist.all_reduce(x(), async_op=True).get_future().wait(),
        "broadcast": lambda: [dist.broadcast(x(), r) for r in range(world)],
        "reduce": lambda: [dist.reduce(x(), r) for r in range(world)],
        "all_gather": lambda: dist.all_gather([x() for _ in range(world)], x()),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(x(1000 * world), x()),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(x(), x(1000 * world)),
        "all_to_all_single": lambda: dist.all_to_all_single(x(1000 * world), x(1000 * world)),
        "barrier": lambda: dist.barrier(),
        "messages": ring,
    }


def until_it_fails(call, seconds=30):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        call()
    raise AssertionError("nothing failed")


def body_killed(rank, world, name, victim, stamp):
    call = calls(world)[name]
    call()
    if rank == victim:

        def die():
            with open(stamp, "w") as f:
                f.write(str(time.time()))
            os.kill(os.getpid(), signal.SIGKILL)

        threading.Timer(0.2, die).start()
    with pytest.raises((ERROR, RuntimeError)) as caught:
        until_it_fails(call)
    now = time.time()
    assert isinstance(caught.value, ERROR) or "future" in name, type(caught.value)
    assert f"rank {victim} " in str(caught.value), caught.value
    with open(stamp) as f:
        late = now - float(f.read())
    dist.destroy_process_group()
    return late


@pytest.mark.parametrize("name", calls(2))
def test_killed(tmp_path, name):
    for world in (2, 3):
        victim = world - 1
        late = run(world, body_killed, name, victim, str(tmp_path / f"{world}"), dies=[victim])
        assert max(t for t in late if t is not None) < 5, late  # 1 s on a machine that is not busy


def body_stopped(rank, world, name, victim):
    call = calls(world)[name]
    call()
    if rank == victim:
        os.kill(os.getpid(), signal.SIGSTOP)
    with pytest.raises((ERROR, RuntimeError), match="timeout of") as caught:
        until_it_fails(call)
    assert f"rank {victim}" in str(caught.value), caught.value
    dist.destroy_process_group()


@pytest.mark.parametrize("name", ["all_reduce", "all_reduce, async", "barrier", "messages"])
def test_stopped(name):
    run(3, body_stopped, name, 1, timeout=1, dies=[1])


def body_raises(rank, world):
    for _ in range(10):
        dist.all_reduce(torch.ones(10))
    if rank == 0:
        raise KeyError("of the user")
    until_it_fails(lambda: dist.all_reduce(torch.ones(10)))


def test_exception_in_one_rank():
    with pytest.raises(AssertionError) as caught:
        run(3, body_raises)
    text = str(caught.value)
    assert "KeyError" in text and text.count("DistBackendError: Connection closed by peer: rank 0 ") == 2, text


def body_mismatch(rank, world, what):
    dist.all_reduce(torch.ones(3))
    wrong = rank == 1
    with pytest.raises((ERROR, RuntimeError)) as caught:
        if what == "count":
            dist.all_reduce(torch.ones(101 if wrong else 100))
        elif what == "type":
            dist.all_reduce(torch.ones(100, dtype=torch.int32 if wrong else torch.float32))
        elif what == "operator":
            dist.all_reduce(torch.ones(100), dist.ReduceOp.MAX if wrong else dist.ReduceOp.SUM)
        elif what == "order":
            if wrong:
                dist.broadcast(torch.ones(100), 0)
            dist.all_reduce(torch.ones(100))
        elif what == "root":
            dist.broadcast(torch.ones(100), 1 if wrong else 0)
        elif what == "async":
            dist.all_reduce(torch.ones(101 if wrong else 100), async_op=True).wait()
        elif what == "message":
            if rank == 0:
                dist.send(torch.ones(5), 1)
            if wrong:
                dist.recv(torch.ones(6), 0)
        dist.barrier()
    return str(caught.value)


@pytest.mark.parametrize("what", ["count", "type", "operator", "order", "root", "async", "message"])
def test_mismatch(what):
    for said in run(2, body_mismatch, what, timeout=20, ends=False):
        assert "rank 0" in said and "rank 1" in said, said


MOVED = {"gather": lambda x: dist.all_gather_into_tensor(torch.empty(2 * len(x), dtype=x.dtype), x)}
ALIKE = {
    "bool, uint8": (MOVED["gather"], torch.bool, torch.uint8),
    "int16, uint16": (MOVED["gather"], torch.int16, torch.uint16),
    "int16, float16": (MOVED["gather"], torch.int16, torch.float16),
    "float8": (MOVED["gather"], torch.float8_e4m3fnuz, torch.float8_e5m2fnuz),
    "int16, int32, summed": (dist.all_reduce, torch.int16, torch.int32),
    "bool, uint8, the largest": (lambda x: dist.all_reduce(x, dist.ReduceOp.MAX), torch.bool, torch.uint8),
}


def body_alike(rank, world, name):
    call, mine, theirs = ALIKE[name]
    with pytest.raises(ERROR, match="calls do not match") as caught:
        call(torch.ones(8).to(theirs if rank else mine))
        dist.barrier()
    return str(caught.value)


@pytest.mark.parametrize("name", ALIKE)
def test_types_that_are_moved_alike(name):
    for said in run(2, body_alike, name, timeout=20, ends=False):
        assert "rank 0" in said and "rank 1" in said and "label" not in said, said


def body_operators(rank, world):
    """Both are gathered, and folded by each rank."""
    with pytest.raises(ERROR, match="calls do not match") as caught:
        dist.all_reduce(torch.ones(8, dtype=torch.int32), dist.ReduceOp.BOR if rank else dist.ReduceOp.BAND)
        dist.barrier()
    assert "BAND" in str(caught.value) and "BOR" in str(caught.value)


def test_operators_that_are_gathered_alike():
    run(2, body_operators, timeout=20, ends=False)


def body_odd_one(rank, world, victim):
    if rank == victim:
        time.sleep(0.3)
    with pytest.raises(ERROR) as caught:
        dist.all_reduce(torch.ones(101 if rank == victim else 100))
        dist.barrier()
    assert f"rank {victim} called" in str(caught.value) and "(as 2 others)" in str(caught.value)


@pytest.mark.parametrize("victim", [0, 2])
def test_most_ranks_called_the_other(victim):
    run(4, body_odd_one, victim, timeout=20, ends=False)


def body_deadlock(rank, world, name):
    """What cannot be found before the timeout ends it names both sides then."""
    dist.barrier()
    dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=2))
    with pytest.raises(ERROR, match="timeout of [24].0 s") as caught:
        if name == "recv":
            dist.recv(torch.ones(5), 0, tag=3) if rank else dist.all_reduce(torch.ones(7))
        elif name == "send":
            dist.send(torch.ones(1 << 22), 0) if rank else dist.all_reduce(torch.ones(7))
        elif name == "both receive":
            dist.recv(torch.ones(5), 1 - rank, tag=3)
        elif rank:
            dist.send(torch.ones(5), 0, tag=3)
            dist.barrier()
        else:
            dist.recv(torch.ones(5), 1, tag=4)
    return str(caught.value)


@pytest.mark.parametrize("name", ["recv", "send", "both receive", "tag"])
def test_deadlock(name):
    # The oldest PyTorch tells no backend but its own of another timeout.
    zero, one = run(2, body_deadlock, name, timeout=4 if OLDEST else 20, ends=False)
    for said in (zero, one):
        assert "that rank is itself waiting in" in said and "rank 0" in said and "rank 1" in said, said
    if name in ("recv", "both receive"):
        assert "Rank 1 was to receive 20 bytes of Float with tag 3 from rank 0" in one, one
    if name == "tag":
        assert "with tag 4 from rank 1; what has come from rank 1 first has tag 3" in zero, zero


def body_timeout(rank, world):
    """Of one call, of one wait, and of a barrier that names who is missing."""
    group = dist.new_group()
    if rank == 0:
        with pytest.raises(ERROR, match="timeout of 0.3 s"):
            options = dist.AllreduceOptions()
            options.timeout = datetime.timedelta(seconds=0.3)
            options.asyncOp = False
            group.allreduce([torch.ones(1)], options)
        if OLDEST:
            return
        with pytest.raises(RuntimeError, match="Ranks 1, 2 failed to pass"):
            dist.monitored_barrier(timeout=datetime.timedelta(seconds=0.2), wait_all_ranks=True)
    else:
        time.sleep(1)


def test_timeout():
    run(3, body_timeout)


def body_abort(rank, world):
    group = dist.new_group()
    backend = group._get_backend(torch.device("cpu"))
    if rank == 0:
        threading.Timer(0.3, backend.abort).start()
    with pytest.raises(ERROR, match="rank 0 aborted"):
        while True:
            dist.all_reduce(torch.ones(1), group=group, async_op=rank == 1) if rank else time.sleep(0.5)
            dist.barrier(group=group)
    dist.all_reduce(torch.ones(1))  # another group does not mind


def test_abort():
    run(2, body_abort)


def pressed_soon():
    """Ctrl-C, as a terminal sends it."""
    threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT]).start()


def body_interrupted(rank, world, name):
    """A call that runs on the caller's thread cannot be completed without it: all hear of that."""
    group = dist.new_group()
    call = {
        "all_reduce": lambda: dist.all_reduce(torch.ones(10), group=group),
        "barrier": lambda: dist.barrier(group=group),
        "broadcast": lambda: dist.broadcast(torch.ones(1 << 20), 1, group=group),
    }[name]
    call()
    if rank == 0:
        pressed_soon()
        begun = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            call()
        assert time.monotonic() - begun < 10
    else:
        time.sleep(1)
        with pytest.raises(ERROR, match="rank 0 exits, or was interrupted"):
            call()
    dist.all_reduce(torch.ones(1))  # another group does not mind


@pytest.mark.parametrize("name", ["all_reduce", "barrier", "broadcast"])
def test_ctrl_c_in_a_call(name):
    run(2, body_interrupted, name)


def body_interrupted_wait(rank, world, name):
    """What has been started goes on when Ctrl-C ends a wait for it."""
    x = torch.full((10,), rank + 1.0)
    if rank == 1:
        time.sleep(3)
        if name == "recv":
            return dist.send(x, 0)
        return dist.all_reduce(x, async_op=True).wait()
    work = dist.irecv(x, 1) if name == "recv" else dist.all_reduce(x, async_op=True)
    pressed_soon()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        work.wait()
    assert time.monotonic() - begun < 2  # long before its end
    work.wait()
    assert x.tolist() == [2.0 if name == "recv" else 3.0] * 10


@pytest.mark.parametrize("name", ["recv", "all_reduce"])
def test_ctrl_c_in_a_wait(name):
    run(2, body_interrupted_wait, name)


def body_interrupted_barrier(rank, world):
    if rank == 0:
        pressed_soon()
        with pytest.raises(KeyboardInterrupt):
            dist.monitored_barrier()
    dist.all_reduce(torch.ones(1))
    if rank == 0:
        pressed_soon()
        with pytest.raises(KeyboardInterrupt):
            dist.new_group([0, 1])  # the ranks meet


@pytest.mark.skipif(OLDEST, reason="this PyTorch has it for gloo alone")
def test_ctrl_c_in_a_monitored_barrier():
    run(2, body_interrupted_barrier, ends=False)
