"""Started calls: waited for, awaited, abandoned."""

import asyncio
import gc
import threading
import time

import numpy as np
import pytest
from conftest import run_threads

import tutti


def test_wait():
    def body(comm):
        xs = [np.full(1000, comm.rank + i) for i in range(20)]
        futures = [comm.all_reduce(x, async_op=True) for x in xs]
        for i, (x, future) in enumerate(zip(xs, futures)):
            assert future.wait() is x and future.done()
            assert (x == 3 + 3 * i).all()

    run_threads(3, body)


def test_wait_with_a_timeout():
    def body(comm):
        if comm.rank == 1:
            time.sleep(0.4)
        future = comm.all_reduce(np.ones(3), async_op=True)
        if comm.rank == 0:
            with pytest.raises(TimeoutError, match="0.1"):
                future.wait(timeout=0.1)
            assert not future.done()
        assert future.wait(timeout=20).tolist() == [2, 2, 2]

    run_threads(2, body)


def test_await():
    def body(comm):
        async def both():
            a = comm.all_reduce(np.ones(3), async_op=True)
            b = comm.all_gather(np.array([comm.rank]), async_op=True)
            beats = 0
            while not a.done():
                await asyncio.sleep(0)
                beats += 1
            return await a, await b

        if comm.rank == 0:
            time.sleep(0.2)
        a, b = asyncio.run(both())
        assert a.tolist() == [3, 3, 3] and b.ravel().tolist() == [0, 1, 2]

    run_threads(3, body)


def test_an_error_comes_with_the_wait():
    def body(comm):
        x = np.ones(3 + comm.rank)
        future = comm.all_reduce(x, async_op=True)
        with pytest.raises(tutti.Mismatch):
            future.wait()

    run_threads(2, body)


def test_memory_of_an_abandoned_future_is_kept():
    def body(comm):
        if comm.rank == 0:
            comm.all_reduce(np.ones(1 << 16), async_op=True)  # dropped, with its array
            gc.collect()
            junk = [np.full(1 << 16, -1.0) for _ in range(8)]
            comm.barrier()
            assert all((j == -1).all() for j in junk)
        else:
            time.sleep(0.2)
            assert (comm.all_reduce(np.ones(1 << 16)) == 2).all()
            comm.barrier()

    run_threads(2, body)


def test_other_threads_run_while_a_call_waits():
    def body(comm):
        if comm.rank == 1:
            time.sleep(0.3)
        counted = 0
        stop = threading.Event()

        def count():
            nonlocal counted
            while not stop.is_set():
                counted += 1
                time.sleep(0.001)

        thread = threading.Thread(target=count)
        thread.start()
        comm.all_reduce(np.ones(3))
        stop.set()
        thread.join()
        assert comm.rank == 1 or counted > 20

    run_threads(2, body)
