"""With TUTTI_INVARIANT=1 a training run has the same losses, bit for bit, however its sums are cut and carried."""

import os
import pathlib
from contextlib import contextmanager

import pytest
import torch
import torch.distributed as dist
import training
import tutti.torch
from gpt import Gpt
from ranks import Failed, run
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

WORLD = 4  # their sums depend on the order: of three ranks they may happen to be the same


@contextmanager
def environment(**settings):
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def losses(body, *arguments, hosts=False, backend="tutti", options=None, **settings):
    with environment(**settings):
        return run(WORLD, body, *arguments, hosts=hosts, backend=backend, options=options)


def ddp(rank, world, megabytes):
    return training.train(DistributedDataParallel(Gpt(), bucket_cap_mb=megabytes))


def fsdp(rank, world, by_block):
    model = Gpt()
    return training.train(training.shard(model) if by_block else fully_shard(model))


def resumed(rank, world, megabytes, folder):
    """The second half of the steps in a group of their own, from what the first has saved."""
    path = f"{folder}/{rank}"
    model = Gpt()
    if os.path.exists(path):
        model.load_state_dict(torch.load(path))
    model = DistributedDataParallel(model, bucket_cap_mb=megabytes)
    result = training.train(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    torch.save(model.module.state_dict(), path)
    return result


WAYS = [
    {},
    {"TUTTI_WINDOWS": "0", "TUTTI_CMA": "0"},
    {"TUTTI_SLOT_BYTES": "2K", "TUTTI_WINDOWS": "0"},
    {"TUTTI_ALGORITHM": "two_shot"},
    {"hosts": True},
    {"hosts": True, "TUTTI_TCP_CHECKSUM": "1"},
]


@pytest.mark.parametrize("body,cuts", [(ddp, [25, 0.01, 0.1]), (fsdp, [True, False])])
def test_losses_are_the_same_bits(body, cuts):
    expected = losses(body, cuts[0], TUTTI_INVARIANT="1")
    assert len(set(expected[0])) == training.STEPS
    for cut in cuts:
        for way in WAYS if cut == cuts[-1] else WAYS[:1]:
            assert losses(body, cut, TUTTI_INVARIANT="1", **way) == expected, f"{cut}, {way}"


def test_losses_are_the_same_bits_after_a_restart(tmp_path):
    expected = []
    for name, sizes in (("one", [25, 25]), ("two", [0.01, 0.1])):
        folder = tmp_path / name
        folder.mkdir()
        expected.append([losses(resumed, size, str(folder), TUTTI_INVARIANT="1") for size in sizes])
    assert expected[0] == expected[1]


def sums(rank, world, whole):
    """Sums of the same numbers, at once or in parts that fall elsewhere."""
    x = torch.randn(40_000, generator=torch.Generator().manual_seed(rank))
    for part in [x] if whole else x.split(777):
        dist.all_reduce(part)
    return x.numpy().tobytes()


def test_sums_are_the_same_bits():
    parts = [losses(sums, whole, TUTTI_INVARIANT="1") for whole in (True, False)]
    assert parts[0] == parts[1] and len(set(parts[0])) == 1
    # So the test can fail: by default they need not be, and over gloo they are not.
    assert losses(sums, True, backend="gloo") != losses(sums, False, backend="gloo")


INVARIANT = tutti.torch.Options(invariant=True)


def canonical():
    """What C++ promises of four ranks' sums."""
    a, b, c, d = (torch.randn(40_000, generator=torch.Generator().manual_seed(r)) for r in range(WORLD))
    return ((a + b) + (c + d)).numpy().tobytes()


def of_a_new_group(rank, world, options):
    x = torch.randn(40_000, generator=torch.Generator().manual_seed(rank))
    dist.all_reduce(x, group=dist.new_group(pg_options=options))
    return x.numpy().tobytes()


def test_an_option_of_the_group_gives_the_bits_of_the_canonical_expression():
    for whole in (True, False):
        assert set(losses(sums, whole, options=INVARIANT)) == {canonical()}
    assert set(losses(sums, False, options=INVARIANT, hosts=True)) == {canonical()}
    assert set(losses(of_a_new_group, INVARIANT)) == {canonical()}
    # The option outdoes the variable; and a ring's sums are others.
    way = {"TUTTI_INVARIANT": "1", "TUTTI_ALGORITHM": "ring"}
    assert set(losses(of_a_new_group, tutti.torch.Options(invariant=False), **way)) != {canonical()}


def test_options_that_disagree_are_told():
    def body(rank, world):
        dist.new_group(pg_options=tutti.torch.Options(invariant=rank < 2))

    with pytest.raises(Failed, match="rank 0 asks for invariant bits and rank 2 does not"):
        run(WORLD, body)


def test_ranks_that_disagree_are_told():
    def body(rank, world):
        os.environ["TUTTI_INVARIANT"] = "1" if rank < 2 else "0"
        dist.barrier(group=dist.new_group())

    with pytest.raises(Failed, match="rank 0 asks for invariant bits and rank 2 does not"):
        run(WORLD, body)


def logits(rank, world, batch, plain):
    """Of examples/python/batch_invariant.py, as a digest."""
    import batch_invariant

    return batch_invariant.serve(batch, 6, plain)[0]


def digest(world, batch, plain=False, invariant=True):
    found = run(world, logits, batch, plain, options=tutti.torch.Options(invariant=invariant))
    assert len(set(found)) == 1
    return found[0]


def test_logits_depend_neither_on_the_batch_nor_on_the_number_of_ranks(monkeypatch):
    monkeypatch.syspath_prepend(str(pathlib.Path(__file__).parents[4] / "examples/python"))
    alone = digest(1, 1)
    for world, batch in [(1, 7), (2, 1), (2, 7), (4, 1), (4, 7), (4, 32)]:
        assert digest(world, batch) == alone, (world, batch)
    with environment(TUTTI_WINDOWS="0", TUTTI_CMA="0"):
        assert digest(4, 7) == alone
    # With the usual kernels, and with sums of another order, they do.
    assert digest(2, 1, plain=True) != digest(4, 1, plain=True)
    with environment(TUTTI_ALGORITHM="ring"):
        assert digest(4, 1, invariant=False) != alone
