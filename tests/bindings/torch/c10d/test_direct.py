"""tutti.torch.direct_all_reduce: the sum in place without torch.distributed's own part of a call."""

import os
import signal

import pytest
import torch
import torch.distributed as dist
import tutti.torch
from ranks import run

TYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int8, torch.uint8, torch.int16, torch.int32,
         torch.int64, torch.complex64, torch.bool, torch.float8_e4m3fn]  # fmt: skip


def data(rank, count, dtype):
    return ((torch.arange(count) * (rank + 2) + rank) % 5).to(dtype)


def bits(x):
    return x.clone(memory_format=torch.contiguous_format).view(torch.uint8)


def as_torch_distributed(rank, world):
    call = tutti.torch.direct_all_reduce()
    for dtype in TYPES:
        for count in (1, 6, 1000):
            x, y = data(rank, count, dtype), data(rank, count, dtype)
            assert call(x) is x
            dist.all_reduce(y)
            assert bits(x).equal(bits(y)), (dtype, x, y)
            gaps, without = torch.zeros(2 * count, dtype=dtype), data(rank, count, dtype)
            gaps[::2] = without
            call(gaps[::2])
            assert bits(gaps[::2]).equal(bits(y)) and not bits(gaps[1::2]).any()
    parameter = torch.nn.Parameter(torch.ones(3))
    with torch.no_grad():
        assert call(parameter).equal(torch.full((3,), float(world)))
    with torch.inference_mode():
        inside = torch.ones(3)
        call(inside)
    call(inside.t())
    assert inside.equal(torch.full((3,), float(world) ** 2))
    two = dist.new_group(list(range(min(2, world))))  # in turn with the group's other collectives, and beside another group's
    for _ in range(20):
        x = torch.ones(100)
        call(x)
        dist.all_reduce(x)
        work = dist.all_reduce(x, async_op=True)
        work.wait()
        call(x)
        assert x.equal(torch.full((100,), float(world) ** 4))
    if rank < 2:
        assert tutti.torch.direct_all_reduce(two)(torch.ones(2)).equal(torch.full((2,), min(2.0, world)))


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_it_does_what_torch_distributed_does(world):
    run(world, as_torch_distributed)


class Subclass(torch.Tensor):
    pass


def refuses(rank, world):
    call = tutti.torch.direct_all_reduce()
    for what in (3, None, [torch.ones(2)], torch.ones(2).as_subclass(Subclass)):
        with pytest.raises(TypeError, match="takes a torch.Tensor or a Parameter"):
            call(what)
    with pytest.raises(TypeError):
        call()
    with pytest.raises(RuntimeError, match="only dense tensors"):
        call(torch.eye(2).to_sparse())
    with pytest.raises(RuntimeError, match="group .* for CPU tensors is gloo, not tutti"):
        tutti.torch.direct_all_reduce(dist.new_group(backend="gloo"))
    with pytest.raises(dist.DistBackendError, match=r"rank 1 called all_reduce #1 \(float32 x 3, sum\)"):
        call(torch.ones(3 if rank else 4))
    child = os.fork()
    if child == 0:
        try:
            call(torch.ones(2))
        except dist.DistBackendError as error:
            os._exit(0 if "only the parent can use it" in str(error) else 2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def test_what_it_refuses():
    run(2, refuses, ends=False)


def compiled(rank, world):
    call, name = tutti.torch.direct_all_reduce(), dist.group.WORLD.group_name

    @torch.compile(fullgraph=True, backend="eager")
    def layer(x):
        y = x * 2
        torch.ops.tutti.all_reduce_(y, name)
        return y + 1

    for _ in range(3):
        assert layer(torch.full((4,), float(rank))).equal(torch.full((4,), world * (world - 1) + 1.0))
        assert call(torch.ones(4)).equal(torch.full((4,), float(world)))
    assert torch.ops.tutti.all_reduce_(torch.ones(2, device="meta"), name) is None
    torch.library.opcheck(torch.ops.tutti.all_reduce_, (torch.zeros(4), name), test_utils="test_schema")


def test_the_op_in_what_is_compiled():
    run(2, compiled)


def lives_on(rank, world):
    call = tutti.torch.direct_all_reduce(dist.new_group())
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(dist.DistBackendError, match="rank 1"):
        while True:
            call(torch.ones(4))


def test_a_rank_that_dies_is_named():
    run(2, lives_on, dies=[1], ends=False)
