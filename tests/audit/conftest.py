"""A node that records everything, and a client of it."""

from __future__ import annotations

import pytest

from tests.audit.disk import Disk
from tests.audit.recorded import RecordedHarness
from tests.harness.harness import Client


@pytest.fixture
def harness() -> RecordedHarness:
    return RecordedHarness()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    for module in ("incarnations", "writer"):
        monkeypatch.setattr(f"amqpd.audit.files.{module}.os", disk)
    return disk


@pytest.fixture
def client(harness: RecordedHarness) -> Client:
    return harness.client()
