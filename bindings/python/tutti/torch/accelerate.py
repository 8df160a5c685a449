"""Lets accelerate, and so the Trainer of transformers, take the backend "tutti" for CPUs.

    import tutti.torch.accelerate

    Accelerator(cpu=True, kwargs_handlers=[InitProcessGroupKwargs(backend="tutti")])
    TrainingArguments(..., use_cpu=True, ddp_backend="tutti")

Without this module accelerate refuses all backends on CPUs but "gloo" and "mpi". Everything else stays
as accelerate decides it. docs/patches/accelerate.patch is the same for accelerate itself.
"""

from __future__ import annotations

import torch.distributed as _dist
from accelerate.state import PartialState as _PartialState
from accelerate.utils import DistributedType as _DistributedType

import tutti.torch  # noqa: F401: makes "tutti"

_theirs = _PartialState._prepare_backend


def _prepare_backend(self, cpu=False, sagemaker_dp=False, backend=None):
    chosen, distributed_type = _theirs(self, cpu, sagemaker_dp, backend)
    if distributed_type == _DistributedType.MULTI_CPU:
        wanted = backend or _dist.Backend.default_device_backend_map.get("cpu")
        if wanted == "tutti":
            chosen = wanted
    return chosen, distributed_type


if getattr(_theirs, "__module__", "") != __name__:  # not twice, when the module is loaded again
    _PartialState._prepare_backend = _prepare_backend
