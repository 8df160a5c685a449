"""What test_training.py runs over tutti and over gloo: a GPT trained with each of torch.distributed's
engines. A function of rank and world returns the losses."""

import torch
import torch.distributed as dist
from gpt import Gpt, batch, loss_of
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

STEPS = 4


def train(model, forward=None, rank=None, clip=False, optimizer=None):
    rank = dist.get_rank() if rank is None else rank
    forward = forward or model
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(STEPS):
        x, y = batch(step, rank)
        loss = loss_of(forward(x), y)
        optimizer.zero_grad()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.item())
    return losses


def ddp(rank, world, **options):
    return train(DistributedDataParallel(Gpt(), **options))


def ddp_small_buckets(rank, world):
    return ddp(rank, world, bucket_cap_mb=0.01, gradient_as_bucket_view=True)


def ddp_powersgd(rank, world):
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    model = DistributedDataParallel(Gpt())
    state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2, random_seed=3)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return train(model)


def ddp_bf16_hook(rank, world):
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

    model = DistributedDataParallel(Gpt())
    model.register_comm_hook(None, bf16_compress_hook)
    return train(model)


def shard(model, **options):
    for block in model.blocks:
        fully_shard(block, **options)
    return fully_shard(model, **options)


def fsdp(rank, world):
    return train(shard(Gpt()), clip=True)


def fsdp_bf16(rank, world):
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    return train(shard(Gpt(), mp_policy=policy))


def fsdp_window_memory(rank, world):
    model = shard(Gpt())
    for part in [*model.blocks, model]:
        part.set_allocate_memory_from_process_group_for_comm(True)
    return train(model)


def hsdp(rank, world):
    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("replicate", "shard"))
    return train(shard(Gpt(), mesh=mesh), clip=True)


def fsdp_divide_factor(rank, world):
    model = shard(Gpt())
    for part in [*model.blocks, model]:
        part.set_gradient_divide_factor(2.0 * world)
    return train(model)


def tensor_parallel(rank, world):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (world,))
    model = Gpt()
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    plan |= {f"attention.{n}": ColwiseParallel() for n in "qkv"} | {"attention.out": RowwiseParallel()}
    for block in model.blocks:
        parallelize_module(block, mesh, plan)
    return train(model, rank=0)


def two_dimensions(rank, world):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("dp", "tp"))
    model = Gpt()
    for block in model.blocks:
        parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return train(shard(model, mesh=mesh["dp"]), rank=rank // (world // 2))


class Stage(nn.Module):
    def __init__(self, whole, rank, world):
        super().__init__()
        each = len(whole.blocks) // world
        self.first = nn.ModuleList([whole.tokens]) if rank == 0 else None
        self.positions = whole.positions if rank == 0 else None
        self.blocks = whole.blocks[rank * each : (rank + 1) * each]
        self.last = nn.Sequential(whole.norm, whole.logits) if rank == world - 1 else nn.Identity()

    def forward(self, x):
        if self.first is not None:
            x = self.first[0](x) + self.positions
        return self.last(self.blocks(x))


def pipeline(rank, world, name="Schedule1F1B"):
    from torch.distributed import pipelining

    stage = Stage(Gpt(), rank, world)
    optimizer = torch.optim.AdamW(stage.parameters(), lr=1e-2)
    pipe = pipelining.PipelineStage(stage, rank, world, torch.device("cpu"))
    schedule = getattr(pipelining, name)(pipe, n_microbatches=4, loss_fn=loss_of)
    losses = []
    for step in range(STEPS):
        x, y = batch(step, 0)
        mine = []
        if rank == 0:
            schedule.step(x)
        elif rank == world - 1:
            schedule.step(target=y, losses=mine)
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(sum(m.item() for m in mine) / 4)
    return losses


def pipeline_gpipe(rank, world):
    return pipeline(rank, world, "ScheduleGPipe")


def functional(rank, world):
    import torch.distributed._functional_collectives as fc

    x = torch.arange(4.0 * world) + rank
    every = list(range(world))
    out = [fc.all_reduce(x, "sum", every), fc.all_gather_tensor(x, 0, every)]
    out.append(fc.reduce_scatter_tensor(x, "avg", 0, every))
    out.append(fc.all_to_all_single(x, None, None, every))
    out.append(fc.broadcast(x, 1, every))
    # The exchange of context parallelism. PyTorch has its attention for GPUs alone.
    out.append(fc.permute_tensor(x, [(r + 1) % world for r in every], every))
    out += fc.all_reduce_coalesced([x, 2 * x], "max", every)
    out += fc.all_gather_into_tensor_coalesced([x, 2 * x], every)
    return [o.tolist() for o in map(torch.Tensor.clone, out)]


def compiled(rank, world):
    import torch.distributed._functional_collectives as fc

    @torch.compile(backend="aot_eager", fullgraph=True)
    def f(x):
        y = fc.all_reduce(x * 2, "sum", dist.group.WORLD)
        return fc.all_gather_tensor(y + 1, 0, dist.group.WORLD).sum()

    x = torch.arange(8.0) + rank
    model = torch.compile(DistributedDataParallel(Gpt()), backend="aot_eager")
    return [f(x).item(), *train(model)]


def inductor(rank, world):
    """Compiled to code, collectives in it."""
    import torch.distributed._functional_collectives as fc

    @torch.compile(fullgraph=True)
    def f(x):
        y = fc.all_reduce(x * 2, "sum", dist.group.WORLD)
        z = fc.reduce_scatter_tensor(y + 1, "avg", 0, dist.group.WORLD)
        return fc.all_gather_tensor(z * z, 0, dist.group.WORLD).sum()

    return [f(torch.arange(8.0) + rank + i).item() for i in range(3)]


class RingAttention(torch.autograd.Function):
    """Attention over a sequence of which each rank has a part: PyTorch's own, which its interface has for
    GPUs alone, with the CPU's operators."""

    @staticmethod
    def forward(ctx, q, k, v):
        from torch.distributed.tensor.experimental import _attention as ring

        op = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        out, lse = ring._templated_ring_attention(dist.group.WORLD, 2, op, q, k, v, is_causal=True)
        ctx.save_for_backward(q, k, v, out, lse)
        return out

    @staticmethod
    def backward(ctx, grad):
        from torch.distributed.tensor.experimental._context_parallel import _attention as ring

        q, k, v, out, lse = ctx.saved_tensors
        op = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward

        def each(query, key, value, out, logsumexp, is_causal, grad_out):
            return op(grad_out, query, key, value, out, logsumexp, 0.0, is_causal)

        return ring._templated_ring_attention_backward(
            dist.group.WORLD, 2, each, grad.contiguous(), "grad_out", q, k, v, out, lse, True
        )[:3]


def context_parallel(rank, world, rotate="alltoall"):
    from torch.distributed.tensor.experimental import _attention as ring

    ring._cp_options.enable_load_balance = False
    ring.set_rotate_method(rotate)
    torch.nn.functional.scaled_dot_product_attention = lambda q, k, v, is_causal: RingAttention.apply(q, k, v)
    model = Gpt()
    positions = model.positions
    each = len(positions) // world
    mine = slice(rank * each, (rank + 1) * each)

    def forward(x):
        return model.logits(model.norm(model.blocks(model.tokens(x) + positions[mine])))

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(STEPS):
        x, y = batch(step, 0)
        loss = loss_of(forward(x[:, mine]), y[:, mine])
        optimizer.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad, dist.ReduceOp.SUM)
            p.grad /= world
        optimizer.step()
        whole = loss.detach().clone()
        dist.all_reduce(whole)
        losses.append(whole.item() / world)
    return losses


def context_parallel_gathered(rank, world):
    return context_parallel(rank, world, "allgather")


def ddp_joined(rank, world):
    """Ranks with different numbers of batches, steps without communication, unused parameters."""
    model = DistributedDataParallel(Gpt(), find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    losses = []
    with model.join():
        for step in range(3 + rank):
            x, y = batch(step, rank)
            with model.no_sync():
                loss_of(model(x), y).backward()
            loss = loss_of(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    return losses


def sequence_parallel(rank, world):
    from torch.distributed.tensor import DTensor, Replicate, Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module

    mesh = init_device_mesh("cpu", (world,))
    torch.manual_seed(1)
    model = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
    plan = {
        "0": SequenceParallel(),
        "1": ColwiseParallel(input_layouts=Shard(1)),
        "3": RowwiseParallel(output_layouts=Shard(1)),
    }
    parallelize_module(model, mesh, plan)
    results = []
    for step in range(STEPS):
        x = torch.randn(2, 8, 32, generator=torch.Generator().manual_seed(step))
        out = model(DTensor.from_local(x.chunk(world, 1)[rank], mesh, [Shard(1)]))
        local = out.square().mean()
        local.backward()
        gradients = [p.grad.full_tensor() for p in model.parameters()]
        results += [local.item(), *(g.sum().item() for g in gradients)]
        model.zero_grad()
    return results


def redistributed(rank, world):
    """DTensors from each placement to each other one, uneven ones too."""
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (world,))
    x = torch.arange(5.0 * 7).view(5, 7)
    results = []
    for before in (Replicate(), Shard(0), Shard(1)):
        for after in (Replicate(), Shard(0), Shard(1)):
            d = distribute_tensor(x, mesh, [before]).redistribute(mesh, [after])
            assert torch.equal(d.full_tensor(), x)
            results.append(d.to_local().sum().item())
    for how in ("sum", "avg", "max", "min"):
        for after in (Replicate(), Shard(0), Shard(1)):
            d = DTensor.from_local(x + rank, mesh, [Partial(how)]).redistribute(mesh, [after])
            results.append(d.full_tensor().sum().item())
    return results


def checkpoint_async(rank, world):
    import shutil
    import tempfile

    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict

    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder)
    model = shard(Gpt())
    losses = train(model)
    # A group of its own: another thread uses it, in no order with the training's collectives.
    saves = dist.new_group()
    saving = dcp.async_save(get_model_state_dict(model), checkpoint_id=folder[0], process_group=saves)
    for _ in range(200):
        dist.all_reduce(torch.ones(1000))
    saving.result()
    other = shard(Gpt())
    state = get_model_state_dict(other)
    dcp.load(state, checkpoint_id=folder[0])
    dist.barrier()
    if rank == 0:
        shutil.rmtree(folder[0])
    for name, saved in get_model_state_dict(model).items():
        assert torch.equal(state[name].to_local(), saved.to_local()), name
    return losses


def checkpoint(rank, world):
    import shutil
    import tempfile

    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict

    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder)
    model = shard(Gpt())
    losses = train(model)
    dcp.save(get_model_state_dict(model), checkpoint_id=folder[0])
    other = shard(Gpt())
    state = get_model_state_dict(other)
    dcp.load(state, checkpoint_id=folder[0])
    set_model_state_dict(other, state)
    for a, b in zip(model.parameters(), other.parameters()):
        assert torch.equal(a.to_local(), b.to_local())
    dist.barrier()
    if rank == 0:
        shutil.rmtree(folder[0])
    return [*losses, *train(other)]


def zero_optimizer(rank, world):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DistributedDataParallel(Gpt())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=1e-2)
    return train(model, optimizer=optimizer)
