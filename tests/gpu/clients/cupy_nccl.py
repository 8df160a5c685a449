#!/usr/bin/env python3
"""CuPy, unchanged, with Tutti's libnccl.so.2 instead of NVIDIA's (LD_PRELOAD): cupy.cuda.nccl with two ranks
of this process on one GPU, and with one in each of two processes.

    LD_PRELOAD=LIBNCCL cupy_nccl.py

Exit status: 0 all was right, 77 there is no CuPy or no GPU.
"""
import ctypes
import multiprocessing
import os
import sys

COUNT = 100003


def numbers(cupy, rank):
    return cupy.arange(COUNT, dtype=cupy.float32) % 1000 + 3000 * rank


def of_one_process():
    import cupy
    from cupy.cuda import nccl
    comms = nccl.NcclCommunicator.initAll([0, 0])
    inputs = [numbers(cupy, r) for r in range(2)]
    sums = [cupy.zeros(COUNT, cupy.float32) for _ in range(2)]
    both = [cupy.zeros(2 * COUNT, cupy.float32) for _ in range(2)]
    stream = cupy.cuda.Stream.null
    nccl.groupStart()
    for comm, x, s, b in zip(comms, inputs, sums, both):
        comm.allReduce(x.data.ptr, s.data.ptr, COUNT, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, stream.ptr)
        comm.allGather(x.data.ptr, b.data.ptr, COUNT, nccl.NCCL_FLOAT32, stream.ptr)
    nccl.groupEnd()
    stream.synchronize()
    for s, b in zip(sums, both):
        cupy.testing.assert_array_equal(s, inputs[0] + inputs[1])
        cupy.testing.assert_array_equal(b, cupy.concatenate(inputs))
    for comm in comms:
        comm.destroy()


def of_several(rank, ranks, identity):
    import cupy
    from cupy.cuda import nccl
    comm = nccl.NcclCommunicator(ranks, identity, rank)
    assert comm.rank_id() == rank and comm.size() == ranks
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        x, out = numbers(cupy, rank), cupy.zeros(COUNT, cupy.float32)
        comm.allReduce(x.data.ptr, out.data.ptr, COUNT, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, stream.ptr)
        wanted = sum(numbers(cupy, r) for r in range(ranks))
        cupy.testing.assert_array_equal(out, wanted)
        comm.reduceScatter(x.data.ptr, out.data.ptr, COUNT // ranks, nccl.NCCL_FLOAT32, nccl.NCCL_MAX, stream.ptr)
        piece = COUNT // ranks
        cupy.testing.assert_array_equal(out[:piece], numbers(cupy, ranks - 1)[piece * rank:piece * (rank + 1)])
    stream.synchronize()
    comm.destroy()


def main():
    try:
        import cupy
        if cupy.cuda.runtime.getDeviceCount() == 0:
            raise RuntimeError("no GPU")
    except Exception as e:  # of the driver, if there is none
        print(f"no CuPy with a GPU here: {e}")
        sys.exit(77)
    from cupy.cuda import nccl
    version = ctypes.c_int()
    ctypes.CDLL(os.environ["LD_PRELOAD"]).ncclGetVersion(ctypes.byref(version))
    assert nccl.get_version() == version.value, f"another NCCL answers: {nccl.get_version()}"
    of_one_process()
    context = multiprocessing.get_context("spawn")
    identity = nccl.get_unique_id()
    ranks = [context.Process(target=of_several, args=(r, 2, identity)) for r in range(2)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    assert [p.exitcode for p in ranks] == [0, 0], [p.exitcode for p in ranks]
    print(f"cupy {cupy.__version__}: two ranks of a process and two processes are right")


if __name__ == "__main__":
    main()
