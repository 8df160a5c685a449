"""Groups: several at once, parts of them, device meshes, futures, memory, names, what is left."""

import datetime
import gc
import os
import threading
import time

import pytest
import torch
import torch.distributed as dist
from data import *
from ranks import OLDEST, WORLDS, run


def body_several(rank, world):
    groups = [dist.new_group() for _ in range(4)]
    pairs = [dist.new_group([r, (r + 1) % world]) for r in range(world)]
    works, tensors = [], []
    for i, g in enumerate(groups if rank % 2 else reversed(groups)):  # in different orders
        x = torch.full((1000,), float(rank + 1))
        works.append(dist.all_reduce(x, group=g, async_op=True))
        tensors.append(x)
    for w in works:
        w.wait()
    for x in tensors:
        check(x, torch.full((1000,), world * (world + 1) / 2), "all_reduce in several groups")
    for r, g in enumerate(pairs):
        if rank not in (r, (r + 1) % world):
            continue
        x = torch.tensor([rank])
        dist.broadcast(x, r, group=g)
        assert x.item() == r
    for g in groups[:2]:
        dist.destroy_process_group(g)
    x = torch.ones(1)
    dist.all_reduce(x, group=groups[2])
    assert x.item() == world


def body_split(rank, world):
    if OLDEST:
        return
    part = dist.split_group(split_ranks=[list(range(world))[: world - 1], [world - 1]])
    x = torch.tensor([rank + 1])
    dist.all_reduce(x, group=part)
    assert x.item() == (world * (world - 1) // 2 if rank < world - 1 else world), x


def body_mesh(rank, world):
    from torch.distributed.device_mesh import init_device_mesh

    shape = (2, 2) if world == 4 else (1, world)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("a", "b"))
    x = torch.tensor([rank + 1])
    dist.all_reduce(x, group=mesh.get_group("b"))
    row = rank // shape[1]
    assert x.item() == sum(r + 1 for r in range(row * shape[1], (row + 1) * shape[1]))


def body_backend(rank, world):
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert backend.name() == "tutti" and dist.get_backend() == "tutti", dist.get_backend()
    before = backend._get_sequence_number_for_group()
    dist.all_reduce(torch.ones(1))
    dist.all_reduce(torch.ones(1), async_op=True).wait()
    assert backend._get_sequence_number_for_group() == before + 2
    x = backend.allocate_tensor(1000, dtype=torch.float32, device=torch.device("cpu"))
    x.fill_(rank + 1)
    dist.all_reduce(x)
    check(x, torch.full((1000,), world * (world + 1) / 2), "window memory")
    again = x.data_ptr()
    del x
    # The engine may hold the last call's tensor a moment longer than the call.
    end = time.monotonic() + 5
    while backend.allocate_tensor(1000, dtype=torch.float32, device=torch.device("cpu")).data_ptr() != again:
        assert time.monotonic() < end, "the memory does not come back"
        time.sleep(0.01)


def body_future(rank, world):
    seen = []
    work = dist.all_reduce(torch.full((4,), float(rank)), async_op=True)

    def and_another(future):
        (x,) = future.wait()
        seen.append(threading.current_thread() is threading.main_thread())
        # It may even wait for another one.
        y = x + 1
        return dist.all_reduce(y, async_op=True).get_future().wait()[0]

    result = work.get_future().then(and_another).wait()
    check(result, torch.full((4,), world * (sum(range(world)) + 1.0)), "chained")
    assert work.is_completed() and work.is_success()
    x = torch.tensor([float(rank)])
    work = dist.broadcast(x, 0, async_op=True)
    del x
    (x,) = work.get_future().wait()
    assert x.item() == 0 and len(work.result()) == 1


def body_threads(rank, world):
    groups = [dist.new_group() for _ in range(3)]
    wrong = []

    def use(g):
        for i in range(100):
            x = torch.tensor([float(rank + i)])
            dist.all_reduce(x, group=g)
            if x.item() != sum(range(world)) + world * i:
                wrong.append((i, x))

    threads = [threading.Thread(target=use, args=(g,)) for g in groups]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong, wrong


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(
    "body", [body_several, body_split, body_mesh, body_backend, body_future, body_threads]
)
def test(world, body):
    run(world, body)


def body_shrunk(rank, world, dies):
    """The survivors of a death, or those that stay, go on."""
    victim = world - 2
    if dies and rank == victim:
        os.kill(os.getpid(), 9)
    if dies:
        with pytest.raises(dist.DistBackendError, match=f"rank {victim}"):
            while True:
                dist.all_reduce(torch.ones(1))
    elif rank == victim:
        return
    group = dist.distributed_c10d.shrink_group([victim])
    assert group.size() == world - 1 and dist.get_world_size() == world - 1
    old = [r for r in range(world) if r != victim]
    assert dist.get_rank() == old.index(rank)
    x = torch.tensor([rank + 1.0])
    dist.all_reduce(x)
    assert x.item() == sum(r + 1 for r in old)
    every = [torch.zeros(1) for _ in old]
    dist.all_gather(every, torch.tensor([float(rank)]))
    assert torch.cat(every).tolist() == old
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.skipif(OLDEST, reason="this PyTorch has it for NCCL alone")
@pytest.mark.parametrize("dies", [True, False])
@pytest.mark.parametrize("world", [3, 4])
def test_shrunk(world, dies):
    run(world, body_shrunk, dies, ends=False, dies=[world - 2] if dies else [])


def body_hosts(rank, world):
    """As if every rank were on a host of its own."""
    os.environ["TUTTI_HOST_ID"] = f"host {rank}"
    group = dist.new_group()
    for n in (3, 100_000):
        x = tensor(rank, (n,), torch.float32)
        dist.all_reduce(x, group=group)
        check(x, reduced(SUM, [tensor(r, (n,), torch.float32) for r in range(world)]), f"all_reduce of {n}")
    sent = dist.isend(torch.tensor([rank]), (rank + 1) % world, group=group, tag=7)
    x = torch.tensor([-1])
    dist.recv(x, (rank - 1) % world, group=group, tag=7)
    assert x.item() == (rank - 1) % world
    sent.wait()
    names = [None] * world
    dist.all_gather_object(names, f"rank {rank}", group=group)
    assert names == [f"rank {r}" for r in range(world)], names


@pytest.mark.parametrize("world", WORLDS)
def test_several_hosts(world):
    run(world, body_hosts)


def body_devices(rank, world):
    assert dist.group.WORLD._get_backend(torch.device("cpu")).name() == "tutti"
    dist.barrier()


def test_named_for_each_device():
    run(2, body_devices, backend="cpu:tutti,cuda:tutti")


def body_coalescing_ended(rank, world):
    """By an exception: what is coalesced afterwards is waited for."""
    right, left = (rank + 1) % world, (rank - 1) % world
    for _ in range(2):
        with pytest.raises(KeyError):
            with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True):
                dist.isend(torch.zeros(2), right)
                raise KeyError("of the user")
        dist.recv(torch.zeros(2), left)
    x, y = torch.full((1 << 20,), rank + 1.0), torch.zeros(1 << 20)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, x, right), dist.P2POp(dist.irecv, y, left)])
    assert works
    for w in works:
        w.wait()
    check(y, torch.full((1 << 20,), left + 1.0), "batch after an exception")


def test_coalescing_ended_by_an_exception():
    run(3, body_coalescing_ended)


def usage():
    gc.collect()
    with open("/proc/self/status") as f:
        status = dict(line.split(":", 1) for line in f)
    return (
        len(os.listdir("/proc/self/fd")),
        int(status["Threads"]),
        int(status["VmRSS"].split()[0]) // 1024,
    )


def body_leaks(rank, world, rounds):
    def once():
        g = dist.new_group()
        x = torch.ones(10)
        dist.all_reduce(x, group=g)
        dist.all_reduce(x, group=g, async_op=True).get_future().wait()
        if rank == 0:
            dist.send(x, 1, group=g)
        if rank == 1:
            dist.recv(x, 0, group=g)
        dist.barrier(group=g)
        dist.destroy_process_group(g)

    for _ in range(20):
        once()
    before = usage()
    for _ in range(rounds):
        once()
    after = usage()
    assert after[0] <= before[0] + 2, f"descriptors: {before[0]} before, {after[0]} after"
    assert after[1] <= before[1] + 1, f"threads: {before[1]} before, {after[1]} after"
    assert after[2] <= before[2] + 8, f"MB: {before[2]} before, {after[2]} after"


def test_leaks():
    run(2, body_leaks, int(os.environ.get("TUTTI_TEST_ROUNDS", "60")), limit=900)


def body_suspended(rank, world):
    """A suspended group has no memory for messages, and refuses operations until it is resumed."""
    group = dist.new_group()
    backend = group._get_backend(torch.device("cpu"))
    x = torch.full((100_000,), rank + 1.0)

    def pass_on():
        sent = dist.isend(x, (rank + 1) % world, group=group)
        dist.recv(torch.empty_like(x), (rank - 1) % world, group=group)
        sent.wait()

    dist.all_reduce(x, group=group)
    pass_on()
    before = backend.memory_stats()
    assert before["links"] > 0 and before["suspended"] == 0, before
    assert before["total"] == before["links"] + before["staging"] + before["control"], before
    backend.suspend()
    backend.suspend()  # which it is already
    during = backend.memory_stats()
    assert during["links"] == during["staging"] == 0 and during["suspended"] == 1, during
    with pytest.raises(RuntimeError, match="is suspended: call resume"):
        dist.all_reduce(x, group=group)
    with pytest.raises(RuntimeError, match="is suspended: call resume"):
        dist.isend(x, (rank + 1) % world, group=group)
    backend.resume()
    dist.all_reduce(x, group=group)
    check(x, torch.full((100_000,), world * world * (world + 1) / 2), "all_reduce after resume")
    pass_on()
    assert backend.memory_stats()["links"] > 0


@pytest.mark.skipif(OLDEST, reason="this PyTorch does not have it")
def test_a_suspended_group_gives_its_memory_back():
    run(3, body_suspended)


def body_again(rank, world, folder, rounds):
    dist.destroy_process_group()
    for i in range(rounds):
        dist.init_process_group(
            "tutti",
            init_method=f"file://{folder}/{i}",
            rank=rank,
            world_size=world,
            timeout=datetime.timedelta(seconds=60),
        )
        dist.barrier()
        dist.destroy_process_group()
        if i == 5:
            before = usage()
    after = usage()
    assert after[0] <= before[0] + 2 and after[1] <= before[1] + 1, f"{before} before, {after} after"
    assert after[2] <= before[2] + 8, f"MB: {before[2]} before, {after[2]} after"


def test_init_and_destroy(tmp_path):
    run(2, body_again, str(tmp_path), int(os.environ.get("TUTTI_TEST_ROUNDS", "30")), limit=900)
