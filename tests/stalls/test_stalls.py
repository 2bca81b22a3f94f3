"""No input of one connection holds the others up: each shape that once did.

What is asserted is processor time of the broker's thread between moments at which another client would have been
served, and not time: other processes of the machine do not count, only a slower processor does. So the bound is eight
times what nobody is to wait on a machine of today (`search.HOLD_MAX_S`); each of these took seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.slow import slow_but
from tests.stalls.rig import rig
from tests.stalls.search import HOLD_MAX_S
from tests.stalls.shapes import QUICK, SHAPES, environment_of

# The plain build, on a processor a third as fast.
SLOWER = 8


@pytest.mark.parametrize("name", slow_but(QUICK, SHAPES))
def test_a_connection_does_not_hold_the_others_up(name: str, tmp_path: Path) -> None:
    with rig(tmp_path, environment_of(name)) as made:
        made.figures.clear()
        SHAPES[name](made)
        made.settle()
        assert made.figures.asked, "the victim was never served"
        assert made.figures.hold_s < SLOWER * HOLD_MAX_S
        made.rest()
