"""Ranks as threads of one process: python threads.py"""

import threading

import numpy as np

import tutti


def rank(comm):
    everybodys = comm.all_gather(np.array([comm.rank, comm.rank**2]))
    if comm.rank == 0:
        print(everybodys)


threads = [threading.Thread(target=rank, args=(c,)) for c in tutti.Communicator.create_local(4)]
for t in threads:
    t.start()
for t in threads:
    t.join()
