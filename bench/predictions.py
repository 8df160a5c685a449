#!/usr/bin/env python3
"""How good `tutti predict` is: its error on measured logs of nccl-tests, machine by machine.

    bench/predictions.py FOLDER [--tutti build/bin/tutti] [--by type]

Some constants are calibrated and not from data sheets: the latency and the efficiency of each kind of
network, what GPUs without peer access put through their host's memory, and what a turn of a ring
adds (on machines that have none of the former). Each machine is judged with those constants
calibrated on all other machines (a grid; the least mean of |log(predicted / measured)|, in which each
machine counts the same, and too fast as much as too slow); where no other machine says anything of
one, those of its kin (KIN) are taken, or InfiniBand's latency and RoCE's efficiency. A machine is what
one log's cluster is; with `--by type`, all clusters that a cloud sells under one name are one. Rows
below 1 KiB do not count. Prints a table in Markdown.
"""
import argparse
import collections
import concurrent.futures
import itertools
import math
import os
import pathlib
import re
import statistics
import subprocess

LATENCIES = [0, 3, 6, 9, 12, 16, 20, 26, 32, 40, 60, 100, 200, 300, 400, 500]  # us
EFFICIENCIES = [0.5, 0.6, 0.66, 0.72, 0.78, 0.84, 0.9, 0.95]
STAGED = [3.0, 3.6, 4.3, 5.0, 6.0]  # us
STAGING = [17, 19, 20, 21.5, 23]  # GB/s
TURNS = [0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.8, 1.0]
NOBODY_SAYS = ("0", "0.82")
KIN = {"tcp": "tcpx"}  # TCP as well: says more than InfiniBand does


def rows(tutti, log, settings):
    """(bytes, predicted us, measured us) of each row of 1 KiB and more."""
    command = [tutti, "predict", "--csv", "--log", str(log)]
    for setting in settings:
        command += ["--set", setting]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise SystemExit(f"{log}: {done.stderr.strip()}")
    table = [line.split(",") for line in done.stdout.splitlines()]
    return [(float(r[0]), float(r[1]), float(r[3])) for r in table if float(r[0]) >= 1024]


def errors(table):
    return [abs(predicted / measured - 1) * 100 for _, predicted, measured in table]


def percentile(values, part):
    values = sorted(values)
    return values[max(0, math.ceil(part * len(values)) - 1)]


def kind_of(tutti, log):
    """What calibrated constants a log's machine depends on: a kind of network, "staged", or none."""
    text = subprocess.run([tutti, "predict", "--log", str(log)], capture_output=True, text=True,
                          timeout=300).stdout.splitlines()[0]
    network = re.search(r"network (\w+)", text)
    if network:
        return network.group(1)
    return "staged" if re.search(r"RTX.(3090|4090|5090)", text) else ""


def grid(kind):
    if kind == "staged":
        return [(f"staged_ll={a}", f"staged_simple={a}", f"staging={b}")
                for a, b in itertools.product(STAGED, STAGING)]
    if kind == "":
        return [(f"turn={a}",) for a in TURNS]
    return [(f"{kind}.latency={a or 1e-6}", f"{kind}.efficiency={b}")
            for a, b in itertools.product(LATENCIES, EFFICIENCIES)]


def machine_of(log, by_type):
    name = log.name
    sold = re.search(r"A3High|A3Mega|A3Ultra|-A4|p5en|-p5-", name)
    if by_type and sold:
        return sold.group(0).strip("-")
    # One run's cluster; several collectives of one are told apart by their names' last part.
    return re.sub(r"_(all_gather|all_reduce|broadcast|reduce_scatter|reduce)(?=__)", "",
                  name.removesuffix(".log"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--tutti", default="build/bin/tutti")
    parser.add_argument("--by", choices=["cluster", "type"], default="cluster")
    arguments = parser.parse_args()
    logs = sorted(arguments.folder.glob("*.log"))
    machines = collections.OrderedDict()
    kinds = {}
    for log in logs:
        kinds[log] = kind_of(arguments.tutti, log)
        machines.setdefault(machine_of(log, arguments.by == "type"), []).append(log)

    tried = {}  # (log, settings): rows

    def table_of(log, settings):
        if (log, settings) not in tried:
            tried[log, settings] = rows(arguments.tutti, log, settings)
        return tried[log, settings]

    grids = [(log, settings) for log in logs for settings in [(), *grid(kinds[log])]]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda table: table_of(*table), grids))

    def calibrated(kind, others):
        """The settings that suit the other machines best, each of which counts the same."""
        if kind == "ib":
            return ()
        if not others and kind in KIN:
            kin = [log for log in logs if kinds[log] == KIN[kind]]
            if kin:
                return tuple(s.replace(KIN[kind], kind, 1) for s in calibrated(KIN[kind], kin))
        if not others:
            if kind in ("", "staged"):
                return ()
            latency, efficiency = NOBODY_SAYS
            return (f"{kind}.latency={float(latency) or 1e-6}", f"{kind}.efficiency={efficiency}")

        def cost(settings):
            of_machine = collections.defaultdict(list)
            for log in others:
                of_machine[machine_of(log, arguments.by == "type")] += [
                    abs(math.log(predicted / measured))
                    for _, predicted, measured in table_of(log, settings)]
            return sum(statistics.mean(e) for e in of_machine.values())

        return min(grid(kind), key=cost)

    print("| machine | rows | median | 90 % | as it is: median | calibrated on others |")
    print("|---|---|---|---|---|---|")
    left_out, as_it_is = [], []
    for machine, own in machines.items():
        mine, default, used = [], [], ""
        for log in own:
            others = [o for o in logs if o not in own and kinds[o] == kinds[log]]
            settings = calibrated(kinds[log], others)
            used = ", ".join(s.replace("1e-06", "0") for s in settings)
            mine += errors(table_of(log, settings))
            default += errors(table_of(log, ()))
        left_out += mine
        as_it_is += default
        print(f"| {machine} | {len(mine)} | {percentile(mine, .5):.1f} % | "
              f"{percentile(mine, .9):.1f} % | {percentile(default, .5):.1f} % | {used or '-'} |",
              flush=True)
    print(f"| **all** | {len(left_out)} | **{percentile(left_out, .5):.1f} %** | "
          f"**{percentile(left_out, .9):.1f} %** | {percentile(as_it_is, .5):.1f} % "
          f"(90 %: {percentile(as_it_is, .9):.1f} %) | |")


if __name__ == "__main__":
    main()
