"""torchcomms finds the backend "tutti" by its entry point, and each call gives what it has to."""

import pytest
from test_training import need, run


@pytest.mark.parametrize("ranks", [2, 4])
def test_each_call_gives_what_it_has_to(ranks):
    need("torchcomms")
    assert f"backend tutti, ranks {ranks}: all calls are right" in run("torchcomms", ranks=ranks, program="calls")
