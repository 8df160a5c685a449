"""The questions of bench/differences, which four ranks ask a library.

A question is a function of the library (libraries.py) that returns this rank's answer, a short string. Its
docstring is the text of the row. Its name is what the results have. `separate` marks those after which
a library may be unusable: each of them gets a job of its own.
"""

import math
import os
import re
import signal
import time
import zlib

import ml_dtypes
import numpy as np

from libraries import Missing

QUESTIONS = {}  # name -> function


def question(function):
    QUESTIONS[function.__name__] = function
    function.separate = False
    return function


def separate(function):
    question(function)
    function.separate = True
    return function


# --- helpers


def show(x):
    """A number as a person writes it; zero with its sign."""
    x = x.item() if hasattr(x, "item") else x
    if isinstance(x, (bool, complex)):
        return str(x)
    if isinstance(x, float) and math.isnan(x):
        return "NaN"
    if x == 0:
        return "-0" if math.copysign(1, x) < 0 else "+0" if isinstance(x, float) else "0"
    return "%.7g" % x if isinstance(x, float) else str(x)


def short(error):
    """The first clause of an error's text, without addresses, file names and asides."""
    text = re.sub(r"\[\S*?(:\d+)?\] ?| ?\([^)]*\)", "", " ".join(str(error).split()))
    return re.split(r"[,.:;(]( |$)|error stack", text)[0].strip(" ,.:")[:80]


def reduced(library, values, type, op):
    """One element, a value for each rank."""
    with np.errstate(all="ignore"):
        x = np.array([values[library.rank]]).astype(type)
    return show(library.all_reduce(x, op)[0])


def noise(rank, count, type=np.float32):
    return np.random.RandomState(rank).randn(count).astype(type)


def share(library, bits):
    """How many of the ranks' results are different, by their bytes."""
    digest = np.array([zlib.crc32(bits.tobytes())], np.int64)
    return len(set(library.exchange(digest).ravel().tolist()))


def different(a, b):
    return "equal" if a.tobytes() == b.tobytes() else "differ"


def late(library, call, seconds=1.0):
    """Rank 3 calls a second later than the others: whether this rank waits for it."""
    library.all_reduce(np.ones(1, np.float32), "sum")
    if library.rank == 3:
        time.sleep(seconds)
    begin = time.monotonic()
    call()
    waited = time.monotonic() - begin > seconds / 2
    time.sleep(2 * seconds)
    return "late" if library.rank == 3 else "waits" if waited else "returns"


# --- values


@question
def max_of_nan(library):
    """MAX of 1, NaN, 3, 4"""
    return reduced(library, [1, math.nan, 3, 4], np.float32, "max")


@question
def min_of_nan(library):
    """MIN of 1, NaN, 3, 4"""
    return reduced(library, [1, math.nan, 3, 4], np.float32, "min")


@question
def max_of_many_nans(library):
    """MAX of 1,000 elements, all NaN on rank 1 alone: how many NaNs come out"""
    x = np.full(1000, math.nan if library.rank == 1 else float(library.rank), np.float32)
    return str(int(np.isnan(library.all_reduce(x, "max")).sum()))


@question
def max_of_nan_in_half(library):
    """the same MAX of 1, NaN, 3, 4 in float16"""
    return reduced(library, [1, math.nan, 3, 4], np.float16, "max")


@question
def prod_of_nan(library):
    """PROD of 0, NaN, 3, 4"""
    return reduced(library, [0, math.nan, 3, 4], np.float32, "prod")


@question
def max_of_zeros(library):
    """MAX of +0, -0, +0, -0"""
    return reduced(library, [0.0, -0.0, 0.0, -0.0], np.float32, "max")


@question
def min_of_zeros(library):
    """MIN of +0, -0, +0, -0"""
    return reduced(library, [0.0, -0.0, 0.0, -0.0], np.float32, "min")


@question
def sum_of_minus_zeros(library):
    """SUM of four -0"""
    return reduced(library, [-0.0] * 4, np.float32, "sum")


@question
def sum_of_infinities(library):
    """SUM of inf, -inf, 1, 1"""
    return reduced(library, [math.inf, -math.inf, 1, 1], np.float32, "sum")


@question
def sum_that_overflows_midway(library):
    """SUM of 3e38, -3e38, 3e38, -3e38 in float32"""
    return reduced(library, [3e38, -3e38, 3e38, -3e38], np.float32, "sum")


@question
def int8_sum(library):
    """SUM of four int8 100"""
    return reduced(library, [100] * 4, np.int8, "sum")


@question
def many_uint8_sums(library):
    """SUM of four uint8 200 in each of 99 elements: the values in the result"""
    values = set(library.all_reduce(np.full(99, 200, np.uint8), "sum").tolist())
    return " and ".join(str(value) for value in sorted(values))


@question
def int16_sum(library):
    """SUM of four int16 20,000"""
    return reduced(library, [20000] * 4, np.int16, "sum")


@question
def uint32_sum(library):
    """SUM of four uint32 2^31"""
    return reduced(library, [2**31] * 4, np.uint32, "sum")


@question
def int64_sum(library):
    """SUM of four int64 2^60 + 1"""
    return reduced(library, [2**60 + 1] * 4, np.int64, "sum")


@question
def bool_sum(library):
    """SUM of the booleans True, True, True, False"""
    out = library.all_reduce(np.array([library.rank < 3]), "sum")
    return f"{show(out[0])} ({out.dtype}, byte {out.view(np.uint8)[0]})"


@question
def complex_prod(library):
    """PROD of 1j on four ranks"""
    return reduced(library, [1j] * 4, np.complex64, "prod")


@question
def average_of_negatives(library):
    """AVG of int32 -1, -2, -4, 0"""
    return reduced(library, [-1, -2, -4, 0], np.int32, "avg")


@question
def average_of_bytes(library):
    """AVG of four uint8 200"""
    return reduced(library, [200] * 4, np.uint8, "avg")


@question
def average_of_large_floats(library):
    """AVG of four float32 3e38"""
    return reduced(library, [3e38] * 4, np.float32, "avg")


@question
def average_of_large_halves(library):
    """AVG of four float16 60,000"""
    return reduced(library, [60000] * 4, np.float16, "avg")


@question
def half_sum(library):
    """SUM of float16 2048, 1, 1, 1 (exactly 2051)"""
    return reduced(library, [2048, 1, 1, 1], np.float16, "sum")


@question
def bfloat16_sum(library):
    """SUM of bfloat16 256, 1, 1, 1 (exactly 259)"""
    return reduced(library, [256, 1, 1, 1], ml_dtypes.bfloat16, "sum")


@question
def float8_sum(library):
    """SUM of float8_e4m3fn 16, 1, 1, 1 (exactly 19)"""
    return reduced(library, [16, 1, 1, 1], ml_dtypes.float8_e4m3fn, "sum")


@question
def float8_overflow(library):
    """SUM of float8_e4m3fn 448, 448, 0, 0, which has no infinity"""
    return reduced(library, [448, 448, 0, 0], ml_dtypes.float8_e4m3fn, "sum")


@question
def gather_of_int16(library):
    """all-gather of int16: are they moved"""
    out = library.all_gather(np.array([library.rank], np.int16))
    return "yes" if out.ravel().tolist() == [0, 1, 2, 3] else "wrong"


# --- bits


@question
def ranks_alike(library):
    """SUM of 100,003 random float32: different results among the ranks"""
    return str(share(library, library.all_reduce(noise(library.rank, 100003), "sum")))


@question
def places_alike(library):
    """1e8, 1, -1e8, 1 in each of 1,000,003 elements: different values in the result"""
    value = [1e8, 1, -1e8, 1][library.rank]
    return str(len(set(library.all_reduce(np.full(1000003, value, np.float32), "sum").tolist())))


@separate
def repeats_alike(library):
    """the same SUM of 10,007 random float32, a job's first twelve calls: different results"""
    x = noise(library.rank, 10007)
    return str(len({library.all_reduce(x, "sum").tobytes() for _ in range(12)}))


@question
def started_alike(library):
    """started and blocking SUMs of 1, 3, 8, 17, 64, 100, 1,000 random float32: how many of the seven differ"""
    count = 0
    for size in (1, 3, 8, 17, 64, 100, 1000):
        x = noise(library.rank, size)
        count += library.all_reduce(x, "sum").tobytes() != library.start_all_reduce(x, "sum")().tobytes()
    return str(count)


@question
def in_place_alike(library):
    """SUM of 10,007 random float32 in place and out of place"""
    x = noise(library.rank, 10007)
    out = library.all_reduce(x, "sum")
    library.all_reduce_in_place(x, "sum")
    return different(x, out)


@question
def reduce_alike(library):
    """reduce's result at its root, and all-reduce's, 10,007 random float32"""
    x = noise(library.rank, 10007)
    out = library.reduce(x.copy(), 0, np.zeros_like(x))
    everywhere = library.all_reduce(x, "sum")
    return different(out, everywhere) if library.rank == 0 else "-"


@question
def reduce_scatter_alike(library):
    """reduce-scatter's block, and the same block of all-reduce, 40,000 random float32"""
    x = noise(library.rank, 40000)
    mine = library.reduce_scatter(x.copy())
    return different(mine, library.all_reduce(x, "sum").reshape(4, -1)[library.rank])


@question
def sizes_alike(library):
    """the first element's bits, alone and within 2 to 100,000 elements: different values"""
    x = noise(library.rank, 100000)
    sizes = [1, 2, 3, 4, 5, 8, 16, 17, 100, 1000, 10000, 100000]
    return str(len({library.all_reduce(x[:size].copy(), "sum")[0].tobytes() for size in sizes}))


@question
def left_to_right(library):
    """SUM of 10,000 random float32: elements that are ((a + b) + c) + d"""
    parts = [noise(rank, 10000) for rank in range(4)]
    expected = ((parts[0] + parts[1]) + parts[2]) + parts[3]
    return "%.0f %%" % (100 * np.mean(library.all_reduce(parts[library.rank], "sum") == expected))


# --- buffers


@question
def unaligned(library):
    """SUM of float32 at an odd address"""
    memory = np.zeros(41, np.uint8)
    x = memory[1:].view(np.float32)
    x[:] = np.arange(10) * (library.rank + 1)
    return "right" if np.array_equal(library.all_reduce(x, "sum"), np.arange(10) * 10.0) else "wrong"


@question
def strided_in_place(library):
    """SUM in place over every second element"""
    x = np.arange(8, dtype=np.float32)
    library.all_reduce_in_place(x[::2], "sum")
    return "right" if x.tolist() == [0, 1, 8, 3, 16, 5, 24, 7] else "silently wrong"


@question
def other_ranks_buffer(library):
    """reduce to rank 0: the other ranks' receiving buffers, which held -7"""
    out = library.reduce(np.full(1000, library.rank + 1.0, np.float32), 0, np.full(1000, -7.0, np.float32))
    values = sorted(set(out.tolist()))
    return "-" if library.rank == 0 else "kept" if values == [-7] else "own input" if values == [library.rank + 1] \
        else "parts of the sum"


@question
def input_kept(library):
    """the input of an all-reduce out of place, 100,003 elements"""
    x = noise(library.rank, 100003)
    copy = x.copy()
    library.all_reduce(x, "sum")
    return "kept" if np.array_equal(x, copy) else "changed"


@question
def two_in_reverse(library):
    """two started all-reduces, waited for in reverse order"""
    first = library.start_all_reduce(np.full(5, 1.0, np.float32), "sum")
    second = library.start_all_reduce(np.full(5, 2.0, np.float32), "sum")
    return "right" if (second()[0], first()[0]) == (8, 4) else "wrong"


# --- waiting; rank 3 is late by a second


@question
def waits_at_count_zero(library):
    """all-reduce of no elements: who waits for a late rank"""
    return late(library, lambda: library.all_reduce(np.zeros(0, np.float32), "sum"))


@question
def waits_at_barrier(library):
    """barrier: who waits for a late rank"""
    return late(library, library.barrier)


@question
def waits_at_all_gather(library):
    """all-gather of 4 bytes: who waits for a late rank"""
    return late(library, lambda: library.all_gather(np.ones(1, np.float32)))


@question
def waits_at_small_broadcast(library):
    """broadcast of 4 bytes from rank 0: who waits for a late receiver"""
    return late(library, lambda: library.broadcast(np.ones(1, np.float32), 0))


@question
def waits_at_large_broadcast(library):
    """broadcast of 16 MiB from rank 0: who waits for a late receiver"""
    return late(library, lambda: library.broadcast(np.ones(1 << 22, np.float32), 0))


@question
def waits_at_reduce(library):
    """reduce of 4 bytes to rank 0: who waits for a late giver"""
    return late(library, lambda: library.reduce(np.ones(1, np.float32), 0, np.ones(1, np.float32)))


@question
def small_send(library):
    """send of 4 bytes: does it wait for its receiver"""
    x = np.ones(1, np.float32)
    library.all_reduce(x, "sum")
    if library.rank == 3:
        time.sleep(1)
        library.receive(x, 2)
    begin = time.monotonic()
    if library.rank == 2:
        library.send(x, 3)
        return "waits" if time.monotonic() - begin > 0.5 else "returns"
    return "-"


# --- what does not fit


def outcome(call):
    """What the caller sees: a result, or the kind of an error, when, and whether it names rank 3."""
    begin = time.monotonic()
    try:
        result = call()
    except Missing:
        raise
    except Exception as error:
        named = ", names rank 3" if re.search(r"\brank 3\b", str(error)) else ""
        return f"{short(error)} (after {time.monotonic() - begin:.0f} s{named})"
    return result if isinstance(result, str) else "no error"


@separate
def other_count(library):
    """all-reduce of 5 elements on rank 3, of 4 elsewhere"""
    x = np.ones(5 if library.rank == 3 else 4, np.float32)
    return outcome(lambda: "silent: " + show(library.all_reduce(x, "sum")[0]))


@separate
def other_operator(library):
    """all-reduce with MAX on rank 3, SUM elsewhere, of 1, 2, 3, 4"""
    x = np.full(1, library.rank + 1.0, np.float32)
    return outcome(lambda: "silent: " + show(library.all_reduce(x, "max" if library.rank == 3 else "sum")[0]))


@separate
def other_type(library):
    """all-reduce of one float64 on rank 3, of two float32 elsewhere (the same bytes)"""
    x = np.ones(1, np.float64) if library.rank == 3 else np.ones(2, np.float32)
    return outcome(lambda: "silent: " + show(library.all_reduce(x, "sum")[0]))


@separate
def longer_receive(library):
    """a receive of 8 elements of a message of 4"""
    x = np.zeros(8, np.float32)

    def call():
        if library.rank == 2:
            library.send(np.ones(4, np.float32), 3)
        elif library.rank == 3:
            count = library.receive(x, 2)
            return f"{int(x.sum())} came" + (f", it says {count}" if count is not None else "")
        return "-"

    return outcome(call)


@separate
def shorter_receive(library):
    """a receive of 4 elements of a message of 8"""
    x = np.zeros(8, np.float32)

    def call():
        if library.rank == 2:
            library.send(np.ones(8, np.float32), 3)
        elif library.rank == 3:
            library.receive(x[:4], 2)
            return f"silent: {int(x.sum())} elements written"
        return "-"

    return outcome(call)


@separate
def rank_leaves(library):
    """rank 3 ends with status 0 before an all-reduce: what the others see"""
    library.all_reduce(np.ones(1, np.float32), "sum")
    if library.rank == 3:
        os._exit(0)
    time.sleep(0.5)
    return outcome(lambda: library.all_reduce(np.ones(1000, np.float32), "sum"))


@separate
def rank_dies(library):
    """rank 3 gets SIGKILL before an all-reduce: what the others see"""
    library.all_reduce(np.ones(1, np.float32), "sum")
    if library.rank == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.5)
    return outcome(lambda: library.all_reduce(np.ones(1000, np.float32), "sum"))


@separate
def rank_is_stopped(library):
    """rank 3 does not come for 12 s: what the others see"""
    library.all_reduce(np.ones(1, np.float32), "sum")
    if library.rank == 3:
        time.sleep(12)
    begin = time.monotonic()
    seen = outcome(lambda: library.all_reduce(np.ones(1000, np.float32), "sum"))
    return "-" if library.rank == 3 else "waits" if seen == "no error" and time.monotonic() - begin > 10 else seen
