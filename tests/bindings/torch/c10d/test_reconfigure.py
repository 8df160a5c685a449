"""Groups whose ranks change: what reconfigure() does with handles, numbers, time, failures, and old calls."""

import datetime
import os
import re
import threading
import time

import pytest
import torch
import torch.distributed as dist
from data import SUM, check, reduced, tensor
from ranks import OLDEST, run

pytestmark = pytest.mark.skipif(OLDEST, reason="this PyTorch does not have it")
on_hosts = pytest.mark.parametrize("hosts", [False, True])
ERROR = dist.DistBackendError


def ms(n):
    return datetime.timedelta(milliseconds=n)


def backend():
    return dist.group.WORLD._get_backend(torch.device("cpu"))


class Ranks:
    """The processes of a test, which tell each other their handles through a store of their own."""

    def __init__(self, rank, world):
        self.rank, self.world, self.rounds = rank, world, 0
        self.store = dist.distributed_c10d._get_default_store()

    def handles(self, members):
        """The handles of processes `members`, in this order; all processes, or these alone, call it."""
        self.rounds += 1
        if self.rank in members:
            self.store.set(f"{self.rounds}/{self.rank}", dist._get_reconfigure_handle())
        return [self.store.get(f"{self.rounds}/{m}").decode() for m in members]

    def meet(self, name):
        self.store.set(f"{name}/{self.rank}", "")
        self.store.wait([f"{name}/{r}" for r in range(self.world)])


def reconfigure(number, handles, timeout=ms(30_000)):
    dist._reconfigure(number, handles, timeout=timeout).wait()


def check_sums(places):
    """All ranks are there, in the order of the list `places`; async, blocking and messages work."""
    me = dist.get_rank()
    assert dist.get_world_size() == len(places)
    for count in (3, 20_000):
        want = reduced(SUM, [tensor(p, (count,), torch.float32) for p in places])
        x, y = (tensor(places[me], (count,), torch.float32) for _ in range(2))
        dist.all_reduce(x)
        dist.all_reduce(y, async_op=True).wait()
        check(x, want, f"all_reduce of {count}")
        check(y, want, f"started all_reduce of {count}")
    every = [torch.zeros(1) for _ in places]
    dist.all_gather(every, torch.tensor([float(places[me])]))
    assert torch.cat(every).tolist() == places
    if len(places) > 1:
        got, right, left = torch.zeros(2), (me + 1) % len(places), (me - 1) % len(places)
        sent = backend().send([torch.full((2,), float(places[me]))], right, 5)
        backend().recv([got], left, 5).wait()
        sent.wait()
        assert got.tolist() == [places[left]] * 2


def body_before(rank, world):
    """Before the first reconfigure() the group has its handle and its settings, and no operations."""
    assert dist._supports_reconfigure() and dist.get_rank() == rank and dist.get_world_size() == world
    assert dist._get_reconfigure_handle() == dist._get_reconfigure_handle()
    for call in (
        lambda: dist.all_reduce(torch.ones(1)),
        lambda: dist.all_reduce(torch.ones(1), async_op=True),
        lambda: dist.send(torch.ones(1), 1 - rank),
        lambda: backend().shrink([1 - rank]),
    ):
        with pytest.raises(RuntimeError, match="call reconfigure.. before the first operation"):
            call()
    backend().set_timeout(ms(20_000))
    part = dist.new_group([0, 1])  # meets at once
    x = torch.tensor([rank + 1.0])
    dist.all_reduce(x, group=part)
    assert x.item() == 3
    ranks = Ranks(rank, world)
    reconfigure(1, ranks.handles([0, 1]))
    check_sums([0, 1])
    assert backend()._get_sequence_number_for_group() > 0
    reconfigure(2, ranks.handles([0, 1]))
    assert backend()._get_sequence_number_for_group() == 0
    check_sums([0, 1])
    dist.all_reduce(x, group=part)  # another group does not mind
    assert x.item() == 6


def test_before_the_first():
    run(2, body_before, reconfigures=True)


def body_orders(rank, world):
    """A list says the order; a set has one that all ranks find. Ranks go, come back, split and merge."""
    ranks = Ranks(rank, world)
    number = iter(range(10, 1000))

    def go(members, of=list):
        """One of the groups that form side by side."""
        n, handles = next(number), ranks.handles(list(range(world)))
        if rank in members:
            reconfigure(n * 10 + members[0], of(handles[m] for m in members))
            return True
        return False

    group = dist.group.WORLD
    for members in ([0, 1, 2, 3], [3, 1], [2, 0, 3, 1], [2, 0, 3], [3, 2, 1, 0]):
        if go(members):
            assert dist.get_rank() == members.index(rank)
            check_sums(members)
    go([rank])
    check_sums([rank])
    go([1, 0] if rank < 2 else [2, 3])
    check_sums([1, 0] if rank < 2 else [2, 3])
    go([0, 1, 2, 3], of=set)
    places = [None] * world
    dist.all_gather_object(places, rank)
    assert sorted(places) == [0, 1, 2, 3]
    check_sums(places)
    assert dist.group.WORLD is group and dist.get_backend() == "tutti"


@on_hosts
def test_orders(hosts):
    run(4, body_orders, reconfigures=True, hosts=hosts)


def body_refused(rank, world):
    """What cannot be is refused at once, and the group stays as it was."""
    ranks = Ranks(rank, world)
    old = ranks.handles([0, 1])
    reconfigure(1, old)
    mine = dist._get_reconfigure_handle()
    for handles, why in (
        ([], "empty"),
        ([mine, mine], "twice"),
        (["nonsense"], "is missing"),
        (old, "is missing"),
    ):
        with pytest.raises(RuntimeError, match=why):
            reconfigure(2 + rank, handles)
    with pytest.raises(RuntimeError):
        reconfigure(2 + rank, [mine, "nonsense"], timeout=ms(300))
    check_sums([0, 1])
    handles = ranks.handles([0, 1])
    with pytest.raises(RuntimeError, match="number 1 was already used"):
        reconfigure(1, handles)
    ranks.meet("refused")
    check_sums([0, 1])
    reconfigure(7, handles)
    check_sums([0, 1])


def test_refused():
    run(2, body_refused, reconfigures=True)


def body_late(rank, world):
    """Who waits for a rank that does not come says so in time, and keeps its group; then it is tried again."""
    ranks = Ranks(rank, world)
    reconfigure(1, ranks.handles([0, 1, 2]))
    handles = ranks.handles([0, 1, 2])
    if rank < 2:
        begun = time.monotonic()
        with pytest.raises(ERROR, match=r"timed out .Wait timeout: 500 ms"):
            reconfigure(2, handles, timeout=ms(500))
        assert 0.4 < time.monotonic() - begun < 10
    ranks.meet("late")
    check_sums([0, 1, 2])
    assert backend().options._timeout == datetime.timedelta(seconds=60)
    reconfigure(3, ranks.handles([0, 1, 2]))
    check_sums([0, 1, 2])


def test_late():
    run(3, body_late, reconfigures=True)


def body_survived(rank, world):
    """The survivors of a death go on, and a new process takes its place."""
    ranks = Ranks(rank, world)
    if rank == 3:  # comes later
        ranks.rounds = 2
    else:
        reconfigure(1, ranks.handles([0, 1, 2]))
        check_sums([0, 1, 2])
        handles = ranks.handles([0, 1, 2])
        if rank == 1:
            os.kill(os.getpid(), 9)
        with pytest.raises(ERROR, match="rank 1"):
            while True:
                dist.all_reduce(torch.ones(1))
        assert backend().get_error() != torch._C._distributed_c10d.ErrorType.SUCCESS
        reconfigure(2, [handles[0], handles[2]])
        check_sums([0, 2])
    reconfigure(3, ranks.handles([0, 3, 2]))
    check_sums([0, 3, 2])
    assert backend().get_error() == torch._C._distributed_c10d.ErrorType.SUCCESS
    dist.destroy_process_group()


@on_hosts
def test_survived(hosts):
    run(4, body_survived, reconfigures=True, hosts=hosts, dies=[1], ends=False)


def body_calls_end(rank, world, how):
    """Calls under way end with an error when the group gets other ranks; later ones work."""
    from torch._C._distributed_c10d import ErrorType

    ranks = Ranks(rank, world)
    reconfigure(1, ranks.handles([0, 1]))
    check_sums([0, 1])
    works, said = [], []
    if rank == 0:
        works.append(dist.all_reduce(torch.ones(4), async_op=True))
        works.append(backend().recv([torch.ones(4)], 1, 9))
        works.append(backend().recv([torch.ones(4)], 0, 9))  # to itself

        def blocks():
            try:
                dist.all_reduce(torch.ones(4))
            except ERROR as error:
                said.append(str(error))

        thread = threading.Thread(target=blocks)
        thread.start()
        time.sleep(0.2)
        assert not said and not any(w.is_completed() for w in works)
    handles = ranks.handles([0, 1])
    if how == "aborted":
        backend().abort()
        if rank == 0:
            assert all(w.is_completed() for w in works)
        assert backend().get_error() == (ErrorType.COMM_ERROR if rank == 0 else ErrorType.SUCCESS)
        with pytest.raises(ERROR, match="aborted"):
            dist.all_reduce(torch.ones(4))
    reconfigure(2, handles)
    if rank == 0:
        thread.join(20)
        assert re.search("aborted|was reconfigured|has left", said[0]), said
        for work in works:
            with pytest.raises(ERROR, match="aborted|was reconfigured|has left|left the group"):
                work.wait()
    assert backend().get_error() == ErrorType.SUCCESS
    check_sums([0, 1])


@on_hosts
@pytest.mark.parametrize("how", ["aborted", "going on"])
def test_calls_end(how, hosts):
    run(2, body_calls_end, how, reconfigures=True, hosts=hosts)


def body_timed_out(rank, world):
    """After a time-out the group says so, and goes on with reconfigure()."""
    from torch._C._distributed_c10d import ErrorType

    ranks = Ranks(rank, world)
    reconfigure(1, ranks.handles([0, 1]))
    backend().set_timeout(ms(200))
    if rank == 0:
        with pytest.raises(ERROR, match="imed out"):
            dist.all_reduce(torch.ones(4), async_op=True).wait()
        assert backend().get_error() == ErrorType.TIMEOUT
        with pytest.raises(ERROR, match="imed out"):
            dist.all_reduce(torch.ones(4))
    backend().set_timeout(ms(30_000))
    ranks.meet("timed out")
    reconfigure(2, ranks.handles([0, 1]))
    assert backend().get_error() == ErrorType.SUCCESS
    check_sums([0, 1])


def test_timed_out():
    run(2, body_timed_out, reconfigures=True)


def body_leaks(rank, world, rounds):
    from test_groups import usage

    ranks = Ranks(rank, world)
    for n in range(rounds):
        reconfigure(n, ranks.handles([0, 1]))
        check_sums([0, 1])
        if n == 5:
            before = usage()
    after = usage()
    assert after[0] <= before[0] + 2, f"descriptors: {before[0]} before, {after[0]} after"
    assert after[1] <= before[1] + 1, f"threads: {before[1]} before, {after[1]} after"
    assert after[2] <= before[2] + 8, f"MB: {before[2]} before, {after[2]} after"


def test_leaks():
    run(2, body_leaks, int(os.environ.get("TUTTI_TEST_ROUNDS", "30")), reconfigures=True, limit=600)
