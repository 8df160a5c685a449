#!/usr/bin/env python3
"""How long ranks take to start: until a communicator of all of them is made, and until a first all_reduce and a
barrier are done.

    bench/start.py build -n 1024 [--hosts 16] [--turns 3]

Several hosts are network namespaces of this machine, which need root and iproute2; they are deleted at the end, also
after Ctrl-C. Prints the times of each turn, and the medians: seconds from the launch, CPU seconds and context
switches of all ranks until then, and the TCP connections that were opened.
"""
import argparse
import contextlib
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from namespaces import namespaces

COLUMNS = ("created", "called", "cpu", "switches", "connections")


def opened(spaces):
    """TCP connections that were opened in these namespaces so far; none: in this one."""
    total = 0
    for inside in [["ip", "netns", "exec", s] for s in spaces] or [[]]:
        text = subprocess.run([*inside, "cat", "/proc/net/snmp"], capture_output=True, text=True, check=True).stdout
        names, values = (line.split() for line in text.splitlines() if line.startswith("Tcp:"))
        total += int(values[names.index("ActiveOpens")])
    return total


def turn(a, spaces, launcher):
    before = opened(spaces)
    command = [a.build / "bin/tutti", "run", "--timeout", a.limit, "-n", a.n]
    if spaces:
        hosts = [f"10.98.0.{h + 1}:{(a.n + len(spaces) - 1) // len(spaces)}" for h in range(len(spaces))]
        command = ["ip", "netns", "exec", spaces[0], *command, "-H", ",".join(hosts), "--launcher", launcher]
    command += [a.build / "bench/start_rank", time.monotonic()]
    job = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)
    try:
        text, _ = job.communicate(timeout=a.limit + 120)
    finally:
        if job.poll() is None:
            job.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                job.wait(30)
            job.kill()
    words = text.split()
    if job.returncode != 0 or words[::2] != list(COLUMNS[:4]):
        raise SystemExit(f"{' '.join(map(str, command))}: status {job.returncode}: {text}")
    return [*map(float, words[1::2]), opened(spaces) - before]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, help="the build folder")
    parser.add_argument("-n", type=int, default=64, help="ranks (64)")
    parser.add_argument("--hosts", type=int, default=1, help="on so many hosts, 250 at most (1)")
    parser.add_argument("--turns", type=int, default=3, help="(3)")
    parser.add_argument("--limit", type=int, default=300, help="seconds that a turn may take (300)")
    a = parser.parse_args()
    if not 1 <= a.hosts <= min(a.n, 250):
        parser.error(f"--hosts {a.hosts}: from 1 to the number of ranks, and 250 at most")
    a.build = a.build.resolve()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    with contextlib.ExitStack() as stack:
        spaces, launcher = [], ""
        if a.hosts > 1:
            name = stack.enter_context(namespaces(a.hosts))
            spaces = [f"{name}{h}" for h in range(a.hosts)]
            launcher = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory())) / "launcher"
            launcher.write_text(f'#!/bin/sh\nspace={name}$((${{1##*.}} - 1)); shift\nexec ip netns exec $space "$@"\n')
            launcher.chmod(0o755)
        print(f"| {a.n} ranks on {a.hosts} host{'s' * (a.hosts > 1)} | {' | '.join(COLUMNS)} |\n|---" + "|---" *
              len(COLUMNS) + "|")
        turns = []
        for t in range(a.turns):
            turns.append(turn(a, spaces, launcher))
            print(f"| turn {t + 1} | " + " | ".join(f"{value:.6g}" for value in turns[-1]) + " |", flush=True)
        print("| median | " + " | ".join(f"{statistics.median(column):.6g}" for column in zip(*turns)) + " |")


if __name__ == "__main__":
    main()
