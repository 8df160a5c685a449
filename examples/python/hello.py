"""All ranks add up an array: tutti run -n 4 python hello.py"""

import tutti

with tutti.init() as comm:
    x = tutti.empty(1 << 20)  # an array of NumPy, which the other ranks can address
    x[:] = 1 + comm.rank
    comm.all_reduce(x)
    print(f"rank {comm.rank} of {comm.size}: the sum is {x[-1]:g}")
