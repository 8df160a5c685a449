"""What a wait costs: a rank that waits for a late one leaves its core to others after a few milliseconds, and an
idle group uses none. A child of fork() does not wait at all."""

import os
import time

import pytest
import torch
import torch.distributed as dist
from ranks import OLDEST, run

LATE = 0.5  # seconds
MOST = 0.2  # of them, on a core; 0.02 to 0.05 where other programs want the cores, too

WAITS = {
    "all_reduce": lambda late: dist.all_reduce(torch.ones(3)),
    "all_reduce of much": lambda late: dist.all_reduce(torch.ones(3_000_000)),
    "started all_reduce": lambda late: dist.all_reduce(torch.ones(3), async_op=True).wait(),
    "future": lambda late: dist.all_reduce(torch.ones(3), async_op=True).get_future().wait(),
    "barrier": lambda late: dist.barrier(),
    "monitored_barrier": lambda late: dist.monitored_barrier(),
    "send, recv": lambda late: dist.send(torch.ones(3), 0) if late else dist.recv(torch.ones(3), 1),
    "from any": lambda late: dist.send(torch.ones(3), 0) if late else dist.recv(torch.ones(3)),
}
if OLDEST:  # for gloo alone there
    del WAITS["monitored_barrier"]
OVER_HOSTS = ["all_reduce", "started all_reduce", "send, recv"]


def body_late(rank, world, call):
    WAITS[call](late=rank == 1)
    dist.barrier()
    if rank == 1:
        time.sleep(LATE)
        WAITS[call](late=True)
        return None
    wall, core = time.monotonic(), time.process_time()
    WAITS[call](late=False)
    wall, core = time.monotonic() - wall, time.process_time() - core
    assert wall > LATE / 2, "it has not waited"
    return core


@pytest.mark.parametrize("call, hosts", [*((c, False) for c in WAITS), *((c, True) for c in OVER_HOSTS)])
def test_a_wait_for_a_late_rank_leaves_the_core(call, hosts):
    core = run(2, body_late, call, hosts=hosts)[0]
    assert core < MOST * LATE, core


def body_idle(rank, world):
    """Also once the engine has a thread."""
    dist.all_reduce(torch.ones(3), async_op=True).wait()
    dist.all_reduce(torch.ones(3))
    dist.barrier()
    core = time.process_time()
    time.sleep(LATE)
    return time.process_time() - core


def test_an_idle_group_uses_no_core():
    used = run(2, body_idle)
    assert max(used) < 0.01 * LATE


def body_child(rank, world):
    """How often a child of fork(), which has none of its parent's threads, is told so."""
    x, elsewhere = torch.ones(4), torch.ones(1)
    dist.all_reduce(elsewhere, async_op=True).get_future().wait()
    work = dist.all_reduce(x, async_op=True) if rank == 0 else None
    child = os.fork()
    if child == 0:
        told = 0
        for call in ([work.wait] if work else []) + [lambda: dist.all_reduce(elsewhere), dist.barrier]:
            try:
                call()
            except RuntimeError as error:
                told += "after fork() only the parent can use it" in str(error)
        os._exit(told)
    told = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    work.wait() if work else dist.all_reduce(x)
    assert x.tolist() == [2, 2, 2, 2]
    return told


def test_a_child_of_fork_is_told_and_disturbs_nobody():
    assert run(2, body_child) == [3, 2]
