"""A model from FSDP over all ranks to tensor parallelism over half of them: tutti.Reshard beside what DTensor has.

    python bench/torch/reshard.py [--ranks 4] [--mib 1024] [--turns 5] [-o FILE]

DTensor knows no way from one mesh to another, so its two ways are
redistribute: from (Shard(0), Shard(0)) on a mesh of (ranks / 2, 2) to (Replicate(), Shard(d)): all ranks get a part;
full_tensor: all ranks gather each tensor, and those of tensor parallelism copy their slices.
Both over tutti and over gloo, in the same processes, in turn. Every result is compared. A time is the median over the
turns of that of the slowest rank.
"""

import os
import statistics
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist
from ranks import figures_of, join, keep, parser_of
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard

import tutti
import tutti.torch

HIDDEN, WIDE = 2048, 5632


def model_of(mib):
    """Names, shapes, and the dimension that tensor parallelism cuts, of at least `mib` of bfloat16."""
    tensors, elements, layer = [], 0, 0
    while elements * 2 < mib << 20:
        for name in "q", "k", "v":
            tensors.append((f"{layer}.{name}", (HIDDEN, HIDDEN), 0))
        tensors.append((f"{layer}.o", (HIDDEN, HIDDEN), 1))
        for name in "gate", "up":
            tensors.append((f"{layer}.{name}", (WIDE, HIDDEN), 0))
        tensors.append((f"{layer}.down", (HIDDEN, WIDE), 1))
        elements, layer = sum(a * b for _, (a, b), _ in tensors), layer + 1
    return tensors


def cut(tensor, dimension, rank, parts):
    return tensor.chunk(parts, dimension)[rank]


def bits(number, shape, dimension, rank, parts, turn):
    """The bits of a part of tensor `number`, other ones in each turn. Only that part is computed."""
    index = [torch.arange(n, dtype=torch.int32) for n in shape]
    index[dimension] = cut(index[dimension], 0, rank, parts)
    place = index[0][:, None] * shape[1] + index[1][None, :]
    return place.mul_(40503).add_(number * 977 + turn * 131).bitwise_right_shift_(3).to(torch.int16)


def part_shape(shape, dimension, rank, parts):
    return cut(torch.empty(shape, device="meta"), dimension, rank, parts).shape


def measure(rank, folder, options, pipe):
    join(rank, options.ranks, folder)
    ranks, half = options.ranks, options.ranks // 2
    tensors = model_of(options.mib)
    flat = torch.arange(ranks)
    groups = {"tutti": None, "gloo": dist.new_group(backend="gloo")}
    meshes = {}
    for backend in groups:  # meshes of (half, 2) and of all, whose groups have the backend
        how = {} if backend == "tutti" else {"backend_override": {0: "gloo", 1: "gloo"}}
        meshes[backend] = dist.device_mesh.init_device_mesh("cpu", (half, 2), mesh_dim_names=("a", "b"), **how)
        how = {} if backend == "tutti" else {"backend_override": {0: "gloo"}}
        meshes[backend, "flat"] = dist.device_mesh.init_device_mesh("cpu", (ranks,), **how)
    servers = DeviceMesh("cpu", flat[:half])  # all ranks make it
    serves = rank < half

    source = [torch.empty(part_shape(shape, 0, rank, ranks), dtype=torch.bfloat16) for _, shape, _ in tensors]
    state = {
        name: DTensor.from_local(local, meshes["tutti", "flat"], [Shard(0)], run_check=False)
        for (name, _, _), local in zip(tensors, source)
    }
    target = {}
    if serves:
        for name, shape, d in tensors:
            local = torch.empty(part_shape(shape, d, rank, half), dtype=torch.bfloat16)
            target[name] = DTensor.from_local(local, servers, [Shard(d)], run_check=False)
    begin = time.perf_counter()
    weights = tutti.Reshard(tutti.torch.communicator(), state, target)
    made = time.perf_counter() - begin

    # Each returns what this rank has got, and which of how many parts that is.
    def ours():
        weights.run()
        return [target[name].to_local() for name, _, _ in tensors] if serves else [], rank, half

    def redistributed(backend):
        mesh = meshes[backend]
        got = []
        for local, (_, _, d) in zip(source, tensors):
            x = DTensor.from_local(local, mesh, [Shard(0), Shard(0)], run_check=False)
            got.append(x.redistribute(mesh, [Replicate(), Shard(d)]).to_local())
        return got, rank % 2, 2

    def gathered(backend):
        got = []
        for local, (_, _, d) in zip(source, tensors):
            x = DTensor.from_local(local, meshes[backend, "flat"], [Shard(0)], run_check=False).full_tensor()
            if serves:
                got.append(cut(x, d, rank, half).clone())
        return got, rank, half

    ways = {"tutti.Reshard": ours}
    for backend in groups:
        ways[f"redistribute over {backend}"] = lambda b=backend: redistributed(b)
        ways[f"full_tensor over {backend}"] = lambda b=backend: gathered(b)
    times = {name: [] for name in ways}
    for turn in range(options.turns + 1):
        order = list(ways) if turn % 2 else list(ways)[::-1]
        for way, name in enumerate(order):
            for number, (local, (_, shape, _)) in enumerate(zip(source, tensors)):
                local.view(torch.int16).copy_(bits(number, shape, 0, rank, ranks, turn * 8 + way))
            dist.barrier()
            begin = time.perf_counter()
            got, part, parts = ways[name]()
            took = torch.tensor([time.perf_counter() - begin])
            dist.all_reduce(took, dist.ReduceOp.MAX)
            for number, (local, (_, shape, d)) in enumerate(zip(got, tensors)):
                right = bits(number, shape, d, part, parts, turn * 8 + way)
                assert torch.equal(local.view(torch.int16), right), (name, number)
            if turn:  # the first one warms up
                times[name].append(took.item() * 1e3)
    if rank == 0:
        for name, each in times.items():
            pipe.send((name, each, made))
        pipe.send(None)
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = parser_of(__doc__, turns=5)
    parser.set_defaults(ranks=4)
    parser.add_argument("--mib", type=int, default=1024, help="of the model")
    options = parser.parse_args()
    figures = dict((name, (each, made)) for name, each, made in figures_of(measure, options))
    ours, made = figures["tutti.Reshard"]
    print(f"plan made and proved in {made * 1e3:.0f} ms")
    print(f"{'':<28} {'ms':>8}  times tutti.Reshard's")
    for name, (each, _) in figures.items():
        ratio = statistics.median(t / o for t, o in zip(each, ours))
        print(f"{name:<28} {statistics.median(each):>8.1f}  {ratio:.2f}", flush=True)
    keep({name: each for name, (each, _) in figures.items()}, options)


if __name__ == "__main__":
    main()
