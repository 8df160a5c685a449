"""What a wheel consists of, and what the package says where it does not fit. (`make wheels` makes a wheel
and tries it: ../wheel/check.py.)"""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tomllib
import zipfile

import pytest

import tutti
import tutti.__main__
from tutti import installation

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGE = ROOT / "bindings/python/tutti"


def loaded(file):
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


compile = loaded(PACKAGE / "torch/compile.py")
wheels = loaded(ROOT / "bindings/python/wheels.py")


def test_the_entry_points_exist():
    assert PROJECT["project"]["scripts"]["tutti"] == "tutti.__main__:main" and callable(tutti.__main__.main)
    module, function = PROJECT["project"]["entry-points"]["torch.distributed.backends"]["tutti"].split(":")
    assert f"\ndef {function}(" in (PACKAGE / module.removeprefix("tutti.") / "__init__.py").read_text()


def test_the_build_tree_has_the_entry_point_of_the_wheel():
    told = (pathlib.Path(tutti.__file__).parent.parent / f"tutti-{tutti.__version__}.dist-info/entry_points.txt")
    entry = PROJECT["project"]["entry-points"]["torch.distributed.backends"]["tutti"]
    assert f"[torch.distributed.backends]\ntutti = {entry}\n" in told.read_text()


def test_every_python_file_is_in_the_build_tree():
    here = pathlib.Path(tutti.__file__).parent
    for file in PACKAGE.rglob("*.py"):
        assert (here / file.relative_to(PACKAGE)).exists(), file


def test_the_wheel_has_a_module_for_each_release_that_is_supported():
    minors = {tuple(map(int, release.split(".")[:2])) for release in wheels.RELEASES}
    assert minors == {(2, minor) for minor in range(compile.OLDEST[1], compile.NEWEST[1] + 1)}
    text = (ROOT / "bindings/torch/install.py").read_text()
    for release in re.search(r'OLDEST, NEWEST = "(.*)", "(.*)"', text).groups():
        assert release in wheels.RELEASES


def test_a_module_is_named_after_the_release_and_its_commit():
    name = compile.prebuilt_name("2.15.0+cpu", "d0f2af8b66b2" + "0" * 28)
    assert name == "torch-2.15.0-d0f2af8b66b2.so" and compile.release(name) == "2.15.0"
    assert compile.prebuilt_name("2.15.0", "d0f2af8b66b3" + "0" * 28) != name
    assert compile.prebuilt_name("2.15.0", None) == "torch-2.15.0-unknown.so"


def test_the_backend_takes_nothing_of_python_that_differs_between_versions():
    """So one module serves all: no pybind11 but its exceptions, no macros that look into objects."""
    for file in compile.files(ROOT / "bindings/c10d"):
        text = file.read_text()
        assert set(re.findall(r"<pybind11/(.*)>", text)) <= {"detail/common.h"}, file
        assert "torch/csrc/utils/pybind.h" not in text and "torch/extension.h" not in text, file
        assert not re.search(r"\bPy_(INCREF|DECREF|XDECREF|TYPE)\b|\bPy\w+_GET_\w+\(", text), file


def cannot_load(monkeypatch, folder, *extensions):
    for extension in extensions:
        (folder / extension).touch()
    monkeypatch.setattr(installation, "FOLDER", folder)
    return str(installation.cannot_load(ImportError("undefined symbol: of_tutti")))


def test_a_package_for_another_python_says_so(monkeypatch, tmp_path):
    said = cannot_load(monkeypatch, tmp_path, "_tutti.cpython-39-x86_64-linux-gnu.so")
    this = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"is made for Python 3.9, but this is Python {this}: install the package with this Python" in said


def test_a_package_that_is_damaged_says_so(monkeypatch, tmp_path):
    said = cannot_load(monkeypatch, tmp_path, "_tutti.abi3.so")
    assert "is damaged (undefined symbol: of_tutti): install it anew" in said and "--force-reinstall" in said


def test_a_folder_without_a_module_says_so(monkeypatch, tmp_path):
    said = cannot_load(monkeypatch, tmp_path)
    assert f"{tmp_path} has no extension module: install the package" in said


def test_the_command_says_where_the_libraries_are(monkeypatch, capsys):
    for option, end in {"--nccl": "libnccl.so.2", "--cmake-dir": "lib/cmake/tutti", "--include-dir": "include"}.items():
        monkeypatch.setattr(sys, "argv", ["tutti", option])
        tutti.__main__.main()
        assert capsys.readouterr().out.rstrip().endswith(end)


def test_a_command_that_is_missing_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr(tutti.__main__, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "argv", ["tutti", "plan"])
    with pytest.raises(SystemExit, match="bin/tutti cannot be started: No such file.*install the package anew"):
        tutti.__main__.main()


def test_packing_twice_gives_the_same_bits(tmp_path):
    packed = []
    for attempt, order in enumerate([["b", "a"], ["a", "b"]]):
        tree = tmp_path / str(attempt)
        (tree / "x-1.dist-info").mkdir(parents=True)
        (tree / "x-1.dist-info/RECORD").write_text(f"old {attempt}")
        for name in order:
            (tree / f"{name}.py").write_text(f"name = '{name}'\n")
            os.utime(tree / f"{name}.py", (attempt * 1e8, attempt * 1e8))
        wheels.pack(tree, tmp_path / f"{attempt}.whl")
        packed.append((tmp_path / f"{attempt}.whl").read_bytes())
    assert packed[0] == packed[1]
    with zipfile.ZipFile(tmp_path / "0.whl") as wheel:
        assert wheel.namelist() == ["a.py", "b.py", "x-1.dist-info/RECORD"]
        record = wheel.read("x-1.dist-info/RECORD").decode().splitlines()
        assert record[0].startswith("a.py,sha256=") and record[0].endswith(",11")
        assert record[-1] == "x-1.dist-info/RECORD,,"


def test_the_log_says_which_release_works_with_which():
    run = subprocess.run(
        [sys.executable, "-c", "import tutti"],
        env={**os.environ, "TUTTI_LOG": "debug"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert f"Python package {tutti.__version__}, on Tutti {tutti.__version__} in /" in run.stderr
