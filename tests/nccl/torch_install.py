"""Installs what `make test-torch` needs into a folder: PyTorch of several versions, the libraries of
CUDA that it loads (once, for the newest of them), and NVIDIA's newest NCCL, to compare with.

    torch_install.py FOLDER

NVIDIA's NCCL is kept out of PyTorch's way, so an import succeeds with ours alone.
"""

import importlib.metadata
import pathlib
import re
import subprocess
import sys

VERSIONS = ["2.11.0", "2.15.0"]  # built for NCCL 2.28.9 and 2.30.7
NCCL = "nvidia-nccl-cu13==2.32.3"


def install(folder, *packages):
    if not (folder / "complete").exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        pip += ["--no-cache-dir", "--root-user-action=ignore", "--upgrade", "--target", folder]
        subprocess.run([*pip, *packages], check=True)
        (folder / "complete").touch()


def requirements(folder):
    """Of the torch in `folder`; without NCCL, and without the compiler that no import needs."""
    torch = next(d for d in importlib.metadata.distributions(path=[str(folder)]) if d.name == "torch")
    needed = [r.split(";")[0].strip() for r in torch.requires if "extra ==" not in r]
    return [r for r in needed if not r.startswith(("nvidia-nccl", "triton"))]


def main():
    wheels = pathlib.Path(sys.argv[1])
    install(wheels / "nccl", "--no-deps", NCCL)
    for version in VERSIONS:
        folder = wheels / f"torch-{version}"
        install(folder, "--no-deps", f"torch=={version}")
        if not (folder / "nvidia").exists():  # where its libraries look
            (folder / "nvidia").symlink_to("../common/nvidia")
    needed = requirements(wheels / f"torch-{VERSIONS[-1]}")
    # The older one loads a library more.
    needed += [re.sub(r"\[.*\]", "[curand]", r) for r in needed if r.startswith("cuda-toolkit[")]
    install(wheels / "common", *needed)


main()
