"""Each rule of the account, on a history of one queue: all of them in one log, which is accounted for once.

What is verified: a message's fate in the books, and what is found wrong with it. A history is a queue named after it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from amqpd_spark import events, options
from amqpd_spark.books.ledger import ENTRIES, FATES
from amqpd_spark.conservation import account, command
from amqpd_spark.stretches.scan import Rows, of_dataframe
from tests.spark.conservation_chains import special
from tests.spark.conservation_stories import STORIES, Queue
from tests.spark.log import Log


def called(folder: str, output: Path, *options: str) -> Result:
    """Its books by the hour, whatever the log's length: a story is one row then."""
    hourly = ["--input", folder, "--output", str(output), "--window", "1 hour"]
    return CliRunner().invoke(command, [*hourly, *options])


@pytest.fixture(scope="module", params=["here", "in tasks"])
def where(request: pytest.FixtureRequest) -> Iterator[None]:
    yield from read_by(request.param)


def read_by(whom: str) -> Iterator[None]:
    """Who looks at the rows: this process, for the log is small, or Spark's tasks."""
    with pytest.MonkeyPatch.context() as patched:
        if whom != "here":
            patched.setattr(options, "HERE_ROWS", -1)
        looked = []
        brought = Rows.brought
        patched.setattr(Rows, "brought", lambda self, *given: looked.append(self.here) or brought(self, *given))
        yield
        assert looked[:1] == [whom == "here"]


@pytest.fixture(scope="module")
def run(where: None, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    """All stories in one log, accounted for by the command: its answer, and where its tables are."""
    folder = tmp_path_factory.mktemp("stories")
    log = Log(folder / "events")
    for incarnation in (1, 2, 3):
        log.add("started", incarnation=incarnation)
    for queue_id, (name, (tell, _, _)) in enumerate(STORIES.items(), 1):
        tell(Queue(log, name, queue_id))
    special(log)
    return called(log.write(), folder / "out"), folder / "out"


@pytest.fixture(scope="module")
def told(run: tuple[Result, Path]) -> dict[str, tuple[str, str]]:
    """Of each story: its row of the books and its findings, as the stories write them."""
    return read_back(run[1])


def read_back(tables: Path) -> dict[str, tuple[str, str]]:
    books: dict[str, str] = {}
    for row in rows_of(tables / "books"):
        assert sum(row.get(name) or 0 for name in ENTRIES) == sum(row[fate] for fate in FATES), row
        shown = [f"{name} {row[name]}" for name in (*ENTRIES, *FATES) if row.get(name)]
        books[row["queue"]] = ", ".join(shown)
    findings: dict[str, list[str]] = {}
    for row in sorted(rows_of(tables / "findings"), key=lambda row: (row["kind"], row["first"] or 0)):
        findings.setdefault(row["queue"] or row["node"], []).append(f"{row['kind']} {row['first']}")
    return {name: (books.get(name, ""), ", ".join(findings.get(name, []))) for name in books.keys() | findings.keys()}


def rows_of(table: Path) -> list[dict[str, Any]]:
    return ds.dataset(table, format="parquet", partitioning="hive").to_table().to_pylist()


@pytest.mark.parametrize("name", list(STORIES))
def test_story(told: dict[str, tuple[str, str]], name: str):
    _, books, findings = STORIES[name]
    assert told[name] == (books, findings)


def test_a_dead_letter_is_undone_with_its_source_or_missing(told: dict[str, tuple[str, str]]):
    assert told["source"] == ("accepted 5, dead_lettered 2, moved 1, standing 2", "")
    assert told["target"] == ("accepted 5, unconfirmed 2, standing 2, missing 1", "missing 1")


def test_a_dead_letter_was_promised_if_the_publish_that_it_comes_from_was(told: dict[str, tuple[str, str]]):
    assert told["chain"] == ("accepted 6, dead_lettered 5, standing 1", "")
    assert told["chain middle"] == ("accepted 3, dead_lettered 3", "")
    assert told["chain end"] == ("accepted 7, unconfirmed 4, missing 3", "missing 1, missing 3, missing 6")


def test_a_dead_letter_of_a_message_that_was_safe_is_missing_with_it(told: dict[str, tuple[str, str]]):
    assert told["dead letter of old"] == ("accepted 1, missing 1", "missing 0")


def test_levels_of_a_priority_queue_have_their_own_numbers(told: dict[str, tuple[str, str]]):
    assert told["priorities"] == ("accepted 4, acked 3, standing 1", "")


def test_over_a_gap_messages_are_uncertain(told: dict[str, tuple[str, str]]):
    assert told["over the gap"] == ("accepted 2, standing 1, uncertain 1", "")
    assert told["lost before"] == ("accepted 2, standing 1, missing 1", "missing 1")
    assert told["lost after"] == ("accepted 2, uncertain 1, missing 1", "missing 0")


def test_an_incarnation_that_began_on_a_full_disk_is_no_fault(told: dict[str, tuple[str, str]]):
    assert told["full at the start"] == ("accepted 6, found 2, acked 3, standing 3, uncertain 2", "")
    assert told["full from start to end"] == ("accepted 3, found 1, acked 2, uncertain 2", "unrecorded 3")
    assert told["n4"] == told["n5"] == ("", "gap None")


def test_a_gap_and_confirms_of_nothing_are_said(told: dict[str, tuple[str, str]]):
    assert told["n2"] == ("", "gap None")
    assert told["n3"] == ("", "confirmed_unpublished None")


@pytest.mark.slow
def test_a_file_that_came_twice_changes_nothing(
    spark: SparkSession, told: dict[str, tuple[str, str]], tmp_path: Path
):
    log = Log(tmp_path / "events")
    for incarnation in (1, 2, 3):
        log.add("started", incarnation=incarnation)
    for queue_id, (name, (tell, _, _)) in enumerate(STORIES.items(), 1):
        tell(Queue(log, name, queue_id))
    again = list(log._rows)
    log.write()
    log._rows = again
    called(log.write(), tmp_path / "out")
    assert read_back(tmp_path / "out") == {name: row for name, row in told.items() if name in STORIES}


def test_what_entered_before_since_is_not_held_against_the_log(spark: SparkSession, log: Log):
    log.add("started")
    log.add("acked", at=60, queue="q", queue_id=1, count=3)
    found = account(of_dataframe(events.read(spark, log.write())), cut=True)
    assert (found.before, found.findings.count(), found.books.count()) == (3, 0, 0)


def test_what_is_missing_is_printed_and_exits_with_1(run: tuple[Result, Path]):
    answer, tables = run
    assert answer.exit_code == 1, answer.output
    assert "confirmed_and_not_in_the_anchor_is_missing (id 5, epoch 1) 1: publication 501" in answer.output
    assert "THE LOG HAS GAPS" in answer.output
    assert str(tables / "books") in answer.output


def test_a_gap_is_said_and_only_strict_exits_with_1(spark: SparkSession, log: Log, tmp_path: Path):
    log.add("gap", at=60, reason="disk_full", detail=json.dumps({"from": "2026-11-22T05:00:30Z"}))
    folder = log.write()
    answer = called(folder, tmp_path / "out")
    assert answer.exit_code == 0, answer.output
    assert "THE LOG HAS GAPS" in answer.output
    assert "Nothing is missing" in answer.output
    assert called(folder, tmp_path / "out", "--strict").exit_code == 1


def test_what_a_sample_leaves_out_is_no_hole(spark: SparkSession, log: Log, tmp_path: Path):
    queue = Queue(log, "sampled", 1)
    queue.routed(64)
    queue.routed(64, first=128)
    log.add("confirmed", publication=200, count=3, connection="c")
    assert called(log.write(), tmp_path / "out", "--sampled", "--strict").exit_code == 0


def test_a_window_that_is_none_is_one_sentence():
    answer = CliRunner().invoke(command, ["--input", "a", "--output", "b", "--window", "often"])
    assert answer.exit_code == 2
    assert "'often' is no length of time" in answer.output
