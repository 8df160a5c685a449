"""Collective communication between processes, or threads, on arrays of any kind.

    import numpy as np
    import tutti

    with tutti.init() as comm:
        x = np.full(1000, comm.rank, dtype=np.float32)
        comm.all_reduce(x)                  # in place, over all ranks
        everything = comm.all_gather(x)     # shape (comm.size, 1000)

Start it with ``tutti run -n 4 python program.py`` (or torchrun, mpirun, srun); threads of one process
take ``tutti.Communicator.create_local(4)``.

- ``Communicator`` has the collectives, messages, split() and shrink(); ``help(tutti.Communicator)``.
- ``async_op=True`` makes a call return a ``Future``: wait() for it, or ``await`` it.
- ``with tutti.group():`` runs the calls inside together.
- ``comm.window(array)`` lets the other ranks write to an array, one-sided: ``help(tutti.Window)``.
- ``tutti.empty(shape, dtype)`` makes arrays that other ranks of the host can read directly:
  collectives on them are the fastest. ``tutti.use_windows()`` makes all large arrays such arrays.
- ``reshard(comm, source, target)`` moves weights from one layout into another, ``WeightSender`` and
  ``WeightReceiver`` from one job to another: ``help(tutti.weights)``.
- ``ElasticJob``: ranks that die are replaced while the others go on (``tutti run --elastic 2:4``).
- Whatever fails raises a ``tutti.Error`` that says what happened, to whom, and what to do.
"""

from __future__ import annotations

import asyncio as _asyncio
import contextlib as _contextlib
import os as _os
from collections.abc import Iterator as _Iterator

try:
    from tutti import _tutti
except ImportError as _error:
    from tutti.installation import cannot_load as _cannot_load

    raise _cannot_load(_error) from _error
from tutti._tutti import Communicator, ElasticJob, Future, Window, __version__, make_unique_id
from tutti.errors import (
    Aborted,
    Error,
    InternalError,
    InvalidArgument,
    InvalidUsage,
    Mismatch,
    PeerLost,
    SystemFailure,
    TimedOut,
    UnprovenPlan,
)
from tutti.memory import empty, use_windows, zeros
from tutti.weights import Piece, Reshard, WeightReceiver, WeightSender, layout, layout_of_checkpoint, reshard

__all__ = [
    "Aborted",
    "Communicator",
    "ElasticJob",
    "Error",
    "Future",
    "InternalError",
    "InvalidArgument",
    "InvalidUsage",
    "Mismatch",
    "PeerLost",
    "Piece",
    "Reshard",
    "SystemFailure",
    "TimedOut",
    "UnprovenPlan",
    "WeightReceiver",
    "WeightSender",
    "Window",
    "__version__",
    "empty",
    "group",
    "init",
    "layout",
    "layout_of_checkpoint",
    "make_unique_id",
    "pre_multiplied_sum",
    "reshard",
    "use_windows",
    "zeros",
]


def init(**options) -> Communicator:
    """The communicator of the job: Communicator.from_environment(**options)."""
    return Communicator.from_environment(**options)


class pre_multiplied_sum:
    """An operator: every rank's x times that rank's `scalar`, then summed."""

    def __init__(self, scalar: float):
        self.scalar = float(scalar)

    def __repr__(self) -> str:
        return f"tutti.pre_multiplied_sum({self.scalar})"


@_contextlib.contextmanager
def group() -> _Iterator[None]:
    """Calls inside of it, of this thread, run together when it ends.

    Messages then make progress at the same time, so crossing ones cannot deadlock; results are
    there after the group. An exception inside drops the group: none of its calls runs.
    """
    _tutti._group_start()
    try:
        yield
    except BaseException:
        _tutti._group_drop()
        raise
    _tutti._group_end()


def _await(self: Future):
    loop = _asyncio.get_running_loop()
    if not self.done():
        over = loop.create_future()
        descriptor = self._descriptor()

        def ready() -> None:
            if not over.done():
                over.set_result(None)

        loop.add_reader(descriptor, ready)
        try:
            yield from over.__await__()
        finally:
            loop.remove_reader(descriptor)
            _os.close(descriptor)
    return self._result()


Future.__await__ = _await
