"""A rank gives each other rank its part of the work, one-sided: tutti run -n 4 python window.py"""

import numpy as np

import tutti

WORK, DONE = 0, 1  # signals

with tutti.init() as comm:
    mine = tutti.empty((comm.size, 5), "int64")  # a row for what each rank writes
    with comm.window(mine) as window:
        if comm.rank == 0:
            for peer in range(comm.size):
                window.put(peer, np.arange(5) + 10 * peer, signal=WORK)  # to row 0
        window.wait_signal(0, index=WORK)
        result = mine[0] ** 2
        window.put(0, result, 5 * comm.rank, signal=DONE)  # to row `rank` of rank 0
        if comm.rank == 0:
            for peer in range(comm.size):
                window.wait_signal(peer, index=DONE)
                print(f"rank {peer} has made {mine[peer]}")
