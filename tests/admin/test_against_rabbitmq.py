"""amqpd's answers against those of Debian's RabbitMQ with the same on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.admin import both_brokers
from tests.admin.compare import Difference, differences
from tests.admin.reasons import COMPARED

MISSING = both_brokers.missing()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(MISSING), reason=MISSING)]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[Difference]:
    directory: Path = tmp_path_factory.mktemp("both")
    with both_brokers.both(directory) as (theirs, ours):
        return list(differences(theirs, ours))


def test_whatever_is_different_has_a_reason(found: list[Difference]):
    assert [each for each in found if each.reason is None] == []


def test_each_reason_is_of_something(found: list[Difference]):
    used = {each.reason for each in found}
    assert [each.why for each in COMPARED if each not in used] == []
