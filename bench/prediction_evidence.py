#!/usr/bin/env python3
"""What measured logs of nccl-tests say of the errors of `tutti predict`: makes the table of
laboratory/predict/evidence_table.h, and says how good it is on machines that it has not seen.

    bench/prediction_evidence.py FOLDER [FOLDER ...] [--tutti build/bin/tutti] [--without NAME ...]

Each row of a log has a kind (evidence.h). The ramp of a kind is the mean over its machines of
log(measured / simulated) by size, a piece of a line between knots, drawn to 1 as if two more machines
had no error. Each machine is judged with ramps from the other machines alone. The band of a kind and a
range of sizes holds 90 % of these held-out errors, each machine the same weight, drawn to the bands of
all kinds with as many hosts, and those to the bands of all, as if two more machines had those; and
so much wider, all of them, that 90 % of the rows of machines that are left out lie in the bands of the
others: a new machine also has a network of its own. Rows below 1 KiB do not count. Logs of
machines with faults are to be left out (--without a part of their name). --judge prints the errors of
these logs as they are, without a table.
"""
import argparse
import collections
import math
import pathlib
import re
import subprocess

KINDS = ["one_switch", "one_links", "one_host", "one_all_to_all",
         "several_sums", "several_rings", "several_alone", "several_all_to_all", "one_sends", "several_sends", "several_unlike"]
KNOTS = list(range(14, 35, 2))  # log2 of bytes
RANGES = [0, 2**16, 2**22, 2**28]
PRIOR = 2  # machines


def rows_of(tutti, log):
    done = subprocess.run([tutti, "predict", "--csv", "--log", str(log)], capture_output=True, text=True,
                          timeout=300, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{log}: {done.stderr.strip()}")
    # One run's cluster; its collectives are told apart by the names' last parts.
    machine = re.sub(r"_(all_?gather|all_?reduce|broadcast|reduce_?scatter|reduce|all_?to_?all|send_?recv)(?=__|\.log)", "",
                     log.name)
    for line in done.stdout.splitlines():
        size, predicted, _, measured, kind, like, ramp, low, high = line.split(",")
        if float(size) >= 1024:
            yield {"machine": machine, "bytes": float(like), "kind": kind, "us": float(measured),
                   "simulated": float(predicted) / float(ramp), "predicted": float(predicted),
                   "low": float(low), "high": float(high)}


def curve(rows):
    """By knot: log of the ramp, and on how many machines it stands."""
    points = collections.defaultdict(list)
    for r in rows:
        points[r["machine"]].append((math.log2(r["bytes"]), math.log(r["us"] / r["simulated"])))
    knots = []
    for knot in KNOTS:
        means = []
        for of_machine in points.values():
            near = [(1 - abs(max(x, KNOTS[0]) - knot) / 2, y) for x, y in of_machine
                    if abs(max(x, KNOTS[0]) - knot) < 2]
            weight = sum(w for w, _ in near)
            if weight > 0.3:
                means.append(sum(w * y for w, y in near) / weight)
        knots.append(sum(means) / (len(means) + PRIOR))
    return knots


def ramp(knots, size):
    x = min(max(math.log2(size), KNOTS[0]), KNOTS[-1])
    i = min(int((x - KNOTS[0]) // 2), len(KNOTS) - 2)
    part = (x - KNOTS[i]) / 2
    return knots[i] * (1 - part) + knots[i + 1] * part


def held_out(rows):
    """Each row's error (log of measured / predicted) with the ramps of the other machines."""
    for machine in {r["machine"] for r in rows}:
        for kind in {r["kind"] for r in rows if r["machine"] == machine}:
            knots = curve([r for r in rows if r["kind"] == kind and r["machine"] != machine])
            for r in rows:
                if r["machine"] == machine and r["kind"] == kind:
                    r["error"] = math.log(r["us"] / r["simulated"]) - ramp(knots, r["bytes"])


def range_of(size):
    return sum(size >= r for r in RANGES) - 1


def quantiles(rows):
    machines = collections.Counter(r["machine"] for r in rows)
    errors = sorted((r["error"], 1 / machines[r["machine"]]) for r in rows)
    found = []
    for part in (0.05, 0.95):
        reached = 0
        for error, weight in errors:
            reached += weight
            if reached >= part * len(machines) - 1e-9:
                break
        found.append(error)
    return found, len(machines)


def band(rows, kind, number, margin):
    rows = [r for r in rows if range_of(r["bytes"]) == number]
    own = [r for r in rows if r["kind"] == kind]
    like = [r for r in rows if r["kind"].split("_")[0] == kind.split("_")[0]]
    low, high = quantiles(rows)[0]
    for chosen in (like, own):
        if chosen:
            found, machines = quantiles(chosen)
            part = machines / (machines + PRIOR)
            low, high = low + part * (found[0] - low), high + part * (found[1] - high)
    # The prediction itself lies in it.
    return min(low, 0) - margin, max(high, 0) + margin, len({r["machine"] for r in own}), len(own)


def bands_of_others(rows):
    """Each row's band, without a margin, of the other machines."""
    for machine in {r["machine"] for r in rows}:
        others = [r for r in rows if r["machine"] != machine]
        known = {}
        for r in rows:
            if r["machine"] == machine:
                key = r["kind"], range_of(r["bytes"])
                if key not in known:
                    known[key] = band(others, *key, 0)[:2]
                r["band"] = known[key]


def percentile(values, part):
    values = sorted(values)
    return values[max(0, math.ceil(part * len(values)) - 1)]


def say(title, errors):
    if errors:
        errors = [abs(math.exp(-e) - 1) * 100 for e in errors]
        print(f"// {title}: {len(errors)} rows, median {percentile(errors, 0.5):.1f} %, "
              f"90th percentile {percentile(errors, 0.9):.1f} %")


def say_machines(rows):
    print("// | machine | rows | median | 90 % |\n// |---|---|---|---|")
    for machine in sorted({r["machine"] for r in rows}):
        errors = [abs(math.exp(-r["error"]) - 1) * 100 for r in rows if r["machine"] == machine]
        print(f"// | {machine.removesuffix('.log')} | {len(errors)} | {percentile(errors, 0.5):.1f} % | "
              f"{percentile(errors, 0.9):.1f} % |")


def say_all(rows):
    say("all", [r["error"] for r in rows])
    say("all_to_all", [r["error"] for r in rows if r["kind"].endswith("all_to_all")])
    say("several hosts, 256 KiB to 128 MiB",
        [r["error"] for r in rows if r["kind"].startswith("several") and 2**18 <= r["bytes"] <= 2**27])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    parser.add_argument("--tutti", default="build/bin/tutti")
    parser.add_argument("--without", nargs="*", default=[])
    parser.add_argument("--judge", action="store_true")
    arguments = parser.parse_args()
    logs = [log for folder in arguments.folders for log in sorted(folder.glob("*.log"))
            if not any(name in log.name for name in arguments.without)]
    rows = [r for log in logs for r in rows_of(arguments.tutti, log)]
    if arguments.judge:
        for r in rows:
            r["error"] = math.log(r["us"] / r["predicted"])
        say_all(rows)
        say_machines(rows)
        inside = sum(r["low"] <= r["us"] <= r["high"] for r in rows)
        widths = [r["high"] / r["low"] for r in rows]
        print(f"// {inside / len(rows):.0%} in their bands; median width x{percentile(widths, 0.5):.2f}")
        return
    rows = [r for r in rows if r["kind"] in KINDS]
    held_out(rows)
    bands_of_others(rows)
    margin = max(0, percentile([max(r["band"][0] - r["error"], r["error"] - r["band"][1]) for r in rows], 0.9))
    inside = sum(r["band"][0] - margin <= r["error"] <= r["band"][1] + margin for r in rows)
    widths = [math.exp(r["band"][1] - r["band"][0] + 2 * margin) for r in rows]
    say_all(rows)
    say_machines(rows)
    print(f"// {inside / len(rows):.0%} in the bands of the others; median width x{percentile(widths, 0.5):.2f}; "
          f"margin x{math.exp(margin):.2f}")
    for kind in KINDS:
        of_kind = [r for r in rows if r["kind"] == kind]
        print(f"    // {kind}\n    {{{{{', '.join(f'{math.exp(k):.2f}' for k in curve(of_kind))}}},")
        bands = [band(rows, kind, number, margin) for number in range(len(RANGES))]
        print("     {{" + ",\n       ".join(
            f"{{{math.exp(low):.2f}, {math.exp(high):.2f}, {machines}, {count}}}"
            for low, high, machines, count in bands) + "}}},")


main()
