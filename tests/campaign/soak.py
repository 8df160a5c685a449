#!/usr/bin/env python3
"""Work for hours, in slices, with memory and descriptors sampled.

    soak.py BUILD [--minutes N] [--slice MINUTES] [--report FOLDER]

Each slice is a job of its own: every kind of work in turn (workload.h), on one host or over TCP. In its last quarter a
process may have as much memory as in its second one, and 1 MB more, and what samples differ by chance; descriptors and
mappings may not grow. Ends with 1 if they do, or if a job is not as it must be.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from job import Job  # noqa: E402

KINDS = ("mixed", "puts", "reconfigure", "call", "start", "split", "message", "group")


def sample(pid):
    status = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    return {"memory": (int(status["RssAnon"].split()[0]) + int(status["RssShmem"].split()[0])) / 1024,
            "descriptors": len(os.listdir(f"/proc/{pid}/fd")), "threads": int(status["Threads"]),
            "maps": pathlib.Path(f"/proc/{pid}/maps").read_text().count("\n")}


def growth(samples, what):
    """How much more there was in the last quarter than in the second one, by medians, for an hour; and the noise."""
    values = [(s["at"], s[what]) for s in samples]
    quarter = max(1, len(values) // 4)
    second, last = values[quarter:2 * quarter], values[-quarter:]
    hours = (statistics.median(t for t, _ in last) - statistics.median(t for t, _ in second)) / 3600
    more = statistics.median(v for _, v in last) - statistics.median(v for _, v in second)
    noise = statistics.pstdev(v for _, v in second) if quarter > 1 else 0
    return more, more / hours if hours else 0, noise


def soak_slice(build, kind, apart, seconds, folder, number):
    def variables(process):
        return {"TUTTI_HOST_ID": f"host{process // 2}"} if apart else {}
    command = [str(build / "tests/campaign_workload"), kind, "--seed", str(number), "--memory", "any"]
    job = Job(lambda p: command, 4, 1, pathlib.Path(folder) / f"slice{number}", f"soak-{os.getpid()}-{number}-",
              lambda p: [], variables)
    samples = {p.number: [] for p in job.processes}
    try:
        job.all_say("ready", 30)
        end, between = time.monotonic() + seconds, max(0.5, seconds / 200)
        while time.monotonic() < end and not job.ended():
            job.wait(job.ended, between)
            for process in job.processes:
                if process.status is None:
                    samples[process.number].append(sample(process.pid) | {"at": time.monotonic()})
        job.tell_all("stop")
        job.wait(job.ended, 60)
        problems = [f"process {p.number} ended with {p.status}: {' '.join(job.texts[p.number][-3:])}"
                    for p in job.processes if p.status != 0]
        problems += [f"process {e['rank']} kept {e['what']}" for e in job.events if e["event"] == "kept" and e["what"]]
    finally:
        job.end()
    grown = {}
    for number, own in samples.items():
        for what in ("memory", "descriptors", "threads", "maps"):
            more, an_hour, noise = growth(own, what)
            grown.setdefault(what, []).append((round(more, 3), round(an_hour, 3), round(noise, 3)))
            allowed = 3 * noise + (1 if what == "memory" else 0)
            if more > allowed + 0.5:
                problems.append(f"process {number} has {more:.1f} more {what} than before (noise {noise:.1f})")
    return {"kind": kind, "apart": apart, "seconds": seconds, "grown": grown, "problems": problems,
            "last": [own[-1] for own in samples.values() if own]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--minutes", type=float, default=480)
    parser.add_argument("--slice", type=float, default=60)
    parser.add_argument("--report", type=pathlib.Path)
    options = parser.parse_args()
    slices = []
    end = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory(prefix="soak") as folder:
        while time.monotonic() < end - 1:
            n = len(slices)
            seconds = min(60 * options.slice, end - time.monotonic())
            slices.append(soak_slice(options.build.resolve(), KINDS[n % len(KINDS)], n % 2 == 1,
                                     seconds, folder, n + 1))
            s = slices[-1]
            memory = max(an_hour for _, an_hour, _ in s["grown"]["memory"])
            more = max(m for m, _, _ in s["grown"]["memory"])
            descriptors = max(m for m, _, _ in s["grown"]["descriptors"])
            print(f"{s['kind']}{', over TCP' if s['apart'] else ''}, {s['seconds']:.0f} s: memory {more:+.2f} MB "
                  f"({memory:+.1f} an hour), descriptors {descriptors:+g}", *s["problems"], sep="\n    ", flush=True)
    if options.report:
        options.report.mkdir(parents=True, exist_ok=True)
        (options.report / "soak.json").write_text(json.dumps(slices, indent=1))
    return 1 if any(s["problems"] for s in slices) else 0


if __name__ == "__main__":
    sys.exit(main())
