"""Which files of the log go: by age, by size, and no others."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from amqpd.audit.files.edges import Edges
from amqpd.audit.files.retention import Retention

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """Files of 100 bytes: two of yesterday, one of this morning, one of now; and one that is not ours."""
    for name in ("21/hour=11/a", "21/hour=12/b", "22/hour=08/c", "22/hour=12/d"):
        path = tmp_path / f"date=2026-11-{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(100))
    (tmp_path / "date=2026-11-21" / "hour=12" / "notes.txt").write_text("not ours")
    return tmp_path


def left(events: Path) -> str:
    return "".join(sorted(path.stem for path in events.rglob("*.parquet")))


@pytest.mark.parametrize(
    ("days", "nbytes", "files"),
    [
        *((0, 0, "abcd"), (10, 1000, "abcd"), (1, 0, "abcd"), (23 / 24, 0, "bcd"), (0.5, 0, "cd"), (0.01, 0, "d")),
        *((0, 400, "abcd"), (0, 399, "bcd"), (0, 200, "cd"), (0, 1, ""), (0.5, 100, "d"), (1, 300, "bcd")),
    ],
)
def test_the_oldest_go_until_both_bounds_are_kept(events: Path, days: float, nbytes: int, files: str) -> None:
    assert Retention(events, days, nbytes, Edges(events)).apply(NOON) == 4 - len(files)
    assert left(events) == files


def test_empty_folders_go_too_and_what_others_put_there_stays(events: Path) -> None:
    Retention(events, 0, 1, Edges(events)).apply(NOON)
    assert sorted(path.relative_to(events).as_posix() for path in events.rglob("*")) == [
        "date=2026-11-21",
        "date=2026-11-21/hour=12",
        "date=2026-11-21/hour=12/notes.txt",
    ]


def test_files_of_other_names_are_not_counted(events: Path) -> None:
    (events / "date=2020-01-01").mkdir()
    (events / "date=2020-01-01" / "old.parquet").write_bytes(bytes(1000))
    (events / "backup.parquet").write_bytes(bytes(1000))
    assert Retention(events, 10, 400, Edges(events)).apply(NOON) == 0
