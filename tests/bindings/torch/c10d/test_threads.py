"""Threads that share a group: messages and collectives do not hold each other up, whoever calls them."""

import threading
import time

import pytest
import torch
import torch.distributed as dist
from data import *
from ranks import WORLDS, run

SHORT, LONG = 5, 1_000_003  # elements; of LONG, the slots of a link hold a part


def numbers(rank, count):
    return torch.arange(count, dtype=torch.int64) + 1_000_000 * (rank + 1)


def beside(function):
    """Runs `function` on another thread, when this one waits in its next call, most probably."""
    thrown = []

    def body():
        time.sleep(0.1)
        try:
            function()
        except BaseException as e:
            thrown.append(e)

    thread = threading.Thread(target=body)
    thread.start()

    def join():
        thread.join()
        if thrown:
            raise thrown[0]

    return join


def all_reduce(rank, world):
    x = numbers(rank, 700)
    dist.all_reduce(x)
    check(x, sum(numbers(r, 700) for r in range(world)), "all_reduce")


def all_gather(rank, world):
    got = [torch.zeros(r + 1, dtype=torch.int64) for r in range(world)]
    dist.all_gather(got, numbers(rank, rank + 1))
    for r in range(world):
        check(got[r], numbers(r, r + 1), "all_gather")


def sparse(rank, world):
    x = torch.sparse_coo_tensor([[rank, 7]], [1.0, 2.0], (9,))
    dist.all_reduce(x)
    want = torch.zeros(9)
    want[:world] = 1
    want[7] += 2 * world
    check(x.to_dense(), want, "sparse all_reduce")


def barrier(rank, world):
    dist.barrier()


def send(count):
    dist.send(numbers(7, count), 1)


def isend(count):
    dist.isend(numbers(7, count), 1).wait()


def batch(count):
    ops = [dist.P2POp(dist.isend, numbers(7, count), 1)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()


def body_sends(rank, world, collective, how):
    """Rank 1 comes to the collective when it has what rank 0's other thread sends."""
    for count in SHORT, LONG:
        if rank == 0:
            join = beside(lambda: how(count))
            collective(rank, world)
            join()
        else:
            if rank == 1:
                got = torch.zeros(count, dtype=torch.int64)
                dist.recv(got, 0)
                check(got, numbers(7, count), "sent by the other thread")
            collective(rank, world)


@pytest.mark.parametrize("backend", ["tutti", "gloo"])
@pytest.mark.parametrize("how", [send, isend, batch])
def test_a_thread_in_a_collective_lets_another_one_send(backend, how):
    run(2, body_sends, all_reduce, how, backend=backend, timeout=20)


@pytest.mark.parametrize("collective", [all_gather, sparse, barrier])
def test_every_kind_of_collective_does(collective):
    run(3, body_sends, collective, send, timeout=20)


def body_receives(rank, world, source):
    """Rank 1 comes when rank 0's other thread has taken what is longer than the slots."""
    if rank == 0:
        got = torch.zeros(LONG, dtype=torch.int64)
        join = beside(lambda: dist.recv(got, source))
        all_reduce(rank, world)
        join()
        check(got, numbers(7, LONG), "received by the other thread")
    else:
        if rank == 1:
            dist.send(numbers(7, LONG), 0)
        all_reduce(rank, world)


@pytest.mark.parametrize("source", [1, None])
def test_a_thread_in_a_collective_lets_another_one_receive(source):
    run(2, body_receives, source, timeout=20)


def body_answers(rank, world):
    """Rank 0's other thread has a batch of its own while the first one is in a collective."""
    if rank == 0:
        got = torch.zeros(LONG, dtype=torch.int64)

        def exchange():
            ops = [dist.P2POp(dist.isend, numbers(0, LONG), 1), dist.P2POp(dist.irecv, got, 1)]
            for work in dist.batch_isend_irecv(ops):
                work.wait()
            dist.send(got + 1, 1)

        join = beside(exchange)
        all_reduce(rank, world)
        join()
    else:
        got = torch.zeros(LONG, dtype=torch.int64)
        dist.recv(got, 0)
        check(got, numbers(0, LONG), "of a batch")
        dist.send(numbers(1, LONG), 0)
        dist.recv(got, 0)
        check(got, numbers(1, LONG) + 1, "after a batch")
        all_reduce(rank, world)


def test_a_batch_does_not_wait_for_another_threads_collective():
    run(2, body_answers, timeout=20)


def body_many(rank, world):
    """A thread for each direction of each pair, and one that reduces, in two groups."""
    groups = [dist.group.WORLD, dist.new_group()]
    rounds, thrown = 25, []

    def caught(function, *arguments):
        try:
            function(*arguments)
        except BaseException as e:
            thrown.append(e)

    def sends(group, peer, tag):
        for i in range(rounds):
            dist.send(numbers(10 * rank + peer + i, 1 + 997 * i), peer, group=group, tag=tag)

    def receives(group, peer, tag):
        for i in range(rounds):
            got = torch.zeros(1 + 997 * i, dtype=torch.int64)
            dist.recv(got, peer, group=group, tag=tag)
            check(got, numbers(10 * peer + rank + i, 1 + 997 * i), "of many threads")

    def reduces(group):
        for i in range(rounds):
            x = numbers(rank, 1 + 50 * i)
            dist.all_reduce(x, group=group)
            check(x, sum(numbers(r, 1 + 50 * i) for r in range(world)), "beside many threads")

    threads = []
    for group in groups:
        for peer in range(world):
            if peer != rank:
                for tag in 3, 4:
                    threads.append((sends, group, peer, tag))
                    threads.append((receives, group, peer, tag))
        threads.append((reduces, group))
    threads = [threading.Thread(target=caught, args=t) for t in threads]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if thrown:
        raise thrown[0]


@pytest.mark.parametrize("world", WORLDS[:2])
def test_many_threads(world):
    run(world, body_many)
