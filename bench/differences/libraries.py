"""What bench/differences asks: one class for each library, with the same few calls on numpy arrays (oneCCL's is in
oneccl.py, those of inference engines in engines.py).

A call that the library does not have raises Missing. Everything else that a call raises is the library's own
answer. Arrays may have the types of ml_dtypes (bfloat16, float8_e4m3fn).
"""

import os

import ml_dtypes
import numpy as np


class Missing(Exception):
    """The library has no such call, operator or type."""


class Library:
    def all_reduce(self, x, op):
        """The reduced array; `x` stays."""
        raise Missing

    def all_reduce_in_place(self, x, op):
        raise Missing

    def start_all_reduce(self, x, op):
        """Returns a function that waits and returns the result."""
        raise Missing

    def reduce(self, x, root, own):
        """Sums to `root`; returns this rank's receiving buffer, which holds `own` before."""
        raise Missing

    def reduce_scatter(self, x):
        raise Missing

    def all_gather(self, x):
        raise Missing

    def broadcast(self, x, root):
        """In place."""
        raise Missing

    def send(self, x, peer):
        raise Missing

    def receive(self, x, peer):
        """In place; returns how many elements came, or None where the library does not say."""
        raise Missing

    def barrier(self):
        raise Missing

    def close(self):
        pass

    def exchange(self, x):
        """What a question needs to compare the ranks' results: an all-gather that is not asked about."""
        return self.all_gather(x)


class Mpi(Library):
    def __init__(self):
        from mpi4py import MPI

        self.mpi, self.comm = MPI, MPI.COMM_WORLD
        self.rank, self.size = self.comm.rank, self.comm.size
        self.library = MPI.Get_library_version().split("\n")[0].split(",")[0].strip(" \0")

    def op(self, name):
        if name == "avg":
            raise Missing
        return getattr(self.mpi, name.upper())

    # The brain float's handle, for which neither MPI's standard nor mpi4py has a name.
    BFLOAT16 = {"MPICH": 0x4c00024c, "Intel": 0x4c000247}

    def known(self, x):
        if x.dtype == ml_dtypes.float8_e4m3fn:
            raise Missing
        if x.dtype == ml_dtypes.bfloat16:
            handles = [handle for name, handle in self.BFLOAT16.items() if self.library.startswith(name)]
            if not handles:
                raise Missing
            return [x.view(np.uint16), x.size, self.mpi.Datatype.fromhandle(handles[0])]
        if not x.flags.aligned:  # which mpi4py takes as bytes only
            return [x.view(np.uint8), x.size, self.mpi.FLOAT]
        return x

    def all_reduce(self, x, op):
        out = np.empty(x.shape, x.dtype)
        self.comm.Allreduce(self.known(x), self.known(out), op=self.op(op))
        return out

    def all_reduce_in_place(self, x, op):
        self.comm.Allreduce(self.mpi.IN_PLACE, self.known(x), op=self.op(op))

    def start_all_reduce(self, x, op):
        out = np.empty(x.shape, x.dtype)
        request = self.comm.Iallreduce(self.known(x), out, op=self.op(op))

        def wait(x=x):  # keeps the input: mpi4py's request does not
            request.Wait()
            return out

        return wait

    def reduce(self, x, root, own):
        self.comm.Reduce(x, own, root=root)
        return own

    def reduce_scatter(self, x):
        out = np.empty(x.size // self.size, x.dtype)
        self.comm.Reduce_scatter_block(x, out)
        return out

    def all_gather(self, x):
        out = np.empty((self.size, *x.shape), x.dtype)
        self.comm.Allgather(x, out)
        return out

    def broadcast(self, x, root):
        self.comm.Bcast(x, root=root)

    def send(self, x, peer):
        self.comm.Send(x, peer)

    def receive(self, x, peer):
        status = self.mpi.Status()
        self.comm.Recv(x, peer, status=status)
        return status.Get_elements(self.mpi.FLOAT)

    def barrier(self):
        self.comm.Barrier()

    def close(self):
        self.mpi.Finalize()


class Gloo(Library):
    """gloo, as torch.distributed has it."""

    def __init__(self):
        import datetime

        import torch
        import torch.distributed as dist

        self.torch, self.dist = torch, dist
        dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=8))
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.library = "gloo of PyTorch " + torch.__version__.split("+")[0]

    def tensor(self, x):
        """Shares the memory of `x`."""
        for name in ("bfloat16", "float8_e4m3fn"):
            if x.dtype == getattr(ml_dtypes, name):
                return self.torch.from_numpy(x.view(f"u{x.itemsize}")).view(getattr(self.torch, name))
        return self.torch.from_numpy(x)

    def op(self, name):
        return getattr(self.dist.ReduceOp, {"prod": "PRODUCT"}.get(name, name.upper()))

    def all_reduce(self, x, op):
        out = x.copy()
        self.dist.all_reduce(self.tensor(out), op=self.op(op))
        return out

    def all_reduce_in_place(self, x, op):
        self.dist.all_reduce(self.tensor(x), op=self.op(op))

    def start_all_reduce(self, x, op):
        out = x.copy()
        work = self.dist.all_reduce(self.tensor(out), op=self.op(op), async_op=True)

        def wait():
            work.wait()
            return out

        return wait

    def reduce(self, x, root, own):
        own[:] = x  # in place only
        self.dist.reduce(self.tensor(own), root)
        return own

    def reduce_scatter(self, x):
        out = np.empty(x.size // self.size, x.dtype)
        self.dist.reduce_scatter_tensor(self.tensor(out), self.tensor(x))
        return out

    def all_gather(self, x):
        out = np.empty((self.size, *x.shape), x.dtype)
        self.dist.all_gather([self.tensor(part) for part in out], self.tensor(x))
        return out

    def broadcast(self, x, root):
        self.dist.broadcast(self.tensor(x), root)

    def send(self, x, peer):
        self.dist.send(self.tensor(x), peer)

    def receive(self, x, peer):
        self.dist.recv(self.tensor(x), peer)

    def barrier(self):
        self.dist.barrier()

    def close(self):
        self.dist.destroy_process_group()


class Jax(Library):
    """A process for each rank; its collectives go over gloo. Values do not change, so nothing is in place."""

    def __init__(self):
        os.environ["JAX_PLATFORMS"] = "cpu"
        import jax

        jax.config.update("jax_enable_x64", True)
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        jax.distributed.initialize("127.0.0.1:" + os.environ["MASTER_PORT"], self.size, self.rank)
        from jax.sharding import NamedSharding, PartitionSpec

        self.jax, self.spec = jax, PartitionSpec("ranks")
        self.mesh = jax.make_mesh((self.size,), ("ranks",))
        self.sharding = NamedSharding(self.mesh, self.spec)
        self.calls = {}
        self.library = "JAX " + jax.__version__

    def start(self, name, call, x):
        if name not in self.calls:
            self.calls[name] = self.jax.jit(self.jax.shard_map(
                call, mesh=self.mesh, in_specs=self.spec, out_specs=self.spec, check_vma=False))
        whole = self.jax.make_array_from_process_local_data(self.sharding, x[None])
        return self.calls[name](whole)

    def finish(self, result):
        return np.asarray(result.addressable_data(0))[0]

    def start_all_reduce(self, x, op):
        calls = {"sum": "psum", "max": "pmax", "min": "pmin", "avg": "pmean"}
        if op not in calls:
            raise Missing
        call = getattr(self.jax.lax, calls[op])
        result = self.start(op, lambda value: call(value, "ranks"), x)
        return lambda: self.finish(result)

    def all_reduce(self, x, op):
        return self.start_all_reduce(x, op)()

    def reduce_scatter(self, x):
        call = lambda value: self.jax.lax.psum_scatter(value[0], "ranks", tiled=True)[None]
        return self.finish(self.start("reduce_scatter", call, x))

    def all_gather(self, x):
        call = lambda value: self.jax.lax.all_gather(value[0], "ranks")[None]
        return self.finish(self.start("all_gather", call, x))

    def broadcast(self, x, root):
        from jax.experimental import multihost_utils

        x[:] = multihost_utils.broadcast_one_to_all(x, is_source=self.rank == root)

    def barrier(self):
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices("barrier")


class Mlx(Library):
    """The ring backend. Values do not change, so nothing is in place."""

    def __init__(self):
        import mlx.core as mx

        self.mx = mx
        self.group = mx.distributed.init(strict=True, backend="ring")
        self.rank, self.size = self.group.rank(), self.group.size()
        self.library = "MLX " + mx.__version__ + ", ring"

    def array(self, x):
        if x.dtype == ml_dtypes.bfloat16:
            return self.mx.array(x.astype(np.float32)).astype(self.mx.bfloat16)
        if x.dtype == ml_dtypes.float8_e4m3fn:
            raise Missing
        return self.mx.array(x)

    def numpy(self, x, like):
        if like.dtype == ml_dtypes.bfloat16:
            return np.array(x.astype(self.mx.float32)).astype(like.dtype)
        return np.array(x)

    def all_reduce(self, x, op):
        calls = {"sum": "all_sum", "max": "all_max", "min": "all_min"}
        if op not in calls:
            raise Missing
        result = getattr(self.mx.distributed, calls[op])(self.array(x))
        self.mx.eval(result)
        return self.numpy(result, x)

    def start_all_reduce(self, x, op):
        result = self.mx.distributed.all_sum(self.array(x))
        self.mx.async_eval(result)

        def wait():
            self.mx.eval(result)
            return self.numpy(result, x)

        return wait

    def reduce_scatter(self, x):
        result = self.mx.distributed.sum_scatter(self.array(x))
        self.mx.eval(result)
        return self.numpy(result, x)

    def all_gather(self, x):
        result = self.mx.distributed.all_gather(self.array(x)[None])
        self.mx.eval(result)
        return self.numpy(result, x)

    def send(self, x, peer):
        self.mx.eval(self.mx.distributed.send(self.array(x), peer))

    def receive(self, x, peer):
        result = self.mx.distributed.recv(x.shape, self.mx.float32, peer)
        self.mx.eval(result)
        x[:] = np.array(result)


class Tutti(Library):
    def __init__(self):
        import tutti

        self.comm = tutti.init()
        self.rank, self.size = self.comm.rank, self.comm.size
        self.library = "Tutti"

    def all_reduce(self, x, op):
        return self.comm.all_reduce(x, np.empty(x.shape, x.dtype), op)

    def all_reduce_in_place(self, x, op):
        self.comm.all_reduce(x, op=op)

    def start_all_reduce(self, x, op):
        out = np.empty(x.shape, x.dtype)
        future = self.comm.all_reduce(x, out, op, async_op=True)

        def wait():
            future.wait()
            return out

        return wait

    def reduce(self, x, root, own):
        self.comm.reduce(x, own, root=root)
        return own

    def reduce_scatter(self, x):
        return self.comm.reduce_scatter(x)

    def all_gather(self, x):
        return self.comm.all_gather(x)

    def broadcast(self, x, root):
        self.comm.broadcast(x, root)

    def send(self, x, peer):
        self.comm.send(x, peer)

    def receive(self, x, peer):
        self.comm.recv(x, peer)

    def barrier(self):
        self.comm.barrier()
