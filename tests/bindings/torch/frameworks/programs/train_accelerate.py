"""A training with accelerate; its arguments are the backend, or "default", and "without_module" for accelerate as it is."""

import sys

import torch
from accelerate import Accelerator, InitProcessGroupKwargs
from digest import say
from torch.utils.data import DataLoader, TensorDataset

if "without_module" not in sys.argv:
    import tutti.torch.accelerate

if sys.argv[1] == "default":
    import tutti.torch

    tutti.torch.use_by_default()
    accelerator = Accelerator(cpu=True)
else:
    accelerator = Accelerator(cpu=True, kwargs_handlers=[InitProcessGroupKwargs(backend=sys.argv[1])])
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(7, 32), torch.nn.GELU(), torch.nn.Linear(32, 3))
x = torch.randn(64, 7)
data = TensorDataset(x, x[:, :3].sin())
model, optimizer, batches = accelerator.prepare(
    model, torch.optim.AdamW(model.parameters(), lr=1e-2), DataLoader(data, batch_size=4, shuffle=True)
)
for _ in range(2):
    for x, y in batches:
        optimizer.zero_grad()
        accelerator.backward(torch.nn.functional.mse_loss(model(x), y))
        optimizer.step()

rank, ranks = accelerator.process_index, accelerator.num_processes
mine = torch.arange(3) + 10 * rank
assert accelerator.gather(mine).tolist() == [10 * r + i for r in range(ranks) for i in range(3)]
assert accelerator.reduce(mine, "sum").tolist() == [
    sum(10 * r + i for r in range(ranks)) for i in range(3)
]
padded = accelerator.pad_across_processes(torch.full((rank + 1,), rank), pad_index=-1)
assert padded.tolist() == [rank] * (rank + 1) + [-1] * (ranks - rank - 1)
from accelerate.utils import broadcast_object_list, gather_object

assert gather_object([f"rank {rank}"]) == [f"rank {r}" for r in range(ranks)]
assert broadcast_object_list([f"rank {rank}"], from_process=1) == ["rank 1"]
accelerator.wait_for_everyone()
say(model.parameters(), accelerator.gather(mine).tolist())
accelerator.end_training()
