"""Every collective gives the values that numpy computes, for every type and kind of array."""

import array

import ml_dtypes
import numpy as np
import pytest
from conftest import run_threads

import tutti

SIZES = [1, 2, 3]
NUMBERS = ["i1", "u1", "i4", "u4", "i8", "u8", "f2", "f4", "f8"]
SMALL_FLOATS = [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
# What is moved, but not reduced.
OTHERS = ["i2", "u2", "S5", [("a", "i4"), ("b", "f8")]]


def values(rank, count, dtype="i4"):
    """Small enough for sums in 8 bits, and another for each rank and place."""
    plain = (np.arange(count) * 3 + rank * 5) % 11 + 1
    dtype = np.dtype(dtype)
    if dtype.names or dtype.kind == "S":
        return np.frombuffer(
            bytes((rank * 37 + i) % 256 for i in range(count * dtype.itemsize)), dtype=dtype
        )
    return plain.astype(dtype)


def same(a, b):
    assert a.dtype == b.dtype and a.shape == b.shape
    assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", ["f4", "f2", ml_dtypes.bfloat16])
def test_compressed_sums(size, dtype):
    def body(comm):
        # Integers up to 127 of a scale are exact; beside a large number small ones are lost.
        mine = values(comm.rank, 64, dtype)
        expected = sum(values(r, 64, "f8") for r in range(size)).astype(dtype)
        same(comm.all_reduce(mine, np.zeros_like(mine), compressed=True), expected)
        future = comm.all_reduce(mine.copy(), compressed=True, async_op=True)
        same(future.wait(), expected)
        large = np.ones(16, dtype)
        large[0] = 4096
        comm.all_reduce(large, compressed=True)
        if size > 1:
            assert large[0] == 4096 * size and (large[1:] == 0).all()

    run_threads(size, body)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", ["f4", "f2", ml_dtypes.bfloat16])
def test_compressed_scatters(size, dtype):
    def body(comm):
        mine = np.stack([values(comm.rank + 7 * r, 64, dtype) for r in range(size)])
        sums = sum(values(r + 7 * comm.rank, 64, "f8") for r in range(size)).astype(dtype)
        found = comm.reduce_scatter(mine.reshape(-1), compressed=True)
        same(found, sums)
        mine[:] = 1
        mine[:, 0] = 4096
        found = comm.reduce_scatter(mine.reshape(-1), compressed=True)
        assert found[0] == 4096 * size and (found[1:16] == (0 if size > 1 else 1)).all()

    run_threads(size, body)


def test_compressed_calls_are_for_some_types():
    def body(comm):
        with pytest.raises(tutti.Error, match="has no compressed form"):
            comm.all_reduce(np.zeros(4), compressed=True)
        with pytest.raises(tutti.Error, match="no operator for Call::compressed"):
            comm.all_reduce(np.zeros(4, "f4"), op="max", compressed=True)

    run_threads(2, body)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", NUMBERS + SMALL_FLOATS)
@pytest.mark.parametrize("op", ["sum", "min", "max", "prod"])
def test_reductions(size, dtype, op):
    combine = {"sum": np.add, "min": np.minimum, "max": np.maximum, "prod": np.multiply}[op]
    count = 12 * size

    def body(comm):
        everybodys = [values(r, count, dtype) for r in range(size)]
        if op == "prod":  # stays exact in 8 bits
            everybodys = [np.where(v.astype("f8") > 6, 2, 1).astype(dtype) for v in everybodys]
        expected = everybodys[0].astype("f8")
        for v in everybodys[1:]:
            expected = combine(expected, v.astype("f8"))
        with np.errstate(over="ignore"):
            expected = expected.astype(dtype)
        mine = everybodys[comm.rank]

        x = mine.copy()
        assert comm.all_reduce(x, op=op) is x
        out = np.zeros_like(mine)
        assert comm.all_reduce(mine, out, op) is out
        same(mine, everybodys[comm.rank])
        part = comm.reduce_scatter(mine, op=op)
        rooted = comm.reduce(mine.copy(), op=op, root=size - 1)
        counts = [12 * size - size + 1] + [1] * (size - 1)
        uneven = comm.reduce_scatter_v(mine, counts, op=op)
        if np.dtype(dtype) not in SMALL_FLOATS:
            same(x, expected)
            same(out, expected)
            same(part, expected[12 * comm.rank : 12 * (comm.rank + 1)])
            first = sum(counts[: comm.rank])
            same(uneven, expected[first : first + counts[comm.rank]])
            assert (rooted is None) == (comm.rank != size - 1)
            if rooted is not None:
                same(rooted, expected)
        return x

    results = run_threads(size, body)
    for r in results:
        same(r, results[0])
        if np.dtype(dtype) in SMALL_FLOATS and op in ("min", "max"):
            assert r[0] in [values(k, count, dtype)[0] for k in range(size)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", SMALL_FLOATS)
@pytest.mark.parametrize("op", ["sum", "min", "max", "prod", "avg"])
def test_small_floats_are_exact_where_they_can_be(size, dtype, op):
    """Of 1 and 2, whose sums, products and parts all of them have."""

    def body(comm):
        everybodys = [(np.arange(6 * size) + r) % 2 + 1 for r in range(size)]
        stacked = np.stack(everybodys).astype("f8")
        expected = {
            "sum": stacked.sum(0),
            "min": stacked.min(0),
            "max": stacked.max(0),
            "prod": stacked.prod(0),
            "avg": stacked.sum(0),
        }[op].astype(dtype)
        mine = everybodys[comm.rank] * (size if op == "avg" else 1)
        mine = mine.astype(dtype)
        same(comm.all_reduce(mine.copy(), op=op), expected)
        same(comm.reduce_scatter(mine, op=op), expected[6 * comm.rank : 6 * (comm.rank + 1)])
        rooted = comm.reduce(mine.copy(), op=op)
        assert comm.rank > 0 or rooted.tobytes() == expected.tobytes()

    run_threads(size, body)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", NUMBERS)
def test_averages(size, dtype):
    def body(comm):
        everybodys = [values(r, 7 * size, dtype) for r in range(size)]
        total = np.sum([v.astype("f8") for v in everybodys], axis=0)
        x = (everybodys[comm.rank] * size).astype(dtype)  # so that all parts are exact
        same(comm.all_reduce(x.copy(), op="avg"), total.astype(dtype))
        same(comm.reduce_scatter(x, op="avg"), total.astype(dtype)[7 * comm.rank : 7 * (comm.rank + 1)])
        if np.dtype(dtype).kind == "f":
            factor = tutti.pre_multiplied_sum(comm.rank + 1)
            scaled = np.sum([v.astype("f8") * (r + 1) for r, v in enumerate(everybodys)], axis=0)
            same(comm.all_reduce(everybodys[comm.rank].copy(), op=factor), scaled.astype(dtype))

    run_threads(size, body)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", NUMBERS + SMALL_FLOATS + OTHERS + ["?", "c8", "c16"], ids=str)
def test_moves(size, dtype):
    count = 3 * size

    def body(comm):
        mine = values(comm.rank, count, dtype)
        everybodys = [values(r, count, dtype) for r in range(size)]
        everything = comm.all_gather(mine)
        same(everything, np.stack(everybodys))
        root = size - 1
        gathered = comm.gather(mine, root=root)
        assert (gathered is None) == (comm.rank != root)
        if gathered is not None:
            same(gathered, everything)
        x = mine.copy()
        assert comm.broadcast(x, root=root) is x
        same(x, everybodys[root])
        part = np.zeros(3, dtype)
        same(comm.scatter(mine if comm.rank == root else None, part, root=root),
             everybodys[root][3 * comm.rank : 3 * (comm.rank + 1)])
        mixed = comm.all_to_all(mine)
        mine_of_all = [e[3 * comm.rank : 3 * (comm.rank + 1)] for e in everybodys]
        same(mixed, np.concatenate(mine_of_all))
        counts = [r + 1 for r in range(size)]
        uneven = comm.all_gather_v(mine[: comm.rank + 1], counts)
        same(uneven, np.concatenate([e[: r + 1] for r, e in enumerate(everybodys)]))
        sent = comm.all_to_all_v(mine[:size], [1] * size, [1] * size)
        same(sent, np.array([e[comm.rank] for e in everybodys], dtype))
        if size > 1:
            y = np.zeros_like(mine)
            with tutti.group():
                comm.recv(y, (comm.rank - 1) % size)
                comm.send(mine, (comm.rank + 1) % size)
            same(y, everybodys[(comm.rank - 1) % size])
        comm.barrier()

    run_threads(size, body)


def test_average_scalar_boolean_and_complex():
    def body(comm):
        assert comm.all_reduce(np.array([1.0 + comm.rank]), op="avg").tolist() == [2.0]
        x = comm.all_reduce(np.array([1.0]), op=tutti.pre_multiplied_sum(0.5))
        assert x.tolist() == [1.5]
        mine = np.array([True, comm.rank == 1, False])
        assert comm.all_reduce(mine.copy()).tolist() == [True, True, False]
        assert comm.all_reduce(mine.copy(), op="prod").tolist() == [True, False, False]
        z = np.array([1 + 2j, comm.rank * 1j], dtype=np.complex64)
        assert comm.all_reduce(z).tolist() == [3 + 6j, 3j]

    run_threads(3, body)


def test_kinds_of_memory():
    def body(comm):
        made = [
            array.array("d", [1.0, 2.0]),
            memoryview(bytearray(np.array([1.0, 2.0]).tobytes())).cast("d"),
            np.array([1.0, 2.0]),
            tutti.empty(2, "f8"),
        ]
        made[3][:] = [1, 2]
        for x in made:
            assert comm.all_reduce(x) is x
            assert list(x) == [2.0, 4.0]
        scalar = np.array(3.0)
        assert comm.all_reduce(scalar) == 6.0 and scalar.shape == ()
        rows = np.ones((4, 3), "f4")
        assert comm.reduce_scatter(rows).shape == (2, 3)
        assert comm.all_gather(rows).shape == (2, 4, 3)
        nothing = np.zeros((0, 3))
        assert comm.all_reduce(nothing) is nothing
        assert comm.all_gather(nothing).shape == (2, 0, 3)

    run_threads(2, body)


class Dlpack:
    """Has nothing else, as arrays of jax."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Interface:
    def __init__(self, array):
        self.array = array
        self.__array_interface__ = array.__array_interface__


@pytest.mark.parametrize("kind", [Dlpack, Interface])
@pytest.mark.parametrize("dtype", NUMBERS + ["?", "c8", "c16"])
def test_other_kinds_of_arrays(kind, dtype):
    def body(comm):
        mine = values(comm.rank, 8, dtype)
        everybodys = np.stack([values(r, 8, dtype) for r in range(2)])
        x = kind(mine.copy())
        assert comm.all_reduce(x) is x
        same(x.array, everybodys.any(0) if dtype == "?" else everybodys.sum(0, dtype=dtype))
        x = kind(mine.copy())
        same(comm.all_gather(x), everybodys)
        same(comm.all_to_all(x), everybodys[:, 4 * comm.rank : 4 * (comm.rank + 1)].ravel())
        with pytest.raises(BufferError, match="not contiguous"):
            comm.all_reduce(kind(np.zeros((4, 4), dtype).T))
        if kind is Interface:
            mine.flags.writeable = False
            with pytest.raises(BufferError, match="read-only"):
                comm.all_reduce(Interface(mine))

    run_threads(2, body)


def test_torch_tensors():
    torch = pytest.importorskip("torch", reason="torch is not installed")

    def body(comm):
        for dtype in (torch.float32, torch.bfloat16, torch.int64):
            x = torch.full((3,), comm.rank + 1, dtype=dtype)
            assert comm.all_reduce(x) is x and x.tolist() == [3, 3, 3]
            assert comm.all_gather(x).shape == (2, 3)

    run_threads(2, body)


def test_kinds_of_memory_that_are_moved():
    """As they are, also where numpy has no buffer of them."""

    def body(comm):
        days = np.array(["2020-01-01", "NaT"], "M8[s]") + comm.rank
        assert comm.all_gather(days).tolist() == [(days - comm.rank + r).tolist() for r in range(2)]
        assert comm.all_gather(bytes([comm.rank] * 3)).tolist() == [[0] * 3, [1] * 3]
        one = np.array([(comm.rank, 2)], [("O", "i4"), ("b", "i8")])  # the name of a field
        assert comm.all_gather(one)["O"].tolist() == [[0], [1]]

    run_threads(2, body)


def test_empty_is_zero_and_shared():
    x = tutti.empty((3, 4), ml_dtypes.bfloat16)
    assert x.shape == (3, 4) and x.dtype == ml_dtypes.bfloat16 and not x.astype("f4").any()
    assert tutti.zeros(5).dtype == np.float32
    assert tutti.empty(np.int64(3)).shape == (3,) and tutti.empty([2, np.int32(2)], "i1").shape == (2, 2)
    assert tutti.empty((0, 3)).shape == (0, 3) and tutti.empty((), "f8").shape == ()
    y = x[1]
    del x
    y[:] = 1
    assert y.astype("f4").sum() == 4


def test_split_and_shrink():
    def body(comm):
        half = comm.split(comm.rank % 2, key=-comm.rank)
        assert half.size == 2 and half.rank == 1 - comm.rank // 2
        assert half.all_reduce(np.array([comm.rank])) == [2 + 2 * (comm.rank % 2)]
        assert comm.split(-1 if comm.rank == 0 else 0) is None or comm.rank > 0
        if comm.rank == 3:
            return
        three = comm.shrink([3])
        assert three.size == 3
        assert three.all_reduce(np.array([1])) == [3]

    run_threads(4, body)
