"""The module is found without an import, compiled once, and refused with a reason where it cannot be."""

import os
import pathlib
import subprocess
import sys

import torch
from torch.distributed import distributed_c10d

import tutti.torch.extension as extension


def python(code, **environment):
    """What is said by `code` in a process of its own."""
    run = subprocess.run(
        [sys.executable, "-c", code], env=dict(os.environ, **environment), capture_output=True, text=True
    )
    return run.stdout + run.stderr


ALONE = """
import tempfile, torch, torch.distributed as dist
with tempfile.TemporaryDirectory() as folder:
    dist.init_process_group("tutti", init_method=f"file://{folder}/store", rank=0, world_size=1)
    x = torch.ones(3)
    dist.all_reduce(x)
    print(x.tolist(), dist.get_backend())
    dist.destroy_process_group()
"""


def test_compiled_once():
    first = extension.build()
    made = first.stat().st_mtime_ns
    assert extension.build() == first and first.stat().st_mtime_ns == made
    assert torch.__version__ in str(first)


def test_found_without_an_import():
    """From the PyTorch on that looks for backends; before, they have to be imported."""
    looks = "torch.distributed.backends" in pathlib.Path(distributed_c10d.__file__).read_text()
    said = python(ALONE if looks else "import tutti.torch\n" + ALONE)
    assert "[1.0, 1.0, 1.0] tutti" in said, said


def test_the_default_of_cpu_groups_once_a_program_says_so():
    said = python("""
import tempfile, torch, torch.distributed as dist, tutti.torch
assert dist.get_default_backend_for_device("cpu") == "gloo"
tutti.torch.use_by_default()
with tempfile.TemporaryDirectory() as folder:
    dist.init_process_group(init_method=f"file://{folder}/store", rank=0, world_size=1)
    mesh = dist.init_device_mesh("cpu", (1,))
    for group in dist.group.WORLD, dist.new_group(), mesh.get_group():
        print(group._get_backend(torch.device("cpu")).name())
    dist.destroy_process_group()
""")
    assert said.split()[-3:] == ["tutti"] * 3, said


def test_without_a_compiler(tmp_path):
    said = python("import tutti.torch\n" + ALONE, XDG_CACHE_HOME=str(tmp_path), PATH="/nowhere", CXX="")
    assert "there is no C++ compiler" in said and "apt install g++" in said, said


def test_what_cannot_be_compiled(tmp_path):
    said = python("import tutti.torch\n" + ALONE, XDG_CACHE_HOME=str(tmp_path), CXX="false")
    assert "could not be compiled for PyTorch" in said, said


def test_a_cache_that_cannot_be_written(tmp_path):
    (tmp_path / "tutti").write_text("no folder")
    said = python("import tutti.torch\n" + ALONE, XDG_CACHE_HOME=str(tmp_path))
    assert "ImportError: tutti.torch: " in said and f"cannot be kept in {tmp_path}/tutti: " in said, said


def compiler(folder, first):
    """A program in the compiler's place that takes a second, notes that it ran, and copies the module.
    `first`: what it does when it runs the first time."""
    program = folder / "compiler"
    program.write_text(f"""#!/bin/sh
echo ran >> {folder}/ran
[ $(wc -l < {folder}/ran) -gt 1 ] || {first}
sleep 1
while [ "$1" != -o ]; do shift; done
cp {extension.build()} "$2"
""")
    program.chmod(0o755)
    return dict(os.environ, XDG_CACHE_HOME=str(folder / "cache"), CXX=str(program))


def at_once(environment, count):
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", "import tutti.torch\n" + ALONE],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(count)
    ]
    return [run.communicate(timeout=60)[0] for run in runs]


def test_several_at_once_compile_once(tmp_path):
    for said in at_once(compiler(tmp_path, "true"), 3):
        assert "[1.0, 1.0, 1.0] tutti" in said, said
    assert (tmp_path / "ran").read_text() == "ran\n"


def test_one_that_is_killed_meanwhile_leaves_it_to_another(tmp_path):
    said = at_once(compiler(tmp_path, "kill -9 $PPID"), 3)
    assert sum("[1.0, 1.0, 1.0] tutti" in s for s in said) == 2, said
    assert (tmp_path / "ran").read_text() == "ran\nran\n"


def test_another_version(tmp_path):
    """A module of another version in this one's place."""
    target = extension.build()
    place = tmp_path / target.relative_to(extension._cache().parent)
    place.parent.mkdir(parents=True)
    place.write_bytes(target.read_bytes().replace(b"2.15.0", b"2.14.9"))
    said = python("import tutti.torch\n" + ALONE, XDG_CACHE_HOME=str(tmp_path))
    if torch.__version__.startswith("2.15.0"):
        assert "was built for PyTorch 2.14.9" in said, said


def test_too_old(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.10.1")
    try:
        extension.build()
    except ImportError as error:
        assert "2.10.1 is too old" in str(error)
    else:
        raise AssertionError("it was built")
