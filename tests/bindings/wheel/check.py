"""What `make wheels` has made, in environments without a compiler.

    TUTTI_WHEEL=FILE TUTTI_WHEELS=FOLDER [TUTTI_SYSROOT=SYSROOT] pytest check.py

FOLDER is where PyTorch's releases are (bindings/torch/install.py FOLDER --whole). A wheel for another machine
is tried in an emulator, with the Python in SYSROOT (cmake/sysroot.sh).
"""

import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import time
import zipfile

import pytest

WHEEL = pathlib.Path(os.environ["TUTTI_WHEEL"]).resolve()
WHEELS = pathlib.Path(os.environ["TUTTI_WHEELS"]).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[3]
PLATFORM = WHEEL.stem.split("-")[-1]
EMULATED = not PLATFORM.endswith(platform.machine())
COMMON = WHEELS / "common"
# With a complete PyTorch; others have headers alone.
WHOLE = sorted(f.parent.name for f in WHEELS.glob("torch-*/complete")) if COMMON.exists() and not EMULATED else []
here_alone = pytest.mark.skipif(EMULATED, reason="the wheel is for another machine")


class Environment:
    """A virtual environment with the wheel; its PATH has nothing else, and its home cannot be written."""

    def __init__(self, folder, python=sys.executable):
        subprocess.run([python, "-m", "venv", folder], check=True, capture_output=True)
        self.programs = {name: [folder / "bin" / name] for name in ["python", "pip", "tutti"]}
        self.environment = {"PATH": str(folder / "bin"), "HOME": "/nonexistent", "CXX": "/bin/false"}
        self.install_seconds = -time.monotonic()
        self.run("pip", "install", "--quiet", "--disable-pip-version-check", "--no-cache-dir", WHEEL)
        self.install_seconds += time.monotonic()

    def run(self, program, *arguments, **environment):
        run = subprocess.run(
            [*self.programs[program], *arguments],
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert run.returncode == 0, run.stdout + run.stderr
        return run.stdout.strip()


class Emulated:
    """The wheel's files in a folder, and an emulator that runs its machine's programs."""

    def __init__(self, folder):
        sysroot = pathlib.Path(os.environ["TUTTI_SYSROOT"]).resolve()
        emulator = ["qemu-aarch64-static", "-L", str(sysroot)]
        self.programs = {"python": [*emulator, sysroot / "usr/bin/python3"],
                         "tutti": [*emulator, folder / "tutti/bin/tutti"],
                         "tutti-plan": [*emulator, folder / "tutti/libexec/tutti/tutti-plan"]}  # fmt: skip
        self.environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "PYTHONPATH": str(folder)}
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, "--only-binary=:all:", "--platform", PLATFORM, "--target", folder, WHEEL], check=True)

    run = Environment.run


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    return (Emulated if EMULATED else Environment)(tmp_path_factory.mktemp("installed") / "venv")


@pytest.fixture(scope="session")
def files():
    with zipfile.ZipFile(WHEEL) as wheel:
        return wheel.namelist()


def test_the_tag_is_what_auditwheel_finds():
    show = subprocess.run([sys.executable, "-m", "auditwheel", "show", WHEEL], capture_output=True, text=True)
    assert f'"{PLATFORM}"' in show.stdout, show.stdout + show.stderr


def test_it_installs_where_the_documentation_says():
    glibc = re.match(r"manylinux_2_(\d+)_", PLATFORM)
    assert glibc and int(glibc[1]) <= 35, PLATFORM


def test_it_is_smaller_than_20_MB():
    assert WHEEL.stat().st_size < 20 << 20


def test_it_contains_what_users_expect(files):
    for name in ["bin/tutti", "libexec/tutti/tutti-plan", "lib/tutti/libnccl.so.2", "lib/cmake/tutti/tuttiConfig.cmake", "py.typed",
                 "include/tutti/tutti.h", "include/tutti/tutti_c.h", "lib/libtutti_c.so.1", "c10d/module.cpp", "_tutti.abi3.so", "_tutti.pyi"]:  # fmt: skip
        assert f"tutti/{name}" in files


def test_no_file_names_a_folder_of_the_build(tmp_path):
    with zipfile.ZipFile(WHEEL) as wheel:
        for name in wheel.namelist():
            for folder in [str(ROOT).encode() + b"/", b"/tmp/tmp"]:
                assert folder not in wheel.read(name), (name, folder)


@here_alone
@pytest.mark.skipif(not shutil.which("nvcc") and not pathlib.Path("/usr/local/cuda").exists(), reason="no nvcc")
def test_the_kernels_are_in_it():
    with zipfile.ZipFile(WHEEL) as wheel:
        for module in ["lib/tutti/libtutti_cuda.so", "lib/tutti/libtutti_parallel_cuda.so"]:
            assert b".nv_fatbin" in wheel.read(f"tutti/{module}"), module


LOCAL = """
import numpy, tutti
from concurrent.futures import ThreadPoolExecutor as Pool
def rank(comm):
    x = numpy.arange(5) + 10 * comm.rank
    comm.all_reduce(x)
    return x.tolist()
with Pool(3) as pool:
    print(*pool.map(rank, tutti.Communicator.create_local(3)))
"""
SUMS = " ".join(["[30, 33, 36, 39, 42]"] * 3)


def test_ranks_sum_arrays(installed):
    assert installed.run("python", "-c", LOCAL) == SUMS


@here_alone
@pytest.mark.parametrize("version", ["3.12", "3.13", "3.14"])
def test_another_python_takes_the_same_wheel(version, tmp_path):
    python = shutil.which(f"python{version}")
    if not python or subprocess.run([python, "-c", "import venv"], capture_output=True).returncode:
        pytest.skip(f"there is no python{version}")
    assert Environment(tmp_path / "venv", python).run("python", "-c", LOCAL) == SUMS


def test_the_command_is_a_program(installed):
    command = ["tutti-plan"] if EMULATED else ["tutti", "plan"]  # the system starts no program of another machine
    assert "all_reduce" in installed.run(*command, "list")
    assert installed.run("tutti", "--version").startswith("tutti ")


def test_libnccl_answers_as_NCCL(installed):
    library = installed.run("python", "-m", "tutti", "--nccl")
    code = f"import ctypes; v = ctypes.c_int(); ctypes.CDLL({library!r}).ncclGetVersion(ctypes.byref(v)); print(v.value)"
    assert installed.run("python", "-c", code) == "23203"


@here_alone
@pytest.mark.skipif(not shutil.which("cmake"), reason="there is no cmake")
def test_a_cmake_project_finds_the_package(installed, tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(user LANGUAGES CXX)\n"
        "find_package(tutti 0.1 REQUIRED)\nadd_executable(hello hello.cpp)\n"
        "target_link_libraries(hello PRIVATE tutti::tutti)\n"
    )
    shutil.copy(ROOT / "examples/hello.cpp", tmp_path)
    where = installed.run("tutti", "--cmake-dir")
    for command in [["cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-Dtutti_DIR={where}"],
                    ["cmake", "--build", tmp_path / "build"]]:  # fmt: skip
        run = subprocess.run(command, capture_output=True, text=True)
        assert run.returncode == 0, run.stdout + run.stderr
    assert "the sum is 3" in installed.run("tutti", "run", "-n", "2", tmp_path / "build/hello")


GROUP = """
import os, torch, torch.distributed as dist
if not hasattr(dist.Backend, "_ensure_backend_registered"): import tutti.torch
dist.init_process_group("tutti")
x = torch.arange(4) + 10 * dist.get_rank()
dist.all_reduce(x)
import tutti.torch.extension
said = [x.tolist(), tutti.torch.extension.build().parent.name, torch.__version__.split("+")[0]]
os.write(1, (" ".join(map(str, said)) + "\\n").encode())  # in one piece, beside the other ranks
dist.destroy_process_group()
"""


def torch_at(folder, installed):
    """What a process needs to import a PyTorch that lies in a folder of its own."""
    return {"PYTHONPATH": f"{WHEELS / folder}:{COMMON}", "LD_PRELOAD": installed.run("tutti", "--nccl")}


@pytest.mark.parametrize("folder", WHOLE)
def test_a_group_of_pytorch_needs_no_compiler(folder, installed, tmp_path):
    (tmp_path / "group.py").write_text(GROUP)
    run = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", tmp_path / "group.py"]
    said = installed.run("python", *run, **torch_at(folder, installed))
    version = folder.removeprefix("torch-")
    assert said.count(f"[10, 12, 14, 16] c10d {version}") == 2, said


@pytest.mark.skipif(not WHOLE, reason="there is no complete PyTorch for this machine")
def test_installing_and_meeting_takes_20_s_at_most(installed):
    settings = {**torch_at(WHOLE[-1], installed), "RANK": "0", "WORLD_SIZE": "1",
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}  # fmt: skip
    begin = time.monotonic()
    installed.run("python", "-c", GROUP, **settings)
    seconds = time.monotonic() - begin
    print(f"pip install {installed.install_seconds:.1f} s, import torch and all_reduce {seconds:.1f} s")
    assert installed.install_seconds + seconds <= 20
