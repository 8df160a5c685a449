"""Programs that benchmarks run for their output."""
import os
import subprocess


def run(command, seconds=600, **environment):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=seconds,
                          env=os.environ | environment)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.stdout[-2000:]}{done.stderr.strip()}")
    return done.stdout
