"""What the package consists of: for errors that say why it does not load, and for programs that look for
its libraries, headers and CMake package."""

from __future__ import annotations

import pathlib
import sys

FOLDER = pathlib.Path(__file__).parent

# What `tutti --...-dir` and `tutti --nccl` print (__main__.py).
PLACES = {
    "--cmake-dir": FOLDER / "lib/cmake/tutti",
    "--include-dir": FOLDER / "include",
    "--nccl": FOLDER / "lib/tutti/libnccl.so.2",
}


_NEWER = "3.11 or newer"


def _python_of(extension: str) -> str:
    """3.11, of _tutti.cpython-311-x86_64-linux-gnu.so; abi3 is what a wheel has (pyproject.toml)."""
    tag = extension.split(".")[1]
    if tag == "abi3":
        return _NEWER
    digits = tag.removeprefix("cpython-").split("-")[0]
    return f"{digits[0]}.{digits[1:]}"


def cannot_load(error: ImportError) -> ImportError:
    """The same, with a sentence that says what to do."""
    pythons = sorted({_python_of(file.name) for file in FOLDER.glob("_tutti.*.so")})
    this = f"{sys.version_info.major}.{sys.version_info.minor}"
    if not pythons:
        text = f"{FOLDER} has no extension module: install the package (`pip install .` in a clone)"
    elif this in pythons or _NEWER in pythons and sys.version_info >= (3, 11):
        text = f"{FOLDER} does not fit this machine, or is damaged ({error}): install it anew"
    else:
        text = (
            f"{FOLDER} is made for Python {', '.join(pythons)}, but this is Python {this}: "
            "install the package with this Python"
        )
    return ImportError(f"tutti: {text} (python -m pip install --force-reinstall tutti)")
