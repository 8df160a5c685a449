"""Programs that benchmarks run for their output."""
import os
import re
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
