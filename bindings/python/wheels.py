"""Makes the wheel that is published: one file for Python 3.11 and newer, with the torch.distributed backend
ready for every release of PyTorch named below, and with the libraries that it needs. `make wheels` runs it.

    wheels.py OUT [--torch FOLDER] [--releases 2.14.1,2.15.0] [--build FOLDER]

pip builds the package as for anybody (pyproject.toml). Then the backend is compiled for each release,
auditwheel puts in the libraries that a system may lack, and the files are packed so that two runs give the
same bits. Needs g++, pip with a package index, and auditwheel and patchelf.
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
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "bindings/python/tutti"
# Those of PyPI. A module fits one release alone.
RELEASES = ["2.11.0", "2.12.0", "2.12.1", "2.13.0", "2.14.0", "2.14.1", "2.15.0"]
LARGEST = 20 << 20
# What a module takes from PyTorch's wheel.
TAKEN = ("torch/include/", "torch/version.py", "torch/lib/libc10.so", "torch/lib/libtorch_cpu.so")


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


def get_torch(folder: pathlib.Path, version: str) -> pathlib.Path:
    """The package's folder: installed by bindings/torch/install.py, or what a module needs of it."""
    whole = folder / f"torch-{version}"
    if (whole / "complete").exists():
        return whole / "torch"
    part = folder / f"headers-{version}"
    if not (part / "complete").exists():
        with tempfile.TemporaryDirectory(dir=folder) as download:
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
            run(*pip, "--no-cache-dir", "--no-deps", "--only-binary=:all:", "-d", download, f"torch=={version}")
            with zipfile.ZipFile(next(pathlib.Path(download).glob("*.whl"))) as wheel:
                wheel.extractall(part, [n for n in wheel.namelist() if n.startswith(TAKEN)])
        (part / "complete").touch()
    return part / "torch"


def git_version(torch: pathlib.Path) -> str:
    known: dict = {}
    exec((torch / "version.py").read_text(), known)
    return known["git_version"]


def build_package(out: pathlib.Path, build: pathlib.Path) -> pathlib.Path:
    """The wheel as pip makes it."""
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    options = ["--no-build-isolation", "--no-deps", "-C", f"build-dir={build}", "-w", out]
    # Whether there is a compiler cache changes no bit.
    options += ["-C", "cmake.define.TUTTI_PCH=OFF", "-C", "cmake.define.TUTTI_UNITY=OFF"]
    if shutil.which("ccache"):
        options += ["-C", "cmake.define.CMAKE_CUDA_COMPILER_LAUNCHER=ccache"]
    # CMake would take Python's compiler.
    run(*pip, *options, ROOT, env={**os.environ, "CXX": os.environ.get("CXX", "c++")})
    return next(out.glob("*.whl"))


def add_backend(tree: pathlib.Path, torch: pathlib.Path, version: str, compile) -> None:
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
        compiler = os.environ.get("CXX", "c++").split()
        paths = dict(sources=package / "c10d", headers=package / "include", library=library, torch=torch)
        run(*compile.command(compiler, source, target, options=options, **paths))


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
            program = name.startswith("tutti/bin/") or ".so" in pathlib.Path(name).name
            entry.external_attr = (0o100755 if program else 0o100644) << 16
            entry.create_system, entry.compress_type = 3, zipfile.ZIP_DEFLATED
            packed.writestr(entry, (tree / name).read_bytes(), compresslevel=9)


def unpack(wheel: pathlib.Path, tree: pathlib.Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tree)


def make(options) -> pathlib.Path:
    out, torch_folder = options.out.resolve(), options.torch.resolve()
    compile = compile_module()
    out.mkdir(parents=True, exist_ok=True)
    torch_folder.mkdir(parents=True, exist_ok=True)
    torches = {version: get_torch(torch_folder, version) for version in options.releases.split(",")}
    with tempfile.TemporaryDirectory(dir=out) as name:
        work = pathlib.Path(name)
        bare = build_package(work / "bare", options.build.resolve())
        tree = work / "tree"
        unpack(bare, tree)
        for version, torch in torches.items():
            add_backend(tree, torch, version, compile)
        whole = work / bare.name
        pack(tree, whole)
        repair = [sys.executable, "-m", "auditwheel", "repair", "-w", work / "repaired"]
        run(*repair, "--exclude", "libc10.so", "--exclude", "libtorch_cpu.so", whole)
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
    options = parser.parse_args()
    os.environ.setdefault("SOURCE_DATE_EPOCH", commit_time())
    make(options)


if __name__ == "__main__":
    main()
