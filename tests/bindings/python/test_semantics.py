"""The table of docs/semantics.md from Python: the same numbers, and where Python has rules of its own."""

import threading

import ml_dtypes
import numpy as np
import pytest
from conftest import run_threads

import tutti

FLOATS = ["f2", "f4", "f8", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]


def reduced(comm, mine, op, dtype="f4"):
    return comm.all_reduce(np.array([mine], dtype), op=op)[0]


# semantics.md: P5, N1, N2, N3
@pytest.mark.parametrize("dtype", FLOATS)
def test_numbers_are_those_of_the_table(dtype):
    def body(comm):
        for odd in range(3):
            mine = np.nan if comm.rank == odd else 1.0 + comm.rank
            for op in "max", "min", "sum", "prod", "avg":
                assert np.isnan(np.float64(reduced(comm, mine, op, dtype)))
            zero = 0.0 if comm.rank == odd else -0.0
            assert np.signbit(np.float64(reduced(comm, zero, "min", dtype)))
            assert not np.signbit(np.float64(reduced(comm, zero, "max", dtype)))
            assert not np.signbit(np.float64(reduced(comm, zero, "sum", dtype)))
            assert np.signbit(np.float64(reduced(comm, -0.0, "sum", dtype)))

    run_threads(3, body)


# semantics.md: P5, N7, N8
def test_integers_wrap_and_their_averages_are_cut_off():
    def body(comm):
        assert reduced(comm, 100, "avg", "i1") == 14  # 300 wraps to 44
        assert reduced(comm, 100, "sum", "i1") == 44
        assert reduced(comm, -7 if comm.rank == 0 else 0, "avg", "i4") == -2

    run_threads(3, body)


# semantics.md: P5
def test_types_that_tutti_has_not():
    def body(comm):
        first = comm.rank == 0
        assert reduced(comm, first, "sum", "?") and reduced(comm, first, "max", "?")
        assert not reduced(comm, first, "prod", "?") and not reduced(comm, first, "min", "?")
        assert reduced(comm, 2 + 4j if first else 0, "avg", "c8") == 1 + 2j
        for dtype, op in ("?", "avg"), ("c8", "max"), ("c8", "prod"), ("i2", "sum"):
            with pytest.raises(TypeError):
                reduced(comm, 1, op, dtype)
        # Moved, bit for bit.
        words = np.array([comm.rank, 0x8000], "u2")
        assert (comm.all_gather(words) == [[0, 0x8000], [1, 0x8000]]).all()

    run_threads(2, body)


# semantics.md: P5, C7
def test_memory_with_gaps_is_refused_and_not_copied():
    def body(comm):
        x = np.arange(10, dtype="i4")
        with pytest.raises(BufferError):
            comm.all_reduce(x[::2])
        with pytest.raises(BufferError):
            comm.broadcast(np.zeros((4, 4), order="F")[:, ::2])
        assert (x == np.arange(10)).all()
        assert comm.all_reduce(x)[1] == 2  # the calls that were refused are no calls

    run_threads(2, body)


# semantics.md: P5, C1
def test_calls_of_nothing_wait_for_nobody():
    turn = [threading.Event() for _ in range(3)]
    turn[0].set()

    def body(comm):
        assert turn[comm.rank].wait(60)
        nothing = np.zeros(0, "f4")
        comm.all_reduce(nothing)
        assert comm.all_gather(nothing).shape == (3, 0)
        comm.broadcast(nothing, root=2)
        if comm.rank < 2:
            turn[comm.rank + 1].set()
        comm.barrier()

    run_threads(3, body)


# semantics.md: P5, C8
@pytest.mark.parametrize("types", [("i2", "u1"), ("?", "u1"), ("c8", "f8"), ("f4", "i4")])
def test_types_have_to_match(types):
    def body(comm):
        x = np.zeros(8, types[comm.rank])
        with pytest.raises(tutti.Mismatch):
            comm.broadcast(x[: 8 if comm.rank else 8 * x.itemsize // x.itemsize], root=0)
            comm.barrier()

    run_threads(2, body)


# semantics.md: P5, C5
def test_an_all_to_all_is_not_in_place():
    def body(comm):
        x = np.arange(4, dtype="i4")
        with pytest.raises(tutti.InvalidArgument):
            comm.all_to_all(x, out=x)

    run_threads(2, body)
