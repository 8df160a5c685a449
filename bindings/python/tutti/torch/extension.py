"""Finds the backend's library (bindings/c10d) for the PyTorch that is installed, and loads it.

c10d has no stable interface: a module that was built for one version of PyTorch may load in another one
and call the wrong functions there. A wheel brings modules for the releases that were known when it was
made. For any other PyTorch the module is compiled at first use, from the sources, which the package
brings along, and kept in $XDG_CACHE_HOME/tutti (default ~/.cache) under a name that says what it was
built for.
"""

from __future__ import annotations

import fcntl
import functools
import importlib.metadata
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import warnings

import torch

import tutti  # loads libtutti, which the module is linked with
from tutti.torch import compile
from tutti.torch.module import Module

_PACKAGE = pathlib.Path(tutti.__file__).parent
_SOURCES = _PACKAGE / "c10d"
_HEADERS = _PACKAGE / "include"


def _library() -> pathlib.Path:
    found = sorted((_PACKAGE / "lib").glob("libtutti.so.*"), key=lambda p: len(p.name))
    if not found:
        raise ImportError(f"tutti.torch: there is no libtutti in {_PACKAGE / 'lib'}")
    return found[0]


def _ready() -> str:
    """For which releases of PyTorch the package has modules, in half a sentence."""
    versions = sorted({compile.release(f.name) for f in _SOURCES.glob("torch-*.so")}, key=_numbers)
    return f" (this package has it ready for PyTorch {', '.join(versions)})" if versions else ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("+")[0].split(".") if part.isdigit())


def _compiler() -> list[str]:
    for name in filter(None, [os.environ.get("CXX"), "c++", "g++", "clang++"]):
        if shutil.which(name.split()[0]):
            return name.split()
    raise ImportError(
        "tutti.torch: the backend has to be compiled for PyTorch "
        f"{torch.__version__} once{_ready()}, but there is no C++ compiler (CXX, c++, g++, clang++). Install "
        "one that knows C++20 (Debian, Ubuntu: apt install g++), or build it with `python -m "
        f"tutti.torch` on a machine of the same kind and copy {_cache()} from there"
    )


def _cache() -> pathlib.Path:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if home.startswith("~"):  # a user that the system does not know, as in some containers
        raise ImportError(
            f"tutti.torch: the backend has to be compiled for PyTorch {torch.__version__} once{_ready()}, but "
            "this user has no home folder: have XDG_CACHE_HOME name a folder for it that can be written"
        )
    return pathlib.Path(home) / "tutti"


def _prebuilt() -> pathlib.Path:
    return _SOURCES / compile.prebuilt_name(torch.__version__, torch.version.git_version)


def _target() -> pathlib.Path:
    told = compile.digest(_SOURCES, _HEADERS)
    built = (torch.version.git_version or "unknown")[:12]
    return _cache() / f"torch-{torch.__version__}-{built}-{told}" / "c10d.so"


def _make(target: pathlib.Path, version: tuple[int, ...]) -> None:
    """Compiles it, unless another process has by the time that this one may."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.parent / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other ranks wait for the first one
        if target.exists():
            return
        print(f"tutti: compiling the backend for PyTorch {torch.__version__}", file=sys.stderr)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            source = pathlib.Path(folder) / "all.cpp"
            compile.write_source(source, _SOURCES)
            made = pathlib.Path(folder) / target.name
            command = compile.command(
                _compiler(),
                source,
                made,
                sources=_SOURCES,
                headers=_HEADERS,
                library=_library(),
                torch=pathlib.Path(torch.__file__).parent,
            )
            run = subprocess.run(command, capture_output=True, text=True)
            if run.returncode != 0:
                newer = "; it is newer than what is known to work" if version[:2] > compile.NEWEST else ""
                raise ImportError(
                    f"tutti.torch: the backend could not be compiled for PyTorch {torch.__version__}"
                    f"{newer}{_ready()}: {' '.join(run.args)}\n{run.stderr[-4000:]}"
                )
            made.rename(target)


def build() -> pathlib.Path:
    """The module for this PyTorch: the package's, or one that is compiled now, unless it has been."""
    version = _numbers(torch.__version__)
    if version[:2] < compile.OLDEST:
        raise ImportError(
            f"tutti.torch: PyTorch {torch.__version__} is too old: "
            f"{'.'.join(map(str, compile.OLDEST))} to {'.'.join(map(str, compile.NEWEST))} are supported"
        )
    prebuilt = _prebuilt()
    if prebuilt.exists():
        return prebuilt
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


def _others() -> str:
    """Names the packages called tutti, where Python finds several; else nothing."""
    packages = importlib.metadata.distributions(name="tutti")
    found = {(p.locate_file("").resolve(), p.version): p for p in packages}
    if len(found) < 2:
        return ""
    places = " and ".join(f"{p.version} in {p.locate_file('')}" for p in found.values())
    return f"several packages are installed, tutti {places}"


@functools.cache
def load() -> Module:
    """The module, loaded."""
    others = _others()
    if others:
        warnings.warn(
            f"tutti.torch: {others}; {_PACKAGE} is in use. Remove the others (python -m pip uninstall tutti)",
            stacklevel=2,
        )
    file = build()
    remedy = (
        f"install the package anew (python -m pip install --force-reinstall --no-deps tutti=={tutti.__version__})"
        if file.parent == _SOURCES
        else "remove it, and it will be built anew"
    )
    if others:
        remedy = f"{others}: remove all but one (python -m pip uninstall tutti), or {remedy}"
    try:
        module = Module(file)
    except (OSError, AttributeError) as error:
        raise ImportError(f"tutti.torch: {file} cannot be loaded: {error}; {remedy}") from error
    if module.torch_version != torch.__version__.split("+")[0]:
        raise ImportError(
            f"tutti.torch: {file} was built for PyTorch {module.torch_version}, but this is "
            f"{torch.__version__}: {remedy}"
        )
    tutti._tutti._log_release(f"torch.distributed's backend for PyTorch {module.torch_version}, {file},")
    return module
