"""A GPT trained with each of torch.distributed's engines (training.py): the same losses as over gloo."""

import pytest
import torch
import training
from ranks import run


def close(a, b, tolerance):
    return torch.allclose(torch.tensor(a).double(), torch.tensor(b).double(), rtol=tolerance, atol=1e-6)


def compare(body, world):
    ours, theirs = (run(world, body, backend=b) for b in ("tutti", "gloo"))
    # Sums of four bfloat16 depend on their order.
    tolerance = 5e-3 if "bf16" in body.__name__ and world > 2 else 1e-5
    for a, b in zip(ours, theirs):
        assert len(a) == len(b)
        assert all(close(x, y, tolerance) for x, y in zip(a, b)), f"{a}, over gloo {b}"


BODIES = [
    training.ddp,
    training.ddp_small_buckets,
    training.ddp_powersgd,
    training.ddp_bf16_hook,
    training.fsdp,
    training.fsdp_bf16,
    training.tensor_parallel,
    training.pipeline,
    training.pipeline_gpipe,
    training.functional,
    training.compiled,
    training.context_parallel,
    training.context_parallel_gathered,
    training.ddp_joined,
    training.sequence_parallel,
    training.redistributed,
    training.checkpoint,
    training.checkpoint_async,
    training.zero_optimizer,
]


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("body", BODIES)
def test_as_over_gloo(body, world):
    compare(body, world)


@pytest.mark.parametrize("body", [training.hsdp, training.two_dimensions])
def test_as_over_gloo_in_two_dimensions(body):
    compare(body, 4)


def test_compiled_to_code():
    compare(training.inductor, 2)


def test_window_memory():
    """What gloo has no memory for."""
    ours, theirs = run(2, training.fsdp_window_memory), run(2, training.fsdp, backend="gloo")
    assert len(ours[0]) == training.STEPS and ours[0][0] == pytest.approx(theirs[0][0], rel=1e-5)


def test_divide_factor():
    """PREMUL_SUM, which gloo refuses: as AVG, divided by 2; Adam does not mind."""
    for a, b in zip(run(2, training.fsdp_divide_factor), run(2, training.fsdp, backend="gloo")):
        assert a[0] == pytest.approx(b[0], rel=1e-5)


