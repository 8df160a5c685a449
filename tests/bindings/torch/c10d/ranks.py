"""Ranks for tests: forked from this process, which has imported torch but never run it."""

import datetime
import multiprocessing
import os
import signal
import tempfile
import time
import traceback

os.environ.update(OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="", TORCH_FR_DUMP_ON_TIMEOUT="0")

import torch
import torch.distributed as dist

import tutti.torch
from tutti.torch.extension import build

build()  # once, and not by a rank whose time is measured

WORLDS = [2, 3, 4]
# Has monitored_barrier for gloo alone, and split_group for groups of a GPU.
OLDEST = torch.__version__.startswith("2.11.")


class Failed(AssertionError):
    pass


def _rank(body, rank, world, store, timeout, pipe, backend, ends, how, hosts, arguments):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank))
    if hosts:
        os.environ["TUTTI_HOST_ID"] = f"host {rank}"
    torch.set_num_threads(1)
    said, result = "", None
    try:
        dist.init_process_group(
            backend,
            init_method=f"file://{store}",
            rank=rank,
            world_size=world,
            timeout=datetime.timedelta(seconds=timeout),
            **how,
        )
        result = body(rank, world, *arguments)
        if dist.is_initialized() and ends:
            dist.barrier()
            dist.destroy_process_group()
    except BaseException:
        said = traceback.format_exc()
    pipe.send((said, result))
    pipe.close()
    os._exit(0 if not said else 1)


def run(
    world,
    body,
    *arguments,
    timeout=60,
    limit=120,
    backend="tutti",
    during=None,
    dies=(),
    ends=True,
    reconfigures=False,
    hosts=False,
    options=None,
):
    """What body(rank, world, *arguments) returns on each of `world` ranks, which have a process group.

    during(processes): called while they run. dies: ranks that do not come to their end.
    ends: whether the ranks meet at a barrier, and destroy the group.
    reconfigures: the group is one whose ranks change.
    options: a rank's pg_options, or a function of the rank that returns them.
    hosts: as if each rank were on a host of its own.
    """
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        ranks, pipes = [], []
        for rank in range(world):
            here, there = context.Pipe()
            arguments_of_rank = (
                body,
                rank,
                world,
                f"{folder}/store",
                timeout,
                there,
                backend,
                ends,
                ({"enable_reconfigure": True} if reconfigures else {})
                | ({"pg_options": options(rank) if callable(options) else options} if options else {}),
                hosts,
                arguments,
            )
            ranks.append(context.Process(target=_rank, args=arguments_of_rank))
            ranks[-1].start()
            there.close()
            pipes.append(here)
        end = time.monotonic() + limit
        results, wrong = [], []
        try:
            if during:
                during(ranks)
            for rank, pipe in enumerate(pipes):
                if rank in dies:
                    results.append(None)
                    continue
                if not pipe.poll(max(0, end - time.monotonic())):
                    raise Failed(f"rank {rank} of {world} hangs ({limit} s)")
                try:
                    said, result = pipe.recv()
                except EOFError:
                    said, result = "it died", None
                if said:
                    wrong.append(f"rank {rank} of {world}: {said}")
                results.append(result)
        finally:
            for rank, process in enumerate(ranks):
                if rank in dies and process.is_alive():  # it was stopped
                    os.kill(process.pid, signal.SIGKILL)
                if process.is_alive() and (wrong or time.monotonic() > end or process.pid):
                    process.join(0 if time.monotonic() > end else 5)
                if process.is_alive():
                    os.kill(process.pid, signal.SIGKILL)
                process.join()
        if wrong:
            raise Failed("\n".join(wrong))
        return results
