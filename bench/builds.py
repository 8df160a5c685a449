#!/usr/bin/env python3
"""Whether a change makes calls slower: two builds of Tutti in turn (A B B A ...).

    bench/builds.py OLD NEW [--programs all_reduce ...] [-n 2] [--hosts 1] [--turns 7] [-b 8] [-e 64M] [-f 8]

OLD and NEW are build folders, each with its own library and *_perf programs. The ranks are bound to cores where
there are enough. With several hosts (namespaces; root, iproute2) the ranks are shared out among them. The machine is
to be idle. Prints a table in Markdown: medians of the turns in us, and new / old: the median of the turns' ratios,
with quartiles. The first calls of a process are slower: --options -n 5000 -w 3000 leaves out most of that.
"""
import argparse
import contextlib
import os
import pathlib
import tempfile

from namespaces import namespaces, run_on_hosts
from programs import in_turn, run, times_of


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", nargs=2, type=pathlib.Path, metavar="BUILD")
    parser.add_argument("--programs", nargs="+", default=["all_reduce"], help="without _perf")
    parser.add_argument("-n", type=int, default=2, help="ranks")
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("-b", default="8", help="the least size")
    parser.add_argument("-e", default="64M", help="the largest")
    parser.add_argument("-f", default="8", help="the factor between them")
    parser.add_argument("--options", nargs=argparse.REMAINDER, default=[], help="of the program; the last option")
    a = parser.parse_args()
    if a.n % a.hosts != 0:
        parser.error(f"{a.n} ranks cannot be shared out among {a.hosts} hosts")
    old, new = (build.resolve() for build in a.builds)
    bind = ["--bind", "core"] if a.n <= (os.cpu_count() or 1) else []
    hosts = namespaces(a.hosts) if a.hosts > 1 else contextlib.nullcontext()
    print(f"| {a.n} ranks, {a.hosts} host{'s' * (a.hosts > 1)} | bytes | old, us | new, us | new / old | quartiles |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, hosts as name:
        for program in a.programs:
            def times(build, program=program):
                tutti = [build / "bin/tutti", "run", "-n", a.n, *bind]
                perf = [build / f"bin/{program}_perf", "-b", a.b, "-e", a.e, "-f", a.f, "-w", 20, "-c", 0, *a.options]
                return times_of(run_on_hosts(tutti, a.n // a.hosts, perf, name, folder) if name
                                else run([*tutti, *perf]))

            for row in in_turn(lambda: times(new), lambda: times(old), a.turns):
                size, new_us, old_us, low, ratio, high = row
                print(f"| {program} | {size} | {old_us:.2f} | {new_us:.2f} | {ratio:.3f} | {low:.3f} to {high:.3f} |",
                      flush=True)


if __name__ == "__main__":
    main()
