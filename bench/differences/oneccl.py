"""oneCCL on CPUs, for bench/differences, through the functions of oneccl.cpp: its wheel has no Python interface."""

import ctypes
import itertools
import os
import sys

import numpy as np

from libraries import Library, Missing


class OneCcl(Library):
    """MPI carries the address of rank 0, and starts the job."""

    TYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
             "bfloat16"]
    OPS = ["sum", "prod", "min", "max", "avg"]

    def __init__(self):
        from importlib.metadata import version

        from mpi4py import MPI

        self.mpi = MPI
        self.calls = ctypes.CDLL(os.path.join(sys.prefix, "lib", "libasked.so"))
        self.rank, self.size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
        address = ctypes.create_string_buffer(256)
        if self.rank == 0:
            self.call("address", address)
        address = MPI.COMM_WORLD.bcast(address.raw)
        self.call("join", self.size, self.rank, address)
        self.library = "oneCCL " + version("oneccl-cpu")

    def call(self, name, *arguments):
        """A call with arrays as their addresses."""
        call = getattr(self.calls, "oneccl_" + name)
        call.restype = ctypes.c_char_p
        error = call(*[ctypes.c_void_p(a.ctypes.data) if isinstance(a, np.ndarray) else a for a in arguments])
        if error is not None:
            raise RuntimeError(error.decode().split("EXCEPTION: ")[-1])

    def type(self, x):
        if x.dtype.name not in self.TYPES:
            raise Missing
        return self.TYPES.index(x.dtype.name)

    def all_reduce(self, x, op):
        out = np.empty(x.shape, x.dtype)
        self.call("all_reduce", x, out, ctypes.c_size_t(x.size), self.type(x), self.OPS.index(op))
        return out

    def all_reduce_in_place(self, x, op):
        if not x.flags.c_contiguous:
            raise Missing  # a pointer and a count
        self.call("all_reduce", x, x, ctypes.c_size_t(x.size), self.type(x), self.OPS.index(op))

    def start_all_reduce(self, x, op):
        out, id = np.empty(x.shape, x.dtype), next(self.ids)
        self.call("start_all_reduce", id, x, out, ctypes.c_size_t(x.size), self.type(x), self.OPS.index(op))

        def wait(x=x):  # keeps the input
            self.call("wait", id)
            return out

        return wait

    ids = itertools.count()

    def reduce(self, x, root, own):
        self.call("reduce", x, own, ctypes.c_size_t(x.size), self.type(x), root)
        return own

    def reduce_scatter(self, x):
        out = np.empty(x.size // self.size, x.dtype)
        self.call("reduce_scatter", x, out, ctypes.c_size_t(out.size), self.type(x))
        return out

    def all_gather(self, x):
        out = np.empty((self.size, *x.shape), x.dtype)
        self.call("all_gather", x, out, ctypes.c_size_t(x.size), self.type(x))
        return out

    def broadcast(self, x, root):
        self.call("broadcast", x, ctypes.c_size_t(x.size), self.type(x), root)

    def send(self, x, peer):
        self.call("send", x, ctypes.c_size_t(x.size), self.type(x), peer)

    def receive(self, x, peer):
        self.call("receive", x, ctypes.c_size_t(x.size), self.type(x), peer)

    def barrier(self):
        self.call("barrier")

    def close(self):
        self.mpi.Finalize()
