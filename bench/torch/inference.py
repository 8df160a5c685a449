"""all_reduce as inference engines call it on CPUs: Tutti's beside vLLM's and DeepSpeed's own shared memory, and gloo.

    python bench/torch/inference.py [--ranks 2] [--turns 9] [--types bfloat16,float32] [-o FILE]

In place on tensors from malloc, by an operation of PyTorch; as bench/torch/all_reduce.py does it, in the same
processes, in turn. "tutti" is tutti.torch.direct_all_reduce(), "invariant" the same of a group in invariant mode,
"window" the same of a tensor in window memory, "dist" torch.distributed's all_reduce over Tutti. vLLM and DeepSpeed
are there where Python finds them (`make compare-inference` installs them). Before it is measured, each has to add up
numbers whose sum is exact; what is not right is said instead of a time. A ratio is the contender's time / Tutti's, of
the same turn: its median, and its quartiles. Then: whether the ranks hold the same bits after a sum of random numbers.
"""

import os
import statistics
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TORCH_FR_BUFFER_SIZE", "0")  # no flight recorder: the others have none

import torch
import torch.distributed as dist
from ranks import figures_of, join, keep, parser_of

import tutti
import tutti.torch

KIB = 1024
TURN_S = 0.01  # about so long does a contender's turn take


def of_vllm(rank, ranks):
    from vllm.platforms import current_platform

    current_platform.import_kernels()
    if not hasattr(torch.ops._C, "init_shm_manager"):
        raise RuntimeError("this build has no shared memory")
    name = [f"tutti-bench-{os.getpid()}" if rank == 0 else None]
    dist.broadcast_object_list(name)
    handle = torch.ops._C.init_shm_manager(name[0], ranks, rank, 1)
    dist.barrier()
    torch.ops._C.join_shm_manager(handle, name[0])
    dist.barrier()
    call = torch.ops._C.shm_allreduce
    return lambda x: call(handle, x)


def of_deepspeed(rank, ranks):
    os.environ.update(LOCAL_SIZE=str(ranks), DS_ACCELERATOR="cpu")
    from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder

    module = ShareMemCommBuilder().load(verbose=False)
    module.initialize(ranks, rank)
    dist.barrier()
    return torch.ops.deepspeed.inference_all_reduce_


def contenders_of(rank, ranks):
    """Callables of a tensor, and why others are missing."""
    invariant = dist.new_group(backend="tutti", pg_options=tutti.torch.Options(invariant=True))
    window = dist.new_group(backend="tutti")  # its own, as a communicator learns where a call's buffers lie
    gloo = dist.new_group(backend="gloo")
    found = {
        "tutti": tutti.torch.direct_all_reduce(),
        "invariant": tutti.torch.direct_all_reduce(invariant),
        "window": tutti.torch.direct_all_reduce(window),
        "dist": dist.all_reduce,
        "gloo": lambda x: dist.all_reduce(x, group=gloo),
    }
    missing = {}
    for name, make in [("vllm", of_vllm), ("deepspeed", of_deepspeed)]:
        try:
            found[name] = make(rank, ranks)
        except Exception as error:
            missing[name] = f"{type(error).__name__}: {error}".split("\n")[0]
    return found, missing


def memory_for(name, count, dtype):
    """A tensor of zeros, as the contender takes it."""
    if name != "window":
        return torch.zeros(count, dtype=dtype)
    return torch.from_numpy(tutti.empty(count * dtype.itemsize, "uint8")).view(dtype)


def is_right(call, x, rank, ranks):
    """Whether it adds up small whole numbers that differ by rank and position."""
    data = [((torch.arange(x.numel()) * (r + 2) + r) % 9).to(x.dtype) for r in range(ranks)]
    x.copy_(data[rank])
    call(x)
    return x.equal(sum(d.double() for d in data).to(x.dtype))


def same_bits(call, rank, dtype):
    """On how many of 100,000 random elements two ranks differ, at most."""
    x = torch.randn(100_000, generator=torch.Generator().manual_seed(rank)).to(dtype)
    call(x)
    every = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(every, x)
    return max((every[0].view(torch.uint8) != e.view(torch.uint8)).view(x.numel(), -1).any(1).sum().item() for e in every)


def slowest(seconds):
    """The longest of all ranks'."""
    told = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(told, dist.ReduceOp.MAX)
    return told.item()


def seconds_of(call, x, calls):
    """Of each call, on the slowest rank."""
    for _ in range(3):
        call(x)
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(calls):
        call(x)
    return slowest((time.perf_counter() - begin) / calls)


def agreed(flag):
    """Whether all ranks say so."""
    told = torch.tensor([1 if flag else 0])
    dist.all_reduce(told, dist.ReduceOp.MIN)
    return bool(told.item())


def measure(rank, folder, options, pipe):
    join(rank, options.ranks, folder)
    found, missing = contenders_of(rank, options.ranks)
    if rank == 0:
        pipe.send(("missing", missing))
    for type_name in options.types.split(","):
        dtype = getattr(torch, type_name)
        right = {}
        for name, call in found.items():
            right[name] = agreed(is_right(call, memory_for(name, 4099, dtype), rank, options.ranks))
        calls_of = {name: call for name, call in found.items() if right[name]}
        size = options.least
        while size <= options.most:
            common = memory_for("", size // dtype.itemsize, dtype)
            windowed = memory_for("window", size // dtype.itemsize, dtype)
            memory = {name: windowed if name == "window" else common for name in calls_of}
            calls = {n: max(3, min(1000, int(TURN_S / seconds_of(c, memory[n], 10)))) for n, c in calls_of.items()}
            times = {name: [] for name in calls_of}
            for turn in range(options.turns + 1):
                names = list(calls_of)
                for name in names[turn % len(names) :] + names[: turn % len(names)]:
                    took = seconds_of(calls_of[name], memory[name], calls[name])
                    if turn:  # the first one warms up
                        times[name].append(1e6 * took)
            if rank == 0:
                pipe.send((type_name, size, times))
            size *= options.factor
        differ = {name: same_bits(call, rank, dtype) for name, call in found.items()}
        if rank == 0:
            pipe.send((type_name, right, differ))
    if rank == 0:
        pipe.send(None)
    dist.barrier()
    os._exit(0)  # vLLM's and DeepSpeed's memory has no end of its own


def spread(ratios):
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{middle:.2f} ({low:.2f}-{high:.2f})"


def main():
    parser = parser_of(__doc__, turns=9)
    parser.add_argument("--least", type=int, default=KIB, help="bytes")
    parser.add_argument("--most", type=int, default=8192 * KIB)
    parser.add_argument("--factor", type=int, default=4)
    parser.add_argument("--types", default="bfloat16,float32")
    options = parser.parse_args()
    figures, ratios = [], {}
    for figure in figures_of(measure, options):
        if figure[0] == "missing":
            for name, why in figure[1].items():
                print(f"# {name} is missing: {why}")
            continue
        if isinstance(figure[1], dict):
            type_name, right, differ = figure
            for name in right:
                said = "right" if right[name] else "WRONG SUMS"
                print(f"# {type_name} {name}: {said}; ranks differ in {differ[name]} of 100000 elements")
            figures.append(dict(type=type_name, right=right, differ=differ))
            continue
        type_name, size, times = figure
        line = f"{type_name:9} {size // KIB:>5} KiB  tutti {statistics.median(times['tutti']):8.2f} us"
        for name in times:
            if name != "tutti":
                each = [other / own for other, own in zip(times[name], times["tutti"])]
                ratios.setdefault((type_name, name), []).append(statistics.median(each))
                line += f"  {name} {spread(each)}"
        print(line, flush=True)
        figures.append(dict(type=type_name, bytes=size, **times))
    for (type_name, name), each in ratios.items():
        print(f"# {type_name} {name}: geometric mean {statistics.geometric_mean(each):.2f}, least {min(each):.2f}")
    keep(figures, options)


if __name__ == "__main__":
    main()
