"""DistributedDataParallel over Tutti: torchrun --nproc-per-node 4 ddp.py

Each rank has data of its own; DDP averages the gradients, so all ranks have the same weights.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tutti.torch  # PyTorch 2.11 does not look for installed backends; later ones need no import

STEPS, SAMPLES, WIDTH = 300, 32, 16


def main():
    dist.init_process_group("tutti")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)  # the same teacher and student everywhere
    teacher = nn.Linear(WIDTH, 1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    data = torch.Generator().manual_seed(1 + rank)
    for step in range(STEPS):
        x = torch.randn(SAMPLES, WIDTH, generator=data)
        loss = nn.functional.mse_loss(model(x), teacher(x).detach())
        optimizer.zero_grad()
        loss.backward()  # DDP sums the gradients of a bucket as soon as it is full
        optimizer.step()
        if step % 100 == 0 or step == STEPS - 1:
            mean = loss.detach().clone()
            dist.all_reduce(mean, dist.ReduceOp.AVG)
            if rank == 0:
                print(f"step {step}: loss {mean.item():.4f} on {size} ranks", flush=True)
    dist.destroy_process_group()


main()
