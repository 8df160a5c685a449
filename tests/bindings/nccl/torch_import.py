"""Imports PyTorch with Tutti's libnccl.so.2 preloaded (LD_PRELOAD), no other NCCL being there, and
asks what can be asked without a GPU.

    torch_import.py WHEELS VERSION LIBNCCL    (WHEELS: what bindings/torch/install.py has filled)
"""

import ctypes
import pathlib
import subprocess
import sys

wheels, version, libnccl = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
folder = wheels / f"torch-{version}"
if not (wheels / "common" / "complete").exists() or not (folder / "complete").exists():
    print("PyTorch is not installed here: make test-torch")
    sys.exit(77)  # skipped
sys.path[:0] = [str(folder), str(wheels / "common")]

import torch  # noqa: E402: resolves every symbol that its libraries need
import torch.distributed  # noqa: E402

assert torch.__version__.split("+")[0] == version, torch.__version__
assert torch.distributed.is_nccl_available()
assert torch.cuda.nccl.version() >= (2, 28, 9)  # that it was built for

# One NCCL is loaded, and it is ours.
maps = pathlib.Path("/proc/self/maps").read_text().splitlines()
loaded = {line.split()[-1] for line in maps if "libnccl" in line}
assert loaded == {str(pathlib.Path(libnccl).resolve())}, loaded
code = ctypes.c_int()
assert ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(code)) == 0
assert code.value == 23203, code.value


def names(library):
    lines = subprocess.run(["nm", "-D", "--defined-only", library], check=True, text=True,
                           stdout=subprocess.PIPE, env={"PATH": "/usr/bin:/bin"}).stdout
    return {line.split()[-1] for line in lines.splitlines()}


# And NVIDIA's newest has no name that ours has not.
theirs = wheels / "nccl" / "nvidia" / "nccl" / "lib" / "libnccl.so.2"
assert names(theirs) == names(libnccl), names(theirs) ^ names(libnccl)
