"""Each rule of the account, on a history of one queue: all of them in one log, which is accounted for once.

What is verified: a message's fate in the books, and what is found wrong with it. A history is a queue named after it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from amqpd_spark import events
from amqpd_spark.conservation import FATES, account, command
from tests.spark.log import Log

Story = Callable[["Queue"], None]
STORIES: dict[str, tuple[Story, str, str]] = {}
"""name -> what happens, the books' columns that are not 0, the kinds of findings"""


class Queue:
    """A queue of a log, at node `n1` with two lives, or at a node of its own."""

    def __init__(self, log: Log, name: str, queue_id: int, node: str = "n1") -> None:
        self.log, self.name, self.queue_id, self.node = log, name, queue_id, node
        self.publisher = f"to {name}"

    def add(self, event: str, first: int = 0, **columns: Any) -> None:
        given = {"queue": self.name, "queue_id": self.queue_id, "first": first, "node": self.node, **columns}
        self.log.add(event, **given)

    def routed(self, count: int = 1, tag: int = 0, **columns: Any) -> None:
        given = {"persistent": True, "connection": self.publisher, "channel": 1, "publication": self.queue_id * 100}
        self.add("routed", count=count, confirm_tag=tag, **(given | columns))

    def confirmed(self, tag: int, count: int = 1) -> None:
        about = {"confirm_tag": tag, "count": count, "connection": self.publisher, "channel": 1, "node": self.node}
        about["publication"] = self.queue_id * 100 + tag - 1
        self.log.add("published", **about)
        self.log.add("confirmed", **about)

    def anchor(self, *stretches: tuple[int, int, int], life: int = 2, follow: int | None = None, **head: Any) -> None:
        """`stretches`: epoch, first, count."""
        told = str(len(stretches) if follow is None else follow)
        head = {"reason": "recovered", "first": 0, **head}
        self.add("standing", count=0, life=life, detail=told, **head)
        for epoch, first, many in stretches:
            self.add("standing", first, epoch=epoch, count=many, life=life, persistent=True)


def story(books: str, findings: str = "") -> Callable[[Story], Story]:
    def keep(function: Story) -> Story:
        STORIES[function.__name__] = (function, books, findings)
        return function

    return keep


@story("accepted 3, acked 3")
def each_is_acked_once(queue: Queue) -> None:
    queue.routed(3)
    queue.add("delivered", count=2)
    queue.add("acked", 0, count=3)


@story("accepted 8, acked 1, expired 1, dropped 1, rejected 1, dead_lettered 1, purged 1, moved 1, released 1")
def each_end_has_its_column(queue: Queue) -> None:
    queue.routed(8)
    for first, event in enumerate(
        ("acked", "expired", "dropped", "rejected", "dead_lettered", "purged", "moved", "released")
    ):
        queue.add(event, first, publication=queue.queue_id * 100 + 50 + first)


@story("accepted 2, standing 2")
def without_an_anchor_after_it_a_message_stands(queue: Queue) -> None:
    queue.anchor(life=1)
    queue.routed(2)
    queue.add("delivered")
    queue.add("requeued")


@story("accepted 3, acked 1, standing 2")
def what_is_in_the_last_anchor_stands(queue: Queue) -> None:
    queue.routed(3)
    queue.anchor((1, 1, 2))
    queue.add("acked", epoch=1)


@story("accepted 2, acked 1, missing 1", "missing 1")
def confirmed_and_not_in_the_anchor_is_missing(queue: Queue) -> None:
    queue.routed(2, tag=1, message_id="order-1")
    queue.confirmed(1, 2)
    queue.add("acked", 0)
    queue.anchor()


@story("accepted 3, unconfirmed 2, missing 1", "missing 2")
def killed_before_the_commit_is_not_missing(queue: Queue) -> None:
    queue.routed(3, tag=1)
    queue.confirmed(3)
    queue.anchor()


@story("accepted 2, unconfirmed 1, missing 1", "missing 0")
def tags_that_come_again_confirm_only_their_own_publication(queue: Queue) -> None:
    queue.routed(tag=1)
    queue.confirmed(1)
    queue.routed(tag=1, first=1, publication=queue.queue_id * 100 + 1)
    queue.anchor()


@story("accepted 1, unconfirmed 1")
def without_confirms_nobody_was_promised_anything(queue: Queue) -> None:
    queue.routed()
    queue.anchor()


@story("accepted 1, missing 1", "missing 0")
def absent_in_the_life_it_was_seen_in_is_missing(queue: Queue) -> None:
    queue.routed(persistent=False)
    queue.anchor(life=1, reason="stopped")


@story("accepted 1, missing 1", "missing 0")
def recovered_once_and_absent_later_is_missing(queue: Queue) -> None:
    queue.routed()
    queue.anchor((1, 0, 1))
    queue.anchor(life=3)


@story("accepted 1, missing 1", "missing 0")
def stopped_in_order_and_not_recovered_is_missing(queue: Queue) -> None:
    queue.routed()
    queue.anchor((1, 0, 1), life=1, reason="stopped")
    queue.anchor()


@story("accepted 2, transient 2")
def a_transient_message_ends_with_the_life(queue: Queue) -> None:
    queue.routed(2, persistent=False)
    queue.add("delivered")
    queue.anchor()


@story("accepted 2, transient 2")
def a_transient_queue_ends_with_the_life_without_an_anchor(queue: Queue) -> None:
    queue.routed(2, persistent=False)


@story("accepted 1, standing 1")
def half_an_anchor_proves_nothing(queue: Queue) -> None:
    queue.routed()
    queue.anchor(follow=1)


@story("accepted 2, acked 2", "ended_twice 1")
def acked_twice(queue: Queue) -> None:
    queue.routed(2)
    queue.add("acked", count=2)
    queue.add("acked", 1)


@story("accepted 1, acked 1", "ended_twice 0")
def expired_and_then_acked(queue: Queue) -> None:
    queue.routed()
    queue.add("expired")
    queue.add("acked")


@story("accepted 1, acked 1", "ended_twice 0")
def acked_in_two_lives_and_not_recovered_between(queue: Queue) -> None:
    queue.routed()
    queue.add("acked")
    queue.anchor()
    queue.add("acked", life=2, epoch=1)


@story("accepted 1, acked 1")
def an_ack_that_a_kill_undid_is_no_end(queue: Queue) -> None:
    queue.routed()
    queue.add("acked")
    queue.anchor((1, 0, 1))
    queue.add("delivered", life=2, epoch=1, redelivered=True)
    queue.add("acked", life=2, epoch=1)


@story("accepted 1, acked 1", "ended_twice 0")
def two_acks_after_the_one_that_a_kill_undid(queue: Queue) -> None:
    queue.routed()
    queue.add("acked")
    queue.anchor((1, 0, 1))
    queue.add("acked", life=2, epoch=1)
    queue.anchor(life=3)
    queue.add("acked", life=3, epoch=1)


@story("accepted 1, acked 1", "ended_yet_standing 0")
def ended_and_in_an_anchor_of_the_same_life(queue: Queue) -> None:
    queue.routed()
    queue.add("acked")
    queue.anchor((1, 0, 1), life=1, reason="stopped")


@story("", "never_routed 4")
def delivered_and_never_routed(queue: Queue) -> None:
    queue.add("delivered", 4)


@story("found 2, acked 1, standing 1")
def what_was_there_when_recording_began_is_found(queue: Queue) -> None:
    queue.anchor((1, 0, 2), life=1, reason="level", first=2)
    queue.add("acked")


@story("accepted 5, standing 5", "hole 2")
def numbers_that_were_never_used_are_a_hole(queue: Queue) -> None:
    queue.routed(2)
    queue.routed(3, first=6)


@story("accepted 1, standing 1", "hole 1")
def a_hole_at_the_end_is_told_by_the_next_number(queue: Queue) -> None:
    queue.routed()
    queue.anchor((1, 0, 1), life=1, reason="stopped", first=4)


@story("accepted 4, acked 2, standing 2")
def a_level_that_was_off_between_is_no_hole(queue: Queue) -> None:
    queue.routed(2)
    queue.add("acked", 0, count=2)
    queue.anchor(life=1, reason="level", first=6)
    queue.routed(2, first=6)


@story("accepted 1, found 2, standing 3", "unrecorded 1")
def in_an_anchor_and_never_routed_is_a_gap_of_the_log(queue: Queue) -> None:
    queue.routed()
    queue.anchor((1, 0, 3))


def called(folder: str, output: Path, *options: str) -> Result:
    return CliRunner().invoke(command, ["--input", folder, "--output", str(output), *options])


@pytest.fixture(scope="module")
def run(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    """All stories in one log, accounted for by the command: its answer, and where its tables are."""
    folder = tmp_path_factory.mktemp("stories")
    log = Log(folder / "events")
    for life in (1, 2, 3):
        log.add("started", life=life)
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
        assert row["accepted"] + row["found"] == sum(row[fate] for fate in FATES), row
        shown = [f"{name} {row[name]}" for name in ("accepted", "found", *FATES) if row[name]]
        books[row["queue"]] = ", ".join(shown)
    findings: dict[str, list[str]] = {}
    for row in sorted(rows_of(tables / "findings"), key=lambda row: (row["kind"], row["first"] or 0)):
        findings.setdefault(row["queue"] or row["node"], []).append(f"{row['kind']} {row['first']}")
    return {name: (books.get(name, ""), ", ".join(findings.get(name, []))) for name in books.keys() | findings.keys()}


def rows_of(table: Path) -> list[dict[str, Any]]:
    return ds.dataset(table, format="parquet", partitioning="hive").to_table().to_pylist()


_ids = count(500)


def special(log: Log) -> None:
    """Stories of more than one queue, or of a broker of their own."""
    letters(log)
    chains(log)
    old_source(log)
    priorities(log)
    gap(log)
    untold(log)


def letters(log: Log) -> None:
    """Three messages become dead letters; the kill undoes the first, the second's letter is lost, the third is safe.
    A fourth is released from its delay, and that is undone; a fifth is moved, and stays so."""
    source, target = Queue(log, "source", next(_ids)), Queue(log, "target", next(_ids))
    source.routed(5, tag=1)
    source.confirmed(1, 5)
    for first, event in enumerate(("dead_lettered", "dead_lettered", "dead_lettered", "released", "moved")):
        source.add(event, first, publication=9000 + first)
        target.routed(first=first, publication=9000 + first, connection=None, reason="dead_letter")
    source.anchor((1, 0, 1), (1, 3, 1))
    target.anchor((1, 2, 1), (1, 4, 1))


def chains(log: Log) -> None:
    """Letters that are absent, of sources that are absent too; some came over another queue. By number in the last
    queue: what they come from."""
    source, middle, end = (Queue(log, name, next(_ids)) for name in ("chain", "chain middle", "chain end"))
    source.routed(5, tag=1)
    source.routed(tag=6, first=5, publication=source.queue_id * 100 + 5, persistent=False)
    for tag in (2, 4, 5, 6):
        source.confirmed(tag)

    def letter(queue: Queue, number: int, target: Queue, as_number: int) -> None:
        publication = target.queue_id * 100 + as_number
        queue.add("dead_lettered", number, publication=publication)
        target.routed(first=as_number, publication=publication, connection=None, reason="dead_letter")

    letter(source, 0, end, 0)  # an unconfirmed publish
    letter(source, 1, end, 1)  # a confirmed one
    for number in (0, 1, 2):
        letter(source, number + 2, middle, number)
        letter(middle, number, end, number + 2)  # an unconfirmed one, a confirmed one, one that is back
    letter(source, 5, end, 5)  # a confirmed one that was not persistent
    end.routed(first=6, publication=end.queue_id * 100 + 6, connection=None)  # nothing that the log has
    source.anchor((1, 4, 1))
    middle.anchor()
    end.anchor()


def old_source(log: Log) -> None:
    """A message that was safe becomes a dead letter in the life after, and both are gone."""
    source, target = Queue(log, "old source", next(_ids)), Queue(log, "letter of old", next(_ids))
    source.routed()
    source.anchor((1, 0, 1))
    source.add("dead_lettered", life=2, epoch=1, publication=9500)
    target.routed(life=2, publication=9500, connection=None, reason="dead_letter")
    source.anchor(life=3)
    target.anchor(life=3)


def priorities(log: Log) -> None:
    for level in (0, 1):
        queue = Queue(log, "priorities", 600 + level)
        queue.routed(2)
        queue.add("acked", count=1 + level)


def gap(log: Log) -> None:
    """What came of a message while nothing was recorded is not known; what is lost before or after, is."""
    log.add("started", node="n2")
    queues = [Queue(log, name, next(_ids), "n2") for name in ("over the gap", "lost before", "lost after")]
    for queue in queues:
        queue.routed(2)
    queues[1].anchor((1, 0, 1), life=1, reason="level")
    log.add("gap", at=60, node="n2", reason="disk_full", detail=json.dumps({"from": "2026-11-22T05:00:30Z"}))
    for queue in queues:
        queue.anchor((1, 0, 1), life=1, reason="gap", first=2)
    queues[2].anchor(life=1, reason="stopped", first=2)


def untold(log: Log) -> None:
    about = {"node": "n3", "connection": "c", "channel": 1}
    log.add("published", publication=1, confirm_tag=1, count=3, **about)
    log.add("confirmed", publication=1, confirm_tag=1, count=5, **about)


@pytest.mark.parametrize("name", list(STORIES))
def test_story(told: dict[str, tuple[str, str]], name: str):
    _, books, findings = STORIES[name]
    assert told[name] == (books, findings)


def test_a_dead_letter_is_undone_with_its_source_or_missing(told: dict[str, tuple[str, str]]):
    assert told["source"] == ("accepted 5, dead_lettered 2, moved 1, standing 2", "")
    assert told["target"] == ("accepted 5, unconfirmed 2, standing 2, missing 1", "missing 1")


def test_a_letter_was_promised_if_the_publish_that_it_comes_from_was(told: dict[str, tuple[str, str]]):
    assert told["chain"] == ("accepted 6, dead_lettered 5, standing 1", "")
    assert told["chain middle"] == ("accepted 3, dead_lettered 3", "")
    assert told["chain end"] == ("accepted 7, unconfirmed 4, missing 3", "missing 1, missing 3, missing 6")


def test_a_letter_of_a_message_that_was_safe_is_missing_with_it(told: dict[str, tuple[str, str]]):
    assert told["letter of old"] == ("accepted 1, missing 1", "missing 0")


def test_levels_of_a_priority_queue_have_their_own_numbers(told: dict[str, tuple[str, str]]):
    assert told["priorities"] == ("accepted 4, acked 3, standing 1", "")


def test_over_a_gap_messages_are_uncertain(told: dict[str, tuple[str, str]]):
    assert told["over the gap"] == ("accepted 2, standing 1, uncertain 1", "")
    assert told["lost before"] == ("accepted 2, standing 1, missing 1", "missing 1")
    assert told["lost after"] == ("accepted 2, uncertain 1, missing 1", "missing 0")


def test_a_gap_and_confirms_of_nothing_are_said(told: dict[str, tuple[str, str]]):
    assert told["n2"] == ("", "gap None")
    assert told["n3"] == ("", "confirmed_unpublished None")


def test_a_file_that_came_twice_changes_nothing(
    spark: SparkSession, told: dict[str, tuple[str, str]], tmp_path: Path
):
    log = Log(tmp_path / "events")
    for life in (1, 2, 3):
        log.add("started", life=life)
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
    found = account(events.read(spark, log.write()), cut=True)
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
