"""The same as worker.cpp with PyTorch's own engines, over gloo: the model of examples/train/model.h,
its data, sizes, optimizer and clipping.

    torch_worker.py alone|ddp|fsdp2 LAYERS WIDTH HEADS LENGTH BATCH TEXT
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
        parts = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads)
        q, k, v = (parts.select(2, i).transpose(1, 2) for i in range(3))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).reshape(b, t, c))
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
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1},
                                   {"params": vectors, "weight_decay": 0.0}], lr=1e-3, fused=True)
    text = torch.frombuffer(bytearray(text_of(path)), dtype=torch.uint8)
    random = torch.Generator().manual_seed(1)
    print(json.dumps({"ready": count}), flush=True)
    for line in sys.stdin:
        times, computed = [], []
        for _ in range(int(line)):
            start, computed_before = time.perf_counter(), time.process_time()
            at = torch.randint(len(text) - length, (batch,), generator=random).tolist()
            part = at[rank * batch // size:(rank + 1) * batch // size]
            rows = torch.stack([text[i:i + length + 1] for i in part]).long()
            loss = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            value = loss.detach().clone()
            if engine != "alone":
                dist.all_reduce(value)
                value /= size
            times.append(1e3 * (time.perf_counter() - start))
            computed.append(1e3 * (time.process_time() - computed_before))
        print(json.dumps({"times": times, "waited": [0] * len(times), "computed": computed, "loss": value.item(),
                          "peak": status("VmHWM") - before}), flush=True)


main()
