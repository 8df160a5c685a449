#!/usr/bin/env python3
"""A reshard between two hosts whose links have a given rate, beside the bound of its bytes over the slowest link.

    bench/reshard_links.py [--build build] [--mbit 1000] [--mib 128] [--ranks 4]

Half of the ranks, on one host, hold the model; the other half, on another host, get it. Hosts are network namespaces
(root, iproute2); the machine is to be idle. Prints what reshard_bench prints, and the ratio of its time to the bound.
"""
import argparse
import pathlib
import re
import tempfile

from namespaces import namespaces, run_on_hosts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default="build")
    parser.add_argument("--mbit", type=int, default=1000, help="of each link")
    parser.add_argument("--mib", type=int, default=128, help="of the model")
    parser.add_argument("--ranks", type=int, default=4, help="of each host")
    a = parser.parse_args()
    build = a.build.resolve()
    with tempfile.TemporaryDirectory() as folder, namespaces(2, 1, a.mbit) as hosts:
        out = run_on_hosts([build / "bin/tutti", "run", "-n", str(2 * a.ranks)], a.ranks,
                           [build / "bench/reshard_bench", str(a.mib), "apart"], hosts, folder)
    print(out, end="")
    least = float(re.search(r"carries ([0-9.]+) GB at least", out)[1]) * 8e3 / a.mbit
    for way, ms in re.findall(r"^(reshard, \w+) +([0-9.]+) ms", out, re.MULTILINE):
        print(f"{way}: {float(ms) / 1e3 / least:.3f} times the bound of {least:.3f} s")


if __name__ == "__main__":
    main()
