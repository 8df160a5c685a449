#!/usr/bin/env python3
"""The same faults for Tutti's peers: MPIs, and torch.distributed over gloo.

    peers.py [--mpi NAME=FOLDER...] [--tutti BUILD] [--torch PYTHON] [--runs N]

FOLDER has bin/mpirun or bin/mpiexec, and include/mpi.h (laboratory/peers/newest.sh installs three). One of three ranks
is killed, ends, or is stopped for ever, while all make all_reduces. The table says after how long the others have
noticed (as an error, or by their end), whether anything that a user sees names the rank, what the others could do then,
and what is left of the job. A job in which anybody waits for 20 s counts as one that hangs.
"""
import argparse
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
RANKS, PATIENCE = 3, 20
FAULTS = {"kill -9": signal.SIGKILL, "exit(0) in a call": signal.SIGUSR1, "SIGSEGV": signal.SIGSEGV,
          "stopped for ever": signal.SIGSTOP}


def marked(mark):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            data = pathlib.Path("/proc", pid, "environ").read_bytes()
            state = pathlib.Path("/proc", pid, "stat").read_text().rsplit(")", 1)[1].split()[0]
            if f"CAMPAIGN_MARK={mark}\0".encode() in data and state != "Z":
                found.append(int(pid))
    return found


def leftovers(folder):
    """Names that a job may leave: in shared memory, in /tmp, in its own folder."""
    found = {f"/dev/shm/{name}" for name in os.listdir("/dev/shm")}
    found |= {str(p) for p in folder.rglob("*") if not p.is_dir()}
    prefixes = ("ompi", "prte", "openmpi", "hydra", "pmix")
    return found | {f"/tmp/{name}" for name in os.listdir("/tmp") if name.startswith(prefixes)}


class Lines:
    def __init__(self, streams):
        self.text, self.events, self.half = "", [], {s: b"" for s in streams}
        for s in streams:
            os.set_blocking(s.fileno(), False)

    def read(self):
        for s in self.half:
            with contextlib.suppress(BlockingIOError, ValueError):
                data = s.read()
                if data:
                    *lines, self.half[s] = (self.half[s] + data).split(b"\n")
                    for line in lines:
                        at = line.find(b'{"rank"')
                        try:
                            self.events.append(json.loads(line[at:] if at >= 0 else b""))
                        except ValueError:
                            self.text += line.decode(errors="replace") + "\n"

    def of(self, event, rank=None):
        return [e for e in self.events if e["event"] == event and rank in (None, e["rank"])]


def attempt(start, fault, draw):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="peers"))
    mark = folder.name
    before = leftovers(folder)
    environment = os.environ | {"CAMPAIGN_MARK": mark, "TMPDIR": str(folder)}
    launched = start(environment)
    lines = Lines([p.stdout for p in launched])
    result = {}

    def until(condition, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            lines.read()
            if condition():
                return True
            time.sleep(0.002)
        return False

    def gone(pid):
        try:
            return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
        except OSError:
            return True

    try:
        if not until(lambda: len(lines.of("ready")) == RANKS, 30):
            return {"failed": lines.text[-1000:]}
        time.sleep(draw.uniform(0.02, 0.2))
        pids = {e["rank"]: e["pid"] for e in lines.of("met")}
        victim = draw.randrange(RANKS)
        others = [r for r in range(RANKS) if r != victim]
        noticed = {}
        done = time.monotonic()
        os.kill(pids[victim], FAULTS[fault])

        def all_noticed():
            for r in others:
                errors = lines.of("error", r)
                if r not in noticed and errors:
                    noticed[r] = errors[0]["at"] - done
                elif r not in noticed and gone(pids[r]):
                    noticed[r] = time.monotonic() - done
            return len(noticed) == len(others)

        result["noticed"] = max(noticed.values()) if until(all_noticed, PATIENCE) else None
        until(lambda: all(gone(pids[r]) for r in others), PATIENCE if result["noticed"] else 0)
        until(lambda: all(p.poll() is not None for p in launched), 5)
        lines.read()
        said = "\n".join([lines.text] + [json.dumps(e) for e in lines.of("error")])
        names = (f"rank {victim}", f"rank: {victim}", f"pid {pids[victim]}", f",{victim}]", f"process {victim}")
        result["named"] = any(e.get("of") == victim for e in lines.of("named")) or any(n in said.lower() for n in names)
        result["errors"] = len({e["rank"] for e in lines.of("error")})
        result["survived"] = len(lines.of("survived"))
        result["wrong"] = len(lines.of("wrong"))
        result["said"] = said[-600:]
    finally:
        for p in launched:
            with contextlib.suppress(ProcessLookupError):
                p.send_signal(signal.SIGTERM)
        until(lambda: all(p.poll() is not None for p in launched), 3)
        for p in launched:
            if p.poll() is None:
                p.kill()
            p.wait()
        time.sleep(0.2)
        left = marked(mark)
        if "noticed" in result:
            result["processes"] = len([p for p in left if fault != "stopped for ever" or p != pids[victim]])
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
        names = leftovers(folder) - before
        result["names"] = len(names)
        result["which"] = sorted(names)[:3]
        for name in names:
            with contextlib.suppress(OSError):
                shutil.rmtree(name) if os.path.isdir(name) else os.unlink(name)
        shutil.rmtree(folder, ignore_errors=True)
    return result


def popen(words, environment):
    return subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT)


def compiled(name, folder, program):
    flags = ["-DHAS_ULFM"] if (folder / "include/mpi-ext.h").exists() and "ulfm" in name else []
    library = folder / "lib"
    candidates = [library / n for n in ("libmpi.so", "libmpi.so.12", "libmpi.so.40")] + [library / "release/libmpi.so"]
    found = next(c for c in candidates if c.exists())
    subprocess.run(["gcc", "-std=gnu11", "-O1", *flags, f"-I{folder / 'include'}", str(HERE / "mpi_workload.c"),
                    str(found), f"-Wl,--enable-new-dtags,-rpath,{found.parent}", "-o", str(program)], check=True)


def launch(name, folder, program):
    if name.startswith("Open MPI"):
        words = [folder / "bin/mpirun", "--allow-run-as-root", "--oversubscribe", "-n", RANKS]
        words += ["--with-ft", "ulfm"] if "ulfm" in name else []
    else:
        words = [folder / "bin/mpiexec", "-n", RANKS]
        words += ["-disable-auto-cleanup"] if "kept" in name else []
    command = [str(w) for w in [*words, program, 60]]
    more = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    if "Intel" in name:
        more["I_MPI_FABRICS"] = "shm"
    return lambda environment: [popen(command, environment | more)]


def ranks_by_hand(words):
    def start(environment):
        port = str(random.randrange(20000, 30000))
        return [popen([str(w) for w in words], environment | {
            "RANK": str(r), "WORLD_SIZE": str(RANKS), "LOCAL_RANK": str(r), "LOCAL_WORLD_SIZE": str(RANKS),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}) for r in range(RANKS)]
    return start


def what_then(rows, hung):
    if all(r["survived"] == RANKS - 1 for r in rows):
        return "go on"
    if hung == len(rows):
        return "wait"
    if all(r["errors"] == RANKS - 1 for r in rows):
        return "get an error"
    return "get an error, or are ended" if any(r["errors"] for r in rows) else "are ended"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mpi", nargs="*", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--tutti", type=pathlib.Path)
    parser.add_argument("--torch", nargs="*", default=[], help="a Python that has torch; with PYTHONPATH for tutti")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    work = pathlib.Path(tempfile.mkdtemp(prefix="peers"))
    starts = {}
    for pair in options.mpi:
        name, folder = pair.split("=", 1)
        program = work / name.replace(" ", "_")
        compiled(name, pathlib.Path(folder), program)
        starts[name] = launch(name, pathlib.Path(folder), program)
        if options.tutti and name.startswith("MPICH") and "Tutti" not in "".join(starts):
            words = [options.tutti / "bin/tutti", "run", "--keep-going", "-n", RANKS, program, 60]
            starts["Tutti's MPI"] = lambda environment, words=words: [
                popen([str(w) for w in words], environment | {"LD_LIBRARY_PATH": str(options.tutti.resolve() / "lib")})]
    for python in options.torch:
        starts["gloo (PyTorch)"] = ranks_by_hand([python, "-B", HERE / "gloo_workload.py", 60, "gloo"])
    results = {}
    print("| | fault | noticed by all after | the rank is named | the others then | left behind |")
    print("|---|---|---|---|---|---|")
    for name, start in starts.items():
        for fault in FAULTS:
            rows = [attempt(start, fault, random.Random(f"{name}{fault}{k}")) for k in range(options.runs)]
            results[f"{name}: {fault}"] = rows
            good = [r for r in rows if "failed" not in r]
            if not good:
                print(f"| {name} | {fault} | did not start: {rows[0]['failed'][-200:]!r} |")
                continue
            times = [r["noticed"] for r in good]
            hung = sum(t is None for t in times)
            seen = "hangs" if hung == len(good) else f"{statistics.median(t for t in times if t):.3f} s"
            seen += f" ({hung} of {len(good)} hang)" if 0 < hung < len(good) else ""
            then = what_then(good, hung)
            left = f"{max(r['processes'] for r in good)} processes, {max(r['names'] for r in good)} files"
            wrong = sum(r["wrong"] for r in good)
            print(f"| {name} | {fault} | {seen} | {sum(r['named'] for r in good)} of {len(good)} | {then}"
                  f"{f', {wrong} wrong' if wrong else ''} | {left} |", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    shutil.rmtree(work)


if __name__ == "__main__":
    sys.exit(main())
