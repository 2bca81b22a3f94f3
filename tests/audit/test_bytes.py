"""What an event takes in a file of the log: not more than before files said which rows they have."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from amqpd.audit.files.parquet import convert
from tests.audit.traffic import EVENTS, spool_of

# Bytes an event as 6b1767f6 wrote the same traffic, when deliveries did not have their bodies' size (pyarrow 26).
BEFORE = {"tens": 1.0219, "a small file": 10.677, "alone": 9.0717, "short ids": 9.7203, "random ids": 13.5527}


def random_ids() -> Callable[[int], str]:
    chance = random.Random(2)
    return lambda _: str(uuid.UUID(int=chance.getrandbits(128)))


@pytest.mark.parametrize(
    ("traffic", "stretches", "count", "message_id"),
    [
        ("tens", 800, 10, None),
        ("a small file", 20, 10, None),
        ("alone", 800, 1, None),
        ("short ids", 800, 1, "order-{}".format),
        ("random ids", 800, 1, random_ids()),
    ],
)
def test_an_event_takes_no_more_bytes_than_before(
    tmp_path: Path, traffic: str, stretches: int, count: int, message_id: Callable[[int], str] | None
) -> None:
    spool = tmp_path / "n-3-1.spool"
    spool.write_bytes(spool_of(stretches, count, message_id))
    path = convert(spool, tmp_path)
    assert path is not None
    assert path.stat().st_size / (stretches * count * EVENTS) <= BEFORE[traffic]


def test_numbers_are_written_as_differences(tmp_path: Path) -> None:
    """That pays for the footer, and more."""
    spool = tmp_path / "n-3-1.spool"
    spool.write_bytes(spool_of(20, 10))
    path = convert(spool, tmp_path)
    assert path is not None
    group = pq.read_metadata(path).row_group(0)
    columns = {group.column(at).path_in_schema: group.column(at) for at in range(group.num_columns)}
    assert "DELTA_BINARY_PACKED" in columns["number"].encodings
    assert columns["number"].statistics.max == 100, "what tells the rows of a file without a footer of ours"
