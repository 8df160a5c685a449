"""A trainer with FSDP2, and a server with tensor parallelism that takes its weights while both run. In two terminals:

    torchrun --nproc-per-node 4 fsdp2_weights.py train /tmp/meet
    torchrun --nproc-per-node 2 --master-port 29600 fsdp2_weights.py serve /tmp/meet

An optional third argument is the number of versions after which a job ends.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import tutti
import tutti.torch

WIDTH, HIDDEN = 16, 64


def model_of():
    return nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))


def train(folder, versions):
    torch.manual_seed(0)  # the same teacher and student everywhere
    teacher, model = nn.Linear(WIDTH, 1), model_of()
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    sender = tutti.WeightSender(tutti.torch.communicator(), model, folder)
    data = torch.Generator().manual_seed(1 + dist.get_rank())
    step = taken = 0
    while taken < versions:
        step += 1
        x = torch.randn(256, WIDTH, generator=data)
        loss = nn.functional.mse_loss(model(x), teacher(x).detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            taken += sender.send(step) > 0  # 0: no server is there, for which it does not wait


def serve(folder, versions):
    torch.manual_seed(0)
    teacher, model = nn.Linear(WIDTH, 1), model_of()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    receiver = tutti.WeightReceiver(tutti.torch.communicator(), model, folder)
    x = torch.randn(256, WIDTH)
    for _ in range(versions):
        version = receiver.receive()
        with torch.no_grad():
            loss = nn.functional.mse_loss(model(x), teacher(x))
        if dist.get_rank() == 0:
            print(f"serves version {version}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("train", "serve"):
        sys.exit(__doc__)
    dist.init_process_group("tutti")
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 1 << 60
    (train if sys.argv[1] == "train" else serve)(sys.argv[2], count)
    dist.destroy_process_group()
