"""Groups of Ray actors (ray.util.collective) over Tutti.

    import tutti.torch.ray                       # in the driver, and in each actor

    ray.util.collective.init_collective_group(world_size, rank, backend="tutti", group_name="group")

A tensor is one of PyTorch, or a numpy array, in the memory of a CPU. Each group stands for itself: an actor
may have any number of them, with other ranks in each, and torch.distributed need not be initialized.
(Ray Train needs no module: ``TorchConfig(backend="tutti")``.)
"""

from __future__ import annotations

import datetime
import time

import numpy
import ray
import torch
import torch.distributed as _dist
import torch.distributed.distributed_c10d as _c10d
from ray.experimental import internal_kv
from ray.util.collective import types
from ray.util.collective.backend_registry import register_collective_backend
from ray.util.collective.collective_group.base_collective_group import BaseGroup

from tutti.torch import _backend

__all__ = ["TuttiGroup", "register"]

_TIMEOUT = datetime.timedelta(minutes=30)  # as of a group of torch.distributed
_MEET_S = 120  # what an actor needs to be there
_OPERATORS = {
    types.ReduceOp.SUM: _dist.ReduceOp.SUM,
    types.ReduceOp.PRODUCT: _dist.ReduceOp.PRODUCT,
    types.ReduceOp.MIN: _dist.ReduceOp.MIN,
    types.ReduceOp.MAX: _dist.ReduceOp.MAX,
}


def _meet(key, rank, world_size):
    """A store of rank 0, whose address the others find in Ray's table of keys."""
    limit = datetime.timedelta(seconds=_MEET_S)
    if rank == 0:
        address = ray.util.get_node_ip_address()
        store = _dist.TCPStore(address, 0, is_master=True, timeout=limit, wait_for_workers=False)
        internal_kv._internal_kv_put(key, f"{address} {store.port}", overwrite=True)
        return store
    end = time.monotonic() + _MEET_S
    while not (found := internal_kv._internal_kv_get(key)):
        if time.monotonic() > end:
            raise TimeoutError(
                f"rank {rank} of {world_size} has waited {_MEET_S} s for rank 0 of the Ray group ({key}): "
                "has its actor called init_collective_group?"
            )
        time.sleep(0.02)
    address, port = found.decode().split()
    return _dist.TCPStore(address, int(port), is_master=False, timeout=limit, wait_for_workers=False)


def _tensor(value):
    if isinstance(value, numpy.ndarray):
        return torch.from_numpy(value)
    if isinstance(value, torch.Tensor):
        return value
    raise TypeError(f"a tensor of PyTorch or a numpy array is needed, not {type(value).__name__}")


def _only(tensors):
    """Ray passes one tensor for each device of an actor; an actor has one CPU."""
    if len(tensors) != 1:
        raise ValueError(f"a group of Tutti takes one tensor, not {len(tensors)}")
    return tensors[0]


class TuttiGroup(BaseGroup):
    def __init__(self, world_size, rank, group_name):
        super().__init__(world_size, rank, group_name)
        key = f"tutti: {group_name}"
        self._store = _meet(key, rank, world_size)
        self._backend = _backend(self._store, rank, world_size, _TIMEOUT, f"ray {group_name}")
        if rank == 0:  # all have met
            internal_kv._internal_kv_del(key)

    @classmethod
    def backend(cls):
        return "TUTTI"

    @classmethod
    def check_backend_availability(cls):
        return True

    def destroy_group(self):
        self._backend.shutdown()

    def allreduce(self, tensor, allreduce_options=None):
        options = _c10d.AllreduceOptions()
        options.reduceOp = _OPERATORS[getattr(allreduce_options, "reduceOp", types.ReduceOp.SUM)]
        self._backend.allreduce([_tensor(_only(tensor))], options).wait()

    def barrier(self, barrier_options=None):
        self._backend.barrier().wait()

    def reduce(self, tensor, reduce_options=None):
        options = _c10d.ReduceOptions()
        options.reduceOp = _OPERATORS[getattr(reduce_options, "reduceOp", types.ReduceOp.SUM)]
        options.rootRank = getattr(reduce_options, "root_rank", 0)
        mine = _tensor(_only(tensor))
        if self.rank != options.rootRank:
            mine = mine.clone()  # which the sums of a part may use
        self._backend.reduce([mine], options).wait()

    def allgather(self, tensor_list, tensor, allgather_options=None):
        places = [_tensor(t) for t in _only(tensor_list)]
        self._backend.allgather([places], [_tensor(_only(tensor))], _c10d.AllgatherOptions()).wait()

    def broadcast(self, tensor, broadcast_options=None):
        options = _c10d.BroadcastOptions()
        options.rootRank = getattr(broadcast_options, "root_rank", 0)
        options.rootTensor = 0
        self._backend.broadcast([_tensor(_only(tensor))], options).wait()

    def reducescatter(self, tensor, tensor_list, reducescatter_options=None):
        options = _c10d.ReduceScatterOptions()
        options.reduceOp = _OPERATORS[getattr(reducescatter_options, "reduceOp", types.ReduceOp.SUM)]
        parts = [_tensor(t) for t in _only(tensor_list)]
        self._backend.reduce_scatter([_tensor(_only(tensor))], [parts], options).wait()

    def send(self, tensor, send_options):
        self._backend.send([_tensor(_only(tensor))], send_options.dst_rank, 0).wait()

    def recv(self, tensor, recv_options):
        self._backend.recv([_tensor(_only(tensor))], recv_options.src_rank, 0).wait()


def register():
    """Makes "tutti" a backend of ray.util.collective; may be called again."""
    if not hasattr(types.Backend, "TUTTI"):
        register_collective_backend("TUTTI", TuttiGroup)


register()
