"""The torch.distributed backend "tutti".

    import torch.distributed as dist

    dist.init_process_group("tutti")                      # or "cpu:tutti,cuda:tutti"

finds it without an import of this module. What everything else of torch.distributed does (DDP,
fully_shard, DTensor, pipelining, checkpoints) goes over it then.

The backend is C++ that PyTorch's headers are part of. A wheel brings it for the releases of PyTorch that
were known when it was made; for others it is compiled once (20 s, with the C++ compiler of $CXX, or c++),
and ``python -m tutti.torch`` does that ahead.
"""

from __future__ import annotations

import dataclasses as _dataclasses

import torch.distributed as _dist

import tutti as _tutti
from tutti.torch.extension import load as _load

__all__ = ["Options", "communicator", "compress", "direct_all_reduce", "register", "use_by_default"]


@_dataclasses.dataclass(frozen=True)
class Options:
    """What a group may be told: init_process_group("tutti", pg_options=Options(...)), or new_group().

    invariant: whether the bits of sums depend on the inputs and the order of the ranks alone. All ranks of
    the group say the same, or making it fails and names two that differ. Groups that are split from this
    one have it, too. None: as TUTTI_INVARIANT says.
    """

    invariant: bool | None = None


def _backend(store, rank, size, timeout, name, ranks=None, reconfigurable=False, invariant=None):
    """A backend of `size` ranks, which meet by the store; `ranks` are their numbers in the whole job."""
    everybody = ranks or list(range(size))
    return _load().create(store, rank, size, timeout, reconfigurable, name, everybody, invariant)


def _create(options, backend_options):
    # Those of another backend, whose group this one is a part of ("cpu:tutti,cuda:nccl"), say nothing here.
    own = backend_options if isinstance(backend_options, Options) else Options()
    return _backend(
        options.store,
        options.group_rank,
        options.group_size,
        options.timeout,
        options.group_id,
        options.global_ranks_in_group,
        getattr(options, "enable_reconfigure", False),  # since 2.15
        own.invariant,
    )


def register() -> None:
    """Makes "tutti" a backend of torch.distributed; may be called again."""
    if "TUTTI" in _dist.Backend._plugins:
        return
    # Restored below: a program that does not choose a backend gets the same one as before.
    before = dict(_dist.Backend.default_device_backend_map)
    _dist.Backend.register_backend("tutti", _create, extended_api=True, devices=["cpu", "cuda"])
    _dist.Backend.default_device_backend_map.update(before)


def use_by_default() -> None:
    """Has torch.distributed take "tutti" for CPU tensors wherever a program names no backend.

    Before init_process_group(), and on every rank: it is true of the groups, and of the device meshes, that
    are made from then on.
    """
    register()
    _dist.Backend.default_device_backend_map["cpu"] = "tutti"


def communicator(group=None) -> _tutti.Communicator:
    """A communicator of the ranks of a group (None: the default one) of any backend. All ranks of the group call it.

    For what tutti has beside torch.distributed: weights that move, from this job to another one, too:

        sender = tutti.WeightSender(tutti.torch.communicator(), model, "/shared/run7")
    """
    rank = _dist.get_rank(group)
    said = [None]
    if rank == 0:
        try:
            said = [_tutti.make_unique_id()]
        except Exception as error:  # the others hear of it
            said = [error]
    _dist.broadcast_object_list(said, src=_dist.get_global_rank(group or _dist.group.WORLD, 0), group=group)
    if isinstance(said[0], Exception):
        raise said[0]
    return _tutti.Communicator.create(said[0], rank, _dist.get_world_size(group))


def compress(group=None, compressed: bool = True) -> None:
    """Has all_reduces, and reduce_scatters of equal parts, of a group (None: the default one) send 8 bits an element.

    From now on, and on every rank of the group, which has the backend "tutti" for CPU tensors. It is true of sums
    and averages of float16, bfloat16 and float32, which become approximate; other calls stay what they were.
    Give DDP or FSDP2 a group of its own, as a program also sums what must be exact:

        group = dist.new_group()
        tutti.torch.compress(group)
        model = DistributedDataParallel(model, process_group=group)
    """
    _load().compress(group or _dist.group.WORLD, compressed)


def direct_all_reduce(group=None):
    """The sum over a group (None: the default one) as a function of one tensor, which it sums in place and returns.

    For code that sums small tensors all the time, as inference does in every layer of every token: a call costs
    what the backend's does, and neither torch.distributed's Python nor its dispatcher (2 us). PyTorch's recorder and
    hooks do not hear of it; errors, timeouts, order among the group's other collectives, and all types and layouts
    are those of ``dist.all_reduce(x, group=group)``. The group's backend for CPU tensors is "tutti". The function keeps
    the backend alive.

    In what torch.compile compiles, ``torch.ops.tutti.all_reduce_(x, group.group_name)`` is the same.
    """
    return _load().all_reduce(group or _dist.group.WORLD)


register()
