"""The table of docs/semantics.md through torch.distributed, and where that has rules of its own."""

import time

import pytest
import torch
import torch.distributed as dist
from ranks import run

NAN = float("nan")
Op = dist.ReduceOp


def reduced(mine, op, dtype=torch.float32):
    x = torch.tensor([mine], dtype=dtype)
    dist.all_reduce(x, op)
    return x[0].double().item() if dtype.is_floating_point else x[0].item()


def body_numbers(rank, world):
    for dtype in torch.float16, torch.bfloat16, torch.float32, torch.float64:
        for odd in range(world):
            mine = NAN if rank == odd else 1.0 + rank
            for op in Op.MAX, Op.MIN, Op.SUM, Op.PRODUCT, Op.AVG:
                assert reduced(mine, op, dtype) != reduced(mine, op, dtype), (dtype, op)
            zero = 0.0 if rank == odd else -0.0
            x = torch.tensor([zero] * 3, dtype=dtype)
            for i, op in enumerate((Op.MIN, Op.MAX, Op.SUM)):
                dist.all_reduce(x[i], op)
            assert torch.signbit(x).tolist() == [True, False, False]


# semantics.md: P7, N1, N2, N3
def test_numbers_are_those_of_the_table():
    run(3, body_numbers)


def body_averages(rank, world):
    assert reduced(100, Op.AVG, torch.int8) == 14  # 300 wraps to 44
    assert reduced(-7 if rank == 0 else 0, Op.AVG, torch.int32) == -2
    # Of 16 bits, which Tutti does not have: as int32, so that the sum does not wrap.
    assert reduced(30000, Op.AVG, torch.int16) == 30000
    assert reduced(30000, Op.SUM, torch.int16) == 90000 - 65536


# semantics.md: P7, N8
def test_averages_of_integers():
    run(3, body_averages)


def body_flushing(rank, world):
    if rank == 1:
        torch.set_flush_denormal(True)
    x = torch.tensor([1, 3], dtype=torch.int32).view(torch.float32)  # the smallest, and 3 of it
    if rank == 1:
        x = x.flip(0)
    results = {}
    for op in Op.SUM, Op.MIN, Op.MAX:
        for how in False, True:
            y = x.clone()
            work = dist.all_reduce(y, op, async_op=how)
            if work is not None:
                work.wait()
            results[op, how] = y.view(torch.int32).tolist()
    return [results[op, how] for op in (Op.SUM, Op.MIN, Op.MAX) for how in (False, True)]


# semantics.md: P7, N6
def test_flushed_subnormals_of_a_rank_change_nothing():
    for said in run(2, body_flushing):
        assert said == [[4, 4]] * 2 + [[1, 1]] * 2 + [[3, 3]] * 2


def body_gaps(rank, world):
    x = torch.arange(12.0).reshape(3, 4)
    dist.all_reduce(x[:, ::2])
    want = torch.arange(12.0).reshape(3, 4)
    want[:, ::2] *= world
    assert torch.equal(x, want)


# semantics.md: P7, C7
def test_tensors_with_gaps_are_copied():
    run(2, body_gaps)


def body_nothing(rank, world):
    nothing = torch.zeros(0)
    dist.barrier()
    if rank == 0:
        time.sleep(0.3)
        dist.send(nothing, 1)
    else:
        begin = time.monotonic()
        dist.recv(nothing, 0)
        assert time.monotonic() - begin > 0.2, "a recv of nothing has not waited"


# semantics.md: P7, C9
def test_a_message_of_nothing_is_a_message():
    run(2, body_nothing)


def body_objects(rank, world):
    objects = [None] * world
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * (10 if rank else 100_000)})
    assert [o["rank"] for o in objects] == list(range(world))
    assert [len(o["text"]) for o in objects] == [100_000] + [10] * (world - 1)
    state = {"step": torch.tensor(float(rank)), "exp_avg": torch.full((3 + rank,), float(rank))}
    states = [None] * world
    dist.all_gather_object(states, state)
    assert [s["step"].item() for s in states] == [float(r) for r in range(world)]
    assert [s["exp_avg"].numel() for s in states] == [3 + r for r in range(world)]


# semantics.md: E5
def test_objects_of_ranks_that_differ():
    run(3, body_objects)


def body_mismatch(rank, world):
    x = torch.zeros(4, dtype=torch.float32 if rank == 0 else torch.int32)
    with pytest.raises(dist.DistBackendError):
        dist.all_reduce(x)
        dist.barrier()


# semantics.md: P7, C8
def test_types_have_to_match():
    run(2, body_mismatch, ends=False)
