"""Runs the code blocks of pages, as a reader would: blocks.py PAGE... --root ROOT --build BUILD [--python PYTHON]

The blocks of a page run in its order, in one empty folder that has `build`, `examples` and `docs` as a clone does, with a Tutti
that was installed from the build, by the variables that the tutorial sets. A block is indented by four spaces, or
fenced. A comment of HTML before it says what it is:

    <!-- run -->             commands. This is also what an indented block without a comment is
    <!-- needs: X -->        commands that run where X is: root, python, torch, nccl (Tutti's), mpich
                             (its headers), or a program in the path
    <!-- fails: N -->        commands that end with status N
    <!-- file: NAME -->      a program, written to that file; commands that follow compile or run it
    <!-- compiles: LIBRARY -->   a part of a program in C++: it is compiled against that library, and not linked
    <!-- not run: WHY -->    anything else

Where lines of a block begin with "$ ", these are the commands, and the others are lines of their output; "..." stands for
more. A block without a comment that is not indented is an error, as is a reason that is empty.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

COMMENT = re.compile(r"<!-- (run|needs|fails|file|compiles|not run)(?:: *(.*?))? -->$")


class Block:
    def __init__(self, line, lines, fenced, kind, value):
        self.line, self.text, self.fenced, self.kind, self.value = line, "\n".join(lines) + "\n", fenced, kind, value


def blocks(text):
    """The blocks of a page. A comment belongs to the block that follows it, after empty lines at most."""
    lines, at, comment, empty = text.splitlines(), 0, None, True
    while at < len(lines):
        line = lines[at]
        if found := COMMENT.match(line):
            comment, empty = (found[1], found[2] or ""), True
            at += 1
        elif line.startswith("```"):
            end = next(i for i in range(at + 1, len(lines)) if lines[i].startswith("```"))
            yield Block(at + 1, lines[at + 1:end], True, *(comment or (None, "")))
            comment, at = None, end + 1
        elif empty and line.startswith("    "):
            end = at
            while end < len(lines) and (not lines[end] or lines[end].startswith("    ")):
                end += 1
            yield Block(at + 1, [l[4:] for l in lines[at:end]], False, *(comment or (None, "")))
            comment, at = None, end
        else:
            empty = not line
            comment = comment if empty else None
            at += 1


class Runner:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.counts = {"run": 0, "files": 0, "compiled": 0, "not run": 0}
        self.lacking = {}
        build, root = options.build.resolve(), options.root.resolve()
        for name, target in (("build", build), ("examples", root / "examples"), ("docs", root / "docs")):
            (folder / name).symlink_to(target)
        prefix = folder / ".installed"
        subprocess.run(["cmake", "--install", build, "--prefix", prefix], check=True, stdout=subprocess.DEVNULL)
        libraries = next(prefix.glob("**/pkgconfig")).parent
        # Without a buffer print() writes a line in two, and other ranks' lines come between.
        kept = {k: v for k, v in os.environ.items() if not k.startswith("TUTTI_") and k != "PYTHONUNBUFFERED"}
        self.environment = kept | {
            "PATH": f"{prefix / 'bin'}:{os.environ['PATH']}",
            "PKG_CONFIG_PATH": str(libraries / "pkgconfig"),
            "LD_LIBRARY_PATH": str(libraries),
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        self.nccl = (libraries / "tutti/libnccl.so").exists()
        (prefix / "bin/ninja").write_text("#!/bin/sh\n")  # what pages build by it is there
        (prefix / "bin/ninja").chmod(0o755)
        self.python = options.python and (build / "python/tutti").exists() and list(build.glob("python/tutti/_tutti*.so"))
        if self.python:
            (prefix / "bin/python").write_text(f'#!/bin/sh\nexec "{options.python}" "$@"\n')
            (prefix / "bin/python").chmod(0o755)
            self.environment["PYTHONPATH"] = str(build / "python")

    def has(self, need):
        if need == "root":  # and what it may do here
            return os.geteuid() == 0 and self.shell("ip netns add blocks$$ && ip netns del blocks$$").returncode == 0
        if need == "nccl":
            return self.nccl
        if need == "python":
            return bool(self.python)
        if need == "torch":
            return bool(self.python) and self.shell("python -c 'import torch'").returncode == 0
        if need == "mpich":
            return self.shell("echo '#include <mpi.h>' | mpicc.mpich -E -").returncode == 0
        return shutil.which(need, path=self.environment["PATH"]) is not None

    def shell(self, text):
        """Runs commands in a session of their own, of which nothing is left."""
        started = subprocess.Popen(["bash", "-euo", "pipefail", "-c", text], cwd=self.folder, env=self.environment, text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   start_new_session=True)
        try:
            output, _ = started.communicate(timeout=self.options.timeout)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            output, _ = started.communicate()
            output += f"not over after {self.options.timeout} s\n"
        return subprocess.CompletedProcess(text, started.returncode, output)

    def commands(self, block):
        """What is wrong with the commands of a block; none: nothing."""
        lines, wanted = block.text.splitlines(), []
        if any(line.startswith("$ ") for line in lines):
            wanted = [line for line in lines if not line.startswith("$ ") and line.strip() not in ("", "...")]
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        status = int(block.value) if block.kind == "fails" else 0
        ended = self.shell("\n".join(lines))
        output = [re.sub(r"\s+", " ", line).strip() for line in ended.stdout.splitlines()]
        missing = [line for line in wanted if re.sub(r"\s+", " ", line).strip() not in output]
        if ended.returncode != status:
            return f"status {ended.returncode}, expected {status}:\n{ended.stdout}"
        return f"the output lacks {missing}:\n{ended.stdout}" if missing else None

    def compile(self, block):
        source = self.folder / f".part{block.line}.cpp"
        source.write_text(block.text)
        flags = f"$(pkg-config --cflags {block.value})"
        ended = self.shell(f"${{CXX:-g++}} -std=c++20 -fsyntax-only {flags} {source.name}")
        return ended.stdout if ended.returncode else None

    def run(self, block):
        """Runs, writes or compiles a block, and counts it; what is wrong with it."""
        if block.kind == "not run":
            self.counts["not run"] += 1
            return None if len(block.value) > 8 else "a block that is not run needs a reason"
        if block.kind == "file":
            self.counts["files"] += 1
            (self.folder / block.value).write_text(block.text)
            return None
        if block.kind == "compiles":
            self.counts["compiled"] += 1
            return self.compile(block)
        if block.kind is None and block.fenced:
            return "a comment has to say what this block is (tests/docs/blocks.py)"
        if block.kind == "needs" and not self.has(block.value):
            self.lacking[block.value] = self.lacking.get(block.value, 0) + 1
            return None
        self.counts["run"] += 1
        return self.commands(block)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("pages", nargs="+", type=Path)
    arguments.add_argument("--root", type=Path, required=True)
    arguments.add_argument("--build", type=Path, required=True)
    arguments.add_argument("--python", help="with which the Python package was built")
    arguments.add_argument("--timeout", type=float, default=60, help="seconds for a block")
    options = arguments.parse_args()
    wrong = []
    for page in options.pages:
        with tempfile.TemporaryDirectory() as folder:
            runner = Runner(options, Path(folder))
            for block in blocks(page.read_text()):
                if fault := runner.run(block):
                    wrong.append(f"{page}:{block.line}: {fault}")
            counts = ", ".join(f"{n} {kind}" for kind, n in runner.counts.items() if n)
            lacking = "".join(f"; left out, as they need {need}: {n}" for need, n in runner.lacking.items())
            print(f"{page.name}: {counts}{lacking}", flush=True)
    if wrong:
        sys.exit("\n".join(wrong))


main()
