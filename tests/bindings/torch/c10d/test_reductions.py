"""The values of every reduction, for every operator, type and form."""

import pytest
import torch
import torch.distributed as dist
from data import *
from ranks import WORLDS, run

SHAPES = [(1,), (7, 5), (1000,), (0,)]


def cases(world):
    for dtype in ALL:
        for op in (SUM, AVG, PRODUCT, MIN, MAX, *BITS):
            if op in BITS and (dtype.is_floating_point or dtype.is_complex):
                continue
            if op == AVG and dtype == torch.bool:
                continue
            # PyTorch's own functions refuse what complex numbers are not ordered for, and products.
            if dtype.is_complex and op in (PRODUCT, MIN, MAX):
                continue
            yield dtype, op


def most(op):
    return 3 if op == PRODUCT else 4


def everybody(rank_count, shape, dtype, op):
    if op == AVG and rank_count == 3:  # a third of a multiple of 3 is exact: of 0, 3 and 6
        return [(wide(tensor(r, shape, dtype, 3)) * 3).to(dtype) for r in range(rank_count)]
    return [tensor(r, shape, dtype, most(op)) for r in range(rank_count)]


def body_all_reduce(rank, world):
    for dtype, op in cases(world):
        for shape in SHAPES:
            every = everybody(world, shape, dtype, op)
            want = reduced(op, every)
            what = f"all_reduce {dtype} {op} {shape}"
            for form in "plain", "gaps", "async", "future":
                x = gaps(every[rank]) if form == "gaps" else every[rank].clone()
                if form == "async":
                    dist.all_reduce(x, op, async_op=True).wait()
                elif form == "future":
                    (y,) = dist.all_reduce(x, op, async_op=True).get_future().wait()
                    check(torch.view_as_complex(y) if dtype.is_complex and not y.dtype.is_complex else y, want, what)
                else:
                    dist.all_reduce(x, op)
                check(x, want, f"{what} {form}")


@pytest.mark.parametrize("world", WORLDS)
def test_all_reduce(world):
    run(world, body_all_reduce)


def body_reduce(rank, world):
    for dtype, op in cases(world):
        for root in range(world):
            every = everybody(world, (13, 3), dtype, op)
            want = reduced(op, every) if rank == root else every[rank]
            for form in "plain", "gaps", "async":
                x = gaps(every[rank]) if form == "gaps" else every[rank].clone()
                work = dist.reduce(x, root, op, async_op=form == "async")
                if work:
                    work.wait()
                check(x, want, f"reduce {dtype} {op} to {root} {form}")


@pytest.mark.parametrize("world", WORLDS)
def test_reduce(world):
    run(world, body_reduce)


def body_reduce_scatter(rank, world):
    for dtype, op in cases(world):
        if dtype == torch.complex32:
            continue
        for rows in (0, 1, 5):
            every = everybody(world, (world * rows, 3), dtype, op)
            want = reduced(op, every)[rank * rows : (rank + 1) * rows]
            what = f"reduce_scatter {dtype} {op} {rows} rows"
            for form in "tensor", "gaps", "list", "async":
                out = torch.empty((rows, 3), dtype=dtype)
                mine = every[rank].clone()
                if form == "list":
                    dist.reduce_scatter(out, list(mine.chunk(world)) if rows else [mine] * world, op)
                elif form == "gaps":
                    out = gaps(out)
                    dist.reduce_scatter_tensor(out, gaps(mine), op)
                elif form == "async":
                    dist.reduce_scatter_tensor(out, mine, op, async_op=True).wait()
                else:
                    dist.reduce_scatter_tensor(out, mine, op)
                check(out, want, f"{what} {form}")


@pytest.mark.parametrize("world", WORLDS)
def test_reduce_scatter(world):
    run(world, body_reduce_scatter)


def body_complex_products(rank, world):
    """PyTorch's functions refuse them; a group does not."""
    for dtype in COMPLEX:
        every = [tensor(r, (world * 4,), dtype, 3) for r in range(world)]
        want = torch.stack([wide(t) for t in every]).prod(0).to(dtype)
        group = dist.group.WORLD
        x, options = every[rank].clone(), dist.AllreduceOptions()
        options.reduceOp = PRODUCT
        group.allreduce([x], options).wait()
        check(x, want, f"all_reduce {dtype}")
        x, options = every[rank].clone(), dist.ReduceOptions()
        options.reduceOp, options.rootRank = PRODUCT, world - 1
        group.reduce([x], options).wait()
        check(x, want if rank == world - 1 else every[rank], f"reduce {dtype}")
        out, options = torch.empty(4, dtype=dtype), dist.ReduceScatterOptions()
        options.reduceOp = PRODUCT
        group.reduce_scatter([out], [list(every[rank].chunk(world))], options).wait()
        check(out, want[4 * rank : 4 * rank + 4], f"reduce_scatter {dtype}")


@pytest.mark.parametrize("world", WORLDS)
def test_complex_products(world):
    run(world, body_complex_products)


def body_layouts(rank, world):
    """Tensors of no dimension, transposed, expanded, of images, negated in passing."""

    def made(r):
        base = tensor(r, (2, 3, 4, 5), torch.float32)
        z = tensor(r, (6,), torch.complex64)
        return {
            "of no dimension": base.sum(),
            "transposed": base[0, 0].t(),
            "of every other one": base[:, :, ::2, 1::2],
            "of images": base.to(memory_format=torch.channels_last),
            "that needs a gradient": base.clone().requires_grad_(),
            "negated in passing": z.conj().imag,
        }

    for name in made(0):
        every = [made(r)[name].detach().resolve_neg().clone() for r in range(world)]
        with torch.no_grad():
            if name != "negated in passing":  # PyTorch loses what is written to those, over gloo as well
                x = made(rank)[name]
                dist.all_reduce(x)
                check(x.detach(), sum(every), f"all_reduce of one {name}")
                x = made(rank)[name]
                dist.broadcast(x, world - 1)
                check(x.detach(), every[-1], f"broadcast of one {name}")
            outs = [torch.zeros_like(e) for e in every]
            dist.all_gather(outs, made(rank)[name].detach())
            for r in range(world):
                check(outs[r], every[r], f"all_gather of one {name}")
    row = torch.tensor([[1.0 + rank]]).expand(2, 3)  # as an input alone
    out = torch.empty(2 * world, 3)
    dist.all_gather_into_tensor(out, row)
    check(out, torch.cat([torch.full((2, 3), 1.0 + r) for r in range(world)]), "all_gather of one expanded")


@pytest.mark.parametrize("world", [2, 3])
def test_layouts(world):
    run(world, body_layouts)


def body_uneven(rank, world):
    sizes = [3 * r + 1 for r in range(world)]
    every = everybody(world, (sum(sizes),), torch.float32, SUM)
    out = torch.empty(sizes[rank])
    dist.reduce_scatter(out, list(every[rank].split(sizes)))
    check(out, reduced(SUM, every).split(sizes)[rank], "uneven reduce_scatter")


@pytest.mark.parametrize("world", WORLDS)
def test_uneven_reduce_scatter(world):
    run(world, body_uneven)


def body_scaled(rank, world):
    for dtype in FLOATS + [torch.int32, torch.int64]:
        factor = 2.0
        op = dist._make_nccl_premul_sum(factor)
        every = everybody(world, (50,), dtype, SUM)
        want = reduced(SUM, every) * int(factor)
        x = every[rank].clone()
        dist.all_reduce(x, op)
        check(x, want, f"all_reduce {dtype} times {factor}")
        op = dist._make_nccl_premul_sum(torch.tensor([float(rank + 1)]))
        want = reduced(SUM, [t * (r + 1) for r, t in enumerate(every)])
        x = every[rank].clone()
        dist.all_reduce(x, op)
        check(x, want, f"all_reduce {dtype} times rank")
        everything = everybody(world, (world * 8,), dtype, SUM)
        out = torch.empty(8, dtype=dtype)
        dist.reduce_scatter_tensor(out, everything[rank].clone(), dist._make_nccl_premul_sum(4.0))
        check(out, (reduced(SUM, everything) * 4)[rank * 8 : rank * 8 + 8], f"reduce_scatter {dtype} * 4")
    with pytest.raises(RuntimeError, match="by whole numbers, not by 0.5"):
        dist.all_reduce(torch.ones(3, dtype=torch.int32), dist._make_nccl_premul_sum(0.5))


@pytest.mark.parametrize("world", WORLDS)
def test_scaled_sums(world):
    run(world, body_scaled)


def body_coalesced(rank, world):
    shapes = [(3,), (0,), (4, 5), (1000,)]
    every = [everybody(world, s, torch.float32, SUM) for s in shapes]
    for is_async in False, True:
        mine = [e[rank].clone() for e in every]
        with dist._coalescing_manager(async_ops=is_async) as manager:
            for x in mine:
                dist.all_reduce(x)
        if is_async:
            manager.wait()
        for x, e in zip(mine, every):
            check(x, reduced(SUM, e), "coalesced all_reduce")
        ins = [tensor(rank, (world * n,), torch.float32) for n in (2, 5)]
        outs = [torch.empty(n) for n in (2, 5)]
        with dist._coalescing_manager(async_ops=is_async) as manager:
            for out, x in zip(outs, ins):
                dist.reduce_scatter_tensor(out, x)
        if is_async:
            manager.wait()
        for out, n in zip(outs, (2, 5)):
            all = [tensor(r, (world * n,), torch.float32) for r in range(world)]
            check(out, reduced(SUM, all)[rank * n : (rank + 1) * n], "coalesced reduce_scatter")
    mine = [e[rank].clone() for e in every]
    dist.all_reduce_coalesced(mine, MAX)
    for x, e in zip(mine, every):
        check(x, reduced(MAX, e), "all_reduce_coalesced")


@pytest.mark.parametrize("world", WORLDS)
def test_coalesced(world):
    run(world, body_coalesced)


def body_sparse(rank, world):
    def mine(r):
        return torch.sparse_coo_tensor([[r, r + 1], [0, r]], [1.0 + r, 2.0], (world + 1, world))

    x = mine(rank)
    dist.all_reduce(x)
    want = sum(mine(r).to_dense() for r in range(world))
    check(x.to_dense(), want, "sparse all_reduce")
    rows = [torch.sparse_coo_tensor([[r]], [[1.0, 2.0]], (4, 2)) for r in range(world)]
    rows[0] = torch.sparse_coo_tensor(torch.empty((1, 0), dtype=torch.int64), torch.empty((0, 2)), (4, 2))
    want = sum(r.to_dense() for r in rows)
    x = rows[rank]
    dist.all_reduce(x)
    check(x.to_dense(), want, "sparse rows")


@pytest.mark.parametrize("world", WORLDS)
def test_sparse(world):
    run(world, body_sparse)


def body_refused(rank, world):
    for dtype, op in ((torch.float32, dist.ReduceOp.BAND), (torch.bool, AVG)):
        with pytest.raises(RuntimeError, match="is not defined for"):
            dist.all_reduce(torch.ones(3).to(dtype), op)
    x = torch.full((3,), float(rank))
    dist.all_reduce(x)
    check(x, torch.full((3,), float(sum(range(world)))), "after what was refused")


def test_refused():
    run(2, body_refused)


def body_compressed(rank, world):
    import tutti.torch

    group = dist.new_group()
    tutti.torch.compress(group)
    for dtype in torch.float32, torch.bfloat16, torch.float16:
        # A small number beside a large one is lost in 8 bits, in this group alone.
        x = torch.ones(16, dtype=dtype)
        x[0] = 1024
        exact, approximate = x.clone(), x.clone()
        dist.all_reduce(exact)
        assert exact[1] == world
        dist.all_reduce(approximate, group=group, async_op=True).wait()
        assert approximate[0] == 1024 * world and (approximate[1:] == 0).all()
        # A number beside a large one of another rank's part is in a block of its own.
        parts = torch.cat([x * (r + 1) for r in range(world)])
        part = torch.empty(16, dtype=dtype)
        dist.reduce_scatter_tensor(part, parts)
        assert part[1] == world * (rank + 1)
        dist.reduce_scatter_tensor(part, parts, group=group)
        assert part[0] == 1024 * world * (rank + 1) and (part[1:] == 0).all()
        dist.all_reduce(exact.copy_(x), MAX, group=group)
        assert exact.equal(x)
    double = torch.ones(16, dtype=torch.float64)
    double[0] = 1024
    dist.all_reduce(double, group=group)
    assert double[1] == world
    tutti.torch.compress(group, False)
    again = torch.ones(16)
    again[0] = 1024
    dist.all_reduce(again, group=group)
    assert again[1] == world


def test_a_group_may_compress():
    run(2, body_compressed)
