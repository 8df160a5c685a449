#!/usr/bin/env python3
"""What invariant bits cost on this machine: all_reduce with --invariant beside the default, in turn.

    bench/invariant.py [--build build] [--turns 5] [--ranks 2,3,4] [--types float,bfloat16]
                       [--ways window,malloc,hosts,hosts2] [-b 1K] [-e 16M] [-f 4]

Ways: window (tutti::allocate), malloc, hosts (each rank in a network namespace of its own, over TCP), hosts2
(two ranks in each). Namespaces need root and iproute2. The machine is to be idle: some ten minutes.

Prints a table in Markdown for each way and number of ranks: the medians of the turns, in us, and the ratio
invariant / default. Ends with status 1 where two ways differ in the bits of the invariant sums.
"""
import argparse
import os
import pathlib
import re
import statistics
import tempfile

from namespaces import namespaces, run_on_hosts
from programs import run


def measured(a, way, ranks, kind, invariant):
    """us by size, out of place; and the hash of the bits, where they are invariant."""
    perf = [a.build / "bin/all_reduce_perf", "-b", a.b, "-e", a.e, "-f", a.f, "-d", kind, "-w", 5, "-c", 0]
    if way == "malloc":
        perf += ["-R", 0]
    if invariant:
        perf += ["--invariant", "--bits"]
    tutti = [a.build / "bin/tutti", "run", "-n", ranks]
    if ranks <= os.cpu_count():
        tutti += ["--bind", "core"]
    if not way.startswith("hosts"):
        text = run(tutti + perf)
    else:
        each = int(way[5:] or 1)
        with tempfile.TemporaryDirectory() as folder, namespaces((ranks + each - 1) // each) as name:
            text = run_on_hosts(tutti, each, perf, name, folder)
    rows = re.findall(r"^ +(\d+) +\d+ +\w+ +\w+ +-?\d+ +([\d.]+) ", text, re.M)
    bits = re.search(r"# Bits *:.*: ([0-9a-f]{16})$", text, re.M)
    if not rows or invariant and not bits:
        raise SystemExit(f"{way}: no times or no bits in\n{text}")
    return {int(size): float(us) for size, us in rows}, bits and bits[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default="build")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--ranks", default="2,3,4")
    parser.add_argument("--types", default="float,bfloat16")
    parser.add_argument("--ways", default="window,malloc,hosts,hosts2")
    parser.add_argument("-b", default="1K", help="the least size")
    parser.add_argument("-e", default="16M", help="the largest")
    parser.add_argument("-f", default="4", help="the factor between them")
    a = parser.parse_args()
    a.build = a.build.resolve()
    all_bits = {}
    for way in a.ways.split(","):
        for ranks in map(int, a.ranks.split(",")):
            if way == "hosts2" and ranks < 3:
                continue  # one host
            print(f"\n{way}, {ranks} ranks, load {os.getloadavg()[0]:.1f}\n")
            print("| type | bytes | default (us) | invariant (us) | ratio |\n|---|---|---|---|---|")
            for kind in a.types.split(","):
                turns = {False: [], True: []}
                for _ in range(a.turns):
                    for invariant in (False, True):
                        times, bits = measured(a, way, ranks, kind, invariant)
                        turns[invariant].append(times)
                        if invariant:
                            all_bits.setdefault((kind, ranks), {})[way] = bits
                for size in turns[False][0]:
                    default, invariant = (statistics.median(t[size] for t in turns[i]) for i in (False, True))
                    ratio = statistics.median(
                        i[size] / d[size] for d, i in zip(turns[False], turns[True]))
                    print(f"| {kind} | {size} | {default:.1f} | {invariant:.1f} | {ratio:.2f} |", flush=True)
    print("\nBits of the invariant sums:")
    for (kind, ranks), by_way in all_bits.items():
        print(f"  {kind}, {ranks} ranks: {', '.join(f'{way} {bits}' for way, bits in by_way.items())}")
    if any(len(set(by_way.values())) > 1 for by_way in all_bits.values()):
        raise SystemExit("the bits are not the same in all ways")


if __name__ == "__main__":
    main()
