"""Data that differs by rank and position, small enough that every reduction of it is exact."""

import torch
import torch.distributed as dist

INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
FLOATS8 = [torch.float8_e4m3fn, torch.float8_e5m2]
ODD_FLOATS8 = [torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
COMPLEX = [torch.complex64, torch.complex128]
NUMBERS = INTEGERS + UNSIGNED + FLOATS + FLOATS8 + ODD_FLOATS8
ALL = NUMBERS + COMPLEX + [torch.complex32, torch.bool]

SUM, AVG, PRODUCT = dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.PRODUCT
MIN, MAX = dist.ReduceOp.MIN, dist.ReduceOp.MAX
BITS = {
    dist.ReduceOp.BAND: torch.bitwise_and,
    dist.ReduceOp.BOR: torch.bitwise_or,
    dist.ReduceOp.BXOR: torch.bitwise_xor,
}


def numbers(rank, count, most=4):
    """Whole numbers from 0 to `most` - 1, as int64."""
    i = torch.arange(count)
    return (i * (2 * rank + 3) + i // 7 + rank) % most


def tensor(rank, shape, dtype, most=4):
    count = int(torch.Size(shape).numel())
    n = numbers(rank, count, most)
    if dtype == torch.bool:
        n = n % 2
    if dtype.is_complex:
        n = torch.complex(n.double(), numbers(rank + 5, count, most).double())
    return n.to(dtype).view(shape)


def wide(x):
    """In a type that holds all results."""
    return x.to(torch.complex128 if x.dtype.is_complex else torch.int64)


def reduced(op, tensors):
    """The reduction of one tensor of each rank, in their type."""
    all = torch.stack([wide(t) for t in tensors])
    dtype = tensors[0].dtype
    if dtype == torch.bool:
        if op in (SUM, MAX, dist.ReduceOp.BOR):
            return all.any(0)
        if op == dist.ReduceOp.BXOR:
            return all.sum(0) % 2 == 1
        return all.all(0)
    if op == SUM:
        return all.sum(0).to(dtype)
    if op == PRODUCT:
        return all.prod(0).to(dtype)
    if op == MIN:
        return all.min(0).values.to(dtype)
    if op == MAX:
        return all.max(0).values.to(dtype)
    if op == AVG:
        if dtype.is_complex or dtype.is_floating_point:
            return all.sum(0).to(torch.complex128 if dtype.is_complex else torch.float64) / len(tensors)
        return all.sum(0).div(len(tensors), rounding_mode="trunc").to(dtype)
    result = all[0]
    for t in all[1:]:
        result = BITS[op](result, t)
    return result.to(dtype)


def check(got, want, what):
    """Exactly equal, in bits where the types agree."""
    assert got.shape == want.shape, f"{what}: shape {tuple(got.shape)}, not {tuple(want.shape)}"
    a, b = got.contiguous(), want.to(got.dtype).contiguous()
    if a.dtype.is_complex:
        a, b = torch.view_as_real(a), torch.view_as_real(b)
    as_wide = torch.float64 if a.dtype.is_floating_point else torch.int64
    x, y = a.to(as_wide), b.to(as_wide)
    if not torch.equal(x, y):
        at = (x != y).nonzero()[0].tolist()
        raise AssertionError(f"{what}: at {at} {x[tuple(at)]}, not {y[tuple(at)]}")


def gaps(x):
    """The same values in memory with gaps, transposed."""
    padded = torch.zeros((*x.shape, 2), dtype=x.dtype)
    view = padded[..., 1]
    view.copy_(x)
    return view
