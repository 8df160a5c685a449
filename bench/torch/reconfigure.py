"""Groups that lose and gain ranks: how long reconfigure() takes, backend tutti beside gloo.

    python bench/torch/reconfigure.py [--ranks 4] [--hosts 1] [--cycles 9] [--turns 5] [-o FILE]

The ranks are processes. In each cycle the group loses its last rank (4 -> 3) and gets it back (3 -> 4); a
second group of twice as many processes grows from the half of them to all (4 -> 8). The backends take turns
(A B, B A ...), each turn with fresh processes, whose start is not counted. A time is that of the slowest
rank, from the moment at which all have each other's handles until the first all_reduce of the new group is
over; the figures are medians over all cycles of all turns, in milliseconds. With --hosts 2, every second
rank of tutti is kept apart as another host, and reached over TCP. (gloo always uses TCP.)
"""

import multiprocessing
import os
import statistics
import tempfile
import time
from datetime import timedelta

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TORCH_FR_BUFFER_SIZE", "0")

import torch
import torch.distributed as dist
from ranks import keep, parser_of

import tutti.torch  # noqa: F401: makes "tutti"

HANDLE_BYTES = 1024


class Board:
    """What the ranks of a turn share: handles, times and a barrier."""

    def __init__(self, context, ranks):
        self.handles = [context.Array("c", HANDLE_BYTES) for _ in range(ranks)]
        self.times = context.Array("d", ranks)
        self.barrier = context.Barrier(ranks)


def timed(board, rank, members, number):
    """Reconfigures to `members` and adds once; the seconds of the slowest rank."""
    board.handles[rank].value = dist._get_reconfigure_handle().encode()
    board.times[rank] = 0
    board.barrier.wait()
    if rank in members:
        begin = time.perf_counter()
        handles = [board.handles[r].value.decode() for r in members]
        dist._reconfigure(number, handles, timeout=timedelta(seconds=30)).wait()
        x = torch.ones(4)
        dist.all_reduce(x)
        board.times[rank] = time.perf_counter() - begin
        assert x[0] == len(members), (x, members)
    board.barrier.wait()
    return max(board.times)


def run(rank, ranks, half, hosts, backend, folder, cycles, board, pipe):
    if hosts > 1:
        os.environ["TUTTI_HOST_ID"] = f"host {rank % hosts}"
    dist.init_process_group(
        backend,
        store=dist.FileStore(f"{folder}/store", ranks),
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=60),
        enable_reconfigure=True,
    )
    everyone, fewer = list(range(ranks)), list(range(half))
    number = 1
    timed(board, rank, everyone, number)
    for _ in range(cycles):
        down = timed(board, rank, fewer, number + 1)
        up = timed(board, rank, everyone, number + 2)
        number += 2
        if rank == 0:
            pipe.send((down, up))
    board.barrier.wait()


def turn(context, backend, ranks, half, hosts, cycles):
    board = Board(context, ranks)
    here, there = context.Pipe()
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            context.Process(target=run, args=(r, ranks, half, hosts, backend, folder, cycles, board, there))
            for r in range(ranks)
        ]
        for p in processes:
            p.start()
        there.close()
        times = [here.recv() for _ in range(cycles)]
        for p in processes:
            p.join()
    return times


def main():
    parser = parser_of(__doc__, turns=5)
    parser.set_defaults(ranks=4)
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("--cycles", type=int, default=9)
    options = parser.parse_args()
    tutti.torch.extension.build()
    context = multiprocessing.get_context("fork")
    n = options.ranks
    figures = {}
    for t in range(options.turns):
        for backend in ("tutti", "gloo")[:: 1 if t % 2 else -1]:
            for times, names in (
                (turn(context, backend, n, n - 1, options.hosts, options.cycles), (f"{n} -> {n - 1}", f"{n - 1} -> {n}")),
                (turn(context, backend, 2 * n, n, options.hosts, 2), (f"{2 * n} -> {n}", f"{n} -> {2 * n}")),
            ):
                for name, values in zip(names, zip(*times)):
                    figures.setdefault(name, {}).setdefault(backend, []).extend(v * 1e3 for v in values)
    print(f"{'ranks':>10} {'tutti ms':>10} {'gloo ms':>10} {'ratio':>7}")
    for name, both in figures.items():
        mine, theirs = (statistics.median(both[b]) for b in ("tutti", "gloo"))
        print(f"{name:>10} {mine:10.2f} {theirs:10.2f} {theirs / mine:7.2f}")
    keep(figures, options)


if __name__ == "__main__":
    main()
