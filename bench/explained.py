#!/usr/bin/env python3
"""How good `tutti explain` is on this machine: predicted beside measured times of all_reduce, by
every algorithm, with 2 and 4 ranks.

    bench/explained.py [--build build] [--runs 4] [--machine FILE] [--before docs/experiments.md]

It calibrates first, unless --machine names constants. The machine is to be idle: some five minutes.
Prints the tables of docs/experiments.md in Markdown, and how far off predictions are (median and
90th percentile by rank count and for all); --before: the same of the tables that a file has, for
comparison. Ends with status 1 where the median is worse than before by more than a tenth.
"""
import argparse
import functools
import math
import os
import pathlib
import re
import statistics
import sys
import tempfile

import programs

run = functools.partial(programs.run, seconds=120)
SIZES = {"8 B": 8, "2 KiB": 2048, "32 KiB": 32768, "512 KiB": 524288, "8 MiB": 8388608}


def predicted(build, machine, ranks, size):
    """us by algorithm, and what is chosen."""
    text = run([build / "bin/tutti", "explain", "all_reduce", size, "float32", "-n", ranks,
                "--machine", machine])
    times, chosen = {}, None
    for star, name, value, unit in re.findall(r"^([* ]) (\w+) +([\d.]+) (ns|us|ms|s) ", text, re.M):
        times[name] = float(value) * {"ns": 1e-3, "us": 1, "ms": 1e3, "s": 1e6}[unit]
        if star == "*":
            chosen = name
    return times, chosen


def measured(build, machine, ranks, size, algorithm, runs):
    """us: the median of some runs, out of place."""
    calls = max(20, min(5000, 2_000_000_000 // (size + 50_000)))
    bind = ["--bind", "core"] if ranks <= os.cpu_count() else []
    times = []
    for _ in range(runs):
        text = run([build / "bin/tutti", "run", "-n", ranks, *bind, build / "bin/all_reduce_perf",
                    "-b", size, "-e", size, "-w", min(300, calls), "-n", calls, "-c", 0],
                   TUTTI_ALGORITHM=algorithm, TUTTI_MACHINE=str(machine))
        row = next(r.split() for r in text.splitlines() if re.match(rf" +{size} ", r))
        times.append(float(row[5]))
    return statistics.median(times)


def errors_of(pairs):
    errors = sorted(abs(p / m - 1) * 100 for p, m in pairs)
    return (statistics.median(errors), errors[max(0, math.ceil(0.9 * len(errors)) - 1)])


def said(pairs):
    median, most = errors_of(pairs)
    return f"median {median:.0f} %, 90th percentile {most:.0f} %"


def tables_in(path):
    """Pairs of predicted and measured, by ranks, of tables that this program has printed."""
    pairs, ranks = {}, None
    for line in pathlib.Path(path).read_text().splitlines():
        head = re.match(r"\| (\d+) ranks \|(.*)", line)
        if head and [c.strip() for c in head[2].strip("|").split("|")] == list(SIZES):
            ranks = int(head[1])
        elif not line.startswith("|"):
            ranks = None
        elif ranks:
            found = re.findall(r"([\d.]+) / ([\d.]+)", line)
            pairs.setdefault(ranks, []).extend((float(p), float(m)) for p, m in found)
    return pairs


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, default="build")
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--ranks", type=int, nargs="*", default=[2, 4])
    parser.add_argument("--machine", type=pathlib.Path)
    parser.add_argument("--before", type=pathlib.Path, default="docs/experiments.md")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        machine = a.machine or pathlib.Path(folder) / "machine"
        if not a.machine:
            run([a.build / "bin/tutti", "calibrate", "-o", machine])
        pairs = {}
        for ranks in a.ranks:
            model = {size: predicted(a.build, machine, ranks, b) for size, b in SIZES.items()}
            print(f"| {ranks} ranks | {' | '.join(SIZES)} |\n|{'---|' * (len(SIZES) + 1)}")
            for algorithm in model["8 B"][0]:
                cells = []
                for size, b in SIZES.items():
                    times, chosen = model[size]
                    if algorithm not in times:
                        cells.append("-")
                        continue
                    us = measured(a.build, machine, ranks, b, algorithm, a.runs)
                    pairs.setdefault(ranks, []).append((times[algorithm], us))
                    cell = f"{times[algorithm]:.3g} / {us:.3g}"
                    cells.append(f"**{cell}**" if algorithm == chosen else cell)
                print(f"| {algorithm} | {' | '.join(cells)} |", flush=True)
            print()
    before = tables_in(a.before)
    worse = False
    for ranks, own in pairs.items():
        print(f"{ranks} ranks: {said(own)}", end="")
        if ranks in before:
            print(f"; before: {said(before[ranks])}", end="")
            worse = worse or errors_of(own)[0] > 1.1 * errors_of(before[ranks])[0]
        print()
    sys.exit(1 if worse else 0)


if __name__ == "__main__":
    main()
