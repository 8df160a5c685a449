"""FSDP2 (fully_shard) over Tutti: torchrun --nproc-per-node 4 fsdp2.py

Each rank keeps its share of every parameter, and gathers the others' while a layer needs them.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import tutti.torch  # PyTorch 2.11 does not look for installed backends; later ones need no import

STEPS, SAMPLES, WIDTH, LAYERS = 300, 32, 16, 3


def main():
    dist.init_process_group("tutti")
    rank, size = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (size,))
    torch.manual_seed(0)  # the same teacher and student everywhere
    teacher = nn.Linear(WIDTH, 1)
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(LAYERS)]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, 1))
    for layer in layers:
        fully_shard(layer, mesh=mesh)  # gathered and freed by itself
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    own = sum(p.to_local().numel() for p in model.parameters())
    data = torch.Generator().manual_seed(1 + rank)
    for step in range(STEPS):
        x = torch.randn(SAMPLES, WIDTH, generator=data)
        loss = nn.functional.mse_loss(model(x), teacher(x).detach())
        optimizer.zero_grad()
        loss.backward()  # reduces each layer's gradients to the ranks that keep them
        optimizer.step()
        if step % 100 == 0 or step == STEPS - 1:
            mean = loss.detach().clone()
            dist.all_reduce(mean, dist.ReduceOp.AVG)
            if rank == 0:
                print(f"step {step}: loss {mean.item():.4f}; rank 0 of {size} keeps {own} parameters",
                      flush=True)
    dist.destroy_process_group()


main()
