"""One-sided windows of tensors: what is put is there after its signal, wherever the ranks are."""

import datetime
import os
import threading
import time

import pytest
import torch
import torch.distributed as dist
from data import check, tensor
from ranks import OLDEST, run

pytestmark = pytest.mark.skipif(OLDEST, reason="this PyTorch does not have them")
ERROR = dist.DistBackendError
CPU = torch.device("cpu")


def memory(shape, dtype=torch.float32, group=None):
    """A tensor of ones in window memory."""
    backend = (group or dist.group.WORLD)._get_backend(CPU)
    count = int(torch.Size(shape).numel())
    return backend.allocate_tensor(count, dtype=dtype, device=CPU).view(shape).fill_(1)


def body_puts(rank, world, hosts, async_op):
    """Rounds of puts to all ranks at once: each writes its part of everybody's tensor, of its own size."""
    if hosts:
        os.environ["TUTTI_HOST_ID"] = f"host {rank}"
    group = dist.new_group()
    for count, dtype in ((3, torch.float32), (20_000, torch.int16), (70_000, torch.complex64)):
        mine = memory((world * count + rank,), dtype, group)  # a rank's own size
        source = memory((count,), dtype, group)
        window = dist._new_window(mine, group=group)
        for i in range(3):
            for to in range(world):
                source.copy_(tensor(rank + to + i, (count,), dtype))
                work = window.put(source, to, rank * count + to, async_op)
                if async_op:
                    work.wait()
                source.zero_()  # it may be written again
            for at in range(world):
                work = window.wait_signal((rank + at) % world, async_op)
                if async_op:
                    work.wait()
            for by in range(world):
                got = mine[by * count + rank : (by + 1) * count + rank]
                check(got, tensor(by + rank + i, (count,), dtype), f"{dtype} of rank {by}, round {i}")
            assert (mine[:rank] == 1).all()  # nobody has written there
            dist.barrier(group=group)
        window.tensor_deregister()


@pytest.mark.parametrize("async_op", [False, True])
@pytest.mark.parametrize("hosts", [False, True])
def test_puts(hosts, async_op):
    run(3, body_puts, hosts, async_op)


def body_signals(rank, world):
    """Each wait takes one signal, of that rank alone; more remain. A put gives one, too."""
    window = dist._new_window(memory((4,)))
    if rank == 0:
        for _ in range(3):
            window.signal(1, False)
        window.put(memory((2,)), 1, 1, False)
    elif rank == 1:
        for _ in range(4):
            window.wait_signal(0, False)
        another = window.wait_signal(0, True)
        time.sleep(0.1)
        assert not another.is_completed()
        dist.send(torch.ones(1), 0)
        another.wait()
        assert another.is_success()
    if rank == 0:
        dist.recv(torch.ones(1), 1)
        window.signal(1, True).wait()
    dist.barrier()
    window.signal(rank, False)  # to itself
    window.wait_signal(rank, False)
    window.tensor_deregister()


def test_signals():
    run(3, body_signals)


def body_mapped(rank, world):
    """The tensors of ranks of this host are tensors here, in their shapes; those of others are not."""
    group = dist.new_group()
    mine = memory((rank + 1, 2), torch.int32, group)
    window = dist._new_window(mine, group=group)
    for r in range(world):
        view = window.map_remote_tensor(r)
        assert view.shape == (r + 1, 2) and view.dtype == torch.int32
        assert window.get_attr(r).access_type == torch._C._distributed_c10d.WindowAccessType.UNIFIED
    window.map_remote_tensor((rank + 1) % world)[0, 1] = rank + 40
    dist.barrier(group=group)
    assert mine[0, 1] == (rank - 1) % world + 40 and mine[0, 0] == 1
    dist.barrier(group=group)
    window.tensor_deregister()
    other = memory((5,), torch.float64, group)  # the same window, of another tensor
    window.tensor_register(other)
    assert window.map_remote_tensor(1 - rank).shape == (5,)
    window.tensor_deregister()

    os.environ["TUTTI_HOST_ID"] = f"host {rank}"
    group = dist.new_group()
    window = dist._new_window(memory((5,), group=group), group=group)
    assert window.map_remote_tensor(rank).shape == (5,)
    with pytest.raises(RuntimeError, match="another host; use put"):
        window.map_remote_tensor(1 - rank)
    assert window.get_attr(1 - rank).access_type == torch._C._distributed_c10d.WindowAccessType.SEPARATE
    window.tensor_deregister()


def test_mapped():
    run(2, body_mapped)


def body_refused(rank, world):
    """Wrong arguments are refused by the rank that has them, alone."""
    window = dist._new_window()
    mine = memory((16,))
    for call in (
        lambda: window.put(mine, 0, 0, False),
        lambda: window.signal(0, False),
        lambda: window.wait_signal(0, False),
        lambda: window.map_remote_tensor(0),
        lambda: window.tensor_deregister(),
    ):
        with pytest.raises(RuntimeError, match="not registered"):
            call()
    for wrong, why in ((torch.ones(4), "mempool"), (memory((4, 4)).t(), "contiguous")):
        with pytest.raises(RuntimeError, match=why):
            window.tensor_register(wrong)
    window.tensor_register(mine)
    if rank == 1:
        for args, why in (
            ((mine[:1], 2, 0), "no rank 2 of 2"),
            ((mine[:1], -1, 0), "no rank -1"),
            ((mine[::2], 0, 0), "contiguous"),
            ((mine[:1].view(torch.int32), 0, 0), "does not match"),
            ((mine[:1], 0, -1), "nonnegative"),
            ((mine[:2], 0, 15), "2 elements at offset 15 exceeds the window size of rank 0, 16"),
            ((mine[:1], 0, 2**63 - 1), "exceeds the window size"),
            ((torch.ones(1), 0, 0), "not in a registered mempool"),
        ):
            with pytest.raises(RuntimeError, match=why):
                window.put(*args, False)
        with pytest.raises(RuntimeError, match="double registration"):
            window.tensor_register(mine)
    dist.barrier()
    assert (mine == 1).all()
    window.tensor_deregister()


def test_refused():
    run(2, body_refused)


def body_lost(rank, world):
    """Who waits for a signal of a rank that dies hears of it; a wait has a timeout of its own."""
    group = dist.new_group()
    window = dist._new_window(memory((4,), group=group), group=group)
    late = dist._new_window(memory((4,)))
    if rank == 0:
        options = torch._C._distributed_c10d.WaitSignalOptions()
        options.timeout = datetime.timedelta(milliseconds=300)
        with pytest.raises(ERROR, match="imed out"):
            late.wait_signal(1, False, options)
        dist.distributed_c10d._get_default_store().set("late", "")
        begun = time.monotonic()
        with pytest.raises(ERROR, match="rank 1"):
            window.wait_signal(1, False)
        assert time.monotonic() - begun < 10
    else:
        dist.distributed_c10d._get_default_store().get("late")
        time.sleep(0.3)
        os.kill(os.getpid(), 9)


def test_lost():
    run(2, body_lost, dies=[1], ends=False)


def body_threads(rank, world):
    """A thread that waits for a signal holds up no other thread of the group."""
    window = dist._new_window(memory((4,)))
    source = memory((1,)).fill_(rank + 7)
    waits = threading.Thread(target=window.wait_signal, args=(1 - rank, False))
    waits.start()
    time.sleep(0.2)
    dist.all_reduce(torch.ones(10))
    window.put(source, 1 - rank, 2, False)
    waits.join(20)
    assert not waits.is_alive()
    assert window.map_remote_tensor(rank)[2] == 8 - rank
    dist.barrier()
    window.tensor_deregister()


def test_threads():
    run(2, body_threads)
