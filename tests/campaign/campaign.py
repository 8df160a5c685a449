#!/usr/bin/env python3
"""The campaign: real processes of Tutti, to which all kinds of things happen.

    campaign.py BUILD [--seeds N] [--first S] [--only PATTERN...] [-j N] [--report FOLDER] [--list] [--seconds N]

Runs each scenario of scenarios/ (README.md) with the seeds S to S + N - 1, writes FOLDER/campaign.json and
FOLDER/campaign.html, and ends with 1 if a run was not as it must be. A run is repeated by its name and seed:
`--only NAME --first SEED`.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import resource
import shutil
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import report  # noqa: E402
import run as runs  # noqa: E402
import scenario as scenarios  # noqa: E402


# For every change: seconds.
SLICE = ("death-work/mixed/*", "death-when/pairs/*", "death-leaving/mixed/processes", "abort/call/threads",
         "death-several/puts/processes/two/*", "stop-timeout/call/hosts", "link-flaps/call/hosts", "disk",
         "strangers/call/apart/strangers_garbage", "address-space/split/processes/tell_address_1000000",
         "few-descriptors/apart/limit_nofile_12")


def one(scenario, seed, build, folder):
    try:
        return runs.Run(scenario, seed, build, folder).run()
    except Exception as error:  # of the campaign itself
        import traceback
        return {"scenario": scenario.name, "seed": seed,
                "problems": [{"kind": "campaign", "text": f"{error}\n{traceback.format_exc()}"}]}


def names_in_shared_memory():
    return {name for name in os.listdir("/dev/shm") if "tutti" in name}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=["*"])
    parser.add_argument("--scenarios", type=pathlib.Path, default=HERE / "scenarios")
    parser.add_argument("-j", type=int, default=2, help="runs at the same time")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no run after that")
    parser.add_argument("--report", type=pathlib.Path)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--slice", action="store_true", help="a few scenarios of each kind, for the default tests")
    options = parser.parse_args()
    chosen = scenarios.load(options.scenarios, SLICE if options.slice else options.only)
    if options.list:
        print("\n".join(s.name for s in chosen))
        print(f"{len(chosen)} scenarios", file=sys.stderr)
        return 0
    if not chosen:
        raise SystemExit("no scenario has such a name: --list shows them")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    folder = pathlib.Path(tempfile.mkdtemp(prefix="campaign"))
    shared = names_in_shared_memory()
    begun, results, lock = time.monotonic(), [], threading.Lock()
    work = iter([(s, seed) for seed in range(options.first, options.first + options.seeds) for s in chosen])

    def worker():
        while True:
            with lock:
                item = next(work, None)
            if item is None or time.monotonic() - begun > options.seconds:
                return
            result = one(*item, options.build.resolve(), folder)
            with lock:
                results.append(result)
                for p in result.get("problems", ()):
                    print(f"{result['scenario']} --first {result['seed']}: {p['kind']}: {p['text'][:600]}", flush=True)

    with concurrent.futures.ThreadPoolExecutor(options.j) as pool:
        for future in [pool.submit(worker) for _ in range(options.j)]:
            future.result()
    left = [space for hosts in runs.all_hosts for space in hosts.delete()]
    left += sorted(names_in_shared_memory() - shared)
    shutil.rmtree(folder, ignore_errors=True)
    summary = report.summary(chosen, results, left, time.monotonic() - begun)
    print(report.text(summary))
    if options.report:
        options.report.mkdir(parents=True, exist_ok=True)
        (options.report / "campaign.json").write_text(json.dumps({"summary": summary, "runs": results}, indent=1))
        (options.report / "campaign.html").write_text(report.page(summary, results))
    return 1 if summary["failed"] or left else 0


if __name__ == "__main__":
    sys.exit(main())
