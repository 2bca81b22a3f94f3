"""What a broker says it did not record, as findings: whatever stands in its own words of it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from amqpd_spark.books.digest import Digest, Rare
from amqpd_spark.books.findings import of_gaps

US = 1_795_000_000_000_000


def finding(detail: str | None, reason: str | None = "disk_full", us: int = US) -> tuple[object, ...]:
    row = Rare("gap", "n1", 2, "n1", 2, 9, us, 0, 0, reason, detail)
    (found,) = of_gaps(Digest(rare=[row]))
    assert (found["kind"], found["node"], found["incarnation"]) == ("gap", "n1", 2)
    return found["entered"], found["detail"]


@pytest.mark.parametrize(
    ("begin", "at"),
    [
        ("2026-11-22T05:00:30Z", datetime(2026, 11, 22, 5, 0, 30, tzinfo=UTC)),
        ("2026-11-22T05:00:30.5+01:00", datetime(2026, 11, 22, 4, 0, 30, 500_000, tzinfo=UTC)),
        ("2026-11-22 05:00:30", datetime(2026, 11, 22, 5, 0, 30, tzinfo=UTC)),
        ("once upon a time", None),
        # In UTC it is in no year that there is.
        ("0001-01-01T00:00:00+01:00", None),
    ],
)
def test_it_begins_when_the_broker_says(begin: str, at: datetime | None):
    assert finding(f'{{"from": "{begin}"}}') == (at, f"not recorded: disk_full from {begin}")


@pytest.mark.parametrize("detail", [None, "", "{}", "no JSON", "[]", "[" * 100_000, '{"from": null}'])
def test_without_a_beginning_it_is_a_gap_all_the_same(detail: str | None):
    assert finding(detail) == (None, "not recorded: disk_full from")
    assert finding(detail, None) == (None, "not recorded: from")


def test_what_is_no_text_is_written_as_well_as_it_can_be():
    assert finding('{"from": "\\ud800"}') == (None, "not recorded: disk_full from ?")
    assert finding('{"from": 5}') == (None, "not recorded: disk_full from 5")


def test_a_time_of_no_year_that_there_is_is_none():
    row = Rare("gap", "n1", 2, "n1", 2, 9, 1 << 62, 0, 0, "disk_full", None)
    (found,) = of_gaps(Digest(rare=[row]))
    assert found["last_seen"] is None
