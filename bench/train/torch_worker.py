"""The same as worker.cpp with PyTorch's own engines, over gloo: the model of examples/train/model.h,
its data, sizes, optimizer and clipping.

    torch_worker.py alone|ddp|fsdp2|tp|pp LAYERS WIDTH HEADS LENGTH BATCH TEXT

tp: DTensor's column- and row-parallel layers, all ranks on the same sequences. pp: pipelining's 1F1B, of
MICRO_BATCHES micro-batches.
"""

import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

MICRO_BATCHES = 4


class Embedding(nn.Module):
    def __init__(self, vocabulary, length, width):
        super().__init__()
        self.tokens = nn.Parameter(torch.empty(vocabulary, width).normal_(0, 0.02))
        self.positions = nn.Parameter(torch.empty(length, width).normal_(0, 0.02))

    def forward(self, x):
        return F.embedding(x, self.tokens) + self.positions[: x.size(1)]


def linear(inputs, outputs, deviation=0.02):
    layer = nn.Linear(inputs, outputs)
    nn.init.normal_(layer.weight, 0, deviation)
    nn.init.zeros_(layer.bias)
    return layer


class Block(nn.Module):
    def __init__(self, width, heads, layers):
        super().__init__()
        last = 0.02 / (2 * layers) ** 0.5
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = linear(width, 3 * width), linear(width, width, last)
        self.up, self.down = linear(width, 4 * width), linear(4 * width, width, last)

    def forward(self, x):
        b, t, c = x.shape
        parts = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1)
        q, k, v = (parts.select(2, i).transpose(1, 2) for i in range(3))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).reshape(b, t, -1))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, vocabulary, length, layers, width, heads):
        super().__init__()
        self.embedding = Embedding(vocabulary, length, width)
        self.blocks = nn.ModuleList(Block(width, heads, layers) for _ in range(layers))
        self.norm, self.logits = nn.LayerNorm(width), linear(width, vocabulary)

    def forward(self, x):
        x = self.embedding(x)
        for block in self.blocks:
            x = block(x)
        return self.logits(self.norm(x))


class Stage(nn.Module):
    """Layers of a model, one after the other."""

    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def loss_of(logits, following):
    return F.cross_entropy(logits.flatten(0, 1), following.flatten())


def tensor_parallel(model, size):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    mesh = init_device_mesh("cpu", (size,))
    for block in model.blocks:  # queries, keys and values are dealt out in another order: as good as any
        block.heads //= size
        parallelize_module(block, mesh, {"qkv": ColwiseParallel(), "project": RowwiseParallel(),
                                         "up": ColwiseParallel(), "down": RowwiseParallel()})
    return model


class Pipeline:
    """The rank's stage, and the schedule that runs it."""

    def __init__(self, model, rank, size, micro_batch, length, width):
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B
        layers = [model.embedding, *model.blocks, nn.Sequential(model.norm, model.logits)]
        share = [len(layers) * i // size for i in range(size + 1)]
        self.module = Stage(layers[share[rank]:share[rank + 1]])
        # With examples of inputs and outputs the stages need not tell each other their shapes, for
        # which PyTorch would want numpy.
        tokens = torch.empty(micro_batch, length, dtype=torch.long, device="meta")
        between = torch.empty(micro_batch, length, width, device="meta", requires_grad=True)
        logits = torch.empty(micro_batch, length, 256, device="meta", requires_grad=True)
        stage = PipelineStage(self.module, rank, size, torch.device("cpu"),
                              input_args=(between if rank else tokens,),
                              output_args=(between if rank < size - 1 else logits,))
        self.schedule = Schedule1F1B(stage, MICRO_BATCHES, loss_fn=loss_of)
        self.first, self.last = rank == 0, rank == size - 1

    def step(self, tokens, following):
        losses = []
        if self.first:
            self.schedule.step(tokens)
        elif self.last:
            self.schedule.step(target=following, losses=losses)
        else:
            self.schedule.step()
        return torch.stack(losses).mean() if losses else torch.zeros(())


def status(what):
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(what + ":"):
            return 1024 * int(line.split()[1])
    return 0


def text_of(path):
    path = pathlib.Path(path)
    if path.is_file():
        return path.read_bytes()
    files = []
    for folder, folders, names in os.walk(path):
        folders[:] = [f for f in folders if not f.startswith(("build", "."))]
        files += [pathlib.Path(folder) / n for n in names if n.endswith((".h", ".cpp", ".md"))]
    return b"".join(f.read_bytes() for f in sorted(files))


def is_shared(p):
    return hasattr(p, "placements")  # a DTensor


def clip(parameters, pipeline):
    """By the norm of all ranks' gradients. DTensors and other tensors do not go together in torch."""
    total = torch.zeros(())
    for shared in (False, True):
        gradients = [p.grad for p in parameters if is_shared(p) == shared]
        if gradients:
            norm = torch.nn.utils.get_total_norm(gradients)
            total += (norm.full_tensor() if shared else norm) ** 2
    if pipeline:
        dist.all_reduce(total)
    for shared in (False, True):
        torch.nn.utils.clip_grads_with_norm_([p for p in parameters if is_shared(p) == shared], 1.0,
                                             total.sqrt())


def main():
    engine, (layers, width, heads, length, batch), path = sys.argv[1], map(int, sys.argv[2:7]), sys.argv[7]
    torch.set_num_threads(1)
    torch.manual_seed(1)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if engine != "alone":
        dist.init_process_group("gloo")
    before = status("VmRSS")
    model = Gpt(256, length, layers, width, heads)
    count = sum(p.numel() for p in model.parameters())
    if engine == "ddp":
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    elif engine == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        mesh = init_device_mesh("cpu", (size,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    elif engine == "tp":
        tensor_parallel(model, size)
    pipeline = Pipeline(model, rank, size, batch // MICRO_BATCHES, length, width) if engine == "pp" else None
    if pipeline:
        model = pipeline.module
    parameters = list(model.parameters())
    groups = {}
    for p in parameters:
        groups.setdefault((p.dim() > 1, is_shared(p)), []).append(p)
    optimizer = torch.optim.AdamW([{"params": group, "weight_decay": 0.1 if matrices else 0.0}
                                   for (matrices, _), group in groups.items()], lr=1e-3, fused=True)
    text = torch.frombuffer(bytearray(text_of(path)), dtype=torch.uint8)
    random = torch.Generator().manual_seed(1)
    print(json.dumps({"ready": count}), flush=True)
    for line in sys.stdin:
        times, computed = [], []
        for _ in range(int(line)):
            start, computed_before = time.perf_counter(), time.process_time()
            at = torch.randint(len(text) - length, (batch,), generator=random).tolist()
            part = at if engine in ("tp", "pp") else at[rank * batch // size:(rank + 1) * batch // size]
            rows = torch.stack([text[i:i + length + 1] for i in part]).long()
            optimizer.zero_grad()
            if pipeline:
                loss = pipeline.step(rows[:, :-1], rows[:, 1:])
            else:
                loss = loss_of(model(rows[:, :-1]), rows[:, 1:])
                loss.backward()
            clip(parameters, pipeline)
            optimizer.step()
            value = loss.detach().clone()
            if engine != "alone":
                dist.all_reduce(value)
                value /= 1 if pipeline else size
            times.append(1e3 * (time.perf_counter() - start))
            computed.append(1e3 * (time.process_time() - computed_before))
        print(json.dumps({"times": times, "waited": [0] * len(times), "computed": computed, "loss": value.item(),
                          "peak": status("VmHWM") - before}), flush=True)


if __name__ == "__main__":
    main()
