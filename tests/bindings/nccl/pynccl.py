"""A client of libnccl.so.2 by ctypes, with the calls and in the order of vLLM's PyNcclCommunicator:
rank 0 makes the id, the ranks exchange it by a file, and every call goes through ctypes.

    tutti run -n 3 python3 pynccl.py LIBRARY FOLDER
"""
import ctypes
import os
import sys
import time

library, folder = sys.argv[1:3]
rank, size = int(os.environ["TUTTI_RANK"]), int(os.environ["TUTTI_SIZE"])


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


comm_t, stream_t, buffer_t = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
INT64, FLOAT, SUM, MAX = 4, 7, 0, 2
SIGNATURES = {
    "ncclGetErrorString": [ctypes.c_int],
    "ncclGetVersion": [ctypes.POINTER(ctypes.c_int)],
    "ncclGetUniqueId": [ctypes.POINTER(UniqueId)],
    "ncclCommInitRank": [ctypes.POINTER(comm_t), ctypes.c_int, UniqueId, ctypes.c_int],
    "ncclAllReduce": [buffer_t, buffer_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, comm_t, stream_t],
    "ncclReduce": [buffer_t, buffer_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                   comm_t, stream_t],
    "ncclAllGather": [buffer_t, buffer_t, ctypes.c_size_t, ctypes.c_int, comm_t, stream_t],
    "ncclReduceScatter": [buffer_t, buffer_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, comm_t,
                          stream_t],
    "ncclSend": [buffer_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, comm_t, stream_t],
    "ncclRecv": [buffer_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, comm_t, stream_t],
    "ncclBroadcast": [buffer_t, buffer_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, comm_t, stream_t],
    "ncclCommDestroy": [comm_t],
    "ncclGroupStart": [],
    "ncclGroupEnd": [],
    "ncclCommWindowRegister": [comm_t, buffer_t, ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p),
                               ctypes.c_int],
    "ncclCommWindowDeregister": [comm_t, ctypes.c_void_p],
}
nccl = ctypes.CDLL(library)
for name, arguments in SIGNATURES.items():
    function = getattr(nccl, name)
    function.argtypes = arguments
    function.restype = ctypes.c_char_p if name == "ncclGetErrorString" else ctypes.c_int
nccl.ncclGetLastError.restype = ctypes.c_char_p
nccl.ncclGetLastError.argtypes = [comm_t]


def check(result):
    if result != 0:
        sentence = nccl.ncclGetLastError(None).decode()
        raise RuntimeError(f"rank {rank}: {nccl.ncclGetErrorString(result).decode()}: {sentence}")


version = ctypes.c_int()
check(nccl.ncclGetVersion(ctypes.byref(version)))
assert version.value == 23203, version.value

path = os.path.join(folder, "unique_id")
unique_id = UniqueId()
if rank == 0:
    check(nccl.ncclGetUniqueId(ctypes.byref(unique_id)))
    with open(path + ".new", "wb") as file:
        file.write(bytes(unique_id.internal))
    os.rename(path + ".new", path)
else:
    while not os.path.exists(path):
        time.sleep(0.01)
    ctypes.memmove(unique_id.internal, open(path, "rb").read(), 128)

comm = comm_t()
check(nccl.ncclCommInitRank(ctypes.byref(comm), size, unique_id, rank))
# vLLM's warm-up.
warm_up = (ctypes.c_float * 1)(0)
check(nccl.ncclAllReduce(warm_up, warm_up, 1, FLOAT, SUM, comm, None))

N = 1000
mine = (ctypes.c_int64 * N)(*[(rank + 1) * 1000 + i for i in range(N)])
total = [sum((r + 1) * 1000 + i for r in range(size)) for i in range(N)]
out = (ctypes.c_int64 * N)()
check(nccl.ncclAllReduce(mine, out, N, INT64, SUM, comm, None))
assert list(out) == total

gathered = (ctypes.c_int64 * (N * size))()
check(nccl.ncclAllGather(mine, gathered, N, INT64, comm, None))
assert list(gathered) == [(r + 1) * 1000 + i for r in range(size) for i in range(N)]

scattered = (ctypes.c_int64 * N)()
check(nccl.ncclReduceScatter(gathered, scattered, N, INT64, MAX, comm, None))
assert list(scattered) == list(gathered)[rank * N:(rank + 1) * N]

out = (ctypes.c_int64 * N)()
check(nccl.ncclReduce(mine, out, N, INT64, SUM, 0, comm, None))
assert list(out) == (total if rank == 0 else [0] * N)

check(nccl.ncclBroadcast(mine, out, N, INT64, 1 % size, comm, None))
assert list(out) == [(1 % size + 1) * 1000 + i for i in range(N)]

# all_gatherv, as vLLM does it: a broadcast from every rank in one group.
blocks = [(ctypes.c_int64 * (r + 1))(*[r] * (r + 1) if r == rank else [-1] * (r + 1)) for r in range(size)]
check(nccl.ncclGroupStart())
for root, block in enumerate(blocks):
    check(nccl.ncclBroadcast(block, block, root + 1, INT64, root, comm, None))
check(nccl.ncclGroupEnd())
assert [list(block) for block in blocks] == [[r] * (r + 1) for r in range(size)]

check(nccl.ncclGroupStart())
check(nccl.ncclSend(mine, N, INT64, (rank + 1) % size, comm, None))
check(nccl.ncclRecv(out, N, INT64, (rank - 1) % size, comm, None))
check(nccl.ncclGroupEnd())
assert list(out) == [((rank - 1) % size + 1) * 1000 + i for i in range(N)]

window = ctypes.c_void_p()
check(nccl.ncclCommWindowRegister(comm, mine, ctypes.sizeof(mine), ctypes.byref(window), 1))
check(nccl.ncclCommWindowDeregister(comm, window))
assert nccl.ncclBroadcast(mine, mine, N, INT64, 99, comm, None) == 4
assert b"root 99" in nccl.ncclGetLastError(comm)
check(nccl.ncclCommDestroy(comm))
print(f"rank {rank} is right")
