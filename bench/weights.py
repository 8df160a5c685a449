#!/usr/bin/env python3
"""Lossless coding, over links of several rates: of weights from one job to another (bench/parallel/weights_bench.cpp),
or of an axis' all-gathers and broadcasts (bench/parallel/coded_bench.cpp).

    bench/weights.py [collectives] [--build build] [--ranks 2] [--mib 64] [--turns 5] [--mbit 1000 0]

The two jobs, or the ranks of one, are on two hosts, which are network namespaces (root, iproute2); a rate of 0 is that
of the machine's memory. The machine is to be idle. Prints a table in Markdown for each rate; a ratio above 1 says that
coding is faster.
"""
import argparse
import pathlib
import tempfile

from namespaces import namespaces, run_on_hosts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["weights", "collectives"], default="weights")
    parser.add_argument("--build", type=pathlib.Path, default="build")
    parser.add_argument("--ranks", type=int, default=2, help="of both hosts together")
    parser.add_argument("--mib", type=int, default=64, help="of the model, or of a rank's part of a call")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--mbit", type=int, nargs="+", default=[1000, 0], help="of the hosts' links")
    a = parser.parse_args()
    build = a.build.resolve()
    for mbit in a.mbit:
        with tempfile.TemporaryDirectory() as folder, namespaces(2, 1, mbit or None) as hosts:
            bench = [build / "bench/weights_bench", folder, a.mib, a.turns]
            if a.what == "collectives":
                bench = [build / "bench/coded_bench", a.mib, a.turns]
            print(f"Two hosts, {mbit} Mbit/s:" if mbit else "Two hosts, as fast as the machine:")
            print(run_on_hosts([build / "bin/tutti", "run", "-n", a.ranks], a.ranks // 2, bench, hosts, folder))


if __name__ == "__main__":
    main()
