"""How much of the communication of data parallelism is hidden: Tutti's engine beside PyTorch's DDP over gloo,
in one table.

    make bench-overlap          or: overlap.py [--build build] [--wheels build/wheels] [--ranks 2] [--rounds 2]

Backward sleeps for 400 ms, in which it makes 100 gradients of 40 kB one after the other, and the ranks have a
link that takes 400 ms for all of them. So nothing is computed, few cores do, and what a step takes beyond
400 ms is exposed. The link is the same for both: a bucket holds it for its bytes and 20 us, after the buckets
before it, and is averaged then (parallel/throttled_axis.h; a communication hook of DDP).

With n buckets 1/n of the communication is exposed at least: the last one's.
"""

import argparse
import json
import os
import pathlib
import queue
import socket
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PARAMETERS, ELEMENTS, BACKWARD = 100, 10_000, 0.4
LATENCY = 20e-6


def torch_rank(buckets):
    """Steps of DDP, for each number of buckets: the time of the fastest of three, in ms."""
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    link = 2 * (size - 1) / size * PARAMETERS * ELEMENTS * 4 / BACKWARD  # bytes per second
    begin = 0.0

    class Sleeping(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w, due):
            ctx.due, ctx.like = due, w
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            time.sleep(max(0.0, begin + ctx.due - time.perf_counter()))
            return gradient, torch.ones_like(ctx.like), None

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.ParameterList(torch.zeros(ELEMENTS) for _ in range(PARAMETERS))

        def forward(self, x):
            for i, w in enumerate(self.w):
                x = Sleeping.apply(x, w, BACKWARD * (PARAMETERS - i) / PARAMETERS)
            return x

    class Link:
        """Averages buckets, each when its time on the link is over."""

        def __init__(self):
            self.free, self.work = 0.0, queue.Queue()
            threading.Thread(target=self.run, daemon=True).start()

        def start(self, bucket):
            buffer = bucket.buffer()
            sent = 2 * (size - 1) / size * buffer.numel() * 4
            self.free = max(self.free, time.perf_counter()) + LATENCY + sent / link
            future = torch.futures.Future()
            self.work.put((buffer, self.free, future))
            return future

        def run(self):
            while True:
                buffer, at, future = self.work.get()
                time.sleep(max(0.0, at - time.perf_counter()))
                dist.all_reduce(buffer)
                future.set_result(buffer.div_(size))

    the_link = Link()
    for count in buckets:
        cap = PARAMETERS // count * ELEMENTS * 4
        dist._DEFAULT_FIRST_BUCKET_BYTES = cap
        ddp = torch.nn.parallel.DistributedDataParallel(
            Model(), bucket_cap_mb=cap / 2**20, gradient_as_bucket_view=True)
        ddp.register_comm_hook(the_link, lambda state, bucket: state.start(bucket))
        best = float("inf")
        for step in range(4):
            loss = ddp(torch.ones((), requires_grad=True))
            dist.barrier()
            begin = time.perf_counter()
            loss.backward()
            if step > 0:  # buckets are laid out anew after the first
                best = min(best, 1e3 * (time.perf_counter() - begin))
        if rank == 0:
            print(json.dumps([count, best]), flush=True)


def steps_of_torch(options, buckets):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    ranks = []
    for rank in range(options.ranks):
        environment = dict(
            os.environ, RANK=str(rank), WORLD_SIZE=str(options.ranks), MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port), OMP_NUM_THREADS="1",
            PYTHONPATH=f"{options.wheels}/torch-2.15.0:{options.wheels}/common",
            LD_PRELOAD=str(options.build / "lib/libnccl.so.2"),
            PYTHONWARNINGS="ignore")  # that there is no numpy, which nothing here needs
        ranks.append(subprocess.Popen(
            [sys.executable, __file__, "--rank", *map(str, buckets)], env=environment,
            stdout=subprocess.PIPE, stderr=None if rank == 0 else subprocess.DEVNULL, text=True))
    try:
        out, _ = ranks[0].communicate(timeout=300)
        if any(rank.wait(30) for rank in ranks):
            raise SystemExit("a rank of PyTorch has failed")
        return dict(json.loads(line) for line in out.splitlines() if line.startswith("["))
    finally:
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()
                rank.wait()


def steps_of_tutti(options):
    out = subprocess.run(
        [options.build / "bin/tutti", "run", "-n", str(options.ranks),
         options.build / "bench/data_parallel_bench", "overlap"],
        check=True, stdout=subprocess.PIPE, text=True, timeout=300).stdout
    rows = [line.split() for line in out.splitlines()]
    return {int(row[0]): float(row[1]) for row in rows if row[0].isdigit()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--wheels", type=pathlib.Path, default=ROOT / "build/wheels")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2, help="in turn: Tutti, PyTorch, Tutti ...")
    parser.add_argument("-o", "--output", type=pathlib.Path, help="a file for the figures, as JSON")
    options = parser.parse_args()
    tutti, torch = {}, {}
    beside = (options.wheels / "common/complete").exists()
    if not beside:
        print("PyTorch for Python is not installed, so DDP is left out: make bench-overlap")
    for _ in range(options.rounds):
        for count, ms in steps_of_tutti(options).items():
            tutti[count] = min(ms, tutti.get(count, ms))
        for count, ms in (steps_of_torch(options, list(tutti)) if beside else {}).items():
            torch[count] = min(ms, torch.get(count, ms))
    print(f"{options.ranks} ranks; backward sleeps for 400 ms, the link takes 400 ms for all gradients")
    print(f"{'':>8}{'Tutti':>20}{'DDP over gloo':>24}{'least':>12}")
    print(f"{'buckets':>8}{'step ms':>10}{'exposed':>10}{'step ms':>14}{'exposed':>10}{'exposed':>12}")
    for count, ms in tutti.items():
        line = f"{count:>8}{ms:>10.1f}{(ms - 400) / 4:>9.1f}%"
        line += f"{torch[count]:>14.1f}{(torch[count] - 400) / 4:>9.1f}%" if count in torch else f"{'':24}"
        print(line + f"{100 / count:>11.1f}%")
    if options.output:
        options.output.write_text(json.dumps({"tutti_ms": tutti, "torch_ms": torch}, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        torch_rank([int(count) for count in sys.argv[2:]])
    else:
        try:
            main()
        except KeyboardInterrupt:
            sys.exit(130)
