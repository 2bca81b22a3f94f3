"""A log of twenty files of which some are lost: the account names exactly those, and accuses nobody.

What is verified: by the command alone, each file in turn, two at once, edges with and without `_log`, a file in
another's place, rows removed within a file. Not verified: each rule around a hole (`test_conservation_holes.py`).
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import Result
from pyspark.sql import SparkSession

from amqpd_spark.books.findings import FAULTS
from amqpd_spark.books.ledger import ENTRIES, FATES
from tests.harness.slow import slow_but
from tests.spark.log import Log
from tests.spark.test_conservation import called, rows_of

FILES = 20
MESSAGES = 74
ROWS_PER_FILE = 20


@dataclass(frozen=True)
class Run:
    """What the command said, and its tables."""

    answer: Result
    findings: list[dict[str, Any]]
    books: list[dict[str, Any]]

    @property
    def holes(self) -> list[tuple[int, int, int]]:
        """All that was found, which has to be holes."""
        assert {row["kind"] for row in self.findings} <= {"log_hole"}, self.answer.output
        return sorted((row["incarnation"], row["rows_from"], row["rows_to"]) for row in self.findings)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """Two incarnations, the first one stopped in order: publishes, confirms, deliveries and acks that reach over
    files."""
    log = Log(tmp_path_factory.mktemp("twenty") / "events")
    for incarnation in (1, 2):
        log.add("started", incarnation=incarnation)
        queue: dict[str, Any] = {"queue": "q", "queue_id": 1, "incarnation": incarnation}
        for stretch in range(MESSAGES // 2):
            at, first, publication = incarnation * 1000 + stretch, 2 * stretch, 1 + 2 * stretch
            sent: dict[str, Any] = {"publication": publication, "confirm_tag": publication, "count": 2}
            sent |= {"connection": "c", "channel": 1, "incarnation": incarnation}
            log.add("published", at, **sent)
            log.add("routed", at, **(queue | sent), first=first, persistent=True)
            log.add("confirmed", at, **sent)
            log.add("delivered", at, **queue, first=first, count=2)
            if stretch >= 5:
                log.add("acked", at, **queue, first=first - 10, count=2)
        stop: dict[str, Any] = {"at": incarnation * 1000 + 900, **queue, "reason": "stopped"}
        log.add("standing", **stop, count=0, first=MESSAGES, detail=str(incarnation))
        for epoch in range(1, incarnation + 1):
            log.add("standing", **stop, epoch=epoch, first=MESSAGES - 10, count=10, persistent=True)
        log.add("stopped", incarnation * 1000 + 900, incarnation=incarnation)
        if incarnation == 1:
            start: dict[str, Any] = {"at": 2000, **queue, "incarnation": 2, "epoch": 1, "reason": "recovered"}
            log.add("standing", **start, count=0, first=MESSAGES, detail="1")
            log.add("standing", **start, first=MESSAGES - 10, count=10, persistent=True)
    log.write_as_broker(rows_per_file=ROWS_PER_FILE)
    return log


@pytest.fixture
def copy(made: Log, tmp_path: Path) -> list[Path]:
    """The files, in order."""
    shutil.copytree(made.path, tmp_path / "events")
    return [tmp_path / "events" / file.relative_to(made.path) for file in made.files]


def run(files: list[Path], *options: str) -> Run:
    folder = files[0].parents[2]
    answer = called(str(folder), folder.parent / "out", *options)
    assert answer.exit_code in (0, 1), answer.output
    books = rows_of(folder.parent / "out" / "books")
    for row in books:
        assert sum(row.get(name) or 0 for name in ENTRIES) == sum(row[fate] for fate in FATES), row
    return Run(answer, rows_of(folder.parent / "out" / "findings"), books)


def range_of(file: Path) -> tuple[int, int, int]:
    """Incarnation, first row, last row."""
    table = pq.read_table(file, columns=["incarnation", "number"], partitioning=None).to_pylist()
    return table[0]["incarnation"], table[0]["number"], table[-1]["number"]


def test_of_a_whole_log_nothing_is_said(spark: SparkSession, copy: list[Path]):
    assert len(copy) == FILES
    whole = run(copy)
    assert (whole.answer.exit_code, whole.findings) == (0, []), whole.answer.output


@pytest.mark.parametrize("number", slow_but(("7", "19"), map(str, range(FILES))))
def test_each_file_in_turn(spark: SparkSession, copy: list[Path], number: str):
    lost = copy[int(number)]
    gone = range_of(lost)
    lost.unlink()
    found = run(copy)
    assert found.holes == [gone]
    assert found.answer.exit_code == 1
    assert "log_hole: 1" in found.answer.output
    for fault in FAULTS:
        assert f"\n{fault}: " not in found.answer.output
    assert sum(row["missing"] for row in found.books) == 0


@pytest.mark.slow
def test_two_at_once(spark: SparkSession, copy: list[Path]):
    gone = [range_of(copy[number]) for number in (3, 14)]
    for number in (3, 14):
        copy[number].unlink()
    assert run(copy).holes == gone


def test_without_a_log_file_the_newest_is_not_missed_and_that_is_said(spark: SparkSession, copy: list[Path]):
    copy[-1].unlink()
    (copy[0].parents[2] / "_log-n1.json").unlink()
    found = run(copy)
    assert (found.holes, found.answer.exit_code) == ([], 0)
    assert "there is no _log file" in found.answer.output


def test_an_older_incarnation_s_file_in_the_place_of_another(spark: SparkSession, copy: list[Path]):
    gone = range_of(copy[15])
    shutil.copy(copy[2], copy[15])
    assert run(copy).holes == [gone]


def test_rows_that_were_removed_within_a_file_excuse_nothing(spark: SparkSession, copy: list[Path]):
    table = pq.read_table(copy[4], partitioning=None)
    ends = [event == "acked" for event in table["event"].to_pylist()]
    kept = [index for index, is_end in enumerate(ends) if not is_end]
    pq.write_table(table.take(kept), copy[4])
    found = run(copy)
    assert found.answer.exit_code == 1
    assert {row["kind"] for row in found.findings} == {"rows_removed", "missing"}
    assert sum(row["missing"] for row in found.books) == 2 * sum(ends)
    assert str(copy[4]) in found.answer.output
