"""Two jobs that are started apart: a trainer makes versions of its weights, and a server takes them.

    tutti run -n 4 --keep-going python weights.py train /tmp/meet
    tutti run -n 2 --keep-going python weights.py serve /tmp/meet

In two terminals, in any order, with any numbers of ranks (that divide 1024). End them, kill ranks, start them again.
An optional third argument is the number of versions after which a job ends.
"""

import sys
import time

import numpy as np
import tutti

SHAPE = (1024, 1024)


def train(job, folder, versions):
    rows = SHAPE[0] // job.size
    mine = np.zeros((rows, SHAPE[1]), np.float32)
    sender = tutti.WeightSender(job, {"w": tutti.Piece(mine, SHAPE, (job.rank * rows, 0))}, folder)
    version = taken = 0
    while taken < versions:
        time.sleep(0.2)  # a step
        version += 1
        mine[:] = version
        try:
            receivers = sender.send(version)
        except tutti.PeerLost as error:
            print(f"rank {job.rank}: {error}", flush=True)
            job.check()  # raises for a rank of this job
            continue
        taken += receivers > 0
        if job.rank == 0:
            print(f"version {version}: {receivers} ranks have it", flush=True)


def serve(job, folder, versions):
    columns = SHAPE[1] // job.size
    mine = np.zeros((SHAPE[0], columns), np.float32)
    receiver = tutti.WeightReceiver(job, {"w": tutti.Piece(mine, SHAPE, (0, job.rank * columns))}, folder)
    for _ in range(versions):
        try:
            receiver.receive()
        except tutti.PeerLost as error:
            print(f"rank {job.rank}: {error}", flush=True)
            job.check()
        assert (mine == receiver.version).all()
        print(f"rank {job.rank} serves version {receiver.version}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("train", "serve"):
        sys.exit(__doc__)
    with tutti.init() as job:
        count = int(sys.argv[3]) if len(sys.argv) > 3 else 1 << 60
        (train if sys.argv[1] == "train" else serve)(job, sys.argv[2], count)
