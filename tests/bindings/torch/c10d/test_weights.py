"""Weights that move between the layouts of torch: DTensors of all placements, FSDP2, tensor parallelism, checkpoints."""

import json
import os
import subprocess
import threading

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from ranks import run
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import tutti
import tutti.torch

TUTTI = os.environ.get("TUTTI_COMMAND", "tutti")


def full(shape, start=0, dtype=torch.float32):
    return (torch.arange(torch.Size(shape).numel(), dtype=torch.float32).view(shape) + start).to(dtype)


def body_placements(rank, world):
    """From each placement to each other one; the shapes are no multiples of the ranks."""
    comm = tutti.torch.communicator()
    assert (comm.rank, comm.size) == (rank, world)
    flat, square = init_device_mesh("cpu", (4,)), init_device_mesh("cpu", (2, 2))
    half = DeviceMesh("cpu", torch.tensor([1, 3]))
    whole = full((7, 10))
    sharded = [
        (flat, [Shard(0)]),
        (flat, [Shard(1)]),
        (flat, [Replicate()]),
        (square, [Shard(0), Shard(0)]),
        (square, [Shard(1), Shard(0)]),
        (square, [Replicate(), Shard(1)]),
        (square, [Shard(0), Replicate()]),
        (half, [Shard(1)]),
    ]
    for i, (mesh, before) in enumerate(sharded):
        here = mesh.get_coordinate() is not None
        source = {"w": distribute_tensor(whole + i, mesh, before)} if here else {}
        for mesh, after in sharded:
            here = mesh.get_coordinate() is not None
            target = {"w": distribute_tensor(torch.zeros(7, 10, dtype=torch.bfloat16), mesh, after)} if here else {}
            tutti.reshard(comm, source, target)
            if here:
                want = distribute_tensor((whole + i).bfloat16(), mesh, after).to_local()
                assert torch.equal(target["w"].to_local(), want), (before, after)
    half_sum = DTensor.from_local(whole, flat, [Partial()])
    with pytest.raises(ValueError, match="'w' is Partial"):
        tutti.Reshard(comm, {"w": half_sum}, {})


class Model(nn.Module):
    """Rows and columns that no number of ranks divides, but by tensor parallelism."""

    def __init__(self, start):
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(6, 12), nn.Linear(12, 6), nn.LayerNorm(6)
        self.register_buffer("steps", torch.tensor(start))
        with torch.no_grad():
            for i, p in enumerate(self.parameters()):
                p.copy_(full(p.shape, start + 1000 * i))


def parallel(model, tensor, data=None):
    if tensor is not None:
        parallelize_module(model, tensor, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    if data is not None:
        for part in (model.up, model.down):
            fully_shard(part, mesh=data)
        fully_shard(model, mesh=data)
    return model


def check_model(model, start):
    want = Model(start).state_dict()
    for name, value in model.state_dict().items():
        value = value.full_tensor() if hasattr(value, "full_tensor") else value
        assert torch.equal(value, want[name]), name


def body_live_models(rank, world):
    """FSDP2, and FSDP2 of tensor parallelism (strided shards), to tensor parallelism over other ranks, and back."""
    comm = tutti.torch.communicator()
    square = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    flat = init_device_mesh("cpu", (4,))
    for kind in "fsdp", "both":
        trainer = parallel(Model(5), *((None, flat) if kind == "fsdp" else (square["tp"], square["dp"])))
        server = parallel(Model(7000), square["tp"])
        tutti.reshard(comm, trainer, server)
        check_model(server, 5)
        tutti.reshard(comm, parallel(Model(9), square["tp"]), trainer)
        check_model(trainer, 9)


def body_checkpoint(rank, world, folder):
    trainer = parallel(Model(5), None, init_device_mesh("cpu", (world,)))
    dcp.save(trainer.state_dict(), checkpoint_id=folder)
    text = tutti.layout(tutti.torch.communicator(), trainer)
    return text, tutti.layout_of_checkpoint(folder)


def boxes(text, name):
    """Who has which box of a tensor."""
    tensor = next(t for t in json.loads(text)["tensors"] if t["name"] == name)
    return tensor["type"], tensor["shape"], sorted((p["rank"], p["box"]) for p in tensor["pieces"])


def test_dtensors_of_all_placements():
    run(4, body_placements)


def test_over_gloo_too():
    run(4, body_placements, backend="gloo")


def test_live_models():
    run(4, body_live_models)


def test_layouts_of_checkpoints(tmp_path):
    results = run(3, body_checkpoint, str(tmp_path / "saved"))
    live, saved = results[0]
    assert boxes(saved, "up.weight") == ("float32", [12, 6], [(r, [[4 * r, 4 * r + 4], [0, 6]]) for r in range(3)])
    for name in "up.weight", "down.weight", "norm.bias":
        assert boxes(live, name) == boxes(saved, name)
    assert boxes(live, "steps") == ("int64", [], [(r, []) for r in range(3)])
    assert len(boxes(saved, "steps")[2]) == 1  # of replicas one
    for text in live, saved:
        (tmp_path / "a.json").write_text(text)
        subprocess.run([TUTTI, "reshard", "estimate", tmp_path / "a.json", tmp_path / "a.json"], check=True)


def body_trainer(rank, world, place):
    mesh = init_device_mesh("cpu", (2,))
    model = parallel(Model(0), None, mesh)
    sender = tutti.WeightSender(tutti.torch.communicator(), model, place)
    for version in range(1, 4):
        with torch.no_grad():
            for i, p in enumerate(model.parameters()):
                whole = distribute_tensor(full(p.shape, version + 1000 * i), mesh, [Shard(0)])
                p.to_local().copy_(whole.to_local())
            model.steps.fill_(version)
        while sender.send(version) == 0:
            pass
    sender.leave()


def body_server(rank, world, place):
    model = parallel(Model(0), init_device_mesh("cpu", (world,)))
    receiver = tutti.WeightReceiver(tutti.torch.communicator(), model, place, patience=60)
    for version in range(1, 4):
        assert receiver.receive() == version
        check_model(model, version)


def test_two_jobs_of_torch(tmp_path):
    place, errors = str(tmp_path / "place"), []

    def trainer():
        try:
            run(2, body_trainer, place)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=trainer)
    thread.start()
    run(3, body_server, place)
    thread.join()
    assert not errors, errors
