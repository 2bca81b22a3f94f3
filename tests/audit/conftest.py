"""A node that records everything, and a client of it."""

from __future__ import annotations

import pytest

from tests.audit.recorded import RecordedHarness
from tests.core.harness import Client


@pytest.fixture
def harness() -> RecordedHarness:
    return RecordedHarness()


@pytest.fixture
def client(harness: RecordedHarness) -> Client:
    return harness.client()
