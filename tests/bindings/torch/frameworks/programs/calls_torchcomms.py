"""Each call of a communicator of torchcomms over Tutti, with the numbers that it has to give."""

import torch
import torchcomms
from torchcomms import ReduceOp

comm = torchcomms.new_comm("tutti", torch.device("cpu"), "calls")
rank, ranks = comm.get_rank(), comm.get_size()
mine = torch.arange(3) + 10 * rank
rows = [[10 * r + i for i in range(3)] for r in range(ranks)]
total = [sum(column) for column in zip(*rows)]


def is_now(tensor, expected):
    assert tensor.tolist() == expected, (tensor.tolist(), expected)


for asynchronous in (False, True):

    def call(name, *arguments):
        work = getattr(comm, name)(*arguments, asynchronous)
        if asynchronous:
            work.wait()

    x = mine.clone()
    call("all_reduce", x, ReduceOp.SUM)
    is_now(x, total)
    x = mine.clone()
    call("all_reduce", x, ReduceOp.MAX)
    is_now(x, rows[-1])
    x = mine.clone().double()
    call("all_reduce", x, ReduceOp.AVG)
    is_now(x, [t / ranks for t in total])
    x = mine.clone()
    call("reduce", x, 1, ReduceOp.SUM)
    if rank == 1:
        is_now(x, total)
    x = mine.clone()
    call("broadcast", x, 1)
    is_now(x, rows[1])
    parts = [torch.zeros(3, dtype=torch.int64) for _ in range(ranks)]
    call("all_gather", parts, mine)
    is_now(torch.stack(parts), rows)
    sizes = [torch.zeros(r + 1, dtype=torch.int64) for r in range(ranks)]
    call("all_gather_v", sizes, torch.full((rank + 1,), rank))
    assert [s.tolist() for s in sizes] == [[r] * (r + 1) for r in range(ranks)]
    x = torch.zeros(3 * ranks, dtype=torch.int64)
    call("all_gather_single", x, mine)
    is_now(x, sum(rows, []))
    x = torch.zeros(2, dtype=torch.int64)
    call("reduce_scatter", x, [torch.tensor([r, 100 * rank]) for r in range(ranks)], ReduceOp.SUM)
    is_now(x, [rank * ranks, 100 * sum(range(ranks))])
    call("reduce_scatter_single", x, torch.arange(2 * ranks) + rank, ReduceOp.SUM)
    is_now(x, [ranks * (2 * rank + i) + sum(range(ranks)) for i in range(2)])
    x = torch.zeros(ranks, dtype=torch.int64)
    call("all_to_all_single", x, torch.arange(ranks) + 10 * rank)
    is_now(x, [10 * r + rank for r in range(ranks)])
    # Rank r sends q + 1 numbers to rank q.
    x = torch.zeros((rank + 1) * ranks, dtype=torch.int64)
    sent = torch.cat([torch.full((q + 1,), 10 * rank + q) for q in range(ranks)])
    call("all_to_all_v_single", x, sent, [rank + 1] * ranks, [q + 1 for q in range(ranks)])
    is_now(x, sum(([10 * r + rank] * (rank + 1) for r in range(ranks)), []))
    parts = [torch.zeros(1, dtype=torch.int64) for _ in range(ranks)]
    call("all_to_all", parts, [torch.tensor([10 * rank + q]) for q in range(ranks)])
    is_now(torch.cat(parts), [10 * r + rank for r in range(ranks)])
    x = torch.zeros(3, dtype=torch.int64)
    call("scatter", x, [torch.tensor(row) for row in rows] if rank == 1 else [], 1)
    is_now(x, rows[rank])
    parts = [torch.zeros(3, dtype=torch.int64) for _ in range(ranks if rank == 1 else 0)]
    call("gather", parts, mine, 1)
    if rank == 1:
        is_now(torch.stack(parts), rows)
    call("barrier")

sent = comm.send(mine, (rank + 1) % ranks, True)
x = torch.zeros(3, dtype=torch.int64)
comm.recv(x, (rank - 1) % ranks, False)
sent.wait()
is_now(x, rows[rank - 1])

members = [r for r in range(ranks) if r % 2 == rank % 2]
part = comm.split(members, "part")
x = mine.clone()
part.all_reduce(x, ReduceOp.SUM, False)
is_now(x, [sum(rows[r][i] for r in members) for i in range(3)])
part.finalize()
comm.finalize()
if rank == 0:
    print(f"backend {comm.get_backend()}, ranks {ranks}: all calls are right")
