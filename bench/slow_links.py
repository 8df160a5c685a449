#!/usr/bin/env python3
"""All-reduces between hosts whose links have a given rate, in two ways, in turn (A B B A ...).

    bench/slow_links.py eight_bits [--hosts 2] [--build build] [--turns 5] [--mbit 1000] [-b 1M] [-e 64M] [-f 4]
    bench/slow_links.py stripes ...

    eight_bits  bfloat16 as it is, and in 8 bits (docs/low-precision.md)
    stripes     float32 over one of four links, and over all four (docs/hosts.md)

Hosts are network namespaces (root, iproute2) with a rank each; the machine is to be idle. Prints a table in
Markdown: medians of the turns in ms, and median and quartiles of their ratios.
"""
import argparse
import pathlib
import tempfile

from namespaces import namespaces, run_on_hosts
from programs import in_turn, times_of

# Names, options of the benchmark, settings.
WAYS = {
    "eight_bits": [("bfloat16", ["-d", "bfloat16"], {}),
                   ("8 bits", ["-d", "bfloat16", "--compress", "8bit"], {})],
    "stripes": [("one link", [], {"TUTTI_TCP_STREAMS": "1"}),
                ("four links", [], {"TUTTI_TCP_STREAMS": "0"})],
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=WAYS)
    parser.add_argument("--build", type=pathlib.Path, default="build")
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--mbit", type=int, default=1000, help="of each link")
    parser.add_argument("-n", default="5", help="calls of a turn")
    parser.add_argument("-b", default="1M", help="the least size")
    parser.add_argument("-e", default="64M", help="the largest")
    parser.add_argument("-f", default="4", help="the factor between them")
    a = parser.parse_args()
    build = a.build.resolve()
    ways = WAYS[a.what]
    perf = [build / "bin/all_reduce_perf", "-b", a.b, "-e", a.e, "-f", a.f, "-n", a.n, "-w", 1, "-c", 0]
    tutti = [build / "bin/tutti", "run", "-n", a.hosts]
    links = 4 if a.what == "stripes" else 1
    print(f"| {a.hosts} hosts, {a.mbit} Mbit/s | {ways[0][0]}, ms | {ways[1][0]}, ms | ratio | quartiles |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, namespaces(a.hosts, links, a.mbit) as hosts:
        def times(way):
            _, options, settings = way
            return times_of(run_on_hosts(tutti, 1, perf + options, hosts, folder, **settings))

        for row in in_turn(lambda: times(ways[0]), lambda: times(ways[1]), a.turns):
            size, one, other, low, ratio, high = row
            print(f"| {size} | {one / 1000:.2f} | {other / 1000:.2f} | {ratio:.2f} | {low:.2f} to {high:.2f} |")


if __name__ == "__main__":
    main()
