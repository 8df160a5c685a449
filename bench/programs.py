"""Programs that benchmarks run for their output."""
import os
import re
import statistics
import subprocess


def run(command, seconds=600, **environment):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=seconds,
                          env=os.environ | environment)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.stdout[-2000:]}{done.stderr.strip()}")
    return done.stdout


def times_of(text):
    """us by size, out of place, of what a *_perf program prints."""
    rows = re.findall(r"^ +(\d+) +\d+ +\w+ +\w+ +-?\d+ +([\d.]+) ", text, re.M)
    if not rows:
        raise SystemExit(f"no times in\n{text}")
    return {int(size): float(us) for size, us in rows}


def in_turn(first, second, turns):
    """Two ways to measure in turn (A B B A ...), each a function that returns times by size.

    Rows: the size, the medians of both, and of the turns' ratios first / second the lower quartile, the median and the
    upper quartile.
    """
    times = ([], [])
    for turn in range(turns):
        for way in (0, 1) if turn % 2 == 0 else (1, 0):
            times[way].append((first, second)[way]())
    for size in times[0][0]:
        one, other = ([t[size] for t in way] for way in times)
        ratios = sorted(a / b for a, b in zip(one, other))
        yield (size, statistics.median(one), statistics.median(other), ratios[len(ratios) // 4],
               statistics.median(ratios), ratios[3 * len(ratios) // 4])
