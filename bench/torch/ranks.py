"""The ranks of a benchmark: forked processes, each on a core and with a thread of its own."""

import argparse
import json
import multiprocessing
import os
import pathlib
import tempfile

import torch
import torch.distributed as dist

import tutti.torch


def join(rank, ranks, folder):
    """Begins a rank's part: with "tutti" for the default group."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.set_num_threads(1)
    dist.init_process_group("tutti", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)


def parser_of(description, turns):
    """The options that all benchmarks have."""
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--turns", type=int, default=turns)
    parser.add_argument("-o", dest="output", type=pathlib.Path, help="a file for the figures, as JSON")
    return parser


def keep(figures, options):
    """Writes them to the file of -o, if there is one."""
    if options.output:
        options.output.write_text(json.dumps(figures, indent=1))


def figures_of(measure, options):
    """What measure(rank, folder, options, pipe) of rank 0 sends through the pipe, up to a None."""
    tutti.torch.extension.build()
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            context.Process(target=measure, args=(r, folder, options, there)) for r in range(options.ranks)
        ]
        for p in processes:
            p.start()
        there.close()  # so that this hears of it when all ranks have failed
        while figure := here.recv():
            yield figure
        for p in processes:
            p.join()
