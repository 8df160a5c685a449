"""What backend tutti adds to a call of torch.distributed: a blocking all_reduce of 8 bytes, beside torch's
backend "fake", which communicates nothing.

    python bench/torch/small_call.py [--turns 300] [--calls 300] [-o FILE]

In a group of one rank, so that the figure is the cost of the call and not of the other rank. The contenders are
groups of one process and take turns of some hundred calls each (A B C D, D C B A ...). A contender's time is the
shortest of its turns, as everything else that the machine does only adds to one. "recorded" is with torch's
flight recorder, which a group of a backend that is not torch's own has by default, and torch's backend "fake" in
this program, too; "bare" is without (TORCH_FR_BUFFER_SIZE=0).
"""

import argparse
import json
import os
import pathlib
import statistics
import tempfile
import time

os.environ.update(OMP_NUM_THREADS="1", TORCH_FR_BUFFER_SIZE="2000")

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeProcessGroup  # noqa: F401: makes "fake"

import tutti.torch


def new_group(backend, recorded):
    os.environ["TORCH_FR_BUFFER_SIZE"] = "2000" if recorded else "0"
    return dist.new_group(backend=backend)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--turns", type=int, default=300)
    parser.add_argument("--calls", type=int, default=300, help="of a turn")
    parser.add_argument("-o", dest="output", type=pathlib.Path, help="a file for the figures, as JSON")
    return parser.parse_args()


def main():
    options = parse()
    tutti.torch.extension.build()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("tutti", init_method=f"file://{folder}/store", rank=0, world_size=1)
        groups = {
            (name, kind): new_group(name, kind == "recorded")
            for kind in ("bare", "recorded")
            for name in ("tutti", "fake")
        }
        try:
            from torch._C._distributed_c10d import FlightRecorderHook

            recorder = FlightRecorderHook.attach(groups["fake", "recorded"], [0])
        except ImportError:  # before 2.15 no backend but torch's own is recorded
            recorder = None
        x = torch.ones(2)
        times = {contender: [] for contender in groups}
        for turn in range(options.turns + 1):
            for contender, group in list(groups.items())[:: 1 if turn % 2 else -1]:
                begin = time.perf_counter()
                for _ in range(options.calls):
                    dist.all_reduce(x, group=group)
                if turn:  # the first one warms up
                    times[contender].append((time.perf_counter() - begin) / options.calls * 1e6)
        print(f"{'':10}{'tutti us':>10}{'fake us':>10}{'above us':>10}   (medians of the turns: tutti, fake)")
        figures = {}
        for kind in ("bare", "recorded"):
            tutti_us, fake_us = (min(times[name, kind]) for name in ("tutti", "fake"))
            middle = [statistics.median(times[name, kind]) for name in ("tutti", "fake")]
            print(f"{kind:10}{tutti_us:>10.2f}{fake_us:>10.2f}{tutti_us - fake_us:>10.2f}   ({middle[0]:.2f}, {middle[1]:.2f})")
            figures[kind] = dict(tutti=tutti_us, fake=fake_us, medians=middle)
        if options.output:
            options.output.write_text(json.dumps(figures, indent=1))
        if recorder:
            recorder.remove()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
