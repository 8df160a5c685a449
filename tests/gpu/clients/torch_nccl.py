#!/usr/bin/env python3
"""PyTorch, unchanged, with Tutti's libnccl.so.2 instead of NVIDIA's: its "nccl" backend with several
processes on one GPU. Each collective gives the elements that it has to give; a small transformer, trained
by DistributedDataParallel and by FSDP2, has the losses of one process.

    torch_nccl.py LIBNCCL RANKS

Exit status: 0 all was right, 77 there is no PyTorch with CUDA or no GPU.
"""
import ctypes
import os
import pathlib
import socket
import subprocess
import sys

STEPS = 8
BATCH = 12  # of all ranks together: divisible by 2, 3 and 4 of them
WORDS, TOKENS, WIDTH = 64, 32, 64


def collectives(torch, dist, rank, ranks):
    """Names of those that gave something else."""
    wrong = []

    def expect(name, found, wanted):
        if not torch.equal(found.double().cpu(), wanted.double().cpu()):
            wrong.append(name)

    def mine(r, n=1000, dtype=torch.float32):
        return (torch.arange(n, device="cuda") % 50 + 100 * r).to(dtype)

    everyone = range(ranks)
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8):
        small = lambda r, n=1000: (torch.arange(n, device="cuda") % 7 + r).to(dtype)
        total = sum(small(r) for r in everyone)
        x = small(rank)
        dist.all_reduce(x)
        expect(f"all_reduce {dtype}", x, total)
        x = small(rank)
        dist.all_reduce(x, dist.ReduceOp.MAX)
        expect(f"all_reduce max {dtype}", x, small(ranks - 1))
    x = mine(rank)
    dist.all_reduce(x, dist.ReduceOp.AVG)
    expect("all_reduce avg", x, sum(mine(r).double() for r in everyone) / ranks)
    x = mine(rank)
    dist.broadcast(x, ranks - 1)
    expect("broadcast", x, mine(ranks - 1))
    x = mine(rank)
    dist.reduce(x, 0)
    if rank == 0:
        expect("reduce", x, sum(mine(r) for r in everyone))
    out = [torch.empty(1000, device="cuda") for _ in everyone]
    dist.all_gather(out, mine(rank))
    expect("all_gather", torch.cat(out), torch.cat([mine(r) for r in everyone]))
    flat = torch.empty(1000 * ranks, device="cuda")
    dist.all_gather_into_tensor(flat, mine(rank))
    expect("all_gather_into_tensor", flat, torch.cat([mine(r) for r in everyone]))
    out = torch.empty(1000, device="cuda")
    dist.reduce_scatter_tensor(out, mine(rank, 1000 * ranks))
    expect("reduce_scatter_tensor", out, sum(mine(r, 1000 * ranks) for r in everyone)[1000 * rank:1000 * (rank + 1)])
    out = torch.empty(1000, device="cuda")
    dist.reduce_scatter(out, [mine(rank) + k for k in everyone])
    expect("reduce_scatter", out, sum(mine(r) + rank for r in everyone))
    out = torch.empty(1000 * ranks, device="cuda")
    dist.all_to_all_single(out, torch.cat([mine(rank) + 7 * k for k in everyone]))
    expect("all_to_all_single", out, torch.cat([mine(r) + 7 * rank for r in everyone]))
    sizes = [100 * (k + 1) for k in everyone]  # to rank k
    out = torch.empty(sizes[rank] * ranks, device="cuda")
    dist.all_to_all_single(out, torch.cat([mine(rank, n) for n in sizes]), [sizes[rank]] * ranks, sizes)
    expect("all_to_all_single of different sizes", out, torch.cat([mine(r, sizes[rank]) for r in everyone]))
    outs = [torch.empty(1000, device="cuda") for _ in everyone]
    dist.all_to_all(outs, [mine(rank) + 3 * k for k in everyone])
    expect("all_to_all", torch.cat(outs), torch.cat([mine(r) + 3 * rank for r in everyone]))
    out = torch.empty(1000, device="cuda")
    dist.scatter(out, [mine(k) for k in everyone] if rank == 0 else None, src=0)
    expect("scatter", out, mine(rank))
    outs = [torch.empty(1000, device="cuda") for _ in everyone] if rank == 0 else None
    dist.gather(mine(rank), outs, dst=0)
    if rank == 0:
        expect("gather", torch.cat(outs), torch.cat([mine(r) for r in everyone]))
    out = torch.empty(1000, device="cuda")
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, mine(rank), (rank + 1) % ranks),
                                    dist.P2POp(dist.irecv, out, (rank - 1) % ranks)])
    for work in works:
        work.wait()
    expect("batch_isend_irecv", out, mine((rank - 1) % ranks))
    if rank < 2:
        out = mine(5) if rank == 0 else torch.empty(1000, device="cuda")
        dist.send(out, 1) if rank == 0 else dist.recv(out, 0)
        expect("send, recv", out, mine(5))
    objects = [None] * ranks
    dist.all_gather_object(objects, {"rank": rank})
    if objects != [{"rank": r} for r in everyone]:
        wrong.append("all_gather_object")
    half = dist.new_group(list(range(0, ranks, 2)))
    if rank % 2 == 0:
        x = mine(rank)
        dist.all_reduce(x, group=half)
        expect("all_reduce of a group", x, sum(mine(r) for r in range(0, ranks, 2)))
    # In a graph, which runs three times.
    x, y = mine(rank), torch.empty(1000, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        y.copy_(x)
        dist.all_reduce(y)
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        y.copy_(x)
        dist.all_reduce(y)
    for k in range(3):
        x.add_(k)
        graph.replay()
        torch.cuda.synchronize()
        expect(f"all_reduce in a graph, replay {k}", y, sum(mine(r) + k * (k + 1) // 2 for r in everyone))
    dist.barrier()
    return wrong


def model(torch):
    nn = torch.nn

    class Transformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(WORDS, WIDTH)
            self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)
                                        for _ in range(2))
            self.head = nn.Linear(WIDTH, WORDS)

        def forward(self, tokens):
            x = self.words(tokens)
            mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
            for block in self.blocks:
                x = block(x, src_mask=mask, is_causal=True)
            return self.head(x)

    torch.manual_seed(1)
    return Transformer().cuda()


def losses(torch, net, rank, ranks, mean):
    """Of each step, by `net`, whose gradients are averaged by what wraps it; `mean` averages over ranks."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(2)
    seen = []
    for _ in range(STEPS):
        tokens = torch.randint(WORDS, (BATCH, TOKENS + 1), generator=generator)[rank::ranks].cuda()
        loss = torch.nn.functional.cross_entropy(net(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen.append(mean(loss.detach()).item())
    return seen


def library_of(function):
    """The file whose `function` this process calls. (PyTorch's wheel may have loaded its own NCCL as well.)"""
    class Info(ctypes.Structure):
        _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p),
                    ("address", ctypes.c_void_p)]
    everything, info = ctypes.CDLL(None), Info()
    assert everything.dladdr(ctypes.cast(getattr(everything, function), ctypes.c_void_p), ctypes.byref(info)) != 0
    return os.path.realpath(info.file.decode())


def work(rank, ranks, port):
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    torch.cuda.set_device(0)
    torch.use_deterministic_algorithms(False)
    alone = losses(torch, model(torch), 0, 1, lambda x: x)
    dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    assert library_of("ncclAllReduce") == os.environ["LD_PRELOAD"], f"NCCL is {library_of('ncclAllReduce')}"
    wrong = collectives(torch, dist, rank, ranks)
    if wrong:
        print(f"rank {rank}: wrong: {', '.join(wrong)}", flush=True)

    def mean(x):
        dist.all_reduce(x, dist.ReduceOp.AVG)
        return x

    def sharded():
        mesh = init_device_mesh("cuda", (ranks,))
        net = model(torch)
        for block in net.blocks:
            fully_shard(block, mesh=mesh)
        return fully_shard(net, mesh=mesh)

    nets = {"DistributedDataParallel": lambda: torch.nn.parallel.DistributedDataParallel(model(torch)), "FSDP2": sharded}
    for name, make in nets.items():
        found = losses(torch, make(), rank, ranks, mean)
        worst = max(abs(a - b) for a, b in zip(found, alone))
        if rank == 0:
            print(f"{name}: loss {found[0]:.5f} to {found[-1]:.5f}, one process {alone[0]:.5f} to {alone[-1]:.5f}, "
                  f"largest difference {worst:.1e}", flush=True)
        if not worst < 1e-3 or not found[-1] < found[0]:
            wrong.append(name)
    dist.barrier()
    dist.destroy_process_group()
    return 1 if wrong else 0


def main():
    if len(sys.argv) == 5:
        sys.exit(work(int(sys.argv[4]), int(sys.argv[2]), int(sys.argv[3])))
    library, ranks = str(pathlib.Path(sys.argv[1]).resolve()), sys.argv[2]
    try:
        import torch
    except ImportError as e:
        print(f"no PyTorch here: {e}")
        sys.exit(77)
    if not torch.cuda.is_available():
        print("PyTorch sees no GPU here")
        sys.exit(77)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    environment = {**os.environ, "LD_PRELOAD": library}
    processes = [subprocess.Popen([sys.executable, __file__, library, ranks, port, str(r)], env=environment)
                 for r in range(int(ranks))]
    sys.exit(max(abs(p.wait()) for p in processes))


if __name__ == "__main__":
    main()
