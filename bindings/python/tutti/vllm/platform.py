"""The platform class: vLLM's own for CPUs, whose groups have Tutti's backend and communicator.

What vLLM does not promise, and this package needs, is looked at when vLLM loads this module. An exception here
ends the start of the engine with its sentence.
"""

from __future__ import annotations

import inspect
import os

import vllm
from vllm.platforms import cpu_platform_plugin
from vllm.utils.import_utils import resolve_obj_by_qualname

import tutti.torch  # noqa: F401: makes the backend

_own = resolve_obj_by_qualname(cpu_platform_plugin())


def refuse(why: str) -> None:
    raise RuntimeError(
        f"tutti.vllm: {why} (vLLM {vllm.__version__}; 0.32 is known to work). TUTTI_VLLM=0 runs vLLM with its own "
        "communicator"
    )


def _check() -> None:
    if os.environ.get("TUTTI_VLLM", "1") not in ("0", "1"):
        refuse(f"TUTTI_VLLM is 0 (off) or 1 (on), not {os.environ['TUTTI_VLLM']}")
    for name in ("dist_backend", "get_device_communicator_cls"):
        if not hasattr(_own, name):
            refuse(f"vLLM's platform for CPUs, {_own.__name__}, has no {name} by which a communicator gets in")
    if getattr(_own, "dist_backend", None) != "gloo":
        refuse(f"vLLM's groups on CPUs are of the backend {_own.dist_backend}, and no longer of gloo")


_check()


class Platform(_own):
    # torch.distributed's calls on vLLM's device groups go over Tutti; its groups for objects stay gloo's.
    dist_backend = "tutti"

    @classmethod
    def check_and_update_config(cls, vllm_config) -> None:
        super().check_and_update_config(vllm_config)
        parallel = vllm_config.parallel_config
        if parallel.distributed_executor_backend == "mp" and parallel.nnodes == parallel.data_parallel_size == 1:
            os.environ.setdefault("TUTTI_ADDRESS", "127.0.0.1")  # the workers, which have this environment, meet there

    @classmethod
    def get_device_communicator_cls(cls) -> str:
        return "tutti.vllm.communicator.Communicator"


def check_interface(base: type) -> None:
    """Whether a device communicator is still made, and asked, as this package's is: `base` is vLLM's."""
    made_of = inspect.signature(base.__init__).parameters
    for name in ("cpu_group", "device", "device_group", "unique_name", "use_all2all"):
        if name not in made_of:
            refuse(f"a device communicator of vLLM is no longer made of {name}")
    asked = ("all_reduce", "all_gather", "all_gatherv", "reduce_scatter", "reduce_scatterv", "gather", "send", "recv",
             "broadcast", "dispatch", "combine", "batch_isend_irecv")  # fmt: skip
    for name in asked:
        if not callable(getattr(base, name, None)):
            refuse(f"a device communicator of vLLM has no {name}() any more")
    from vllm.distributed.parallel_state import GroupCoordinator

    for name in ("send_tensor_dict", "recv_tensor_dict", "all_gatherv", "reduce_scatterv"):
        if not callable(getattr(GroupCoordinator, name, None)):
            refuse(f"a group of vLLM has no {name}() any more")
    if "supports_tensor_dict" not in inspect.getsource(GroupCoordinator):
        refuse("a group of vLLM no longer asks a communicator for supports_tensor_dict, and would send by gloo")
