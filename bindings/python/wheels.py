"""Makes the wheel that is published: one file for Python 3.11 and newer, with the torch.distributed backend
ready for every release of PyTorch named below, and with the libraries that it needs. `make wheels` runs it.

    wheels.py OUT [--torch FOLDER] [--releases 2.14.1,2.15.0] [--build FOLDER] [--arm SYSROOT]

pip builds the package as for anybody (pyproject.toml). Then the backend is compiled for each release,
auditwheel puts in the libraries that a system may lack, and the files are packed so that two runs give the
same bits. Needs g++, pip with a package index, and auditwheel and patchelf.

With --arm the wheel is for 64-bit ARM, without kernels for GPUs: cmake/sysroot.sh has unpacked that
architecture's packages in SYSROOT, and Debian's cross compiler and qemu-user-static are installed.
"""

import argparse
import base64
import csv
import hashlib
import importlib.util
import io
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "bindings/python/tutti"
# Those of PyPI. A module fits one release alone.
RELEASES = ["2.11.0", "2.12.0", "2.12.1", "2.13.0", "2.14.0", "2.14.1", "2.15.0"]
LARGEST = 20 << 20
# What a module takes from PyTorch's wheel.
TAKEN = ("torch/include/", "torch/version.py", "torch/lib/libc10.so", "torch/lib/libtorch_cpu.so")


PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]


class Machine:
    """What the wheel is for: machines like this one."""

    torches = ("torch", "headers")  # folders that may have PyTorch; the last one is made
    compiler = os.environ.get("CXX", "c++").split()
    python_headers = sysconfig.get_paths()["include"]
    packages: list = []  # options of pip that choose packages
    defines: dict = {}  # CMake's
    environment: dict = {}

    def prepare(self):
        """What the build needs beyond the system's packages."""


class Arm(Machine):
    """64-bit ARM, by the cross compiler."""

    torches = ("arm",)
    packages = ["--platform", "manylinux_2_28_aarch64", "--python-version", "3.11"]

    def __init__(self, sysroot: pathlib.Path):
        self.sysroot = sysroot.resolve()
        if not (self.sysroot / "complete").exists():
            sys.exit(f"wheels.py: {sysroot} is not complete; make it with: cmake/sysroot.sh arm64 {sysroot}")
        self.compiler = ["aarch64-linux-gnu-g++", f"--sysroot={self.sysroot}"]
        self.python_headers = f"{self.sysroot}/usr/include/python3.11"
        nanobind = importlib.util.find_spec("nanobind")
        self.defines = {
            "CMAKE_TOOLCHAIN_FILE": ROOT / "cmake/aarch64.cmake",
            "TUTTI_SYSROOT": self.sysroot,
            "Python_INCLUDE_DIR": self.python_headers,
            "nanobind_DIR": pathlib.Path(nanobind.origin).parent / "cmake",
        }
        self.environment = {
            "_PYTHON_HOST_PLATFORM": "linux-aarch64",
            "AUDITWHEEL_LD_LIBRARY_PATH": ":".join(
                f"{self.sysroot}/{where}/aarch64-linux-gnu" for where in ["usr/lib", "lib"]),
        }

    def prepare(self):
        """The packages that `import tutti` wants: the emulated Python writes the type hints."""
        target = self.sysroot / "usr/lib/python3/dist-packages"
        if not (target / "nanobind_backend").exists():
            which = [*self.packages, "--only-binary=:all:", "--no-deps", "--upgrade", "--target", target]
            run(*PIP, "install", *which, "numpy", "nanobind-backend")


def run(*command, **options):
    print("$", " ".join(str(word) for word in command), flush=True)
    subprocess.run([str(word) for word in command], check=True, **options)


def compile_module():
    """tutti/torch/compile.py, without the package around it."""
    spec = importlib.util.spec_from_file_location("compile", PACKAGE / "torch/compile.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def commit_time() -> str:
    """For what notes the time at which it was made."""
    told = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True)
    return told.stdout.strip() or "1577836800"


def get_torch(folder: pathlib.Path, version: str, machine: Machine) -> pathlib.Path:
    """The package's folder: installed by bindings/torch/install.py, or what a module needs of it."""
    for name in machine.torches:
        part = folder / f"{name}-{version}"
        if (part / "complete").exists():
            return part / "torch"
    with tempfile.TemporaryDirectory(dir=folder) as download:
        which = [*machine.packages, "--no-cache-dir", "--no-deps", "--only-binary=:all:"]
        run(*PIP, "download", *which, "-d", download, f"torch=={version}")
        with zipfile.ZipFile(next(pathlib.Path(download).glob("*.whl"))) as wheel:
            wheel.extractall(part, [n for n in wheel.namelist() if n.startswith(TAKEN)])
    (part / "complete").touch()
    return part / "torch"


def git_version(torch: pathlib.Path) -> str:
    known: dict = {}
    exec((torch / "version.py").read_text(), known)
    return known["git_version"]


def build_package(out: pathlib.Path, build: pathlib.Path, machine: Machine) -> pathlib.Path:
    """The wheel as pip makes it."""
    options = ["--no-build-isolation", "--no-deps", "-C", f"build-dir={build}", "-w", out]
    # Without asking whether there is a compiler cache: that changes no bit.
    defines = {"TUTTI_PCH": "ON", "TUTTI_UNITY": "ON", **machine.defines}
    if shutil.which("ccache"):
        defines["CMAKE_CUDA_COMPILER_LAUNCHER"] = "ccache"
    for name, value in defines.items():
        options += ["-C", f"cmake.define.{name}={value}"]
    # CMake would take Python's compiler.
    environment = {**os.environ, "CXX": " ".join(machine.compiler), **machine.environment}
    run(*PIP, "wheel", *options, ROOT, env=environment)
    return next(out.glob("*.whl"))


def add_backend(tree: pathlib.Path, torch: pathlib.Path, version: str, compile, machine: Machine) -> None:
    """Compiles the backend for one release, into the unpacked package."""
    package = tree / "tutti"
    target = package / "c10d" / compile.prebuilt_name(version, git_version(torch))
    library = next((package / "lib").glob("libtutti.so.*"))
    # The paths of this machine are in no file, so that another one makes the same.
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "all.cpp"
        compile.write_source(source, package / "c10d")
        maps = {folder: ".", package: "tutti", torch: "torch"}
        options = [f"-ffile-prefix-map={old}={new}" for old, new in maps.items()]
        options += ["-s", "-Wl,-rpath,$ORIGIN/../lib"]
        paths = dict(sources=package / "c10d", headers=package / "include", library=library, torch=torch,
                     python=machine.python_headers)  # fmt: skip
        run(*compile.command(machine.compiler, source, target, options=options, **paths))


def pack(tree: pathlib.Path, wheel: pathlib.Path) -> None:
    """Zips the files in order, all of one time, with a RECORD that fits them."""
    info = next(tree.glob("*.dist-info"))
    (info / "RECORD").unlink(missing_ok=True)
    record = io.StringIO(newline="")
    rows = csv.writer(record, lineterminator="\n")
    names = sorted(str(f.relative_to(tree)) for f in tree.rglob("*") if f.is_file())
    for name in names:
        data = (tree / name).read_bytes()
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.writerow([name, f"sha256={digest}", len(data)])
    of_record = str((info / "RECORD").relative_to(tree))
    rows.writerow([of_record, "", ""])
    (info / "RECORD").write_text(record.getvalue())
    wheel.unlink(missing_ok=True)
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for name in [*names, of_record]:
            entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            program = name.startswith(("tutti/bin/", "tutti/libexec/")) or ".so" in pathlib.Path(name).name
            entry.external_attr = (0o100755 if program else 0o100644) << 16
            entry.create_system, entry.compress_type = 3, zipfile.ZIP_DEFLATED
            packed.writestr(entry, (tree / name).read_bytes(), compresslevel=9)


def unpack(wheel: pathlib.Path, tree: pathlib.Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tree)


def make(options) -> pathlib.Path:
    machine = Arm(options.arm) if options.arm else Machine()
    out, torch_folder = options.out.resolve(), options.torch.resolve()
    compile = compile_module()
    out.mkdir(parents=True, exist_ok=True)
    torch_folder.mkdir(parents=True, exist_ok=True)
    machine.prepare()
    torches = {version: get_torch(torch_folder, version, machine) for version in options.releases.split(",")}
    with tempfile.TemporaryDirectory(dir=out) as name:
        work = pathlib.Path(name)
        bare = build_package(work / "bare", options.build.resolve(), machine)
        tree = work / "tree"
        unpack(bare, tree)
        for version, torch in torches.items():
            add_backend(tree, torch, version, compile, machine)
        whole = work / bare.name
        pack(tree, whole)
        repair = [sys.executable, "-m", "auditwheel", "repair", "-w", work / "repaired"]
        kept_out = ["--exclude", "libc10.so", "--exclude", "libtorch_cpu.so"]
        run(*repair, *kept_out, whole, env={**os.environ, **machine.environment})
        repaired = next((work / "repaired").glob("*.whl"))
        shutil.rmtree(tree)
        unpack(repaired, tree)
        shutil.rmtree(next(tree.glob("*.dist-info")) / "sboms", ignore_errors=True)
        wheel = out / repaired.name
        pack(tree, wheel)
    size = wheel.stat().st_size
    print(f"{wheel}: {size / 1e6:.1f} MB, sha256 {hashlib.sha256(wheel.read_bytes()).hexdigest()}")
    if size > LARGEST:
        sys.exit(f"wheels.py: the wheel is larger than {LARGEST >> 20} MB")
    return wheel


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes the wheel that is published.")
    parser.add_argument("out", type=pathlib.Path, help="the folder for the wheel")
    parser.add_argument("--torch", type=pathlib.Path, default=ROOT / "build/wheels",
                        help="where the releases of PyTorch are, or are downloaded to")  # fmt: skip
    parser.add_argument("--releases", default=",".join(RELEASES), help="of PyTorch, with commas between")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build-wheels", help="the build folder")
    parser.add_argument("--arm", type=pathlib.Path, metavar="SYSROOT",
                        help="for 64-bit ARM, with the packages that cmake/sysroot.sh has unpacked there")  # fmt: skip
    options = parser.parse_args()
    os.environ.setdefault("SOURCE_DATE_EPOCH", commit_time())
    make(options)


if __name__ == "__main__":
    main()
