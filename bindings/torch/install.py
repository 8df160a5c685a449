"""Installs PyTorch into a folder, from which the build takes it; what is there already stays.

    install.py FOLDER            its C++ libraries for CPUs (1.3 GB): `make train`
    install.py FOLDER --whole    and what Python needs to import it: all libraries of CUDA that it
                                 loads, the oldest version that is supported, and NVIDIA's newest
                                 NCCL, to compare with (8 GB): `make test-torch`, `make bench-train`

NVIDIA's NCCL is kept out of PyTorch's way, so an import succeeds with ours alone.
"""

import argparse
import importlib.metadata
import pathlib
import re
import subprocess
import sys

OLDEST, NEWEST = "2.11.0", "2.15.0"  # built for NCCL 2.28.9 and 2.30.7
NCCL = "nvidia-nccl-cu13==2.32.3"


def install(folder, *packages, mark="complete"):
    if not (folder / mark).exists():
        print("installing", ", ".join(packages), "into", folder, flush=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        pip += ["--no-cache-dir", "--root-user-action=ignore", "--upgrade", "--target", folder]
        subprocess.run([*pip, *packages], check=True)
        (folder / mark).touch()


def install_torch(wheels, version):
    folder = wheels / f"torch-{version}"
    install(folder, "--no-deps", f"torch=={version}")
    if not (folder / "nvidia").is_symlink():  # where its libraries look
        (folder / "nvidia").symlink_to("../common/nvidia")


def requirements(folder):
    """Of the torch in `folder`; without NCCL, and without the compiler that no import needs."""
    torch = next(d for d in importlib.metadata.distributions(path=[str(folder)]) if d.name == "torch")
    needed = [r.split(";")[0].strip() for r in torch.requires if "extra ==" not in r]
    return [r for r in needed if not r.startswith(("nvidia-nccl", "triton"))]


def with_parts(requirement, parts):
    return re.sub(r"\[.*\]", f"[{parts}]", requirement)


def main():
    words = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("folder", type=pathlib.Path)
    words.add_argument("--whole", action="store_true", help="all that Python needs to import it")
    arguments = words.parse_args()
    wheels = arguments.folder
    common = wheels / "common"
    install_torch(wheels, NEWEST)
    needed = requirements(wheels / f"torch-{NEWEST}")
    toolkit = next(r for r in needed if r.startswith("cuda-toolkit["))
    if arguments.whole:
        install(wheels / "nccl", "--no-deps", NCCL)
        install_torch(wheels, OLDEST)
        install(common, *needed, with_parts(toolkit, "curand"))  # which the older one loads, too
    elif not (common / "complete").exists():  # two that libtorch_cpu.so loads
        install(common, with_parts(toolkit, "cudart,cupti"), mark="cpu")


main()
