"""Two nodes for the tests of what clients see."""

from __future__ import annotations

import pytest

from tests.remote.two_nodes import TwoNodes


@pytest.fixture
def nodes() -> TwoNodes:
    return TwoNodes()
