"""One rank that asks a library some questions: `ask.py LIBRARY FOLDER QUESTION...`, started by run.py.

It writes a line of JSON for each question into FOLDER/RANK: before it asks, and with the answer.
"""

import json
import os
import pathlib
import sys
import time

from engines import DeepSpeed, Vllm
from libraries import Gloo, Jax, Missing, Mlx, Mpi, Tutti
from oneccl import OneCcl
from questions import QUESTIONS, short

LIBRARIES = {"mpich": Mpi, "openmpi": Mpi, "intelmpi": Mpi, "oneccl": OneCcl, "gloo": Gloo, "jax": Jax, "mlx": Mlx,
             "deepspeed": DeepSpeed, "vllm": Vllm, "tutti": Tutti}


def all_done(folder, ranks):
    files = [pathlib.Path(folder, str(rank)) for rank in range(ranks)]
    return all(file.exists() and '"done"' in file.read_text() for file in files)


def main():
    name, folder, *wanted = sys.argv[1:]
    library = LIBRARIES[name]()
    with open(os.path.join(folder, str(library.rank)), "a", buffering=1) as log:
        log.write(json.dumps({"pid": os.getpid(), "library": library.library}) + "\n")
        for question in wanted:
            log.write(json.dumps({"asked": question}) + "\n")
            try:
                answer = QUESTIONS[question](library)
            except Missing:
                answer = "no such call"
            except Exception as error:
                answer = "refused: " + short(error)
            log.write(json.dumps({"question": question, "answer": answer}) + "\n")
        log.write(json.dumps({"done": True}) + "\n")
    if not QUESTIONS[wanted[-1]].separate:
        library.close()
    else:  # a rank that leaves may end the others
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and not all_done(folder, library.size):
            time.sleep(0.1)
    os._exit(0)  # a library that waits at its end for a rank that is gone would hold the job up


main()
