"""Writes docs/differences.md from bench/differences/results. What is not in the results is not on the page."""

import json
import pathlib
import re

HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE.parent.parent / "docs" / "differences.md"
ORDER = ("mpich", "openmpi", "intelmpi", "gloo", "jax", "mlx", "tutti")
NAMES = {"mpich": "MPICH", "openmpi": "Open MPI", "intelmpi": "Intel MPI", "gloo": "gloo", "jax": "JAX", "mlx": "MLX",
         "tutti": "Tutti"}
TITLES = {"values": "Values", "bits": "Bits", "buffers": "Buffers", "waiting": "Who waits",
          "what does not fit": "What does not fit"}

HEAD = """# What other libraries do

People who move a program from one library to another guess what a collective does at its edges. These are the
answers of six libraries, and Tutti's, to the same questions. A program asked each of them
([bench/differences](../bench/differences)): four ranks on one host with two cores, each library with its own
launcher and its default settings. Nothing here is from memory. [porting.md](porting.md) has the calls, and what else
differs; [findings/](../findings) has programs for surprises outside of collectives.

- `a / b / c / d` are the answers of ranks 0 to 3, where they differ. Late is rank 3, by a second.
- *no such call*: the library, or its Python interface, lacks the call, the operator or the type.
- *refused* is an error before anything moves.
- *not asked*: a process of the library ended, or stood still, when this was tried; the program does not try it again.
- The program gives gloo 8 seconds to wait; the others have their own defaults.
- *the job ends*: the launcher ended all ranks, so no rank saw an error.
- *silent* is a result where nothing fits, without an error. Such calls are mistakes, and each library may do with
  them as it likes: the rows say how one finds out.

"""

TAIL = """
## Ask again

    python3 bench/differences/run.py FOLDER mpich mlx     # the wheels go into FOLDER; results/*.json change
    python3 bench/differences/run.py FOLDER tutti         # with PYTHONPATH and PATH to a build's python and bin
    python3 bench/differences/page.py                     # writes this page

The interpreter needs numpy and ml_dtypes. No test runs these programs. oneCCL and the shared memory of DeepSpeed
and vLLM have not been asked.

## NCCL, by its documentation

NCCL needs a GPU for each rank, so it has not been asked. Its
[user guide](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/collectives.html) says:

| | NCCL |
|---|---|
| other counts or types on a rank | undefined: hangs, crashes or wrong data |
| are the results of an all-reduce the same on all ranks | yes, identical |
| in place | the same pointer; all-gather and reduce-scatter: the rank's own place in the large buffer |
| booleans, complex numbers, 16-bit integers | not among its types |
"""


def sections():
    """The questions of questions.py, in its order: (section, name, text)."""
    section = None
    for line in re.findall(r'^# --- (.*?)(?:;.*)?$|^def (\w+)\(library\):\n    """(.*?)"""',
                           (HERE / "questions.py").read_text(), re.MULTILINE):
        if line[0]:
            section = line[0]
        elif section in TITLES:
            yield section, line[1], line[2]


def main():
    results = {name: json.loads((HERE / "results" / f"{name}.json").read_text()) for name in ORDER
               if (HERE / "results" / f"{name}.json").exists()}
    page = HEAD + "| library | packages |\n|---|---|\n"
    for name, result in results.items():
        packages = ", ".join(result["packages"]).replace("==", " ") or "the Python package"
        page += f"| {NAMES[name]} | {packages} |\n"
    section = None
    for title, question, text in sections():
        if title != section:
            section = title
            page += f"\n## {TITLES[title]}\n\n| | {' | '.join(NAMES[name] for name in results)} |\n"
            page += "|---|" + "---|" * len(results) + "\n"
        cells = [result["answers"].get(question, "not run") for result in results.values()]
        page += f"| {text} | {' | '.join(cells)} |\n"
    PAGE.write_text(page + TAIL)


main()
