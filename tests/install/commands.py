"""Completion and manual pages have every command of `tutti` with all its options: commands.py ROOT BUILD

What a command has is read from its --help here, once more; bash's completion, zsh's and the manual pages have the same
words. A terminal with zsh completes a line as well. Left out: zsh, or the pages, where zsh or help2man are missing.
"""

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Each completes the command lines of standard input, and prints a line of words for each.
BASH = """
complete() { :; }
source "$1"
while read -r line; do
  read -ra COMP_WORDS <<<"$line"
  COMP_WORDS+=("") COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  _tutti
  echo "${COMPREPLY[*]}"
done
"""
ZSH = """
fpath=(${1:h} $fpath)
autoload -Uz _tutti
_describe() { offered+=(${${(P)@[-1]}%%:*}); return 1 }
_files() { :; }
while read -r line; do
  words=(${=line} '') CURRENT=$(($#words)) offered=()
  _tutti
  print -- $offered
done
"""


def run(*command, text=None):
    ended = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
    if ended.returncode:
        sys.exit(f"{command}: {ended.stdout}{ended.stderr}")
    return ended.stdout


def commands(words):
    """The command lines that begin with `words`, with all words that may come next: commands and long options."""
    text = run(*words, "--help")
    inner = [line.split()[0] for line in re.findall(r"^Subcommands:\n((?:  .*\n)*)", text, re.M)[0:1]
             for line in line.splitlines() if line[2] != " "]
    absent = [line.split()[0] for part in re.findall(r"^Not built here.*:\n((?:  .*\n)*)", text, re.M)
              for line in part.splitlines()]
    options = [option.split("{")[0] for names in re.findall(r"^  (-\S+)", text, re.M) for option in names.split(",")
               if option.startswith("--")]
    yield words, inner + absent + options
    for word in inner:
        yield from commands([*words, word])


def terminal(completions, path, line, wanted):
    """Whether zsh in a terminal makes `wanted` of `line` and a tab."""
    child, screen = pty.fork()
    if child == 0:
        os.environ.update(PATH=f"{path}:{os.environ['PATH']}", PS1="> ", TERM="dumb")
        os.execlp("zsh", "zsh", "-f", "-i")
    os.write(screen, f"fpath=({completions} $fpath); autoload -Uz compinit; compinit -u -D; print re''ady\n".encode())
    seen, deadline, asked = "", time.monotonic() + 60, False
    while wanted not in seen and time.monotonic() < deadline:
        if select.select([screen], [], [], 0.1)[0]:
            seen += os.read(screen, 4096).decode(errors="replace")
        if not asked and "ready" in seen:
            asked = True
            os.write(screen, f"{line}\t".encode())
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(screen)
    if wanted not in seen:
        sys.exit(f"zsh does not complete {line!r} to {wanted!r}:\n{seen}")


def main():
    root, build = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    completions = root / "packaging/completion"
    known = list(commands([str(build / "bin/tutti")]))
    lines = "".join(" ".join(words) + "\n" for words, _ in known)
    shells = {"bash": (BASH, "tutti", "--norc")}
    if shutil.which("zsh"):
        shells["zsh"] = (ZSH, "_tutti", "-f")
    for shell, (script, file, option) in shells.items():
        offered = run(shell, option, "-c", script, shell, str(completions / file), text=lines).splitlines()
        for (words, wanted), words_offered in zip(known, offered, strict=True):
            if sorted(words_offered.split()) != sorted(wanted):
                differ = set(words_offered.split()) ^ set(wanted)
                sys.exit(f"{shell}: {' '.join(words)}: completion and --help differ by {' '.join(sorted(differ))}")
    if "zsh" in shells:
        terminal(completions, build / "bin", "tutti run --time", "tutti run --timeout")

    pages = 0
    if shutil.which("help2man"):
        with tempfile.TemporaryDirectory() as folder:
            run(str(root / "packaging/man.sh"), str(build), folder, "0.0.0")
            for words, wanted in known:
                page = Path(folder) / ("-".join(["tutti", *words[1:]]) + ".1")
                if not page.exists():
                    sys.exit(f"there is no manual page {page.name}")
                text = re.sub(r"\\f[BIR]", "", page.read_text().replace("\\-", "-"))
                for word in wanted:
                    if not re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text):
                        sys.exit(f"{page.name} does not have {word}")
            for program in (build / "bin").glob("*_perf"):
                if not (Path(folder) / f"{program.name}.1").exists():
                    sys.exit(f"there is no manual page of {program.name}")
            pages = len(list(Path(folder).iterdir()))
    print(f"{len(known)} commands, {sum(len(wanted) for _, wanted in known)} words in {' and '.join(shells)}; {pages} pages")


main()
