"""Runs the code blocks of pages, as a reader would:
blocks.py PAGE... --root ROOT --build BUILD [--python PYTHON] [--parts NAME.cpp --parts NAME.py]

The blocks of a page run in its order, in one empty folder that has `build`, `examples` and `docs` as a clone does, with a Tutti
that was installed from the build, by the variables that the tutorial sets. A block is indented by four spaces, or
fenced. A comment of HTML before it says what it is:

    <!-- run -->             commands. This is also what an indented block without a comment is
    <!-- needs: X -->        commands that run where X is: root, python, torch, nccl (Tutti's), mpich
                             (its headers), gpu, laboratory, or a program in the path
    <!-- fails: N -->        commands that end with status N
    <!-- file: NAME -->      a program, written to that file; commands that follow compile or run it. In C++ it
                             catches the library's errors
    <!-- compiles: LIBRARY -->   a part of a program in C++: it is compiled against that library, and not linked
    <!-- part: NAME -->      a part of a program: it takes the place of the line `// PART(NAME)` or `# PART(NAME)` of
                             one of the files after --parts. Those in C++ are then compiled, and those in Python run
    <!-- not run: WHY -->    anything else. What such commands name of this project has to be there: files, targets of
                             `make`, commands of `tutti` and their options

Where lines of a block begin with "$ ", these are the commands, and the others are lines of their output; "..." stands for
more. A block without a comment that is not indented is an error, as is a reason that is empty, and a line PART(NAME)
that no page has.
"""

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COMMENT = re.compile(r"<!-- (run|needs|fails|file|compiles|part|not run)(?:: *(.*?))? -->$")


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
    """Runs the blocks of one page after the other, with one installation of the build in `prefix`."""

    def __init__(self, options, prefix):
        self.options, self.prefix = options, prefix
        self.build, self.root = options.build.resolve(), options.root.resolve()
        self.parts = Parts(options.parts)
        subprocess.run(["cmake", "--install", self.build, "--prefix", prefix], check=True, stdout=subprocess.DEVNULL)
        libraries = next(prefix.glob("**/pkgconfig")).parent
        # Without a buffer print() writes a line in two, and other ranks' lines come between.
        kept = {k: v for k, v in os.environ.items() if not k.startswith("TUTTI_") and k != "PYTHONUNBUFFERED"}
        self.environment = kept | {
            "PATH": f"{prefix / 'bin'}:{os.environ['PATH']}",
            "PKG_CONFIG_PATH": str(libraries / "pkgconfig"),
            "LD_LIBRARY_PATH": str(libraries),
            "XDG_CONFIG_HOME": str(prefix), "XDG_CACHE_HOME": str(prefix),  # what `tutti calibrate` writes
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        self.nccl = (libraries / "tutti/libnccl.so").exists()
        (prefix / "bin/ninja").write_text("#!/bin/sh\n")  # what pages build by it is there
        (prefix / "bin/ninja").chmod(0o755)
        package = (self.build / "python/tutti").exists() and list(self.build.glob("python/tutti/_tutti*.so"))
        self.python = bool(options.python and package)
        if self.python:
            (prefix / "bin/python").write_text(f'#!/bin/sh\nexec "{options.python}" "$@"\n')
            (prefix / "bin/python").chmod(0o755)
            self.environment["PYTHONPATH"] = str(self.build / "python")

    def begin(self, page, folder):
        """A page's own folder, which is empty but for what a clone has."""
        self.page, self.folder = page, folder
        self.counts = {"run": 0, "files": 0, "compiled": 0, "parts": 0, "not run": 0}
        self.lacking = {}
        for name, target in (("build", self.build), ("examples", self.root / "examples"), ("docs", self.root / "docs")):
            (folder / name).symlink_to(target)

    def has(self, need):
        if need == "root":  # and what it may do here
            return os.geteuid() == 0 and self.shell("ip netns add blocks$$ && ip netns del blocks$$").returncode == 0
        if need == "nccl":
            return self.nccl
        if need == "gpu":
            return Path("/dev/nvidiactl").exists()
        if need == "laboratory":
            return (self.build / "libexec/tutti/tutti-predict").exists()
        if need == "python":
            return self.python
        if need == "torch":
            return self.python and self.shell("python -c 'import torch'").returncode == 0
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
            return lacks(self, block.text) if len(block.value) > 8 else "a block that is not run needs a reason"
        if block.kind == "part":
            self.counts["parts"] += 1
            return self.parts.take(self.page, block)
        if block.kind == "file":
            self.counts["files"] += 1
            (self.folder / block.value).write_text(block.text)
            if block.value.endswith(".cpp") and "from_environment" in block.text and "catch (const" not in block.text:
                return "a program that lets an Error go ends by a signal: it should print what() and end with 1"
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


class Parts:
    """Programs with lines `// PART(NAME)`, which blocks of pages take the places of."""

    def __init__(self, paths):
        self.texts = {path: path.read_text() for path in paths}
        self.open = {name: path for path, text in self.texts.items() for name in re.findall(r"^ *(?://|#) PART\((\w+)\)$", text, re.M)}

    def take(self, page, block):
        if (path := self.open.pop(block.value, None)) is None:
            return f"no program has a line PART({block.value}), or another block has taken it"
        place = re.search(rf"^( *)(?://|#) PART\({block.value}\)$", self.texts[path], re.M)
        lines = block.text.splitlines()
        if path.suffix == ".cpp":  # errors name the page
            lines.insert(0, f'#line {block.line + block.fenced} "{page}"')
            text = "\n".join(lines)
        else:
            text = "\n".join(place[1] + line for line in lines)
        self.texts[path] = self.texts[path][:place.start()] + text + self.texts[path][place.end():]
        return None

    def faults(self, runner):
        """What is wrong with the programs, with the blocks in them."""
        for name, path in self.open.items():
            yield f"{path}: no page has the part {name}"
        for path, text in self.texts.items():
            (runner.folder / path.name).write_text(text)
            if path.suffix == ".cpp":
                ended = runner.shell(f"${{CXX:-g++}} -std=c++20 -fsyntax-only $(pkg-config --cflags tutti_parallel) {path.name}")
            elif runner.python:
                ended = runner.shell(f"tutti run -n 2 python {path.name}")
            else:
                ended = runner.shell(f"python3 -m py_compile {path.name}")
            if ended.returncode:
                yield f"{path}: {ended.stdout}"


def lacks(runner, text):
    """What is not there of what commands name, which are not run; none: nothing."""
    targets = re.findall(r"^([a-z][a-z-]*):", (runner.root / "Makefile").read_text(), re.M)
    for line in re.split(r"\n|&&|[;|] ", text.replace("\\\n", " ")):
        line = re.sub(r"(^|\s)#.*", "", line.strip().removeprefix("$ "))
        for name in re.findall(r"(?<![\w/.-])((?:bench|cmake|docs|examples|packaging|tests)/[\w./-]*\w)", line):
            if not (runner.root / name).exists():
                return f"there is no {name}"
        if (made := re.match(r"make ([a-z][a-z-]*)", line)) and made[1] not in targets:
            return f"make knows no {made[1]}"
        words = shlex.split(line) if line.count("'") % 2 == 0 and line.count('"') % 2 == 0 else line.split()
        if words and words[0] in ("tutti", "build/bin/tutti") and (fault := lacks_option(runner, words[1:])):
            return fault
    return None


def lacks_option(runner, words):
    """The same of one `tutti words`; those of `tutti run` end with its program."""
    command, text = "tutti", ""
    while words and re.fullmatch("[a-z][a-z-]*", words[0]) and (not text or re.search(rf"^  {words[0]} ", text, re.M)):
        command += " " + words.pop(0)
        ended = runner.shell(f"{command} --help")
        text = ended.stdout
        if ended.returncode:
            return None if "TUTTI_LABORATORY" in text else f"there is no {command}"
        if command == "tutti run":
            break
    for word in words:
        if command == "tutti run" and re.fullmatch(r"--|(\./|build/|python).*", word):
            break
        option = word.split("=")[0]
        if text and option.startswith("--") and not re.search(rf"(?<![\w-]){option}(?![\w-])", text):
            return f"{command} has no {option}"
    return None


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("pages", nargs="+", type=Path)
    arguments.add_argument("--root", type=Path, required=True)
    arguments.add_argument("--build", type=Path, required=True)
    arguments.add_argument("--python", help="with which the Python package was built")
    arguments.add_argument("--parts", type=Path, action="append", default=[], help="a program with lines PART(NAME)")
    arguments.add_argument("--timeout", type=float, default=60, help="seconds for a block")
    options = arguments.parse_args()
    wrong = []
    with tempfile.TemporaryDirectory() as prefix, tempfile.TemporaryDirectory() as last:
        runner = Runner(options, Path(prefix))
        for page in options.pages:
            with tempfile.TemporaryDirectory() as folder:
                runner.begin(page, Path(folder))
                for block in blocks(page.read_text()):
                    begun = time.monotonic()
                    if fault := runner.run(block):
                        wrong.append(f"{page}:{block.line}: {fault}")
                    if (took := time.monotonic() - begun) > 5:
                        print(f"{page.name}:{block.line} took {took:.1f} s", flush=True)
                counts = ", ".join(f"{n} {kind}" for kind, n in runner.counts.items() if n) or "no blocks"
                lacking = "".join(f"; left out, as they need {need}: {n}" for need, n in runner.lacking.items())
                print(f"{page.name}: {counts}{lacking}", flush=True)
        runner.begin(None, Path(last))
        wrong += runner.parts.faults(runner)
    if wrong:
        sys.exit("\n".join(wrong))


main()
