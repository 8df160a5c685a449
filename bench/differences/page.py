"""Writes docs/differences.md from bench/differences/results. What is not in the results is not on the page."""

import json
import pathlib
import re

HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE.parent.parent / "docs" / "differences.md"
PEERS = ("mpich", "openmpi", "intelmpi", "oneccl", "gloo", "jax", "mlx")
ENGINES = ("deepspeed", "vllm")
NAMES = {"mpich": "MPICH", "openmpi": "Open MPI", "intelmpi": "Intel MPI", "oneccl": "oneCCL", "gloo": "gloo",
         "jax": "JAX", "mlx": "MLX", "deepspeed": "DeepSpeed", "vllm": "vLLM", "tutti": "Tutti"}
TITLES = {"values": "Values", "bits": "Bits", "buffers": "Buffers", "waiting": "Who waits",
          "what does not fit": "What does not fit"}

HEAD = """# What other libraries do

People who move a program from one library to another guess what a collective does at its edges. These are the
answers of seven libraries, and Tutti's, to the same {questions} questions. A program asked each of them
([bench/differences](../bench/differences)): four ranks on one host with two cores, each library with its own
launcher and its default settings. Nothing here is from memory. Of the {cells} cells of the seven libraries,
{run} ({share}) are answers of a program that ran. {lacks} are calls that the library does not have, and {skipped} were
tried once and are not asked again, so {able} of the questions that can be asked are answered.

Each column shows what one version did. What Tutti promises is in [semantics.md](semantics.md), with a test for each
line; where its column here says more (which ranks happened to wait, in which order a sum was added), that may change.
[porting.md](porting.md) has the calls, and what else differs; [findings/](../findings) has programs for surprises
outside of this table.

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

<!-- not run: they install other libraries, and ask them for minutes -->

    python3 bench/differences/run.py FOLDER mpich mlx     # the wheels go into FOLDER; results/*.json change
    python3 bench/differences/run.py FOLDER tutti         # with PYTHONPATH and PATH to a build's python and bin
    python3 bench/differences/page.py                     # writes this page

The interpreter needs numpy and ml_dtypes; oneCCL and DeepSpeed need a C++ compiler, too. No test runs these
programs.

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


ENGINE_HEAD = """
## Inference engines' shared memory

DeepSpeed's `inference_all_reduce` and vLLM's operators serve tensor parallelism on one host's CPUs. They have few
calls, so these are the questions that at least one of them can answer. DeepSpeed's takes an operator and any type, and
adds up 32- and 16-bit floats whatever the operator is; other types it leaves as they are.

"""
LACKS, SKIPPED = "no such call", "not asked"


def counts(results, names, texts):
    """How many of these libraries' cells are answers, missing calls, and questions that are not asked."""
    cells = [results[name]["answers"].get(question, "not run") for name in names for _, question, _ in texts]
    lacks, skipped = cells.count(LACKS), cells.count(SKIPPED)
    return len(cells) - lacks - skipped - cells.count("not run"), lacks, skipped


def head(results, texts):
    run, lacks, skipped = counts(results, PEERS, texts)
    page = HEAD.format(questions=len(texts), cells=len(texts) * len(PEERS), run=run, lacks=lacks, skipped=skipped,
                       share=f"{run / len(texts) / len(PEERS):.0%}", able=f"{run / (run + skipped):.0%}")
    page += "| library | packages | answered | no such call | not asked |\n|---|---|---|---|---|\n"
    for name, result in results.items():
        packages = ", ".join(result["packages"]).replace("==", " ") or "the Python package"
        page += f"| {NAMES[name]} | {packages} | {' | '.join(map(str, counts(results, [name], texts)))} |\n"
    return page


def row(results, names, question, text):
    cells = [results[name]["answers"].get(question, "not run") for name in names]
    return f"| {text} | {' | '.join(cells)} |\n"


def table_head(names):
    return f"| | {' | '.join(NAMES[name] for name in names)} |\n|---|{'---|' * len(names)}\n"


def main():
    results = {name: json.loads((HERE / "results" / f"{name}.json").read_text()) for name in NAMES}
    texts = list(sections())
    page = head(results, texts)
    section = None
    for title, question, text in texts:
        if title != section:
            section = title
            page += f"\n## {TITLES[title]}\n\n" + table_head([*PEERS, "tutti"])
        page += row(results, [*PEERS, "tutti"], question, text)
    page += ENGINE_HEAD + table_head([*ENGINES, "tutti"])
    for _, question, text in texts:
        if any(results[name]["answers"][question] != LACKS for name in ENGINES):
            page += row(results, [*ENGINES, "tutti"], question, text)
    PAGE.write_text(page + TAIL)


main()
