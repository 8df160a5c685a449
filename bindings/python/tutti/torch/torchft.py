"""A process group over Tutti for torchft's Manager, which gets new ranks with each quorum.

    from tutti.torch.torchft import ProcessGroupTutti

    manager = torchft.Manager(pg=ProcessGroupTutti(timeout=timedelta(seconds=30)), ...)

PyTorch 2.15 can do without: a Manager takes a group of
``init_process_group("tutti", enable_reconfigure=True)``, which keeps its connections between the hosts.
"""

from __future__ import annotations

import torch
from torch.distributed import ProcessGroup
from torchft.process_group import ProcessGroupWrapper

from tutti.torch import _backend

__all__ = ["ProcessGroupTutti"]


class ProcessGroupTutti(ProcessGroupWrapper):
    """Makes a group of the backend "tutti" for each quorum."""

    def _create_pg(self, store, rank, world_size):
        name = f"torchft {self._uuid}"
        backend = _backend(store, rank, world_size, self._timeout, name, self._global_ranks)
        group = ProcessGroup(store, rank, world_size)
        group._set_default_backend(ProcessGroup.BackendType.CUSTOM)
        group._register_backend(torch.device("cpu"), ProcessGroup.BackendType.CUSTOM, backend)
        return group

    def getBackendName(self):
        return "torchft-tutti"
