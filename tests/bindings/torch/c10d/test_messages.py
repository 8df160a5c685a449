"""send and recv: values for every type, tags in any order, any source, batches, crossing messages."""

import datetime
import time

import pytest
import torch
import torch.distributed as dist
from data import *
from ranks import WORLDS, run


def body_types(rank, world):
    for dtype in ALL:
        for count in 0, 1, 4, 100, 70000:
            right, left = (rank + 1) % world, (rank - 1) % world
            mine = tensor(rank, (count,), dtype)
            got = torch.zeros(count).to(dtype)
            sent = dist.isend(mine, right)
            dist.recv(got, left)
            sent.wait()
            check(got, tensor(left, (count,), dtype), f"recv {dtype} {count}")
        got = gaps(torch.zeros((5, 2)).to(dtype))
        sent = dist.isend(gaps(tensor(rank, (5, 2), dtype)), right)
        dist.recv(got, left)
        sent.wait()
        check(got, tensor(left, (5, 2), dtype), f"recv {dtype} with gaps")


def body_tags(rank, world):
    """Received in another order than sent."""
    tags = list(range(6))
    if rank == 0:
        works = [dist.isend(torch.full((t + 1,), float(t)), 1, tag=t) for t in tags]
        for w in works:
            w.wait()
    elif rank == 1:
        for t in (5, 0, 3, 1, 4, 2):
            got = torch.zeros(t + 1)
            dist.recv(got, 0, tag=t)
            check(got, torch.full((t + 1,), float(t)), f"tag {t}")
        works = []
    # Two of one tag keep their order, across others.
    if rank == 0:
        for i, t in enumerate((7, 8, 7, 8)):
            dist.send(torch.tensor([i]), 1, tag=t)
    elif rank == 1:
        for want, t in ((1, 8), (0, 7), (3, 8), (2, 7)):
            got = torch.zeros(1, dtype=torch.int64)
            dist.recv(got, 0, tag=t)
            assert got.item() == want, (t, got, want)


def body_any_source(rank, world):
    rounds = 3
    if rank == 0:
        seen = []
        for _ in range(rounds * (world - 1)):
            got = torch.zeros(4, dtype=torch.int64)
            source = dist.recv(got)
            n = got[1].item()
            assert got.tolist() == [source, n, source * 100 + n, -1], (source, got)
            seen.append((source, n))
        assert sorted(seen) == [(r, n) for r in range(1, world) for n in range(rounds)]
        for r in range(1, world):  # in their order
            assert [n for source, n in seen if source == r] == list(range(rounds))
        # With a tag, while another one waits.
        got = [torch.zeros(1), torch.zeros(1)]
        works = [dist.irecv(got[0], tag=2), dist.irecv(got[1], tag=1)]
        dist.barrier()
        for w in works:
            w.wait()
        assert got[0].item() == 2 and got[1].item() == 1
    else:
        for n in range(rounds):
            dist.send(torch.tensor([rank, n, rank * 100 + n, -1]), 0)
        dist.barrier()
        if rank == 1:
            dist.send(torch.tensor([1.0]), 0, tag=1)
            dist.send(torch.tensor([2.0]), 0, tag=2)


def body_batch(rank, world):
    right, left = (rank + 1) % world, (rank - 1) % world
    for dtype in torch.float32, torch.bfloat16:
        a, b = tensor(rank, (100,), dtype), tensor(rank + 7, (5,), dtype)
        got = [torch.zeros(100, dtype=dtype), torch.zeros(5, dtype=dtype)]
        ops = [
            dist.P2POp(dist.irecv, got[0], left),
            dist.P2POp(dist.isend, a, right),
            dist.P2POp(dist.isend, b, right),
            dist.P2POp(dist.irecv, got[1], left),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        check(got[0], tensor(left, (100,), dtype), "batch")
        check(got[1], tensor(left + 7, (5,), dtype), "batch")
    # To oneself, and to all.
    ins = [tensor(10 * rank + r, (3,), torch.int64) for r in range(world)]
    outs = [torch.zeros(3, dtype=torch.int64) for _ in range(world)]
    ops = [dist.P2POp(dist.isend, ins[r], r) for r in range(world)]
    ops += [dist.P2POp(dist.irecv, outs[r], r) for r in range(world)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    for r in range(world):
        check(outs[r], tensor(10 * r + rank, (3,), torch.int64), "batch to all")


def body_left(rank, world):
    """Recvs that got nothing do not keep a rank from leaving, nor its other messages from coming."""
    if rank == 0:
        left = dist.irecv(torch.zeros(3), tag=99)
        got = torch.zeros(2)
        assert dist.recv(got, tag=1) == 1
        check(got, torch.tensor([5.0, 6.0]), "recv beside one that waits")
        assert not left.is_completed()
    elif rank == 1:
        dist.send(torch.tensor([5.0, 6.0]), 0, tag=1)


def body_left_before_another_has_come(rank, world):
    """The rank that leaves ends no operation that does without it, even though a message of its is awaited."""
    if rank == 0:
        late, gone = torch.zeros(2), dist.irecv(torch.zeros(3), 1, tag=99)
        work = dist.irecv(late, 2)
        dist.barrier()
        work.wait()
        check(late, torch.tensor([7.0, 8.0]), "a message that came after another rank had left")
        with pytest.raises(dist.DistBackendError, match="rank 1 has left the communicator"):
            gone.wait()
    else:
        dist.barrier()
        if rank == 2:
            time.sleep(0.1)  # rank 0 looks around every 10 ms, and waits 300 ms for others
            dist.send(torch.tensor([7.0, 8.0]), 0)
            time.sleep(0.5)
        dist.destroy_process_group()


def test_a_rank_that_leaves_ends_no_operation_of_others():
    run(3, body_left_before_another_has_come, ends=False)


def body_between_collectives(rank, world):
    """A message that is under way holds up no collective."""
    got = torch.zeros(3)
    if rank == 1:
        work = dist.irecv(got, 0)
    x = torch.tensor([1.0 + rank])
    dist.all_reduce(x)
    assert x.item() == world * (world + 1) / 2
    if rank == 0:
        dist.send(torch.arange(3.0), 1)
    dist.barrier()
    if rank == 1:
        work.wait()
        check(got, torch.arange(3.0), "message across an all_reduce")


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(
    "body", [body_types, body_tags, body_any_source, body_batch, body_left, body_between_collectives]
)
def test(world, body):
    run(world, body)


def body_own(rank, world):
    """What a rank was to send to itself has a time, too; and nobody else is waited for."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=1))
    got = torch.zeros(2)
    work = dist.irecv(got, rank, group=group)
    dist.isend(torch.full((2,), rank + 1.0), rank, group=group).wait()
    work.wait()
    check(got, torch.full((2,), rank + 1.0), "of oneself")
    with pytest.raises(dist.DistBackendError, match="to itself has not come within the timeout of 1 s"):
        dist.recv(got, rank, group=group)
    dist.barrier(group=group)
    alone = dist.new_group([rank], timeout=datetime.timedelta(seconds=1), use_local_synchronization=True)
    with pytest.raises(dist.DistBackendError, match="from any rank"):
        dist.recv(got, group=alone)


def test_messages_to_oneself():
    run(2, body_own)
