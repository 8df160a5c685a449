"""Training steps of a GPT (float32) with torch's DDP and FSDP2 over tutti, over gloo, and without
communication.

    python bench/torch/training.py [--model 5M|26M] [--ranks 2] [--turns 7] [--steps 3] [--no-gloo] [-o FILE]

All contenders are models of the same processes, each on a core and with a thread of its own, and take
turns of a few steps (A B C, C B A ...), so that whatever else the machine does meets all of them. A
contender's time in a turn is the median of its steps on the slowest rank; its ratio is the median, over
the turns, of its time to that of the step without communication. "nothing" is the engine alone: FSDP2 over
torch's backend "fake", which communicates nothing, and DDP with a communication hook that does nothing. The last
column is the ratio to the same engine over nothing. "core" is the time for which
rank 0's threads had a core, and its ratio: on a machine that others use, too, it says more than the time.
"""

import os
import pathlib
import resource
import statistics
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist
import torch.nn.functional as F
from ranks import figures_of, join, keep, parser_of
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeProcessGroup  # noqa: F401: makes "fake"

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "train"))
from torch_worker import Gpt

MODELS = {"5M": (6, 256, 4), "26M": (8, 512, 2)}  # layers, width, sequences of each rank
LENGTH, VOCABULARY, HEADS = 128, 256, 8


def gpt(layers, width):
    torch.manual_seed(1)
    return Gpt(VOCABULARY, LENGTH, layers, width, HEADS)


def sharded(model, group):
    mesh = DeviceMesh.from_group(group, "cpu")
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def in_windows(model):
    for part in [*model.blocks, model]:
        part.set_allocate_memory_from_process_group_for_comm(True)
    return model


def measure(rank, folder, options, pipe):
    join(rank, options.ranks, folder)
    tutti, gloo = dist.group.WORLD, None if options.no_gloo else dist.new_group(backend="gloo")
    nothing = dist.new_group(backend="fake")
    layers, width, sequences = MODELS[options.model]

    def ddp(group):
        return DistributedDataParallel(gpt(layers, width), process_group=group, gradient_as_bucket_view=True)

    def reduces_nothing(_, bucket):
        done = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    models = {
        "alone": gpt(layers, width),
        "ddp, tutti": ddp(tutti),
        "ddp, nothing": ddp(tutti),
        "fsdp2, tutti": sharded(gpt(layers, width), tutti),
        "fsdp2, tutti, its memory": in_windows(sharded(gpt(layers, width), tutti)),
        "fsdp2, nothing": sharded(gpt(layers, width), nothing),
    }
    models["ddp, nothing"].register_comm_hook(None, reduces_nothing)
    if gloo:
        models["ddp, gloo"] = ddp(gloo)
        models["fsdp2, gloo"] = sharded(gpt(layers, width), gloo)
    optimizers = {
        name: torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True) for name, model in models.items()
    }
    random = torch.Generator().manual_seed(rank)

    def step(name):
        x = torch.randint(VOCABULARY, (sequences, LENGTH), generator=random)
        begin = time.perf_counter()
        loss = F.cross_entropy(models[name](x).flatten(0, 1), x.flatten())
        optimizers[name].zero_grad()
        loss.backward()
        optimizers[name].step()
        loss.item()
        return 1e3 * (time.perf_counter() - begin)

    def core_ms():
        used = resource.getrusage(resource.RUSAGE_SELF)
        return 1e3 * (used.ru_utime + used.ru_stime)

    for turn in range(options.turns + 1):
        times = {}
        for name in list(models) if turn % 2 else list(models)[::-1]:
            dist.barrier()
            before = core_ms()
            took = torch.tensor([statistics.median(step(name) for _ in range(options.steps))])
            core = (core_ms() - before) / options.steps
            dist.all_reduce(took, dist.ReduceOp.MAX)
            times[name] = took.item(), core
        if rank == 0 and turn:  # the first one warms up
            pipe.send(times)
    if rank == 0:
        pipe.send(None)
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = parser_of(__doc__, turns=7)
    parser.add_argument("--model", choices=MODELS, default="5M")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--no-gloo", action="store_true", help="without the contenders over gloo")
    options = parser.parse_args()
    turns = list(figures_of(measure, options))
    print(f"GPT of {options.model} parameters, {options.ranks} ranks: a step, and its ratio to one alone")
    for name in turns[0]:
        print(f"{name:<26}", end="")
        for i, what in enumerate(("ms", "ms core")):
            ratio = statistics.median(t[name][i] / t["alone"][i] for t in turns)
            print(f" {statistics.median(t[name][i] for t in turns):>9.1f} {what} {ratio:>7.3f}", end="")
        nothing = "alone" if name == "alone" else name.split(",")[0] + ", nothing"
        ratios = (statistics.median(t[name][i] / t[nothing][i] for t in turns) for i in range(2))
        print("    beside {:<14} {:.3f} ({:.3f} core)".format(nothing, *ratios))
    keep(turns, options)


if __name__ == "__main__":
    main()
