"""Works, and who hears how they end: results, durations, time-outs, abort hooks, the flight recorder."""

import datetime
import json
import threading
import time

import pytest
import torch
import torch.distributed as dist
from ranks import OLDEST, run

ERROR = dist.DistBackendError
since_2_15 = pytest.mark.skipif(OLDEST, reason="this PyTorch does not have it")


def ms(n):
    return datetime.timedelta(milliseconds=n)


def backend_of(group=None):
    return (group or dist.group.WORLD)._get_backend(torch.device("cpu"))


def result_of(work):
    from torch._C._distributed_c10d import WorkResult

    return WorkResult(work.get_future_result().wait())


def wait_for(condition, what):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.005)


def body_results(rank, world):
    """A work has a result, whether it succeeds or not."""
    from torch._C._distributed_c10d import WorkResult

    work = dist.all_reduce(torch.ones(3), async_op=True)
    assert result_of(work) == WorkResult.SUCCESS and work.is_success()
    late = dist.new_group(timeout=ms(300))
    aborted = dist.new_group()
    if rank == 0:
        work = dist.all_reduce(torch.ones(3), group=late, async_op=True)
        assert result_of(work) == WorkResult.TIMEOUT and not work.is_success()
        with pytest.raises(ERROR, match="timeout"):
            work.wait()
    elif rank == 1:
        work = dist.all_reduce(torch.ones(3), group=aborted, async_op=True)
        message = dist.irecv(torch.ones(3), 1, group=aborted)  # that this rank was to send itself
        time.sleep(0.1)
        assert not work.is_completed()
        backend_of(aborted).abort()
        assert work.is_completed() and message.is_completed()
        assert not work.is_success() and (OLDEST or isinstance(work.exception(), ERROR))
        assert result_of(work) == WorkResult.COMM_ERROR == result_of(message)
        with pytest.raises(ERROR, match="rank 1 aborted"):
            work.wait()
    dist.barrier()


def test_results():
    run(3, body_results)


def body_durations(rank, world):
    """Works that are issued after timing was asked for know how long they took."""
    before = dist.all_reduce(torch.ones(3), async_op=True)
    before.wait()
    dist.group.WORLD._enable_collectives_timing()
    with pytest.raises(RuntimeError, match="was not timed"):
        before._get_duration()
    time.sleep(0.2 * rank)
    work = dist.barrier(async_op=True)
    work.wait()
    took = work._get_duration()
    assert took > 150 if rank == 0 else took > 0, took


def test_durations():
    run(2, body_durations)


def body_unregistered(rank, world):
    """A wait takes the work out of c10d's registry."""
    size = torch._C._distributed_c10d._get_work_registry_size
    from torch.distributed._functional_collectives import allow_inflight_collective_as_graph_input_ctx

    with allow_inflight_collective_as_graph_input_ctx():
        work = dist.all_reduce(torch.ones(1), async_op=True)
        assert size() == 1
        work.wait()
        assert size() == 0


def test_unregistered():
    run(2, body_unregistered)


def body_extended(rank, world):
    """Extensions add up, and end with the first work that began after each."""
    group = dist.new_group(timeout=ms(100))
    backend = backend_of(group)

    def timeout_of_work():
        work = dist.all_reduce(torch.ones(1), group=group, async_op=True)
        work.wait()
        return work.timeout

    assert timeout_of_work() == ms(100)
    backend._add_ephemeral_timeout(ms(60_000))
    backend._add_ephemeral_timeout(ms(30_000))
    if rank == 1:
        time.sleep(0.5)  # late for the group's timeout, early for the extended one
    assert timeout_of_work() == ms(90_100)
    assert timeout_of_work() == ms(100)
    backend._add_ephemeral_timeout(ms(60_000))
    if rank == 1:
        time.sleep(0.5)
    dist.barrier(group=group)  # a call that waits by itself counts, too
    assert timeout_of_work() == ms(100)
    if rank == 0:
        with pytest.raises(ERROR, match="timeout of 0.1 s"):
            dist.barrier(group=group)


@since_2_15
@pytest.mark.parametrize("recorder", ["0", "100"])
def test_extended_timeouts(recorder, monkeypatch):
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", recorder)
    run(2, body_extended)


def body_abort_hooks(rank, world, fails):
    """Hooks hear of a failure before the caller does; all of them, whatever one of them throws."""
    group = dist.new_group(timeout=ms(300))
    backend = backend_of(group)
    heard = []

    def throws():
        heard.append("throws")
        raise ValueError("of a hook")

    assert backend.supports_abort_hooks
    backend.register_abort_hook(1, throws)
    backend.register_abort_hook(2, lambda: heard.append("first"))
    backend.register_abort_hook(3, lambda: heard.append("gone"))
    backend.unregister_abort_hook(3)
    dist.all_reduce(torch.ones(1), group=group)
    assert not heard
    if fails == "abort":  # by this rank itself: no failure
        dist.barrier()
        backend.abort()
        time.sleep(0.1)
        assert not heard
    elif rank == 0:
        with pytest.raises(ERROR, match="timeout"):
            dist.all_reduce(torch.ones(1), group=group, async_op=fails == "async").wait()
        assert {"throws", "first"} == set(heard), heard
    dist.barrier()


@since_2_15
@pytest.mark.parametrize("fails", ["blocking", "async", "abort"])
def test_abort_hooks(fails):
    run(2, body_abort_hooks, fails)


def body_work_hook(rank, world):
    """The hook hears of each work that is over, with its operation, number and times; waiting waits for it."""
    group = dist.new_group()
    heard = []

    def hook(info):
        time.sleep(0.05)
        heard.append(info)

    assert not group._has_hooks()
    group._register_on_completion_hook(hook)
    assert group._has_hooks()
    with pytest.raises(RuntimeError, match="has a hook .* already"):
        group._register_on_completion_hook(hook)
    dist.all_reduce(torch.ones(3), group=group)
    dist.broadcast(torch.ones(3), 0, group=group, async_op=True)
    dist.barrier(group=group)
    group._wait_for_pending_works()
    names = [str(info.op_type).split(".")[-1] for info in heard]
    assert names == ["ALLREDUCE", "BROADCAST", "BARRIER"], names
    assert [info.seq for info in heard] == [1, 2, 3]
    assert all(info.active_duration.total_seconds() >= 0 for info in heard)
    assert all(info.time_finished >= info.time_started for info in heard)


@pytest.mark.parametrize("recorder", ["0", "100"])
def test_a_hook_hears_of_works_that_are_over(recorder, monkeypatch):
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", recorder)
    run(2, body_work_hook)


def recorded():
    """What the flight recorder says of the calls: (name, state, retired)."""
    said = json.loads(torch._C._distributed_c10d._dump_fr_trace_json(True, backend="tutti"))
    return [(e["profiling_name"].split(":")[-1], e["state"], e["retired"]) for e in said["entries"]]


def body_recorded(rank, world):
    """In the recorder's dump calls that are over are over, and one that waits is the one that waits."""
    for async_op in (False, True):
        for call in (
            lambda a: dist.all_reduce(torch.ones(5), async_op=a),
            lambda a: dist.broadcast(torch.ones(5), 1, async_op=a),
            lambda a: dist.barrier(async_op=a),
        ):
            work = call(async_op)
            if work is not None:
                work.wait()
    right, left = (rank + 1) % world, (rank - 1) % world
    sent = dist.isend(torch.ones(2), right)
    dist.recv(torch.zeros(2), left)
    sent.wait()
    threads = [threading.Thread(target=dist.recv, args=(torch.zeros(1), left, None, t)) for t in (7, 8)]
    for t in threads:
        t.start()
    wait_for(lambda: all(s == "completed" and r for _, s, r in recorded()[:8]), recorded)
    wait_for(lambda: len(recorded()) == 10, recorded)
    time.sleep(0.1)
    assert [(s, r) for _, s, r in recorded()[8:]] == [("scheduled", False)] * 2, recorded()
    dist.barrier()
    for tag in (8, 7):
        dist.send(torch.ones(1), right, tag=tag)
    for t in threads:
        t.join()
    wait_for(lambda: all(s == "completed" and r for _, s, r in recorded()), recorded)


@since_2_15
def test_recorded():
    run(2, body_recorded)


def body_estimated(rank, world):
    """Collectives in an estimate take predicted time, do not run, and need no other rank."""
    x, small, large = torch.full((8,), rank + 1.0), torch.ones(1000), torch.ones(1_000_000)

    def estimate(*tensors):
        with dist._time_estimator() as said:
            for i, t in enumerate(tensors):
                dist.all_reduce(t, async_op=i % 2 == 1)
        return said.estimated_time

    if rank == 0:
        before = backend_of()._get_sequence_number_for_group()
        assert 0 < estimate(small) < estimate(large)
        assert estimate(small, large) == pytest.approx(estimate(small) + estimate(large), rel=0.01)
        with dist._time_estimator() as said:
            dist.all_gather([torch.empty(8) for _ in range(world)], x)
            dist.barrier()
        assert said.estimated_time > 0 and x.tolist() == [1] * 8
        with pytest.raises(RuntimeError, match="dense collectives alone"), dist._time_estimator():
            dist.send(x, 1)  # which ends the estimate
        assert backend_of()._get_sequence_number_for_group() == before
    dist.all_reduce(x)
    assert x.tolist() == [world * (world + 1) / 2] * 8


@since_2_15
def test_estimated():
    run(3, body_estimated)
