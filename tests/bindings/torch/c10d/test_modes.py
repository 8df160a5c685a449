"""PyTorch's modes: torch.inference_mode() around calls and tensors, and leaves that require gradients."""

import pytest
import torch
import torch.distributed as dist
from data import *
from ranks import run


def results_of(call, is_async):
    work = call(is_async)
    if work:
        work.wait()


def calls(rank, world, layout):
    """By name: its outputs, the call, and what they hold afterwards. Values of outputs count where they are read."""
    shape = (6, world)
    every = [tensor(r, shape, torch.int32) for r in range(world)]
    large = [tensor(r, (6 * world,), torch.int32) for r in range(world)]
    mine, whole = every[rank].clone(), large[rank]
    outs = [layout(torch.zeros_like(e)) for e in every]
    x, y, z, g = (layout(every[rank].clone()) for _ in range(4))
    part = layout(torch.zeros(6, dtype=torch.int32))
    single = layout(torch.zeros(world * 6, world, dtype=torch.int32))
    return {
        "all_gather": (outs, lambda a: dist.all_gather(outs, mine, async_op=a), every),
        "all_gather_into_tensor": (
            [single],
            lambda a: dist.all_gather_into_tensor(single, mine, async_op=a),
            [torch.cat(every)],
        ),
        "gather": (
            outs if rank == 1 else [],
            lambda a: dist.gather(mine, outs if rank == 1 else None, 1, async_op=a),
            every if rank == 1 else [],
        ),
        "all_to_all": (
            outs,
            lambda a: dist.all_to_all(outs, [mine + 10 * r for r in range(world)], async_op=a),
            [e + 10 * rank for e in every],
        ),
        "broadcast": ([x], lambda a: dist.broadcast(x, 1, async_op=a), [every[1]]),
        "all_reduce": ([y], lambda a: dist.all_reduce(y, async_op=a), [sum(every)]),
        "all_reduce BOR": (
            [z],
            lambda a: dist.all_reduce(z, dist.ReduceOp.BOR, async_op=a),
            [reduced(dist.ReduceOp.BOR, every)],
        ),
        "reduce": (
            [g] if rank == 0 else [],
            lambda a: dist.reduce(g, 0, async_op=a),
            [sum(every)] if rank == 0 else [],
        ),
        "reduce_scatter": (
            [part],
            lambda a: dist.reduce_scatter(part, list(whole.chunk(world)), async_op=a),
            [sum(large).chunk(world)[rank]],
        ),
        "recv": (
            [x] if rank == 1 else [],
            lambda a: dist.irecv(x, 0) if rank == 1 else dist.isend(mine, 1) if rank == 0 else None,
            [every[0]] if rank == 1 else [],
        ),
    }


def body_inference(rank, world):
    made_in, called_in = [(True, True), (True, False), (False, True)], [False, True]
    for layout in lambda t: t, gaps, lambda t: t.t().contiguous().t() if t.dim() == 2 else gaps(t):
        for in_mode, calls_in_mode in made_in:
            for is_async in called_in:
                with torch.inference_mode(in_mode):
                    names = list(calls(rank, world, layout))
                for name in names:
                    with torch.inference_mode(in_mode):  # results of one are not the inputs of another
                        outs, call, want = calls(rank, world, layout)[name]
                    with torch.inference_mode(calls_in_mode):
                        results_of(call, is_async)
                    for out, w in zip(outs, want):
                        what = f"{name}, tensors of the mode {in_mode}, called in it {calls_in_mode}, async {is_async}"
                        assert out.is_inference() == in_mode, what
                        check(out, w, what)
    # Of no mode again: as ordinary tensors are, in autograd, too.
    weight = torch.ones(3, requires_grad=True)
    outs = [torch.zeros(3) for _ in range(world)]
    dist.all_gather(outs, torch.full((3,), 1.0 + rank), async_op=True).wait()
    (weight * sum(outs)).sum().backward()
    check(weight.grad, sum(torch.full((3,), 1.0 + r) for r in range(world)), "gradient")


def body_sparse(rank, world):
    for in_mode, calls_in_mode in (True, True), (True, False), (False, True):
        with torch.inference_mode(in_mode):
            x = torch.sparse_coo_tensor([[rank, 4]], [1.0, 2.0 + rank], (5,))
        with torch.inference_mode(calls_in_mode):
            dist.all_reduce(x)
        want = torch.tensor([1.0] * world + [0.0] * (4 - world) + [sum(2.0 + r for r in range(world))])
        with torch.inference_mode():
            check(x.to_dense(), want, f"sparse all_reduce, {in_mode}, {calls_in_mode}")


@pytest.mark.parametrize("body", [body_inference, body_sparse])
def test_inference_mode(body):
    run(3, body)


def into_leaves(rank, world):
    """By name: a call whose output is a leaf that requires gradients, or a view of one, made anew."""
    leaf = lambda *shape: torch.nn.Parameter(torch.zeros(*shape))
    leaves = lambda: [leaf(4) for _ in range(world)]
    x, whole = torch.full((4,), 1.0 + rank), torch.ones(4 * world)
    parts = list(whole.chunk(world))
    return {
        "all_gather": lambda a: dist.all_gather(leaves(), x, async_op=a),
        "all_gather into views": lambda a: dist.all_gather(list(leaf(4 * world).chunk(world)), x, async_op=a),
        "all_gather_into_tensor": lambda a: dist.all_gather_into_tensor(leaf(4 * world), x, async_op=a),
        "all_gather_coalesced": lambda a: dist.all_gather_coalesced([[leaf(4)] for _ in range(world)], [x], async_op=a),
        "gather": lambda a: dist.gather(x, leaves() if rank == 0 else None, 0, async_op=a),
        "scatter": lambda a: dist.scatter(leaf(4), parts if rank == 0 else None, 0, async_op=a),
        "broadcast": lambda a: dist.broadcast(leaf(4), 0, async_op=a),
        "all_reduce": lambda a: dist.all_reduce(leaf(4), async_op=a),
        "reduce": lambda a: dist.reduce(leaf(4), 0, async_op=a),
        "reduce_scatter": lambda a: dist.reduce_scatter(leaf(4), parts, async_op=a),
        "reduce_scatter_tensor": lambda a: dist.reduce_scatter_tensor(leaf(4), whole, async_op=a),
        "all_to_all": lambda a: dist.all_to_all(leaves(), parts, async_op=a),
        "all_to_all_single": lambda a: dist.all_to_all_single(leaf(4 * world), whole, async_op=a),
    }


def refusal(call, is_async):
    try:
        results_of(call, is_async)
    except RuntimeError as e:
        return str(e)
    return None


def body_leaf(rank, world, name):
    """In a group of its own: after an error gloo's is not usable, and here the root of a gather is refused alone."""
    return refusal(into_leaves(rank, world)[name], False)


def body_leaves(rank, world):
    refused = {}
    for name, call in into_leaves(rank, world).items():
        if name == "gather":
            continue
        refused[name] = refusal(call, False)
        assert refusal(call, True) == refused[name], name
        dist.barrier()  # nothing had begun, and the group goes on
        with torch.no_grad():
            results_of(call, False)
    return refused


def test_leaves_are_refused_where_gloo_refuses_them():
    refused = run(2, body_leaves)[0]
    refused["gather"] = run(2, body_leaf, "gather", ends=False)[0]
    for name in into_leaves(0, 2):
        by_gloo = run(2, body_leaf, name, backend="gloo", ends=False)[0]
        assert bool(refused[name]) == bool(by_gloo), (name, refused[name], by_gloo)
        if refused[name]:
            assert "a leaf Variable that requires grad is being used in an in-place operation" in refused[name]
