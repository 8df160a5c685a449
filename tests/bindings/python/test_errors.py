"""What is wrong with a call is said in one sentence, by an exception of the right class."""

import contextlib
import ctypes
import os
import signal
import threading
import time

import numpy as np
import pytest
from conftest import run_threads

import tutti


def alone():
    return tutti.Communicator.create_local(1)[0]


class Uneven:
    """Elements of 4 bytes, one every 6."""

    memory = np.zeros(12, "u1")
    __array_interface__ = {**memory.__array_interface__, "shape": (2,), "strides": (6,), "typestr": "<f4"}


def described(**said):
    """An array of which `said` is said."""
    array = np.zeros(4, "f4")
    interface = {key: value for key, value in {**array.__array_interface__, **said}.items() if value is not None}
    return type("Described", (), {"memory": array, "__array_interface__": interface})()


@pytest.mark.parametrize(
    "call, exception, text",
    [
        (lambda c: c.all_reduce(described(shape=(2**62 + 1, 4))), BufferError, "no possible shape"),
        (lambda c: c.all_reduce(described(shape=(2**62,))), BufferError, "more bytes than there are"),
        (lambda c: c.all_reduce(described(shape=(-4,))), BufferError, "no possible shape"),
        (lambda c: c.all_reduce(described(shape="x", typestr=7)), BufferError, "not as numpy defines it"),
        (lambda c: c.all_reduce(described(typestr=None)), BufferError, "has no typestr"),
        (lambda c: c.all_reduce(np.ones(1), async_op=True).wait(float("nan")), ValueError, "not a number"),
        (lambda c: c.all_reduce([1, 2]), TypeError, "x is a list"),
        (lambda c: c.all_reduce(None), TypeError, "NoneType"),
        (lambda c: c.all_reduce(np.ones((4, 4))[:, ::2]), BufferError, "not contiguous"),
        (lambda c: c.all_reduce(b"abc"), BufferError, "read-only"),
        (lambda c: c.all_reduce(np.ones(2), np.ones(3)), ValueError, "out has 3 elements"),
        (lambda c: c.all_reduce(np.ones(2), np.ones(2, "f4")), TypeError, "float64"),
        (lambda c: c.all_reduce(np.ones(2), op="median"), ValueError, 'op is "median"'),
        (lambda c: c.all_reduce(np.ones(2), op=7), TypeError, "op is a int"),
        (lambda c: c.all_reduce(np.ones(2, "i2")), TypeError, "2 bytes"),
        (lambda c: c.all_reduce(np.ones(2, ">f4")), TypeError, "byte order"),
        (lambda c: c.all_reduce(memoryview(np.ones(2, ">i8"))), TypeError, "byte order"),
        (lambda c: c.all_gather(np.ones(2, "f4"), np.ones(2, ">f4")), TypeError, "byte order"),
        (lambda c: c.all_reduce(np.array([True]), op="avg"), TypeError, "no average"),
        (lambda c: c.all_reduce(np.array([1j]), op="max"), TypeError, "complex"),
        (lambda c: c.all_gather_v(np.ones(2), [2, 3]), ValueError, "counts has 2 entries"),
        (lambda c: c.all_gather_v(np.ones(2), [3]), ValueError, "x has 2 elements"),
        (lambda c: c.all_to_all(np.array(1.0)), ValueError, "first dimension"),
        (lambda c: c.broadcast(np.ones(2), root=5), tutti.InvalidArgument, "root 5"),
        (lambda c: c.send(np.ones(2), 3), tutti.InvalidArgument, "peer 3"),
        (lambda c: c.use_plan("nonsense"), tutti.Error, "plan"),
        # Addresses of Python objects mean nothing to another process.
        (lambda c: c.all_gather(np.array([1, None])), TypeError, "Python objects"),
        (lambda c: c.broadcast(np.zeros(2, [("a", "i4"), ("b", "O")])), TypeError, "Python objects"),
        (lambda c: c.broadcast(np.array(["a"], np.dtypes.StringDType())), TypeError, "Python objects"),
        (lambda c: c.broadcast((ctypes.py_object * 2)(1, 2)), TypeError, "Python objects"),
        (lambda c: c.all_gather(np.zeros(3, "V0")), TypeError, "without a size"),
        (lambda c: c.all_gather(Uneven()), BufferError, "not contiguous"),
        (lambda c: c.all_reduce(np.ones(2, int), op=tutti.pre_multiplied_sum(0.5)), ValueError, "by 0.5"),
        (lambda c: tutti.empty((2, -1)), ValueError, "negative"),
        (lambda c: tutti.empty(3, object), TypeError, "type object"),
        (lambda c: tutti.empty(2**62, "f8"), MemoryError, "bytes of window memory"),
    ],
)
def test_wrong_arguments(call, exception, text):
    comm = alone()
    with pytest.raises(exception, match=text):
        call(comm)
    assert comm.all_reduce(np.ones(1)) == [1]  # nothing has happened


def test_destroyed():
    comm = alone()
    comm.destroy()
    comm.destroy()
    assert not comm and "destroyed" in repr(comm)
    with pytest.raises(tutti.InvalidUsage, match="destroyed"):
        comm.all_reduce(np.ones(1))
    with pytest.raises(tutti.InvalidUsage):
        comm.rank


def test_mismatch_names_the_rank():
    def body(comm):
        with pytest.raises(tutti.Mismatch, match="rank"):
            comm.all_reduce(np.ones(3 if comm.rank == 1 else 4))

    run_threads(3, body)


@pytest.mark.parametrize("odd", [0, 1, 3])
def test_mismatch_blames_the_one_that_differs(odd):
    """Where most ranks are known to agree by the time that it is noticed."""
    import time

    def body(comm):
        if comm.rank == odd:
            time.sleep(0.2)
        with pytest.raises(tutti.Mismatch) as caught:
            comm.all_reduce(np.ones(3 if comm.rank == odd else 4))
        assert caught.value.rank == odd and "(as 2 others)" in str(caught.value)

    run_threads(4, body)


@pytest.mark.parametrize("mine, theirs", [("?", "u1"), ("i2", "u1"), ("S2", "?"), ("c8", "f4")])
def test_types_that_are_moved_alike_do_not_match(mine, theirs):
    def body(comm):
        dtype = np.dtype(mine if comm.rank else theirs)
        with pytest.raises(tutti.Mismatch):
            comm.all_gather(np.zeros(16 // dtype.itemsize, dtype))

    run_threads(2, body)


def test_timeout():
    def body(comm):
        if comm.rank == 1:
            with pytest.raises(tutti.TimedOut) as caught:
                comm.all_reduce(np.ones(3))
            assert caught.value.rank == 0
            assert caught.value.operation == "all_reduce" and caught.value.step is not None
            assert isinstance(caught.value, TimeoutError)
        else:
            import time

            time.sleep(1.5)

    run_threads(2, body, timeout=0.5)


def test_abort_from_another_rank():
    def body(comm):
        if comm.rank == 0:
            comm.abort("enough")
        with pytest.raises(tutti.Aborted, match="enough"):
            comm.all_reduce(np.ones(3))
        with pytest.raises(tutti.Aborted):
            comm.check()

    run_threads(2, body)


def test_a_dropped_group_runs_nothing():
    comm = alone()
    x = np.ones(1)
    with pytest.raises(ZeroDivisionError):
        with tutti.group():
            comm.all_reduce(x, op=tutti.pre_multiplied_sum(3))
            1 / 0
    assert x == [1]
    with tutti.group():
        comm.all_reduce(x, op=tutti.pre_multiplied_sum(3))
    assert x == [3]


def test_what_was_refused_is_let_go():
    comm, memory = alone(), bytearray(8)
    with pytest.raises(BufferError):
        comm.all_reduce(memoryview(memory).toreadonly())
    with pytest.raises(ValueError):
        comm.all_reduce(memory, out=bytearray(7))
    memory.extend(b"more")


def test_two_threads_in_one_communicator():
    """A thread that waits holds up no other one; destroy() waits for it."""

    def body(comm):
        mine = np.full(1000, comm.rank + 1.0)
        if comm.rank == 1:
            comm.all_reduce(mine)
            told.wait(30)
            return comm.send(np.ones(1000), 0)
        x = np.zeros(1000)
        thread = threading.Thread(target=comm.recv, args=(x, 1))
        thread.start()
        time.sleep(0.1)  # it waits by now, most probably
        comm.all_reduce(mine)
        assert (mine == 3).all() and (x == 0).all()
        threading.Timer(0.1, told.set).start()
        comm.destroy()
        assert (x == 1).all()

    told = threading.Event()
    run_threads(2, body)


def test_ctrl_c_is_not_lost_in_an_error_of_its_moment():
    for _ in range(20):
        waiting, other = tutti.Communicator.create_local(2)

        def end(other=other):
            os.kill(os.getpid(), signal.SIGINT)
            other.abort("no more")

        thread = threading.Thread(target=end)
        try:
            thread.start()
            with contextlib.suppress(tutti.Error):
                waiting.barrier()
            time.sleep(5)  # where the error came first
            pytest.fail("no KeyboardInterrupt")
        except KeyboardInterrupt:
            pass
        thread.join()
