"""A rank that sits in Python keeps the others waiting: `tutti top` names it, its last call, and the
call that the others wait in, within 2 s."""

import json
import multiprocessing
import os
import subprocess
import tempfile
import threading
import time

import pytest
import torch
import torch.distributed as dist
from ranks import build  # noqa: F401  (built before time is measured)

import tutti.torch  # noqa: F401

TUTTI = os.environ.get("TUTTI_COMMAND", "tutti")
WORLD = 3
GUILTY = 1


class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        time.sleep(600)
        return torch.zeros(1)


def raises_and_stays():
    try:
        raise ValueError("something of the program")
    except ValueError:
        time.sleep(600)


def read_a_pipe():
    ends = os.pipe()
    os.read(ends[0], 1)


def lock_twice():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def load_data():
    next(iter(torch.utils.data.DataLoader(Slow(), num_workers=1)))


def wait_for_a_thread():
    thread = threading.Thread(target=time.sleep, args=(600,))
    thread.start()
    thread.join()


def compute():
    while True:
        pass


ALL_REDUCE = "all_reduce #11 (float32 x 1000, sum)"
# What the guilty rank does instead, what the others call, and in which words `tutti top` says so.
KINDS = {
    "sleeps": (lambda: time.sleep(600), None, ALL_REDUCE),
    "raises": (raises_and_stays, None, ALL_REDUCE),
    "reads": (read_a_pipe, None, ALL_REDUCE),
    "locks": (lock_twice, None, ALL_REDUCE),
    "loads data": (load_data, None, ALL_REDUCE),
    "joins a thread": (wait_for_a_thread, None, ALL_REDUCE),
    "computes": (compute, None, ALL_REDUCE),
    "started call": (
        lambda: time.sleep(600),
        lambda: dist.all_reduce(torch.ones(1000), async_op=True).wait(),
        ALL_REDUCE,
    ),
    "no message": (
        lambda: time.sleep(600),
        lambda: dist.recv(torch.ones(8), GUILTY) if dist.get_rank() == 0 else time.sleep(600),
        "recv from rank 1",
    ),
}


def rank_of(kind, rank, store, hangs):
    instead, call, _ = KINDS[kind]
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(WORLD))
    torch.set_num_threads(1)
    dist.init_process_group("tutti", init_method=f"file://{store}", rank=rank, world_size=WORLD)
    for _ in range(10):
        dist.all_reduce(torch.ones(1000))
    if rank == GUILTY:
        hangs.set()
        instead()
    (call or (lambda: dist.all_reduce(torch.ones(1000))))()
    time.sleep(600)


@pytest.mark.parametrize("kind", list(KINDS))
def test_top_names_the_rank(kind):
    context = multiprocessing.get_context("fork")
    hangs = context.Event()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            context.Process(target=rank_of, args=(kind, r, folder + "/store", hangs))
            for r in range(WORLD)
        ]
        try:
            for r in ranks:
                r.start()
            assert hangs.wait(60)
            begun = time.monotonic()
            culprits = []
            while time.monotonic() < begun + 10:
                top = [TUTTI, "top", "--json", str(os.getpid())]
                seen = json.loads(subprocess.run(top, capture_output=True, check=True).stdout)
                culprits = [c for job in seen["jobs"] for c in job["culprits"]]
                if culprits and KINDS[kind][2] in culprits[0]["sentence"]:
                    break
            took = time.monotonic() - begun
            assert culprits, seen
            assert culprits[0]["ranks"] == [GUILTY]
            assert culprits[0]["pids"] == [ranks[GUILTY].pid]
            assert KINDS[kind][2] in culprits[0]["sentence"]
            assert "all_reduce #10" in culprits[0]["sentence"]  # its own last one
            print(f"{kind}: {took:.2f} s: {culprits[0]['sentence']}")
            assert took < 4  # 2, on a machine that does nothing else
        finally:
            for r in ranks:
                # With what it has started.
                subprocess.run(["pkill", "-KILL", "-P", str(r.pid)], check=False)
                r.kill()
                r.join()
