"""How the backend (bindings/c10d) is compiled for one version of PyTorch: by a wheel's makers ahead, or at
first use. Needs neither PyTorch nor the rest of this package.

The result is a plain shared library, which serves every version of Python (module.py opens it).
"""

from __future__ import annotations

import hashlib
import pathlib
import sysconfig

OPTIONS = ["-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-w"]
OLDEST, NEWEST = (2, 11), (2, 15)


def files(sources: pathlib.Path) -> list[pathlib.Path]:
    return sorted(sources.glob("*.h")) + sorted(sources.glob("*.cpp"))


def digest(sources: pathlib.Path, headers: pathlib.Path) -> str:
    """Of all that goes into a module but PyTorch."""
    told = hashlib.sha256(" ".join(OPTIONS).encode())
    for file in files(sources) + sorted(headers.rglob("*.h")):
        told.update(file.name.encode() + b"\0" + file.read_bytes())
    return told.hexdigest()[:16]


def prebuilt_name(version: str, git_version: str | None) -> str:
    """The file in a wheel that serves a release of PyTorch. Its commit is part of the name, because
    others build something of their own under the same version."""
    return f"torch-{version.split('+')[0]}-{(git_version or 'unknown')[:12]}.so"


def release(prebuilt: str) -> str:
    """The version in such a name."""
    return prebuilt.split("-")[1]


def write_source(file: pathlib.Path, sources: pathlib.Path) -> None:
    """One file with all, because PyTorch's headers take longer than everything else."""
    file.write_text("".join(f'#include "{f.name}"\n' for f in files(sources) if f.suffix == ".cpp"))


def command(
    compiler: list[str],
    source: pathlib.Path,
    target: pathlib.Path,
    *,
    sources: pathlib.Path,
    headers: pathlib.Path,
    library: pathlib.Path,
    torch: pathlib.Path,
    python: str = sysconfig.get_paths()["include"],
    options: list[str] = [],
) -> list[str]:
    """The compiler's command. `library` is libtutti.so, `torch` the folder of that package, `python` that of
    Python's headers."""
    return [
        *compiler,
        *OPTIONS,
        f"-I{sources}",
        f"-I{headers}",
        f"-isystem{torch / 'include'}",
        f"-isystem{torch / 'include/torch/csrc/api/include'}",
        f"-isystem{python}",
        *options,
        str(source),
        *("-o", str(target)),
        f"-L{library.parent}",
        f"-l:{library.name}",
        f"-L{torch / 'lib'}",
        *("-ltorch_cpu", "-lc10"),
        # All of them are loaded before the module, by their names; where torch's own need more
        # libraries than the linker finds, it need not mind.
        *("-Wl,--allow-shlib-undefined", "-Wl,--as-needed"),
    ]
