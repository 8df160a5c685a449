"""The parts of torchtitan that need no GPU train its small Llama 3: its process groups, meshes, sharding,
tensor parallelism, optimizer, and norm of the gradients. Its Trainer asks for a GPU.

The arguments are the backend, and the degrees: shard=2 tp=2 replicate=1. Losses over
other degrees differ by rounding alone, so the program prints them.
"""

import sys

import torch
import torch._utils
import torch.distributed as dist
from digest import say
from torch.distributed.tensor import DTensor, distribute_tensor

torch._utils._get_available_device_type = lambda: "cpu"  # torchtitan says "cuda" where there is nothing

from torchtitan.config.configs import CommConfig
from torchtitan.distributed import ParallelDims
from torchtitan.distributed import utils as theirs
from torchtitan.models.common.attention import ScaledDotProductAttention
from torchtitan.models.llama3.config_registry import llama3_debugmodel

import tutti.torch

degrees = {"shard": 1, "tp": 1, "replicate": 1} | {
    name: int(number) for name, number in (a.split("=") for a in sys.argv[2:])
}
if sys.argv[1] == "tutti":
    tutti.torch.use_by_default()
world = theirs.init_distributed(CommConfig())
rank = dist.get_rank()

config = llama3_debugmodel()
config.training.seq_len = 64
config.training.disable_cuda_graphs = True
config.training.mixed_precision_param = "float32"
config.parallelism.data_parallel_shard_degree = degrees["shard"]
config.parallelism.data_parallel_replicate_degree = degrees["replicate"]
config.parallelism.tensor_parallel_degree = degrees["tp"]
dims = ParallelDims.from_config(config.parallelism, world)
theirs.set_spmd_backend(config.parallelism.spmd_backend)
theirs.set_determinism(dims, torch.device("cpu"), config.debug, distinct_seed_mesh_dims=["pp"])

spec = config.model_spec
for layer in spec.model.layers:  # its attentions for text are for GPUs
    layer.attention.inner_attention = ScaledDotProductAttention.Config()
spec.model.update_from_config(config=config)
with torch.device("meta"):
    model = spec.model.build()
model = spec.parallelize_fn(
    model,
    parallel_dims=dims,
    training=config.training,
    parallelism=config.parallelism,
    compile_config=config.compile,
    ac_config=config.activation_checkpoint,
    dump_folder=config.dump_folder,
)
model.to_empty(device="cpu")
with torch.no_grad():
    model.init_weights(buffer_device=None)
    for i, (name, p) in enumerate(model.named_parameters()):  # the same ones for all degrees
        if p.dim() > 1:
            whole = 0.02 * torch.randn(p.shape, generator=torch.Generator().manual_seed(i))
            p.copy_(distribute_tensor(whole, p.device_mesh, p.placements) if isinstance(p, DTensor) else whole)
optimizers = config.optimizer.build(model_parts=[model])

batch = dims.get_mesh("batch").get_local_rank() if dims.dp_enabled else 0
data = degrees["shard"] * degrees["replicate"]
loss_of = config.loss.loss_fn.build()
losses = []
for step in range(3):
    # Eight sequences; each rank has its part. torchtitan adds the gradients of the parts up.
    tokens = torch.randint(500, (8, 65), generator=torch.Generator().manual_seed(step))
    mine = tokens.chunk(data)[batch]
    optimizers.zero_grad()
    with theirs.get_spmd_context(parallel_dims=dims, spmd_typechecking=False)():
        logits = model(mine[:, :-1])
        loss, _ = loss_of(logits, mine[:, 1:], torch.tensor(8 * 64))
        loss.backward()
    theirs.clip_grad_norm_(list(model.parameters()), 1.0, foreach=True)
    optimizers.step()
    total = loss.detach().clone()
    dist.all_reduce(total)
    losses.append(total.item() * data / world)
if rank == 0:
    print("losses", *losses)
parts = [p.to_local() if isinstance(p, DTensor) else p for p in model.parameters()]
everyone = [None] * world
dist.all_gather_object(everyone, [p.detach().clone() for p in parts])
say([p for parameters in everyone for p in parameters])
dist.destroy_process_group()
