"""The values of what only moves data, for every type and form."""

import pytest
import torch
import torch.distributed as dist
from data import *
from ranks import OLDEST, WORLDS, run

# Those that have no arithmetic at all, too.
TYPES = ALL + [torch.float8_e8m0fnu]


def body_broadcast(rank, world):
    for dtype in TYPES:
        for root in range(world):
            for shape in [(1,), (5, 3), (0,), (3000,)]:
                want = tensor(root, shape, dtype)
                for form in "plain", "gaps", "async":
                    x = tensor(rank, shape, dtype)
                    if form == "gaps":
                        x = gaps(x)
                    work = dist.broadcast(x, root, async_op=form == "async")
                    if work:
                        work.wait()
                    check(x, want, f"broadcast {dtype} {shape} from {root} {form}")


def body_all_gather(rank, world):
    for dtype in TYPES:
        for shape in [(1,), (4, 3), (0,), (999,)]:
            every = [tensor(r, shape, dtype) for r in range(world)]
            for form in "plain", "gaps", "async":
                mine = gaps(every[rank]) if form == "gaps" else every[rank].clone()
                outs = [torch.zeros(shape).to(dtype) for _ in range(world)]
                if form == "gaps":
                    outs = [gaps(o) for o in outs]
                work = dist.all_gather(outs, mine, async_op=form == "async")
                if work:
                    work.wait()
                for r in range(world):
                    check(outs[r], every[r], f"all_gather {dtype} {shape} {form} of {r}")
                out = torch.zeros((world * shape[0], *shape[1:])).to(dtype)
                if form == "gaps":
                    out = gaps(out)
                work = dist.all_gather_into_tensor(out, mine, async_op=form == "async")
                if work:
                    work.wait()
                want = torch.cat([e.view(torch.uint8) for e in every]).view(dtype) if dtype.itemsize == 1 else torch.cat(every)
                check(out, want.view(out.shape), f"all_gather_into_tensor {dtype} {shape} {form}")
    sizes = [2 * r + 1 for r in range(world)]
    outs = [torch.zeros(n) for n in sizes]
    dist.all_gather(outs, tensor(rank, (sizes[rank],), torch.float32))
    for r, n in enumerate(sizes):
        check(outs[r], tensor(r, (n,), torch.float32), "uneven all_gather")


def body_all_gather_coalesced(rank, world):
    shapes = [(2,), (3, 4)]
    outs = [torch.zeros((world * s[0], *s[1:])) for s in shapes]
    with dist._coalescing_manager():
        for out, s in zip(outs, shapes):
            dist.all_gather_into_tensor(out, tensor(rank, s, torch.float32))
    for out, s in zip(outs, shapes):
        want = torch.cat([tensor(r, s, torch.float32) for r in range(world)])
        check(out, want, "coalesced all_gather_into_tensor")
    lists = [[torch.zeros(s) for s in shapes] for _ in range(world)]
    dist.all_gather_coalesced(lists, [tensor(rank, s, torch.float32) for s in shapes])
    for r in range(world):
        for out, s in zip(lists[r], shapes):
            check(out, tensor(r, s, torch.float32), "all_gather_coalesced")


def body_rooted(rank, world):
    for dtype in TYPES:
        for root in range(world):
            for form in "plain", "gaps", "async":
                every = [tensor(r, (6, 2), dtype) for r in range(world)]
                outs = [torch.zeros((6, 2)).to(dtype) for _ in range(world)]
                mine = every[rank].clone()
                if form == "gaps":
                    outs, mine = [gaps(o) for o in outs], gaps(mine)
                work = dist.gather(mine, outs if rank == root else None, root, async_op=form == "async")
                if work:
                    work.wait()
                if rank == root:
                    for r in range(world):
                        check(outs[r], every[r], f"gather {dtype} to {root} {form}")
                out = torch.zeros((6, 2)).to(dtype)
                ins = [tensor(10 * root + r, (6, 2), dtype) for r in range(world)]
                if form == "gaps":
                    out, ins = gaps(out), [gaps(i) for i in ins]
                work = dist.scatter(out, ins if rank == root else None, root, async_op=form == "async")
                if work:
                    work.wait()
                check(out, tensor(10 * root + rank, (6, 2), dtype), f"scatter {dtype} from {root}")
        if hasattr(dist, "gather_single") and not dtype.is_complex:
            out = torch.zeros((world * 3,)).to(dtype) if rank == 0 else None
            dist.gather_single(tensor(rank, (3,), dtype), out, 0)
            if rank == 0:
                for r in range(world):
                    check(out[3 * r : 3 * r + 3], tensor(r, (3,), dtype), "gather_single")


def body_all_to_all(rank, world):
    for dtype in TYPES:
        for form in "plain", "gaps", "async":
            rows = 2
            mine = tensor(rank, (world * rows, 3), dtype)
            out = torch.zeros((world * rows, 3)).to(dtype)
            work = dist.all_to_all_single(out, mine, async_op=form == "async")
            if work:
                work.wait()
            for r in range(world):
                want = tensor(r, (world * rows, 3), dtype)[rank * rows : (rank + 1) * rows]
                check(out[r * rows : (r + 1) * rows], want, f"all_to_all_single {dtype} {form}")
            ins = [tensor(10 * rank + r, (rank + r + 1,), dtype) for r in range(world)]
            outs = [torch.zeros(rank + r + 1).to(dtype) for r in range(world)]
            if form == "gaps":
                ins, outs = [gaps(i) for i in ins], [gaps(o) for o in outs]
            work = dist.all_to_all(outs, ins, async_op=form == "async")
            if work:
                work.wait()
            for r in range(world):
                check(outs[r], tensor(10 * r + rank, (rank + r + 1,), dtype), f"all_to_all {dtype} {form}")
        # Row counts that differ, and are 0 between some.
        to = [(rank * r) % 3 for r in range(world)]
        come = [(r * rank) % 3 for r in range(world)]
        mine = tensor(rank, (sum(to), 2), dtype)
        out = torch.zeros((sum(come), 2)).to(dtype)
        dist.all_to_all_single(out, mine, come, to)
        at = 0
        for r in range(world):
            his = [(r * k) % 3 for k in range(world)]
            begin = sum(his[:rank])
            want = tensor(r, (sum(his), 2), dtype)[begin : begin + his[rank]]
            check(out[at : at + come[r]], want, f"all_to_all_single {dtype} uneven")
            at += come[r]


def body_in_place(rank, world):
    """As fully_shard has them: the input is this rank's part of the output."""
    for n in (3, 5000):
        every = [tensor(r, (n,), torch.float32) for r in range(world)]
        for is_async in False, True:
            out = torch.zeros(world * n)
            mine = out[rank * n : (rank + 1) * n]
            mine.copy_(every[rank])
            work = dist.all_gather_into_tensor(out, mine, async_op=is_async)
            if work:
                work.wait()
            check(out, torch.cat(every), "all_gather_into_tensor in place")
            whole = [tensor(r, (world * n,), torch.float32) for r in range(world)]
            data = whole[rank].clone()
            part = data[rank * n : (rank + 1) * n]
            work = dist.reduce_scatter_tensor(part, data, async_op=is_async)
            if work:
                work.wait()
            check(part, sum(whole)[rank * n : (rank + 1) * n], "reduce_scatter_tensor in place")


def body_objects(rank, world):
    mine = {"rank": rank, "text": "x" * (rank * 100), "list": list(range(rank))}
    every = [{"rank": r, "text": "x" * (r * 100), "list": list(range(r))} for r in range(world)]
    got = [None] * world
    dist.all_gather_object(got, mine)
    assert got == every
    got = [None] * world
    dist.gather_object(mine, got if rank == 1 else None, 1)
    assert rank != 1 or got == every
    got = [mine, rank]
    dist.broadcast_object_list(got, 1)
    assert got == [every[1], 1]
    got = [None]
    dist.scatter_object_list(got, every if rank == 0 else None, 0)
    assert got == [every[rank]]
    if rank == 0:
        dist.send_object_list([mine, 7], 1)
    if rank == 1:
        got = [None, None]
        dist.recv_object_list(got, 0)
        assert got == [every[0], 7]


def body_barrier(rank, world):
    for _ in range(20):
        dist.barrier()
    dist.barrier(async_op=True).wait()
    if OLDEST:
        return
    dist.monitored_barrier()
    dist.monitored_barrier(wait_all_ranks=True)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(
    "body",
    [
        body_broadcast,
        body_all_gather,
        body_all_gather_coalesced,
        body_rooted,
        body_all_to_all,
        body_in_place,
        body_objects,
        body_barrier,
    ],
)
def test(world, body):
    run(world, body)


def body_rows(rank, world):
    """Ranks exchange rows; parts of them that happen to fit are refused."""
    with pytest.raises(RuntimeError, match="as many rows for each of"):
        dist.all_to_all_single(torch.empty(world + 1, world), torch.ones(world + 1, world))
    with pytest.raises(ValueError, match="Tensors must be contiguous"):
        dist.all_to_all_single(torch.empty(world, world), torch.ones(world, world).t())
    for ins, outs in ((world + 1, world), (world, world + 1)):
        splits = lambda n: [] if n > world else [world] * world  # which do not fit either
        with pytest.raises(RuntimeError, match="does not divide equally across group size"):
            dist.all_to_all_single(torch.empty(outs), torch.ones(ins), splits(outs), splits(ins))


def test_rows_that_ranks_cannot_share():
    run(2, body_rows)
