"""Each fault again and again, in every operation and in training: nothing hangs, and everybody gets a
DistBackendError that names the right rank. A run differs from the next one in the operation, in the
number of ranks, in which of them is at fault, and in when. TUTTI_TEST_ROUNDS: runs of each fault."""

import datetime
import os
import random
import signal
import threading
import time

import pytest
import torch
import torch.distributed as dist
from gpt import Gpt, batch, loss_of
from ranks import run
from test_faults import ERROR, until_it_fails

ROUNDS = int(os.environ.get("TUTTI_TEST_ROUNDS", "4"))
COUNT = 1000


def operations(world, count=COUNT, dtype=torch.float32):
    """Every one as a function without arguments; of `count` elements for each rank where it has such."""
    rank = dist.get_rank()

    def x(parts=1):
        return torch.ones(count * parts, dtype=dtype)

    def parts():
        return [x() for _ in range(world)]

    def ring():
        sent = dist.isend(x(), (rank + 1) % world)
        dist.recv(x(), (rank - 1) % world)
        sent.wait()

    def coalesced():
        with dist._coalescing_manager(group=dist.group.WORLD, async_ops=True) as works:
            for _ in range(3):
                dist.all_reduce(x())
        works.wait()

    return {
        "all_reduce": lambda: dist.all_reduce(x()),
        "all_reduce, async": lambda: dist.all_reduce(x(), async_op=True).wait(),
        "all_reduce, large": lambda: dist.all_reduce(x(300)),
        "all_reduce, coalesced": coalesced,
        "broadcast": lambda: [dist.broadcast(x(), r) for r in range(world)],
        "reduce": lambda: [dist.reduce(x(), r) for r in range(world)],
        "all_gather": lambda: dist.all_gather(parts(), x()),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(x(world), x()),
        "reduce_scatter": lambda: dist.reduce_scatter(x(), parts()),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(x(), x(world)),
        "gather": lambda: [dist.gather(x(), parts() if rank == r else None, r) for r in range(world)],
        "scatter": lambda: [dist.scatter(x(), parts() if rank == r else None, r) for r in range(world)],
        "all_to_all": lambda: dist.all_to_all(parts(), parts()),
        "all_to_all_single": lambda: dist.all_to_all_single(x(world), x(world)),
        "messages": ring,
        "barrier": lambda: dist.barrier(),
    }


def training(name, dtype=torch.float32, width=None):
    """A step, as a function without arguments. `width`: of a layer that the model has more."""
    model = Gpt()
    if width:
        model.more = torch.nn.Linear(width, 65)
    model = model.to(dtype)
    if name == "DDP":
        model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.05)
    else:
        from torch.distributed.fsdp import fully_shard

        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        x, y = batch(0, dist.get_rank())
        loss_of(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


OPERATIONS = [
    *("all_reduce", "all_reduce, async", "all_reduce, large", "all_reduce, coalesced", "broadcast", "reduce"),
    *("all_gather", "all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor", "gather", "scatter"),
    *("all_to_all", "all_to_all_single", "messages", "barrier"),
]


def call_of(name, world):
    return training(name) if name in ("DDP", "FSDP2") else operations(world)[name]


def expect(call, *said):
    with pytest.raises(ERROR) as caught:
        until_it_fails(call, 60)
    for words in said:
        assert words in str(caught.value), f"{words!r} is not in {caught.value}"


def body_killed(rank, world, name, victim, when):
    call = call_of(name, world)
    call()
    if rank == victim:
        threading.Timer(when, os.kill, [os.getpid(), signal.SIGKILL]).start()
    expect(call, f"rank {victim} ", "died")


def body_stopped(rank, world, name, victim, when):
    call = call_of(name, world)
    call()
    dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=3))
    if rank == victim:
        threading.Timer(when, os.kill, [os.getpid(), signal.SIGSTOP]).start()
    expect(call, f"rank {victim}", "timeout of")


def body_raises(rank, world, name, victim, when):
    """Nobody catches it: the process ends as one with a bug does."""
    call = call_of(name, world)
    call()
    if rank == victim:
        end = time.monotonic() + when
        while time.monotonic() < end:
            call()
        raise KeyError("of the user")
    expect(call, f"rank {victim} ")


def body_mismatch(rank, world, name, victim, what):
    wrong = rank == victim
    if name in ("DDP", "FSDP2") and what != "order":
        if what == "shape" and name == "DDP":  # which looks by itself, and says so
            with pytest.raises(RuntimeError):
                training(name, width=8 if wrong else 4)()
            return
        kind = torch.bfloat16 if wrong and what == "dtype" else torch.float32
        expect(lambda: training(name, kind, 8 if wrong and what == "shape" else None)(), f"rank {victim}")
        return
    if what == "order":  # one call more on one rank
        call = call_of(name, world)
        more = operations(world)["all_reduce" if name == "barrier" else "barrier"]
        # From a moment on at which all have their model, which takes calls, too.
        expect(lambda: (dist.barrier(), wrong and more(), call()), f"rank {victim}")
        return
    count = COUNT + 1 if wrong and what == "shape" else COUNT
    dtype = torch.int32 if wrong and what == "dtype" else torch.float32
    expect(operations(world, count, dtype)[name], f"rank {victim}")


def rounds(fault):
    """Of each run: which operation, of how many ranks, which of them is at fault, and after how long."""
    chance = random.Random(fault)
    # A barrier has neither shape nor type. Messages are not in the order of collectives: a rank that waits
    # in one for a rank that waits for a message of it is in a deadlock, which timeouts end.
    without = {"shape": ["barrier"], "dtype": ["barrier"], "order": ["messages"]}.get(fault, [])
    names = [n for n in [*OPERATIONS, "DDP", "FSDP2"] if n not in without]
    first = chance.randrange(len(names))
    for i in range(ROUNDS):
        world = 2 + i % 3
        yield names[(first + 5 * i) % len(names)], world, chance.randrange(world), chance.uniform(0, 0.3)


@pytest.mark.parametrize("fault", ["killed", "stopped", "raises", "shape", "dtype", "order"])
def test(fault):
    bodies = {"killed": body_killed, "stopped": body_stopped, "raises": body_raises}
    failed = []
    for i, (name, world, victim, when) in enumerate(rounds(fault)):
        body = bodies.get(fault, body_mismatch)
        dies = [victim] if body is not body_mismatch else []
        argument = fault if body is body_mismatch else when
        try:
            run(world, body, name, victim, argument, dies=dies, ends=False)
        except AssertionError as error:
            failed.append(f"run {i}, {name}, rank {victim} of {world}, after {when:.3f} s: {error}")
    assert not failed, f"{len(failed)} of {ROUNDS} runs: " + "\n".join(failed)
