"""Windows: arrays to which other ranks put."""

import re
import subprocess
import sys

import numpy as np
import pytest
from conftest import run_threads

import tutti


def test_a_put_arrives_with_its_signal():
    def body(comm):
        mine = tutti.empty(10 * comm.size, "int32")
        with comm.window(mine) as window:
            for peer in range(comm.size):
                window.put(peer, np.arange(10, dtype="int32") + 100 * comm.rank + 1000 * peer, 10 * comm.rank, signal=3)
            for peer in range(comm.size):
                window.wait_signal(peer, index=3)
            assert window.array is mine
        expected = [np.arange(10) + 100 * r + 1000 * comm.rank for r in range(comm.size)]
        assert np.array_equal(mine, np.concatenate(expected))

    run_threads(3, body)


def test_signals_are_counted_and_waits_may_be_started():
    def body(comm):
        peer = 1 - comm.rank
        window = comm.window(np.zeros(0))
        future = window.wait_signal(peer, count=3, async_op=True)
        window.signal(peer)
        window.signal(peer)
        comm.barrier()
        assert not future.done()
        comm.barrier()
        window.signal(peer)
        future.wait()
        with tutti.group():
            window.signal(peer)
            window.wait_signal(peer)
        window.close()
        assert not window

    run_threads(2, body)


def test_a_started_put_holds_its_array():
    def body(comm):
        mine = np.zeros(100_000)
        with comm.window(mine) as window:
            window.put(1 - comm.rank, np.full(100_000, 7.0 + comm.rank), async_op=True).wait()
            window.signal(1 - comm.rank)
            window.wait_signal(1 - comm.rank)
        assert (mine == 8.0 - comm.rank).all()

    run_threads(2, body)


def test_a_map_is_the_peers_array():
    def body(comm):
        mine = tutti.empty(5, "float32")
        window = comm.window(mine)
        theirs = window.map(1 - comm.rank, "float32")
        assert theirs.shape == (5,)
        theirs[4] = 40 + comm.rank
        window.signal(1 - comm.rank)
        window.wait_signal(1 - comm.rank)
        assert mine[4] == 41 - comm.rank
        del theirs
        window.close()

    run_threads(2, body)


def test_wrong_arguments_raise():
    def body(comm):
        window = comm.window(np.zeros(8, "float32"))
        with pytest.raises(tutti.InvalidArgument, match="peer 2 is out of range"):
            window.put(2, np.zeros(1))
        with pytest.raises(tutti.InvalidArgument, match="8 bytes at offset 28 do not fit"):
            window.put(0, np.zeros(2, "float32"), 7)
        with pytest.raises(tutti.InvalidArgument, match="do not fit"):
            window.put(0, np.zeros(2, "float32"), 2**63)
        with pytest.raises(tutti.InvalidArgument, match="signal 16"):
            window.signal(0, 16)
        with pytest.raises(BufferError):
            window.put(0, np.zeros(16, "float32")[::2])
        window.close()
        with pytest.raises(tutti.InvalidUsage):
            window.signal(0)

    run_threads(2, body)


def test_a_late_signal_times_out():
    def body(comm):
        window = comm.window(np.zeros(8))
        if comm.rank == 0:
            with pytest.raises(tutti.TimedOut, match="wait_signal"):
                window.wait_signal(1, timeout=0.1)
        else:
            with pytest.raises(tutti.TimedOut):
                window.wait_signal(0)

    run_threads(2, body)


def test_processes_put_to_each_other(job):
    source = """
        comm = tutti.init()
        mine = tutti.empty(1000, "int64")
        with comm.window(mine) as window:
            window.put((comm.rank + 1) % comm.size, np.arange(1000) * (comm.rank + 1), signal=0)
            window.wait_signal((comm.rank - 1) % comm.size)
            theirs = window.map((comm.rank + 1) % comm.size, "int64")
            says("right", bool((mine == np.arange(1000) * ((comm.rank - 1) % comm.size + 1)).all()), int(theirs[1]))
        theirs[0] += 1  # still mapped
    """
    j = job(3, source)
    for rank, _, word, right, second in j.next(3):
        assert (word, right, second) == ("right", True, rank + 1)
    assert j.finish()[0] == 0


PROGRAM = """
import os, sys, threading
{before}
import tutti
tutti.use_windows()
import numpy as np
comm = tutti.init()
x = np.full(1 << 20, comm.rank + 1.0)
comm.all_reduce(x)
assert (x == sum(range(1, comm.size + 1))).all()
def has(line):
    begin, end = line.split()[0].split("-")
    return int(begin, 16) <= x.ctypes.data < int(end, 16)
place = next(filter(has, open("/proc/self/maps"))).strip()
os.write(1, ("lies in %s of %d %s\\n" % (place, comm.size, sys.argv[1:])).encode())
"""


def run_program(before="", size=2, arguments=("a b", "c")):
    program = [sys.executable, "-c", PROGRAM.format(before=before), *arguments]
    return subprocess.run(
        [sys.executable, "-m", "tutti", "run", "-n", str(size), *program],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_all_large_arrays_of_a_program_lie_in_windows():
    done = run_program("os.write(1, b'begins %d\\n' % os.getpid())")
    assert done.returncode == 0, done.stdout + done.stderr
    begins = [line.split()[-1] for line in done.stdout.splitlines() if "begins" in line]
    assert len(begins) == 4 and len(set(begins)) == 2, "each process begins twice"
    assert len(re.findall("lies in .*memfd:", done.stdout)) == 2, done.stdout
    assert done.stdout.count("of 2 ['a b', 'c']") == 2, done.stdout


def test_a_program_with_threads_cannot_begin_again():
    # One rank: what two write at once may be mixed.
    done = run_program("threading.Thread(target=threading.Event().wait, daemon=True).start()", size=1)
    assert done.returncode != 0
    assert "InvalidUsage: use_windows(): the program has threads already" in done.stderr + done.stdout


@pytest.mark.parametrize("arguments", [[], ["-"], ["-u"], ["-", "x"]])
def test_a_program_from_standard_input_cannot_begin_again(arguments):
    done = subprocess.run(
        [sys.executable, *arguments], input="import tutti; tutti.use_windows()", capture_output=True, text=True
    )
    assert done.returncode != 0 and "from a prompt or a pipe cannot begin again: set LD_PRELOAD=" in done.stderr
