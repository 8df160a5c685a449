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


def test_await_leaves_the_loop_to_others():
    """The loop sleeps in between: nobody asks whether it is over."""

    def body(comm):
        async def run():
            beats = 0

            async def beat():
                nonlocal beats
                while True:
                    beats += 1
                    await asyncio.sleep(0.01)

            beating = asyncio.create_task(beat())
            a = comm.all_reduce(np.full(3, comm.rank), async_op=True)
            b = comm.all_gather(np.array([comm.rank]), async_op=True)
            x, y = await asyncio.gather(a, b)
            beating.cancel()
            assert (await a) is x  # again
            return x.tolist(), y.ravel().tolist(), beats

        if comm.rank == 0:
            time.sleep(0.4)
        x, y, beats = asyncio.run(run())
        assert x == [3, 3, 3] and y == [0, 1, 2]
        assert comm.rank == 0 or beats > 5

    run_threads(3, body)


def test_what_is_not_awaited_any_more_goes_on():
    def body(comm):
        if comm.rank == 1:
            time.sleep(0.4)

        async def run():
            future = comm.all_reduce(np.ones(3), async_op=True)
            if comm.rank == 0:
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(future, 0.05)
            return (await future).tolist()

        assert asyncio.run(run()) == [2, 2, 2]

    run_threads(2, body)


def test_an_error_comes_with_the_await():
    def body(comm):
        async def run():
            await comm.all_reduce(np.ones(3 + comm.rank), async_op=True)

        with pytest.raises(tutti.Mismatch):
            asyncio.run(run())

    run_threads(2, body)


CALLS = {
    "all_reduce": lambda c, x, **k: c.all_reduce(x.copy(), **k),
    "all_reduce, out": lambda c, x, **k: c.all_reduce(x, np.zeros_like(x), **k),
    "reduce": lambda c, x, **k: c.reduce(x.copy(), root=1, **k),
    "reduce_scatter": lambda c, x, **k: c.reduce_scatter(x, **k),
    "reduce_scatter_v": lambda c, x, **k: c.reduce_scatter_v(x, [1, 2, 3], **k),
    "all_gather": lambda c, x, **k: c.all_gather(x, **k),
    "all_gather, out": lambda c, x, **k: c.all_gather(x, np.zeros((3, 6)), **k),
    "all_gather_v": lambda c, x, **k: c.all_gather_v(x[: c.rank + 1], [1, 2, 3], **k),
    "broadcast": lambda c, x, **k: c.broadcast(x.copy(), root=2, **k),
    "gather": lambda c, x, **k: c.gather(x, root=1, **k),
    "scatter": lambda c, x, **k: c.scatter(x, np.zeros(2), root=1, **k),
    "all_to_all": lambda c, x, **k: c.all_to_all(x, **k),
    "all_to_all_v": lambda c, x, **k: c.all_to_all_v(x, [3, 2, 1], [3 - c.rank] * 3, **k),
    "barrier": lambda c, x, **k: c.barrier(**k),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_call_started_is_as_the_call(name):
    """And in a group()."""

    def body(comm):
        x = np.arange(6.0) * (comm.rank + 2)
        plain = CALLS[name](comm, x)
        started = CALLS[name](comm, x, async_op=True)
        assert isinstance(started, tutti.Future)
        with tutti.group():
            collected = [CALLS[name](comm, x) for _ in range(2)]
        for other in (started.wait(), *collected):
            assert (other is None) == (plain is None)
            assert plain is None or (other.shape == plain.shape and (other == plain).all())

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


@pytest.mark.parametrize("async_send", [False, True])
def test_a_message_overtakes_a_started_collective(async_send):
    def body(comm):
        x, message = np.full(5000, comm.rank + 1), np.arange(300_000)
        if comm.rank == 0:
            reduced = comm.all_reduce(x, async_op=True)
            sent = comm.send(message, 1, async_op=async_send)
            if async_send:
                sent.wait()
            reduced.wait()
        else:
            got = comm.recv(np.zeros_like(message), 0)
            comm.all_reduce(x)
            assert (got == message).all()
        assert (x == 3).all()

    run_threads(2, body, timeout=20)


def test_threads_that_start_their_calls_share_a_communicator():
    """One waits in a collective while another one sends what the collective of rank 1 waits for."""

    def body(comm):
        x, message = np.full(5000, comm.rank + 1), np.arange(300_000)
        if comm.rank == 0:
            waits = threading.Event()

            def send():
                waits.wait(20)
                comm.send(message, 1, async_op=True).wait()

            thread = threading.Thread(target=send)
            thread.start()
            reduced = comm.all_reduce(x, async_op=True)
            waits.set()
            reduced.wait()
            thread.join()
        else:
            got = comm.recv(np.zeros_like(message), 0)
            comm.all_reduce(x)
            assert (got == message).all()
        assert (x == 3).all()

    run_threads(2, body, timeout=20)
