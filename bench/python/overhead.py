"""What a call from Python costs beside the same call from C++: all_reduce, in place, numpy arrays
from malloc, two ranks. The two are started in turn (A B A B); a turn is the mean of many calls.

    overhead.py BUILD [--ranks 2] [--turns 9] [--sizes 8 1024 65536]

BUILD: a build of Tutti with -DTUTTI_PYTHON=ENVIRONMENT, whose Python runs this (`make bench-python`).
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time


def calls_of(size: int) -> int:
    return max(100, 20_000 // (1 + size // 16384))


def measure(size: int) -> None:
    """The program of a rank: microseconds of a call, said by rank 0."""
    import numpy as np

    import tutti

    with tutti.init() as comm:
        x = np.zeros(size // 4, dtype=np.float32)
        calls = calls_of(size)
        for _ in range(calls // 10):
            comm.all_reduce(x)
        begun = time.perf_counter()
        for _ in range(calls):
            comm.all_reduce(x)
        took = time.perf_counter() - begun
        if comm.rank == 0:
            print(took / calls * 1e6)


def python_turn(build: pathlib.Path, ranks: int, size: int) -> float:
    program = [sys.executable, __file__, "--measure", str(size)]
    job = subprocess.run(
        [build / "bin/tutti", "run", "-n", str(ranks), *program],
        env={**os.environ, "PYTHONPATH": str(build / "python")},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return float(job.stdout)


def cpp_turn(build: pathlib.Path, ranks: int, size: int) -> float:
    calls = calls_of(size)
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        options = f"-b {size} -e {size} -n {calls} -w {calls // 10} -c 0 -R 0 -J {out.name}"
        subprocess.run(
            [build / "bin/tutti", "run", "-n", str(ranks), build / "bin/all_reduce_perf", *options.split()],
            capture_output=True,
            check=True,
            timeout=120,
        )
        return json.load(open(out.name))["results"][0]["in_place"]["time"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("build", nargs="?", type=pathlib.Path, help="the build folder")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--sizes", type=int, nargs="+", default=[8, 1024, 65536], help="bytes")
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure is not None:
        return measure(arguments.measure)
    if arguments.build is None:
        parser.error("the build folder is missing")
    build = arguments.build.resolve()
    print(f"all_reduce in place, {arguments.ranks} ranks, medians of {arguments.turns} turns, us")
    print(f"{'bytes':>10} {'C++':>8} {'Python':>8} {'more':>8}")
    for size in arguments.sizes:
        cpp, python = [], []
        for _ in range(arguments.turns):
            cpp.append(cpp_turn(build, arguments.ranks, size))
            python.append(python_turn(build, arguments.ranks, size))
        more = statistics.median(p - c for p, c in zip(python, cpp))
        print(f"{size:>10} {statistics.median(cpp):>8.2f} {statistics.median(python):>8.2f} {more:>8.2f}")


if __name__ == "__main__":
    main()
