"""The fixtures of the tests with faults; everything here is heavy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults.conftest import make_broker, only_amqpd

__all__ = ["make_broker", "only_amqpd"]
_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(3600))
            if not os.environ.get("AMQPD_HEAVY"):
                item.add_marker(pytest.mark.skip(reason="heavy: set AMQPD_HEAVY=1"))
