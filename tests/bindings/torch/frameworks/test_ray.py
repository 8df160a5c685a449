"""Ray: Train's TorchConfig(backend="tutti"), and groups of actors by ray.util.collective."""

import json
import os
import pathlib

os.environ["RAY_AUTH_MODE"] = "disabled"  # else it writes a secret into the home folder

import pytest

pytest.importorskip("ray", reason="needs ray: make test-frameworks")

import numpy
import ray
import ray.train
import ray.util.collective as collective
import torch
from ray.train.torch import TorchConfig, TorchTrainer
from ray.util.collective.types import ReduceOp

import tutti.torch.ray

RANKS = 3


@pytest.fixture(scope="module", autouse=True)
def cluster(tmp_path_factory):
    names = ("PYTHONPATH", "LD_PRELOAD", "LD_LIBRARY_PATH", "XDG_CACHE_HOME", "OMP_NUM_THREADS")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    kept["PYTHONPATH"] = os.pathsep.join([kept.get("PYTHONPATH", ""), os.path.dirname(__file__)])
    ray.init(
        num_cpus=RANKS,
        include_dashboard=False,
        runtime_env={"env_vars": kept},
        log_to_driver=False,
        _node_ip_address="127.0.0.1",
        _temp_dir=str(tmp_path_factory.mktemp("ray")),
    )
    yield
    ray.shutdown()


@ray.remote
class Actor:
    def __init__(self, rank):
        import tutti.torch.ray  # noqa: F401: each process that uses the backend has to

        self.rank = rank

    def join(self, ranks, rank, name):
        collective.init_collective_group(ranks, rank, backend="tutti", group_name=name)
        return collective.get_rank(name), collective.get_collective_group_size(name)

    def calls(self, name):
        rank, ranks = collective.get_rank(name), collective.get_collective_group_size(name)
        mine = torch.arange(4) + 10 * rank
        summed, largest = mine.clone(), mine.clone()
        collective.allreduce(summed, name)
        collective.allreduce(largest, name, ReduceOp.MAX)
        product = numpy.array([rank + 2.0])
        collective.allreduce(product, name, ReduceOp.PRODUCT)
        reduced = mine.clone()
        collective.reduce(reduced, 1, name)
        gathered = [torch.zeros(4, dtype=torch.int64) for _ in range(ranks)]
        collective.allgather(gathered, mine, name)
        sent = mine.clone()
        collective.broadcast(sent, 1, name)
        part = torch.zeros(2, dtype=torch.int64)
        collective.reducescatter(part, [torch.tensor([r, 100 * rank]) for r in range(ranks)], name)
        collective.barrier(name)
        return [
            t.tolist() for t in (summed, largest, product, reduced, torch.stack(gathered), sent, part)
        ]

    def passes_on(self, name):
        rank, ranks = collective.get_rank(name), collective.get_collective_group_size(name)
        got = numpy.zeros(3)
        if rank == 0:
            collective.send(numpy.arange(3.0), 1, name)
            collective.recv(got, ranks - 1, name)
        else:
            collective.recv(got, rank - 1, name)
            collective.send(got + 1, (rank + 1) % ranks, name)
        return got.tolist()

    def sum_of(self, value, name):
        tensor = torch.tensor([value, value * value])
        collective.allreduce(tensor, name)
        return tensor.tolist()

    def leave(self, name):
        collective.destroy_collective_group(name)


@pytest.fixture
def actors():
    made = [Actor.remote(r) for r in range(RANKS)]
    yield made
    for actor in made:
        ray.kill(actor)


def join(actors, name):
    assert ray.get([a.join.remote(len(actors), r, name) for r, a in enumerate(actors)]) == [
        (r, len(actors)) for r in range(len(actors))
    ]


def expected(rank, ranks):
    rows = [[i + 10 * r for i in range(4)] for r in range(ranks)]
    total = [sum(column) for column in zip(*rows)]
    product = 1.0
    for r in range(ranks):
        product *= r + 2.0
    return [
        total,
        rows[-1],
        [product],
        total if rank == 1 else rows[rank],
        rows,
        rows[1],
        [rank * ranks, 100 * sum(range(ranks))],
    ]


def test_actors_have_what_each_collective_gives(actors):
    join(actors, "all")
    assert ray.get([a.calls.remote("all") for a in actors]) == [expected(r, RANKS) for r in range(RANKS)]


def test_messages_go_round(actors):
    join(actors, "round")
    assert ray.get([a.passes_on.remote("round") for a in actors]) == [
        [i + (RANKS - 1 if r == 0 else r - 1) for i in range(3)] for r in range(RANKS)
    ]


def test_an_actor_has_several_groups_with_other_ranks(actors):
    join(actors, "first")
    join(actors[::-1], "second")
    join(actors[1:], "third")
    for name, members in (("second", actors[::-1]), ("third", actors[1:]), ("first", actors)):
        assert ray.get([a.calls.remote(name) for a in members]) == [
            expected(r, len(members)) for r in range(len(members))
        ]


def test_a_name_is_used_again_after_its_group_has_gone(actors):
    for members in (actors, actors[:2]):
        join(members, "again")
        assert ray.get([a.calls.remote("again") for a in members]) == [
            expected(r, len(members)) for r in range(len(members))
        ]
        ray.get([a.leave.remote("again") for a in members])


def test_the_driver_may_declare_a_group(actors):
    collective.create_collective_group(actors, RANKS, list(range(RANKS)), backend="tutti", group_name="declared")
    assert ray.get([a.sum_of.remote(r + 1, "declared") for r, a in enumerate(actors)]) == [[6, 14]] * RANKS


def train(configuration):
    import torch.distributed as dist
    from ray.train.torch import prepare_model

    rank = dist.get_rank()
    torch.manual_seed(1)
    model = prepare_model(torch.nn.Linear(7, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        x = torch.randn(4, 7, generator=torch.Generator().manual_seed(100 * step + rank))
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), x[:, :3].sin()).backward()
        optimizer.step()
    bits = [p.detach().tolist() for p in model.parameters()]
    if rank == 0:
        said = {"backend": dist.get_backend(), "ranks": dist.get_world_size(), "bits": bits}
        pathlib.Path(configuration["result"]).write_text(json.dumps(said))


def test_train_makes_the_same_bits_over_tutti_and_gloo(tmp_path):
    results = {}
    for backend in ("tutti", "gloo"):
        result = tmp_path / f"{backend}.json"
        trainer = TorchTrainer(
            train,
            train_loop_config={"result": str(result)},
            torch_config=TorchConfig(backend=backend),
            scaling_config=ray.train.ScalingConfig(num_workers=2),
            run_config=ray.train.RunConfig(storage_path=str(tmp_path), name=backend),
        )
        trainer.fit()
        results[backend] = json.loads(result.read_text())
        assert results[backend]["backend"] == backend and results[backend]["ranks"] == 2
    assert results["tutti"]["bits"] == results["gloo"]["bits"]
