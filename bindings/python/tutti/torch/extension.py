"""Compiles the backend (bindings/c10d) for the PyTorch that is installed, and loads it.

c10d has no stable interface: a module that was built for one version of PyTorch may load in another one
and call the wrong functions there. So each is built from the sources, which the package brings along,
and kept in $XDG_CACHE_HOME/tutti (default ~/.cache) under a name that says what it was built for.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import importlib.machinery
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tempfile

import torch

import tutti  # loads libtutti, which the module is linked with

_PACKAGE = pathlib.Path(tutti.__file__).parent
_SOURCES = _PACKAGE / "c10d"
_HEADERS = _PACKAGE / "include"
_NAME = "_c10d"
_OPTIONS = ["-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-w"]
_OLDEST, _NEWEST = (2, 11), (2, 15)


def _library() -> pathlib.Path:
    found = sorted((_PACKAGE / "lib").glob("libtutti.so.*"), key=lambda p: len(p.name))
    if not found:
        raise ImportError(f"tutti.torch: there is no libtutti in {_PACKAGE / 'lib'}")
    return found[0]


def _compiler() -> list[str]:
    for name in filter(None, [os.environ.get("CXX"), "c++", "g++", "clang++"]):
        if shutil.which(name.split()[0]):
            return name.split()
    raise ImportError(
        "tutti.torch: the backend has to be compiled for PyTorch "
        f"{torch.__version__} once, but there is no C++ compiler (CXX, c++, g++, clang++). Install "
        "one that knows C++20 (Debian, Ubuntu: apt install g++), or build it with `python -m "
        f"tutti.torch` on a machine of the same kind and copy {_cache()} from there"
    )


def _cache() -> pathlib.Path:
    home = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(home) / "tutti"


def _files() -> list[pathlib.Path]:
    return sorted(_SOURCES.glob("*.h")) + sorted(_SOURCES.glob("*.cpp"))


def _target() -> pathlib.Path:
    told = hashlib.sha256(" ".join(_OPTIONS).encode())
    for file in _files() + sorted(_HEADERS.rglob("*.h")):
        told.update(file.name.encode() + b"\0" + file.read_bytes())
    told.update(torch.__version__.encode() + torch.version.git_version.encode())
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    return _cache() / f"torch-{torch.__version__}-{told.hexdigest()[:16]}" / f"{_NAME}{suffix}"


def _command(source: pathlib.Path, target: pathlib.Path) -> list[str]:
    lib = pathlib.Path(torch.__file__).parent / "lib"
    include = pathlib.Path(torch.__file__).parent / "include"
    library = _library()
    return [
        *_compiler(),
        *_OPTIONS,
        f"-I{_SOURCES}",
        f"-I{_HEADERS}",
        f"-isystem{include}",
        f"-isystem{include / 'torch/csrc/api/include'}",
        f"-isystem{sysconfig.get_paths()['include']}",
        str(source),
        *("-o", str(target)),
        f"-L{library.parent}",
        f"-l:{library.name}",
        f"-L{lib}",
        *("-ltorch_python", "-ltorch_cpu", "-lc10"),
        # All of them are loaded before the module, by their names; where torch's own need more
        # libraries than the linker finds, it need not mind.
        *("-Wl,--allow-shlib-undefined", "-Wl,--as-needed"),
    ]


def _make(target: pathlib.Path, version: tuple[int, ...]) -> None:
    """Compiles it, unless another process has by the time that this one may."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.parent / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other ranks wait for the first one
        if target.exists():
            return
        print(f"tutti: compiling the backend for PyTorch {torch.__version__}", file=sys.stderr)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            # One file, because PyTorch's headers take longer than all else.
            source = pathlib.Path(folder) / "all.cpp"
            source.write_text("".join(f'#include "{f.name}"\n' for f in _files() if f.suffix == ".cpp"))
            made = pathlib.Path(folder) / target.name
            run = subprocess.run(_command(source, made), capture_output=True, text=True)
            if run.returncode != 0:
                newer = "; it is newer than what is known to work" if version > _NEWEST else ""
                raise ImportError(
                    f"tutti.torch: the backend could not be compiled for PyTorch {torch.__version__}"
                    f"{newer}: {' '.join(run.args)}\n{run.stderr[-4000:]}"
                )
            made.rename(target)


def build() -> pathlib.Path:
    """The module for this PyTorch and Python: compiled now, unless it has been."""
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version < _OLDEST:
        raise ImportError(
            f"tutti.torch: PyTorch {torch.__version__} is too old: {_OLDEST[0]}.{_OLDEST[1]} to "
            f"{_NEWEST[0]}.{_NEWEST[1]} are supported"
        )
    target = _target()
    if target.exists():
        return target
    try:
        _make(target, version)
    except OSError as error:
        raise ImportError(
            f"tutti.torch: the backend, which is compiled once for PyTorch {torch.__version__}, cannot be "
            f"kept in {_cache()}: {error}. Have XDG_CACHE_HOME name a folder that can be written, or let "
            "`python -m tutti.torch` build it there ahead"
        ) from error
    return target


@functools.cache
def load():
    """The extension module."""
    spec = importlib.util.spec_from_file_location(f"tutti.torch.{_NAME}", build())
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if module.torch_version != torch.__version__.split("+")[0]:
        raise ImportError(
            f"tutti.torch: {spec.origin} was built for PyTorch {module.torch_version}, but this is "
            f"{torch.__version__}: remove it, and it will be built anew"
        )
    return module
