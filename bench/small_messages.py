#!/usr/bin/env python3
"""Small all-reduces between hosts beside a bare ping-pong over TCP (bench/micro/small_messages.cpp).

    bench/small_messages.py [--hosts 2] [--build build] [options of small_messages...]

Hosts are network namespaces (root, iproute2) with a rank each; the machine is to be idle. Prints a table in Markdown.
"""
import argparse
import pathlib
import tempfile

from namespaces import namespaces, run_on_hosts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default="build")
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--first", action="store_true", help="ranks keep a core each, and run before all else (SCHED_FIFO)")
    a, options = parser.parse_known_args()
    build = a.build.resolve()
    with tempfile.TemporaryDirectory() as folder, namespaces(a.hosts) as hosts:
        tutti = [build / "bin/tutti", "run", "-n", a.hosts, *(["--bind", "core"] if a.first else [])]
        first = ["chrt", "--fifo", "10"] if a.first else []
        command = [*first, build / "bench/small_messages", "10.98.0.1", *options]
        print(run_on_hosts(tutti, 1, command, hosts, folder), end="")


if __name__ == "__main__":
    main()
