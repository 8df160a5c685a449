"""A package that brings the module ready made, as a wheel does; and what is said where it does not fit."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import torch

import tutti
import tutti.torch.extension as extension
from tutti.torch import compile

HERE = pathlib.Path(tutti.__file__).parent
OTHERS = [p for p in os.environ.get("PYTHONPATH", "").split(":") if p and pathlib.Path(p) != HERE.parent]

ALONE = """
import tempfile, torch, torch.distributed as dist, tutti.torch
with tempfile.TemporaryDirectory() as folder:
    dist.init_process_group("tutti", init_method=f"file://{folder}/store", rank=0, world_size=1)
    x = torch.ones(3)
    dist.all_reduce(x)
    print(x.tolist(), tutti.torch.extension.build())
    dist.destroy_process_group()
"""


class Package:
    """This package in another folder, with a module for this PyTorch."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "tutti/c10d").mkdir(parents=True)
        for file in HERE.iterdir():
            if file.name != "c10d":
                (folder / "tutti" / file.name).symlink_to(file.resolve())
        for file in compile.files(HERE / "c10d"):
            (folder / "tutti/c10d" / file.name).symlink_to(file.resolve())
        name = compile.prebuilt_name(torch.__version__, torch.version.git_version)
        self.module = folder / "tutti/c10d" / name
        shutil.copy(extension.build(), self.module)
        self.describe(tutti.__version__)

    def describe(self, version):
        information = self.folder / f"tutti-{version}.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tutti\nVersion: {version}\n")

    def run(self, code=ALONE, *more, **environment):
        path = ":".join([str(self.folder), *map(str, more), *OTHERS])
        settings = {**os.environ, "PYTHONPATH": path, "PATH": "/nowhere", "CXX": "",
                    "XDG_CACHE_HOME": "/nowhere", **environment}  # fmt: skip
        run = subprocess.run([sys.executable, "-c", code], env=settings, capture_output=True, text=True)
        return run.stdout + run.stderr


@pytest.fixture
def package(tmp_path):
    return Package(tmp_path / "package")


def test_it_needs_neither_a_compiler_nor_a_cache(package):
    said = package.run()
    assert f"[1.0, 1.0, 1.0] {package.module}" in said and "several packages" not in said, said


def test_a_module_for_another_version_is_refused(package):
    version = torch.__version__.split("+")[0].encode()
    package.module.write_bytes(package.module.read_bytes().replace(version, b"2" * len(version)))
    said = package.run()
    assert f"{package.module} was built for PyTorch {'2' * len(version)}, but this is {torch.__version__}: " in said
    assert f"install the package anew (python -m pip install --force-reinstall --no-deps tutti=={tutti.__version__})" in said


def test_a_damaged_module_is_named(package):
    package.module.write_text("no library")
    said = package.run()
    assert f"ImportError: tutti.torch: {package.module} cannot be loaded: " in said, said
    assert "install the package anew" in said, said


def test_a_second_package_is_warned_of(package, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    shutil.copytree(next(package.folder.glob("*.dist-info")), other / "tutti-0.0.9.dist-info")
    (other / "tutti-0.0.9.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: tutti\nVersion: 0.0.9\n")
    said = package.run(ALONE, other)
    assert f"several packages are installed, tutti {tutti.__version__} in {package.folder}" in said, said
    assert f"0.0.9 in {other}" in said and "Remove the others (python -m pip uninstall tutti)" in said, said
    assert "[1.0, 1.0, 1.0]" in said, said


def test_two_packages_in_one_folder_that_do_not_fit_are_named(package):
    package.describe("0.0.9")
    version = torch.__version__.split("+")[0].encode()
    package.module.write_bytes(package.module.read_bytes().replace(version, b"2" * len(version)))
    said = package.run()
    assert "ImportError" in said and "several packages are installed" in said and "0.0.9 in" in said, said
    assert "remove all but one (python -m pip uninstall tutti)" in said, said


UNKNOWN = f"import torch; torch.__version__ = '2.99.0'; torch.version.git_version = 40 * 'f'\n{ALONE}"


def test_an_unknown_pytorch_without_a_compiler_hears_what_is_ready(package):
    said = package.run(UNKNOWN)
    version = torch.__version__.split("+")[0]
    assert f"for PyTorch 2.99.0 once (this package has it ready for PyTorch {version}), but there is no" in said, said


def test_an_unknown_pytorch_that_does_not_compile_is_called_newer(package, tmp_path):
    said = package.run(UNKNOWN, CXX="/bin/false", XDG_CACHE_HOME=str(tmp_path))
    assert "could not be compiled for PyTorch 2.99.0; it is newer than what is known to work (this package" in said, said


def test_a_cache_that_cannot_be_written_is_named(package, tmp_path):
    (tmp_path / "tutti").write_text("no folder")
    said = package.run(UNKNOWN, CXX="/bin/false", XDG_CACHE_HOME=str(tmp_path))
    assert f"cannot be kept in {tmp_path}/tutti: " in said and "Have XDG_CACHE_HOME name a folder" in said, said


def test_a_user_without_a_home_hears_it(package):
    unknown = "import os; os.path.expanduser = lambda path: path\n" + UNKNOWN  # as for a user without an entry
    said = package.run(unknown, XDG_CACHE_HOME="")
    assert "this user has no home folder: have XDG_CACHE_HOME name a folder" in said, said
