"""vLLM on CPUs over Tutti: each call of the communicator gives what it has to, and an engine makes the tokens that
it makes over its own communicator."""

import hashlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parents[3]
sys.path.append(str(HERE.parent / "c10d"))
pytest.importorskip("vllm", reason="needs vllm: make test-frameworks")

import torch
import torch.distributed as dist
import tutti.torch
from ranks import run

ENGINE_S = 300


def communicator(ranks=None):
    from tutti.vllm.communicator import Communicator

    return Communicator(dist.new_group(ranks, backend="gloo"), torch.device("cpu"), dist.group.WORLD, "tp:0")


def data(rank, shape, dtype):
    """Small whole numbers that differ by rank and position: their sums are exact in each type."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * (rank + 2) + rank) % 7).to(dtype).reshape(shape)


def total(world, shape, dtype):
    return sum(data(r, shape, torch.float64) for r in range(world)).to(dtype)


SUMMED = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int8, torch.uint8, torch.int16,
          torch.int32, torch.int64]  # fmt: skip
MOVED = [*SUMMED, torch.bool, torch.float8_e4m3fn, torch.complex64]


def same(found, expected):
    assert found.dtype == expected.dtype and found.shape == expected.shape
    ours, theirs = (x.clone(memory_format=torch.contiguous_format).view(torch.uint8) for x in (found, expected))
    assert ours.equal(theirs), (found, expected)


def every_call(rank, world):
    c = communicator()
    for dtype in SUMMED:
        for shape in [(5,), (3, 4), (2, world, 3)]:
            x = data(rank, shape, dtype)
            assert c.all_reduce(x) is x
            same(x, total(world, shape, dtype))
        with_gaps = data(rank, (4, 6), dtype).t()
        same(c.all_reduce(with_gaps), total(world, (4, 6), dtype).t())
        every_other = torch.zeros(10, dtype=dtype)
        every_other[::2] = data(rank, (5,), dtype)
        c.all_reduce(every_other[::2])
        same(every_other[::2], total(world, (5,), dtype))
        assert not every_other[1::2].any()
        for dim in (0, 1, 2, -1):
            shape = [2, 3, 4]
            shape[dim] = 2 * world
            mine = slice(2 * rank, 2 * rank + 2)
            part = total(world, shape, dtype).movedim(dim, 0)[mine].movedim(0, dim)
            same(c.reduce_scatter(data(rank, shape, dtype), dim), part)
        sizes = [r + 1 for r in range(world)]
        first = sum(sizes[:rank])
        if dtype != torch.int16:  # Tutti adds those up as a larger type, and such parts have to be equal
            part = total(world, (sum(sizes), 3), dtype)[first : first + sizes[rank]]
            same(c.reduce_scatterv(data(rank, (sum(sizes), 3), dtype), 0, sizes), part)
    for dtype in MOVED:
        for dim in (0, 1, -1):
            everybody = [data(r, (2, 3, 4), dtype) for r in range(world)]
            same(c.all_gather(everybody[rank], dim), torch.cat(everybody, dim))
            gathered = c.gather(everybody[rank], 1, dim)
            assert (gathered is not None) == (rank == 1)
            if rank == 1:
                same(gathered, torch.cat(everybody, dim))
        sizes = [r + 1 for r in range(world)]
        everybody = [data(r, (sizes[r], 3), dtype) for r in range(world)]
        for found in c.all_gatherv([everybody[rank], everybody[rank]], 0, sizes):
            same(found, torch.cat(everybody))
        same(c.broadcast(data(rank, (3, 3), dtype), 1), data(1, (3, 3), dtype))
        sent = [data(r, (world * 2, 3), dtype) for r in range(world)]
        same(c.all_to_all(sent[rank]), torch.cat([s[2 * rank : 2 * rank + 2] for s in sent]))
        if rank == 0:
            c.send(data(0, (4, 3), dtype).t(), 1)
        if rank == 1:
            same(c.recv(torch.Size([3, 4]), dtype, 0), data(0, (4, 3), dtype).t())
    # Rows for each other rank: rank r sends s + r of them to rank s.
    sizes, received = [s + rank for s in range(world)], [rank + s for s in range(world)]
    rows = torch.cat([torch.full((n, 2), 100.0 * rank + s) for s, n in enumerate(sizes)])
    expected = torch.cat([torch.full((n, 2), 100.0 * s + rank) for s, n in enumerate(received)])
    same(c.all_to_all(rows, sizes, received), expected)
    dicts = {"hidden": data(0, (3, 4), torch.bfloat16).t(), "nothing": torch.empty(0, 4), "number": 7, "none": None}
    if rank == 0:
        c.send_tensor_dict(dicts, world - 1)
    if rank == world - 1:
        found = c.recv_tensor_dict(0)
        assert list(found) == list(dicts) and found["number"] == 7 and found["none"] is None
        same(found["hidden"], dicts["hidden"])
        same(found["nothing"], dicts["nothing"])
    for bad in ([1] * world, [1] * (world + 1)):
        with pytest.raises(ValueError, match="are not those of 99 rows"):
            c.reduce_scatterv(torch.ones(99), 0, bad)


@pytest.mark.parametrize("hosts", [False, True])
@pytest.mark.parametrize("world", [2, 3, 4])
def test_every_call(world, hosts):
    run(world, every_call, hosts=hosts)


def in_modes(rank, world):
    c = communicator()
    with torch.inference_mode():
        x = torch.full((8,), rank + 1.0)
        same(c.all_reduce(x), torch.full((8,), world * (world + 1) / 2))
        same(c.all_gather(x[:2], -1), torch.full((2 * world,), world * (world + 1) / 2))
        inside = torch.full((4, 2), rank + 1.0).t()
    same(c.all_reduce(inside), torch.full((4, 2), world * (world + 1) / 2).t())  # out of the mode
    with pytest.raises(TypeError, match="takes a torch.Tensor or a Parameter"):
        c.all_reduce(3)

    @torch.compile(fullgraph=True, backend="eager")
    def layer(y):
        return c.all_reduce(y * 2) + 1

    same(layer(torch.full((5,), float(rank))), torch.full((5,), world * (world - 1.0) + 1))


def test_inference_mode_and_compiled():
    run(2, in_modes)


def bits(rank, world):
    """A digest of each sum: of the default, and in invariant mode."""
    from tutti.vllm.communicator import Communicator

    digests = []
    for invariant in (False, True):
        group = dist.new_group(backend="tutti", pg_options=tutti.torch.Options(invariant=invariant))
        c = Communicator(dist.new_group(backend="gloo"), torch.device("cpu"), group, "tp:0")
        for dtype in SUMMED:
            for count in (1, 100, 4099, 50_000):
                generator = torch.Generator().manual_seed(1000 * count + rank)
                x = (9 * torch.randn(count, generator=generator, dtype=torch.float64)).to(dtype)
                c.all_reduce(x)
                digests.append(hashlib.sha256(x.view(torch.uint8).numpy().tobytes()).hexdigest())
    return digests


@pytest.mark.parametrize("world", range(1, 9))
def test_all_ranks_hold_the_same_bits(world):
    found = run(world, bits)
    assert len(found[0]) == 2 * 4 * len(SUMMED)
    assert all(each == found[0] for each in found)


def dies_in_a_call(rank, world):
    c = communicator()
    c.all_reduce(torch.ones(4))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    with pytest.raises(dist.DistBackendError, match="rank 1 .*died|rank 1 .*left|rank 1 .*gone"):
        for _ in range(1000):
            c.all_reduce(torch.ones(4))
    assert time.monotonic() - begin < 5


def test_a_rank_that_dies_is_named():
    run(3, dies_in_a_call, dies=[1], ends=False)


# The engine.


def environment(**settings):
    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "INFO", **settings}


def serve(*arguments, **settings):
    """What examples/python/serve.py prints: all of it, and the lines of tokens."""
    command = [sys.executable, REPOSITORY / "examples/python/serve.py", *map(str, arguments)]
    done = subprocess.run(command, env=environment(**settings), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=ENGINE_S)  # fmt: skip
    assert done.returncode == 0, done.stdout[-8000:]
    return done.stdout, re.findall(r"^(?:tokens|logprobs) .*$", done.stdout, re.MULTILINE)


OVER = r"Group \w+:0 of \d ranks communicates over Tutti"


@pytest.mark.parametrize("layout", [["--tp", 2], ["--tp", 4], ["--tp", 1, "--pp", 2]])
def test_an_engine_makes_the_tokens_of_its_own_communicator(layout):
    said, tokens = serve(*layout)
    assert re.search(OVER, said)
    own, expected = serve(*layout, TUTTI_VLLM="0")
    assert not re.search(OVER, own)
    assert tokens == expected and len(tokens) == 4


def test_a_setting_that_is_neither_on_nor_off_ends_the_start():
    command = [sys.executable, REPOSITORY / "examples/python/serve.py"]
    done = subprocess.run(command, env=environment(TUTTI_VLLM="yes"), capture_output=True, text=True, timeout=ENGINE_S)
    assert done.returncode != 0
    assert "TUTTI_VLLM is 0 (off) or 1 (on), not yes" in done.stderr


def test_a_worker_that_dies_ends_the_engine_with_a_sentence():
    command = [sys.executable, "-u", REPOSITORY / "examples/python/serve.py", "--tp", "2", "--rounds", "100000"]
    engine = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said, killed = [], None
    try:
        for line in engine.stdout:
            said.append(line)
            worker = re.search(r"Worker(?:_TP1)? pid=(\d+)\).*rank=1 ", line)
            if worker:
                second = int(worker[1])
            if "tokens/s" in line and killed is None:
                os.kill(second, signal.SIGKILL)
                killed = time.monotonic()
        assert engine.wait(timeout=60) != 0
        assert time.monotonic() - killed < 60
        assert re.search("Connection closed by peer: .*rank 1", "".join(said)), "".join(said)[-8000:]
    finally:
        engine.kill()
        engine.wait()
