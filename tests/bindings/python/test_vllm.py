"""Whether vLLM takes the platform of tutti.vllm: what is decided before vLLM or PyTorch is there.

(tests/bindings/torch/frameworks/test_vllm.py serves a model: `make test-frameworks`.)
"""

import importlib.metadata
import sys
import types

import pytest
import tutti.vllm


@pytest.fixture
def vllm(monkeypatch):
    """A module that says which platform vLLM would take by itself."""

    def install(own):
        package, platforms = types.ModuleType("vllm"), types.ModuleType("vllm.platforms")
        platforms.cpu_platform_plugin = lambda: own
        package.platforms = platforms
        monkeypatch.setitem(sys.modules, "vllm", package)
        monkeypatch.setitem(sys.modules, "vllm.platforms", platforms)

    monkeypatch.delenv("TUTTI_VLLM", raising=False)
    return install


def test_vllm_finds_the_plugin():
    points = importlib.metadata.entry_points(group="vllm.platform_plugins", name="tutti")
    assert [p.load() for p in points] == [tutti.vllm.plugin]


def test_on_where_vllm_is_for_cpus(vllm, monkeypatch):
    vllm("vllm.platforms.cpu.CpuPlatform")
    assert tutti.vllm.plugin() == "tutti.vllm.platform.Platform"
    monkeypatch.setenv("TUTTI_VLLM", "1")
    assert tutti.vllm.plugin() == "tutti.vllm.platform.Platform"


def test_off_where_vllm_is_for_gpus(vllm):
    vllm(None)
    assert tutti.vllm.plugin() is None


def test_off_where_the_user_says_so(vllm, monkeypatch):
    vllm("vllm.platforms.cpu.CpuPlatform")
    monkeypatch.setenv("TUTTI_VLLM", "0")
    assert tutti.vllm.plugin() is None
