"""DeepSpeed trains on CPUs with each stage of ZeRO; its argument is the backend."""

import sys

import deepspeed
import torch
from digest import say

deepspeed.init_distributed(dist_backend=sys.argv[1])
rank = torch.distributed.get_rank()
made = []
for stage in (0, 1, 2, 3):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(7, 32), torch.nn.GELU(), torch.nn.Linear(32, 3))
    engine, _, _, _ = deepspeed.initialize(
        model=model,
        model_parameters=model.parameters(),
        config={
            "train_micro_batch_size_per_gpu": 4,
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}},
            "zero_optimization": {"stage": stage},
            "bf16": {"enabled": False},
            "steps_per_print": 1000,
        },
    )
    for step in range(8):
        x = torch.randn(4, 7, generator=torch.Generator().manual_seed(100 * step + rank))
        loss = torch.nn.functional.mse_loss(engine(x), x[:, :3].sin())
        engine.backward(loss)
        engine.step()
    with deepspeed.zero.GatheredParameters(list(model.parameters()), enabled=stage == 3):
        made += [p.detach().clone() for p in model.parameters()]
deepspeed.comm.barrier()
say(made)
torch.distributed.destroy_process_group()
