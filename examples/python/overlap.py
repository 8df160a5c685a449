"""Compute while gradients are summed: tutti run -n 2 python overlap.py"""

import asyncio

import numpy as np

import tutti


async def train(comm):
    summed = []
    for layer in range(4):
        gradient = np.full(100_000, comm.rank + layer, dtype=np.float32)  # "backward"
        summed.append(comm.all_reduce(gradient, op="avg", async_op=True))
    for layer, future in enumerate(summed):
        gradient = await future
        print(f"rank {comm.rank}: layer {layer}: {gradient[0]:g}")


with tutti.init() as comm:
    asyncio.run(train(comm))
