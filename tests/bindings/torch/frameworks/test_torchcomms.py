"""torchcomms finds the backend "tutti" by its entry point, and each call gives what it has to."""

import pytest
from test_training import run

pytest.importorskip("torchcomms", reason="needs torchcomms, which PyPI does not have for CPUs")


@pytest.mark.parametrize("ranks", [2, 4])
def test_each_call_gives_what_it_has_to(ranks):
    said = run("torchcomms", ranks=ranks, program="calls")
    assert f"backend tutti, ranks {ranks}: all calls are right" in said
