"""The device communicator of a group of vLLM, over Tutti.

vLLM makes one for each group of several ranks. The group's process group has the backend "tutti" (platform.py). So
what vLLM's base class does by torch.distributed is Tutti's already: all_gather of any dimension, gather, broadcast,
send and recv. This class has what is called all the time, what the base class lacks, and what it gets wrong.
"""

from __future__ import annotations

import pickle
from typing import Any

import torch
import torch.distributed as dist
from vllm.distributed.device_communicators.base_device_communicator import DeviceCommunicatorBase
from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator
from vllm.logger import init_logger

from tutti.torch import direct_all_reduce
from tutti.vllm.platform import check_interface, refuse

logger = init_logger("vllm.tutti")  # vLLM shows the lines of its own loggers

check_interface(CpuCommunicator)


class Communicator(CpuCommunicator):
    """Tensors may have gaps and any type; calls may be in torch.inference_mode(). A failure is a
    torch.distributed.DistBackendError with Tutti's sentence, which ends the engine."""

    # So pipelines send dicts of tensors by send_tensor_dict(), and not one by one over gloo.
    supports_tensor_dict = True

    def __init__(self, cpu_group, device=None, device_group=None, unique_name="", use_all2all=False):
        # vLLM's own class for CPUs would make its shared memory.
        DeviceCommunicatorBase.__init__(self, cpu_group, device, device_group, unique_name, use_all2all=use_all2all)
        backend = dist.get_backend(self.device_group)
        if backend != "tutti":
            refuse(f"group {unique_name} has the backend {backend} and not tutti, as with "
                   "VLLM_DISTRIBUTED_USE_SPLIT_GROUP=1")  # fmt: skip
        self.dist_module = dist
        self._name = self.device_group.group_name
        self._all_reduce = direct_all_reduce(self.device_group)
        self._blocking = dist.distributed_c10d.AllgatherOptions()
        self._blocking.asyncOp = False
        if self.use_all2all:
            from vllm.distributed.device_communicators.all2all import AgRsAll2AllManager

            self.all2all_manager = AgRsAll2AllManager(self.cpu_group)
        logger.info_once(f"Group {unique_name} of {self.world_size} ranks communicates over Tutti.")

    def all_reduce(self, input_: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_dynamo_compiling():
            torch.ops.tutti.all_reduce_(input_, self._name)
            return input_
        return self._all_reduce(input_)

    def all_gather(self, input_: torch.Tensor, dim: int = -1) -> torch.Tensor:
        if torch.compiler.is_dynamo_compiling():
            return super().all_gather(input_, dim)
        # Of logits, for every token: torch.distributed's own function takes longer than the call.
        rows = input_.contiguous()
        out = rows.new_empty((self.world_size * rows.shape[0], *rows.shape[1:]))
        if (work := self.device_group._allgather_base(out, rows, self._blocking)) is not None:
            work.wait()
        parts = out.view(self.world_size, *rows.shape)
        dim %= input_.dim()
        shape = list(input_.shape)
        shape[dim] *= self.world_size
        return parts.movedim(0, dim).reshape(shape)

    def reduce_scatter(self, input_: torch.Tensor, dim: int = -1) -> torch.Tensor:
        return self.reduce_scatterv(input_, dim)

    def reduce_scatterv(self, input_: torch.Tensor, dim: int = -1, sizes: list[int] | None = None) -> torch.Tensor:
        rows = input_.movedim(dim, 0).contiguous()
        sizes = self._sizes(rows.shape[0], sizes, "reduce_scatter")
        out = rows.new_empty((sizes[self.rank_in_group], *rows.shape[1:]))
        if len(set(sizes)) == 1:
            dist.reduce_scatter_tensor(out, rows, group=self.device_group)
        else:
            dist.reduce_scatter(out, list(rows.split(sizes)), group=self.device_group)
        return out.movedim(0, dim).contiguous()

    def all_gatherv(
        self, input_: torch.Tensor | list[torch.Tensor], dim: int = 0, sizes: list[int] | None = None
    ) -> torch.Tensor | list[torch.Tensor]:
        if isinstance(input_, torch.Tensor):
            return self._all_gatherv(input_, dim, sizes)
        return [self._all_gatherv(x, dim, sizes) for x in input_]

    def _all_gatherv(self, x: torch.Tensor, dim: int, sizes: list[int] | None) -> torch.Tensor:
        if sizes is None or len(set(sizes)) == 1:
            return self.all_gather(x, dim)
        rows = x.movedim(dim, 0).contiguous()
        out = rows.new_empty((sum(sizes), *rows.shape[1:]))
        dist.all_gather(list(out.split(sizes)), rows, group=self.device_group)
        return out.movedim(0, dim).contiguous()

    def all_to_all(
        self, input_: torch.Tensor, sizes: list[int] | None = None, received: list[int] | None = None
    ) -> torch.Tensor:
        """Sends `sizes[r]` rows to rank r, and returns the rows of all ranks, `received[r]` of rank r; equal parts by
        default. Nothing in vLLM's code for CPUs calls it so far: its experts gather and scatter rows."""
        rows = input_.contiguous()
        sizes = self._sizes(rows.shape[0], sizes, "all_to_all")
        received = received or sizes
        out = rows.new_empty((sum(received), *rows.shape[1:]))
        dist.all_to_all_single(out, rows, received, sizes, group=self.device_group)
        return out

    def batch_isend_irecv(self, p2p_ops: list) -> None:
        for work in dist.batch_isend_irecv(p2p_ops):
            work.wait()

    def _sizes(self, rows: int, sizes: list[int] | None, what: str) -> list[int]:
        """How many rows each rank has of `rows`."""
        if sizes is None:
            if rows % self.world_size:
                raise ValueError(f"{what}: {rows} rows are no equal parts for {self.world_size} ranks")
            return [rows // self.world_size] * self.world_size
        if len(sizes) != self.world_size or sum(sizes) != rows:
            raise ValueError(f"{what}: sizes {sizes} are not those of {rows} rows on {self.world_size} ranks")
        return sizes

    def send_tensor_dict(self, tensor_dict: dict[str, torch.Tensor | Any], dst: int) -> None:
        """To rank `dst` of the group: the length of what describes the dict, that, and each tensor with elements."""
        tensors = [v for v in tensor_dict.values() if isinstance(v, torch.Tensor)]
        described = [(k, (v.dtype, v.shape) if isinstance(v, torch.Tensor) else None, v if not isinstance(v, torch.Tensor) else None)
                     for k, v in tensor_dict.items()]  # fmt: skip
        words = torch.frombuffer(bytearray(pickle.dumps(described)), dtype=torch.uint8)
        for tensor in (torch.tensor([words.numel()]), words, *tensors):
            if tensor.numel():
                self.send(tensor, dst)

    def recv_tensor_dict(self, src: int) -> dict[str, torch.Tensor | Any]:
        length = int(self.recv(torch.Size([1]), torch.int64, src))
        words = self.recv(torch.Size([length]), torch.uint8, src)
        result: dict[str, torch.Tensor | Any] = {}
        for key, of_tensor, value in pickle.loads(words.numpy().tobytes()):
            if of_tensor is None:
                result[key] = value
                continue
            dtype, shape = of_tensor
            result[key] = self.recv(shape, dtype, src) if shape.numel() else torch.empty(shape, dtype=dtype)
        return result
