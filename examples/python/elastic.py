"""Training whose ranks come and go: tutti run --elastic 2:4 python elastic.py [STEPS [KILL_EVERY]]

A linear model, data parallel, on synthetic data. A rank that dies is replaced, the others go on from
the last step, and the new one gets the model from the rank that has done the most steps. With
KILL_EVERY, a rank kills itself about once in that many steps, for show.
"""

import os
import random
import signal
import sys
import time

import numpy as np
import tutti

WEIGHTS, SAMPLES = 64, 32
TRUTH = np.arange(WEIGHTS, dtype=np.float32) % 7 - 3


def take_state(comm, step, weights):
    """The ranks that are there go on from where the furthest of them is."""
    steps = comm.all_gather(np.array([step])).ravel()
    furthest = int(steps.argmax())
    copy = weights.copy()  # a call that fails may have written a part of it
    comm.broadcast(copy, furthest)
    weights[:] = copy
    if comm.rank == 0:
        print(f"{comm.size} ranks go on from step {steps[furthest]}", flush=True)
    return int(steps[furthest])


def train(comm, step, weights):
    """One step on this rank's share of the data; the loss of all."""
    x = np.random.default_rng([step, comm.rank]).standard_normal((SAMPLES, WEIGHTS), np.float32)
    error = x @ (weights - TRUTH)
    sums = np.append(error @ x, error @ error).astype(np.float32) / SAMPLES
    comm.all_reduce(sums, op="avg")
    weights -= 0.01 * sums[:-1]  # last: a step that fails has not been done
    return sums[-1]


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    kill_every = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    job = tutti.ElasticJob()
    comm = None
    step, weights = 0, np.zeros(WEIGHTS, np.float32)
    joins = True
    while step < steps:
        try:
            if joins or job.should_join(comm):
                comm = job.join(comm)
                step = take_state(comm, step, weights)
                joins = False
            if kill_every and random.randrange(kill_every) == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            loss = train(comm, step, weights)
            step += 1
            if comm.rank == 0 and step % 20 == 0:
                print(f"step {step} on {comm.size} ranks: loss {loss:.4f}", flush=True)
            time.sleep(0.005)  # a real step takes longer
        except (tutti.PeerLost, tutti.Aborted):
            joins = True  # a rank has died, or has joined again before this one


main()
