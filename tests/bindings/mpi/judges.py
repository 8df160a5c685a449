"""Programs for MPI that others wrote, on Tutti's libraries: do they run, and what fails? By hand (make test-mpi brings the
first two; docs/mpi.md has what came out):

    judges.py imb FOLDER [RANKS...]          Intel's benchmarks (wheel impi-rt): FOLDER has IMB-MPI1 and the others
    judges.py mpi4py FOLDER [RANKS...]       mpi4py's tests: FOLDER is `test` of its source; TUTTI_PYTHON has the package,
                                             MPI4PY_MPIABI says for which library (mpich: libmpi.so.12)
    judges.py mpich FOLDER [PART...]         MPICH's test suite: FOLDER is its test/mpi, configured with CC=mpicc_abi and built;
                                             PART is coll, pt2pt, ... TUTTI_JUDGED names a file of what has been
                                             judged, which is not run again; TUTTI_MOST_SECONDS cuts each test

TUTTI is the program `tutti` to run (default: build/bin/tutti). Ends with 1 where anything failed.
"""

import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
TUTTI = os.environ.get("TUTTI", str(ROOT / "build" / "bin" / "tutti"))


def run(ranks, command, seconds, variables=None, folder=None):
    """(output, exit code) of a command as ranks of a job; the code is None where it took too long."""
    job = [TUTTI, "run", "-n", str(ranks), "--", *command]
    environment = {**os.environ, "TUTTI_TIMEOUT": str(seconds), **(variables or {})}
    process = subprocess.Popen(
        job, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, cwd=folder, text=True, errors="replace"
    )
    try:
        text = process.communicate(timeout=seconds)[0]
        return text, process.returncode
    except subprocess.TimeoutExpired:
        process.terminate()  # `tutti run` ends its ranks
        try:
            text = process.communicate(timeout=15)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            text = process.communicate()[0]
        return text, None


def report(name, code, text, seconds, good):
    print(f"{'ok  ' if good else 'FAIL'} {name} ({seconds:.1f} s)" + ("" if good else f": exit code {code}"), flush=True)
    if not good:
        print("\n".join("    " + line for line in text.strip().splitlines()[-12:]), flush=True)
    return good


# --- Intel's benchmarks: all of each program, with few repetitions; IMB-MT with its check of the data

IMB = {
    "IMB-MPI1": "-iter 3 -msglog 0:13",
    "IMB-NBC": "-iter 2 -msglog 0:13",
    "IMB-P2P": "-iter 2 -msglog 0:13",
    "IMB-RMA": "-iter 2 -msglog 0:13",
    "IMB-MT": "-check on -repeat 3 -warmup 1 -count 1,64,4096 -thread_level multiple",
}


def imb(folder, *ranks):
    failed, ran, listed = [], {}, {}
    for program, options in IMB.items():
        for n in map(int, ranks or range(1, 9)):
            start = time.monotonic()
            command = [f"{folder}/{program}", *options.split()]
            if program != "IMB-MT":
                command += ["-npmin", str(n)]
            text, code = run(n, command, 240, {"OMP_NUM_THREADS": "2"})
            names = set(re.findall(r"^# Benchmarking (\w+)", text, re.M))
            part = re.search(r"# List of Benchmarks to run:(.*?)\n#?\s*(?:\n#?---|# Minimum)", text, re.S)
            listed.setdefault(program, set()).update(re.findall(r"^# +(\w+)$", part[1], re.M) if part else ())
            ran.setdefault(program, set()).update(names)
            good = code == 0 and not re.search(r"tutti: |error|fail", text, re.I)
            if not report(f"{program} {n}: {len(names)} benchmarks", code, text, time.monotonic() - start, good):
                failed.append(f"{program} {n}")
    for program, names in ran.items():
        print(f"{program}: {len(names)} benchmarks ran; listed and not run: {sorted(listed[program] - names) or 'none'}")
    return failed


# --- mpi4py's tests, module by module: one that ends the job does not take the others with it


def mpi4py(folder, *ranks):
    python = os.environ.get("TUTTI_PYTHON", sys.executable)
    failed, total, skipped = [], 0, 0
    for n in map(int, ranks or (2,)):
        for module in sorted(pathlib.Path(folder).glob("test_*.py")):
            start = time.monotonic()
            command = [python, str(pathlib.Path(folder) / "main.py"), "-i", re.escape(module.name)]
            text, code = run(n, command, 300)
            counts = [int(count) for count in re.findall(r"Ran (\d+) tests? ", text)]
            total += max(counts, default=0)
            skipped += max(map(int, re.findall(r"skipped=(\d+)", text)), default=0)
            bad = sorted(set(re.findall(r"^(?:FAIL|ERROR): (\w+ \([\w.]+\))", text, re.M)))
            good = code == 0 and len(counts) == n  # each rank says how many it ran
            if not report(f"{module.stem} {n}", code, "\n".join(bad) or text, time.monotonic() - start, good):
                failed += [f"{n} ranks: {test}" for test in bad or [module.stem]]
    print(f"{total} tests, {skipped} skipped, {len(failed)} failed")
    return failed


# --- MPICH's test suite: the lines of each folder's testlist, "NAME RANKS arg=... env=... timeLimit=... xfail=..."


def mpich_tests(folder, part):
    """(name, folder of the program, words, options) of each line. One that asks for one of MPICH's own algorithms or devices
    by its variables, and is listed without them as well, says nothing here; nor does one that fails under MPICH itself.
    Tests that need more than a quarter of this machine's memory are told, and left out."""
    seen, memory = set(), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 4
    for path in sorted(pathlib.Path(folder, part).rglob("testlist")):
        if {"spawn", "mpi_t", "perf"} & set(path.parts):  # other jobs, the tools interface; only measures
            continue
        for line in path.read_text().splitlines():
            words = shlex.split(line.split("#")[0])
            if len(words) < 2 or not words[1].isdigit():
                continue
            kept = [word for word in words if not word.startswith("env=MPIR_CVAR")]
            name = f"{path.parent.relative_to(folder)}/{' '.join(kept)}"
            if name in seen or any(word.startswith("xfail=") for word in words):
                continue
            seen.add(name)
            if max((float(word[4:]) * 2**30 for word in words if word.startswith("mem=")), default=0) > memory:
                print(f"left out: {name}")
                continue
            yield name, path.parent, kept, [word.split("=", 1) for word in kept[2:] if "=" in word]


def mpich(folder, *parts):
    judged = pathlib.Path(os.environ["TUTTI_JUDGED"]) if "TUTTI_JUDGED" in os.environ else None
    known = dict(line.split("\t") for line in judged.read_text().splitlines()) if judged and judged.exists() else {}
    folder, failed = pathlib.Path(folder).resolve(), []
    for part in parts or ("attr", "coll", "comm", "datatype", "errhan", "group", "info", "init", "pt2pt", "rma", "topo", "threads"):
        passed, bad = 0, []
        for name, where, words, options in mpich_tests(folder, part):
            if name not in known:
                known[name] = "passed" if mpich_test(name, where, words, options) else "failed"
                if judged:
                    with judged.open("a") as file:
                        file.write(f"{name}\t{known[name]}\n")
            if known[name] == "passed":
                passed += 1
            else:
                bad.append(name)
        print(f"== {part}: {passed} of {passed + len(bad)} passed", flush=True)
        failed += bad
    return failed


def mpich_test(name, where, words, options):
    if not (where / words[0]).exists():
        return report(name, "not built", "", 0, False)
    start = time.monotonic()
    arguments = [value for key, value in options if key == "arg"]
    variables = dict(value.split("=", 1) for key, value in options if key == "env" and "=" in value)
    seconds = max((int(value) for key, value in options if key == "timeLimit"), default=180)
    seconds = min(seconds, int(os.environ.get("TUTTI_MOST_SECONDS", seconds)))
    text, code = run(words[1], [str(where / words[0]), *arguments], seconds, variables, where)
    # TestErrFatal, TestStatus: it has to fail, and not by taking too long.
    fails = any(key == "resultTest" and value in ("TestErrFatal", "TestStatus") for key, value in options)
    good = code not in (0, None) if fails else code == 0 and re.search("No errors", text, re.I)
    return report(name, code, text, time.monotonic() - start, good)


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("imb", "mpi4py", "mpich"):
        sys.exit(__doc__)
    failures = {"imb": imb, "mpi4py": mpi4py, "mpich": mpich}[sys.argv[1]](*sys.argv[2:])
    print("\n".join(["failed:", *failures]) if failures else "all passed")
    sys.exit(1 if failures else 0)
