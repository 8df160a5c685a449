"""vLLM on CPUs over Tutti: a platform plugin (entry point group ``vllm.platform_plugins``).

Nothing has to be imported: where this package and vLLM for CPUs are installed (``pip install tutti[vllm]``),
vLLM's groups (tensor, pipeline, data and expert parallel) communicate over Tutti. TUTTI_VLLM=0 leaves vLLM as it
is. docs/inference.md has recipes and limits.
"""

from __future__ import annotations

import os as _os

__all__ = ["plugin"]


def plugin() -> str | None:
    """The platform class that vLLM shall take; None for vLLM's own.

    vLLM calls it in each of its processes. A vLLM for other devices stays as it is. Anything but 0 and 1 in
    TUTTI_VLLM is an error of the class, as vLLM says nothing of errors of this function.
    """
    if _os.environ.get("TUTTI_VLLM", "1") == "0":
        return None
    from vllm.platforms import cpu_platform_plugin

    return "tutti.vllm.platform.Platform" if cpu_platform_plugin() else None
