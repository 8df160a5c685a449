"""Frameworks train two ranks over Tutti: with the same bits as over gloo, as the sum of two numbers has no order."""

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parents[3]
LIMIT_S = 300
NEEDS = {  # the packages of each program
    "accelerate": ["accelerate"],
    "transformers": ["accelerate", "transformers"],
    "lightning": ["pytorch_lightning"],
    "deepspeed": ["deepspeed"],
}


def need(*packages):
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs {package}: make test-frameworks")


def run(framework, *arguments, ranks=2, paths=(), program="train"):
    """What the program prints."""
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}", "--standalone"]
    command += [HERE / "programs" / f"{program}_{framework}.py", *arguments]
    found = os.environ.get("PYTHONPATH", "")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([*map(str, paths), found])
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def train(*arguments, **how):
    """What rank 0 says at the end: the backend, the number of ranks, and the digest."""
    return re.search(r"^backend (\w+), ranks (\d+), digest (\w+)$", run(*arguments, **how), re.MULTILINE).groups()


@pytest.mark.parametrize("framework", NEEDS)
def test_training_over_tutti_makes_the_same_bits_as_over_gloo(framework):
    need(*NEEDS[framework])
    backend, ranks, digest = train(framework, "tutti")
    assert (backend, ranks) == ("tutti", "2")
    assert train(framework, "gloo") == ("gloo", "2", digest)


def test_accelerate_takes_tutti_where_it_is_the_default():
    need("accelerate")
    assert train("accelerate", "default")[0] == "tutti"
    assert train("accelerate", "default", "without_module")[0] == "gloo"  # as it is, it asks for gloo


@pytest.mark.parametrize("framework", ["accelerate", "transformers"])
def test_with_the_patch_accelerate_does_without_our_module(framework, tmp_path):
    need(*NEEDS[framework])
    if shutil.which("patch") is None:
        pytest.skip("needs the program patch: apt-get install patch")
    import accelerate

    shutil.copytree(pathlib.Path(accelerate.__file__).parent, tmp_path / "accelerate")
    subprocess.run(
        ["patch", "-p2", "-d", tmp_path, "-i", REPOSITORY / "docs/patches/accelerate.patch"], check=True
    )
    backend, _, digest = train(framework, "tutti", "without_module", paths=[tmp_path])
    assert backend == "tutti"
    assert train(framework, "gloo", "without_module", paths=[tmp_path]) == ("gloo", "2", digest)
    if framework == "accelerate":
        assert train(framework, "default", "without_module", paths=[tmp_path]) == ("tutti", "2", digest)


def losses_of_torchtitan(ranks, *degrees):
    said = run("torchtitan", "tutti", *degrees, ranks=ranks)
    assert f"backend tutti, ranks {ranks}" in said
    return [float(loss) for loss in re.search(r"^losses (.*)$", said, re.MULTILINE)[1].split()]


def test_torchtitan_has_the_losses_of_one_rank_however_it_spreads_the_model():
    need("torchtitan")
    alone = losses_of_torchtitan(1)
    assert len(alone) == 3 and alone[0] > alone[1] > alone[2]
    for degrees in (["shard=2"], ["tp=2"], ["replicate=2"], ["shard=2", "tp=2"], ["shard=2", "replicate=2"]):
        assert losses_of_torchtitan(2 ** len(degrees), *degrees) == pytest.approx(alone, rel=2e-5), degrees
