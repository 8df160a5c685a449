"""A backend of torchcomms, for CPUs.

    comm = torchcomms.new_comm("tutti", torch.device("cpu"), "name")

finds it without an import of this module (entry point group ``torchcomms.backends``). The calls go to the
same backend that torch.distributed uses. A backend written in Python has neither torchcomms' batches of
messages nor its windows, and hears of no time limit of a single call.
"""

from __future__ import annotations

import os

import torch
import torch.distributed as _dist
import torch.distributed.distributed_c10d as _c10d
import torchcomms as _torchcomms

from tutti.torch import _backend

__all__ = ["TuttiBackend", "register"]


def _operator(op):
    if "PREMUL_SUM" in str(op.type):
        raise NotImplementedError("torchcomms does not tell a backend in Python the factor of PREMUL_SUM")
    return getattr(_dist.ReduceOp, str(op.type).rsplit(".", 1)[-1])


def _store(name, timeout):
    """Of the job: that of torchrun's agent, or of rank 0."""
    rank = int(os.environ["RANK"])
    agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    tcp = _dist.TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        is_master=rank == 0 and not agent,
        timeout=timeout,
        wait_for_workers=False,
        multi_tenant=True,
    )
    return _dist.PrefixStore(f"torchcomms/{name}", tcp)


def _options(kind, async_op, **fields):
    """c10d's options of a call."""
    made = kind()
    made.asyncOp = async_op
    for name, value in fields.items():
        setattr(made, name, value)
    return made


class TuttiBackend(_torchcomms.TorchCommBackend):
    def __init__(self):
        super().__init__()
        self._splits = 0

    def init(self, device, name, options):
        if device.type != "cpu":
            raise ValueError(f'the backend "tutti" of torchcomms is for CPUs, not for {device}')
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        store = options.store or _store(name, options.timeout)
        self._join(name, store, rank, size, options)

    def _join(self, name, store, rank, size, options):
        self._name, self._store, self._rank, self._size = name, store, rank, size
        self._timeout = options.timeout
        self._calls = _backend(store, rank, size, options.timeout, name)

    def finalize(self):
        self._calls.shutdown()

    def get_rank(self):
        return self._rank

    def get_size(self):
        return self._size

    def get_backend_name(self):
        return "tutti"

    def get_comm_name(self):
        return self._name

    def set_timeout(self, timeout):
        self._calls._set_default_timeout(timeout)

    def split(self, ranks, name, options):
        self._splits += 1
        if not ranks:
            return None
        if self._rank not in ranks or len(set(ranks)) < len(ranks) or not set(ranks) <= set(range(self._size)):
            raise RuntimeError(
                f"rank {self._rank} cannot split {self._name} of {self._size} ranks into {ranks}: each rank passes "
                "the ranks of its part, once each, its own among them"
            )
        part = TuttiBackend()
        store = _dist.PrefixStore(f"{self._splits}/{name}/{min(ranks)}", self._store)
        part._join(f"{name}_{min(ranks)}", store, ranks.index(self._rank), len(ranks), options)
        return part

    def _done(self, work, async_op):
        if async_op:
            return work
        if work is not None:  # else the call is over
            work.wait()
        return None

    def send(self, tensor, dst, async_op):
        return self._done(self._calls.send([tensor], dst, 0), async_op)

    def recv(self, tensor, src, async_op):
        return self._done(self._calls.recv([tensor], src, 0), async_op)

    def broadcast(self, tensor, root, async_op):
        options = _options(_c10d.BroadcastOptions, async_op, rootRank=root, rootTensor=0)
        return self._done(self._calls.broadcast([tensor], options), async_op)

    def all_reduce(self, tensor, op, async_op):
        options = _options(_c10d.AllreduceOptions, async_op, reduceOp=_operator(op))
        return self._done(self._calls.allreduce([tensor], options), async_op)

    def reduce(self, tensor, root, op, async_op):
        options = _options(_c10d.ReduceOptions, async_op, rootRank=root, reduceOp=_operator(op))
        return self._done(self._calls.reduce([tensor], options), async_op)

    def all_gather(self, tensor_list, tensor, async_op):
        options = _options(_c10d.AllgatherOptions, async_op)
        return self._done(self._calls.allgather([tensor_list], [tensor], options), async_op)

    all_gather_v = all_gather

    def all_gather_single(self, output, input, async_op):
        options = _options(_c10d.AllgatherOptions, async_op)
        return self._done(self._calls._allgather_base(output, input, options), async_op)

    def reduce_scatter(self, output, input_list, op, async_op):
        options = _options(_c10d.ReduceScatterOptions, async_op, reduceOp=_operator(op))
        return self._done(self._calls.reduce_scatter([output], [input_list], options), async_op)

    reduce_scatter_v = reduce_scatter

    def reduce_scatter_single(self, output, input, op, async_op):
        options = _options(_c10d.ReduceScatterOptions, async_op, reduceOp=_operator(op))
        return self._done(self._calls._reduce_scatter_base(output, input, options), async_op)

    def all_to_all_single(self, output, input, async_op):
        return self.all_to_all_v_single(output, input, [], [], async_op)

    def all_to_all_v_single(self, output, input, output_split_sizes, input_split_sizes, async_op):
        options = _options(_c10d.AllToAllOptions, async_op)
        work = self._calls.alltoall_base(output, input, output_split_sizes, input_split_sizes, options)
        return self._done(work, async_op)

    def all_to_all(self, output_tensor_list, input_tensor_list, async_op):
        options = _options(_c10d.AllToAllOptions, async_op)
        return self._done(self._calls.alltoall(output_tensor_list, input_tensor_list, options), async_op)

    def barrier(self, async_op):
        return self._done(self._calls.barrier(_options(_c10d.BarrierOptions, async_op)), async_op)

    def scatter(self, output_tensor, input_tensor_list, root, async_op):
        options = _options(_c10d.ScatterOptions, async_op, rootRank=root)
        lists = [input_tensor_list] if self._rank == root else []
        return self._done(self._calls.scatter([output_tensor], lists, options), async_op)

    def gather(self, output_tensor_list, input_tensor, root, async_op):
        options = _options(_c10d.GatherOptions, async_op, rootRank=root)
        lists = [output_tensor_list] if self._rank == root else []
        return self._done(self._calls.gather(lists, [input_tensor], options), async_op)


def register():
    """Makes "tutti" a backend of torchcomms; may be called again."""
    if not _torchcomms._comms._is_backend_registered("tutti"):
        _torchcomms.register_backend("tutti", TuttiBackend)


register()
