"""Weights that move from one layout to another: inside a job, or from one job to another (docs/reshard.md, docs/weights.md).

A *state* is a dict, or a module of torch, whose ``state_dict()`` counts: the name of a tensor, and what this rank has of
it. That is

- an array (numpy, torch, anything with memory): all of the tensor;
- ``Piece(array, shape, offset)``: the box of a tensor of that shape which begins at that offset;
- a list of such pieces;
- a DTensor of torch (of FSDP2, of tensor parallelism, of both): its local part, by its mesh and placements.

Ranks need not have the same tensors, and each says only what it has itself. Together the ranks of the source have
every element of what the target asks for. Types of floats may differ; elements are rounded once, to nearest even.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tutti import _tutti
from tutti._tutti import Communicator

State = Mapping[str, Any]  # or a torch.nn.Module


@dataclasses.dataclass(frozen=True)
class Piece:
    """A box of a tensor: `array` has it, from `offset` on, of a tensor of `shape` (in elements, by dimension)."""

    array: Any
    shape: tuple[int, ...]
    offset: tuple[int, ...]


def _indices(tensor, dimension: int) -> Sequence[int]:
    """Which indices of a dimension a DTensor has here, in the order of its local part."""
    if all(getattr(placement, "dim", None) != dimension for placement in tensor.placements):
        return range(tensor.shape[dimension])
    import torch

    mesh, coordinate = tensor.device_mesh, tensor.device_mesh.get_coordinate()
    index = torch.arange(tensor.shape[dimension]).view([1] * dimension + [-1])
    for m, placement in enumerate(tensor.placements):
        if getattr(placement, "dim", None) == dimension:
            parts, _ = placement._split_tensor(index, mesh.size(m), with_padding=False, contiguous=False)
            index = parts[coordinate[m]]
    return index.flatten().tolist()


def _of_dtensor(name: str, tensor) -> list[Piece]:
    """The local part of a DTensor; its mesh has the ranks of the communicator, or some of them."""
    for placement in tensor.placements:
        if placement.is_partial():
            raise ValueError(f"'{name}' is Partial on a dimension of its mesh: redistribute it before it moves")
    if tensor.device_mesh.get_coordinate() is None:  # of other ranks
        return []
    local, shape = tensor.to_local().detach(), tuple(tensor.shape)
    indices = [_indices(tensor, d) for d in range(len(shape))]
    # Strided shards (tensor parallelism within FSDP) are one box each where ranks divide the dimension.
    if tuple(map(len, indices)) != tuple(local.shape) or any(i and i[-1] - i[0] != len(i) - 1 for i in indices):
        raise ValueError(f"'{name}' is no single box here, by its placements {tensor.placements}: pass Pieces by hand")
    return [Piece(local, shape, tuple(i[0] if i else 0 for i in indices))]


def _pieces_of(name: str, value) -> list[Piece]:
    if isinstance(value, Piece):
        return [value]
    if isinstance(value, list | tuple):
        return [piece for part in value for piece in _pieces_of(name, part)]
    if hasattr(value, "placements") and hasattr(value, "device_mesh"):
        return _of_dtensor(name, value)
    if hasattr(value, "detach"):  # a tensor of torch, perhaps a parameter
        value = value.detach()
    shape = tuple(value.shape) if hasattr(value, "shape") else memoryview(value).shape
    return [Piece(value, shape, (0,) * len(shape))]


def _named(state: State) -> list[tuple[str, Any, list[int], list[int]]]:
    """What the extension module takes; without pieces that have no element."""
    named = []
    if hasattr(state, "state_dict"):
        state = state.state_dict()
    for name, value in state.items():
        for piece in _pieces_of(name, value):
            array = piece.array.detach() if hasattr(piece.array, "detach") else piece.array
            if 0 not in tuple(getattr(array, "shape", (1,))):
                named.append((name, array, [int(n) for n in piece.shape], [int(n) for n in piece.offset]))
    return named


def layout(comm: Communicator, state: State) -> str:
    """The layout of all ranks' states, as the JSON that ``tutti reshard`` reads; all ranks, and all get it."""
    return _tutti._layout(comm, _named(state))


_TYPES_OF_TORCH = {"bool": "uint8", "float8_e4m3fn": "float8_e4m3"}  # where Tutti has another name


def layout_of_checkpoint(folder: str | os.PathLike) -> str:
    """The layout of a checkpoint of torch.distributed.checkpoint, from its metadata, as JSON for ``tutti reshard``.

    A tensor's boxes belong to the ranks that have written them. Of replicas a checkpoint has one. What is no tensor is
    left out.
    """
    from torch.distributed.checkpoint import FileSystemReader
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata

    metadata = FileSystemReader(folder).read_metadata()
    files = {(index.fqn, tuple(index.offset or ())): info.relative_path for index, info in metadata.storage_data.items()}
    tensors, ranks = [], 1
    for name, tensor in metadata.state_dict_metadata.items():
        if not isinstance(tensor, TensorStorageMetadata):
            continue
        kind = str(tensor.properties.dtype).removeprefix("torch.")
        pieces = []
        for number, chunk in enumerate(tensor.chunks):
            if 0 in chunk.sizes:
                continue
            file = files[name, tuple(chunk.offsets)]
            written = re.match(r"__(\d+)_\d+\.distcp$", os.path.basename(file))
            if written is None:
                raise ValueError(f"'{name}' lies in '{file}', whose name does not say which rank has written it")
            rank = int(written[1])
            ranks = max(ranks, rank + 1)
            box = [[begin, begin + size] for begin, size in zip(chunk.offsets, chunk.sizes, strict=True)]
            pieces.append({"rank": rank, "buffer": f"{name} {number}", "box": box})
        tensors.append({"name": name, "type": _TYPES_OF_TORCH.get(kind, kind), "shape": list(tensor.size), "pieces": pieces})
    return json.dumps({"ranks": ranks, "tensors": tensors}, indent=1)


class Reshard:
    """Weights of one communicator that go from one layout into another, as often as the program wants.

    All ranks make it, with the arrays that they have (`source`) and those that they want (`target`); both may be
    empty. It makes a plan and proves it. run() fills the target's arrays from what the source's have then. Where a
    rank's arrays are window memory (``tutti.empty()``, ``tutti.use_windows()``), others of its host read them directly.
    """

    def __init__(self, comm: Communicator, source: State, target: State):
        self._reshard = _tutti._Reshard(comm, _named(source), _named(target))

    def run(self) -> None:
        """All ranks. When it returns, this rank's target is complete, and nobody reads its source any more."""
        self._reshard.run()


def reshard(comm: Communicator, source: State, target: State) -> None:
    """Reshard(comm, source, target).run(): for weights that move once."""
    Reshard(comm, source, target).run()


class WeightSender:
    """The side of a job that has new weights every few seconds: a trainer. All ranks of `comm` make it.

    state: what this rank has. Its arrays are read in each send().
    place: a folder that both jobs see; it is made if there is none. They meet there.
    changes, planes: what may be used on links that are slower than that: sending only what has changed since the
    last version, and coding the exponents of floats. Receivers get the same bits in any case.
    """

    def __init__(
        self, comm: Communicator, state: State, place: str, *, changes: bool = True, planes: bool = True
    ):
        self._sender = _tutti._WeightSender(comm, _named(state), place, changes, planes, 0.0)

    def send(self, version: int) -> int:
        """Sends version `version`, any number but 0; all ranks. Returns how many ranks of the receiving job have it
        now; 0 if none is there, which it does not wait for. Raises PeerLost for a rank of either job that has died;
        after one of the receivers, the next send() meets those that come back."""
        return self._sender.send(version)

    def leave(self) -> None:
        """Lets the receivers go on without this job."""
        self._sender.leave()


class WeightReceiver:
    """The side of a job that uses weights which another job makes: a server. All ranks of `comm` make it.

    state: the arrays of this rank, which receive() fills; they change there and in resume() alone.
    place: as WeightSender has it.
    patience: seconds that receive() waits for a version; 0: without limit.
    """

    def __init__(self, comm: Communicator, state: State, place: str, *, patience: float = 0.0):
        self._receiver = _tutti._WeightReceiver(comm, _named(state), place, patience)

    @property
    def version(self) -> int:
        """The version that the arrays have; 0: none yet."""
        return self._receiver.version

    def receive(self) -> int:
        """Waits for the next version, and returns its number; all ranks. The arrays have all of it then, on all
        ranks. If it raises, all ranks have the version before. PeerLost names a rank of either job that has died:
        after one of the senders, the next receive() meets those that come; after one of this job, call resume()."""
        return self._receiver.receive()

    def resume(self, comm: Communicator) -> int:
        """Goes on with `comm`, the ranks of this job that are left. All of them have the version that it returns."""
        return self._receiver.resume(comm)

    def leave(self) -> None:
        """Lets the senders go on without this job, which may receive again later."""
        self._receiver.leave()
