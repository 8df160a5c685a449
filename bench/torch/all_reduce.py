"""all_reduce through torch.distributed, in place on tensors from malloc: backend tutti beside gloo.

    python bench/torch/all_reduce.py [--ranks 2] [--least 8] [--most 67108864] [--turns 9] [-o FILE]

Both backends are groups of the same processes, each on a core and with a thread of its own, and take
turns (A B, B A ...), so that whatever else the machine does meets both. A time is the median over the
turns of the mean of a turn's calls on the slowest rank; a ratio is the median of the ratios of the turns.
"numpy" is the same call through the package without torch, and "torch" a call of torch that
communicates nothing (its backend "fake"): what torch itself costs.
"""

import os
import statistics
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TORCH_FR_BUFFER_SIZE", "0")  # no flight recorder: gloo has none of its own

import torch
import torch.distributed as dist
from ranks import figures_of, join, keep, parser_of
from torch.testing._internal.distributed.fake_pg import FakeProcessGroup  # noqa: F401: makes "fake"

import tutti


def measure(rank, folder, options, pipe):
    join(rank, options.ranks, folder)
    gloo, fake = dist.new_group(backend="gloo"), dist.new_group(backend="fake")
    id = [tutti.make_unique_id() if rank == 0 else None]
    dist.broadcast_object_list(id)
    comm = tutti.Communicator.create(id[0], rank, options.ranks)
    contenders = {
        "tutti": lambda x, _: dist.all_reduce(x),
        "gloo": lambda x, _: dist.all_reduce(x, group=gloo),
        "numpy": lambda _, y: comm.all_reduce(y),
        "torch": lambda x, _: dist.all_reduce(x, group=fake),
    }
    size = options.least
    while size <= options.most:
        x = torch.zeros(size // 4)
        y = x.numpy()
        calls = max(3, min(2000, (8 << 20) // (size + 4000)))
        times = {name: [] for name in contenders}
        for turn in range(options.turns + 1):
            order = list(contenders) if turn % 2 else list(contenders)[::-1]
            for name in order:
                call = contenders[name]
                call(x, y)
                dist.barrier()
                begin = time.perf_counter()
                for _ in range(calls):
                    call(x, y)
                took = torch.tensor([(time.perf_counter() - begin) / calls * 1e6])
                dist.all_reduce(took, dist.ReduceOp.MAX)
                if turn:  # the first one warms up
                    times[name].append(took.item())
        if rank == 0:
            pipe.send((size, times))
        size *= options.factor
    if rank == 0:
        pipe.send(None)
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = parser_of(__doc__, turns=9)
    parser.add_argument("--least", type=int, default=8, help="bytes")
    parser.add_argument("--most", type=int, default=64 << 20)
    parser.add_argument("--factor", type=int, default=8)
    options = parser.parse_args()
    figures = []
    print(f"{'bytes':>10} {'tutti us':>10} {'gloo us':>10} {'ratio':>7} {'numpy us':>10} {'torch us':>10}", flush=True)
    for size, times in figures_of(measure, options):
        ratio = statistics.median(g / t for g, t in zip(times["gloo"], times["tutti"]))
        t, g, n, f = (statistics.median(times[name]) for name in ("tutti", "gloo", "numpy", "torch"))
        print(f"{size:>10} {t:>10.2f} {g:>10.2f} {ratio:>7.2f} {n:>10.2f} {f:>10.2f}", flush=True)
        figures.append(dict(bytes=size, ratio=ratio, **times))
    keep(figures, options)


if __name__ == "__main__":
    main()
