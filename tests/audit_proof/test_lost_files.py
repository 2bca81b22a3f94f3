"""A file of a real broker's log is removed: `conservation` names just its rows, and accuses nobody of what was in it.

What is verified: the first file of the log, one in the middle of an incarnation, the last of an incarnation, the
first of the next one and the last of all, each alone; without a removed file nothing is named. Not verified:
histories around holes (`tests/spark/test_conservation_holes.py`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika
import pyarrow.parquet as pq
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from amqpd.__main__ import run
from tests.clients.broker_process import BrokerProcess
from tests.faults.conftest import opened
from tests.faults.test_audit_kill import FULL, events_of

from . import jobs

QUEUE = "orders"
MESSAGES = 300
FAULTS = ("missing", "returned_from_the_dead", "ended_twice", "ended_yet_standing", "never_routed", "hole")


@pytest.fixture(autouse=True)
def _only_amqpd(only_amqpd: None, monkeypatch: pytest.MonkeyPatch) -> None:
    # The command runs in this process, and knows no such setting.
    monkeypatch.delenv("AMQPD_HEAVY", raising=False)


def publish(channel: BlockingChannel) -> None:
    channel.queue_declare(QUEUE, durable=True)
    channel.confirm_delivery()
    for _ in range(MESSAGES):
        channel.basic_publish("", QUEUE, b"x" * 100, pika.BasicProperties(delivery_mode=2))


def acknowledge(channel: BlockingChannel, count: int = MESSAGES // 2) -> None:
    for _ in range(count):
        method, _, _ = channel.basic_get(QUEUE)
        assert method is not None
        channel.basic_ack(method.delivery_tag)


def live(broker: BrokerProcess) -> None:
    """An incarnation of five files: messages enter in one and end in another, or stand until the next incarnation."""
    broker.start()
    with opened(broker) as channel:
        for act in (publish, acknowledge, publish, acknowledge):
            act(channel)
            assert run(["--data-dir", str(broker.data_dir), "audit", "flush"]) == 0
    assert broker.terminate() == 0


def said(file: Path) -> dict[str, Any]:
    """What the broker says of the file's rows."""
    told: dict[str, Any] = json.loads(pq.read_metadata(file).metadata[b"amqpd.audit.rows"])
    return told


def test_a_file_that_is_lost_is_named_and_nobody_is_accused(
    make_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = make_broker(environment=FULL)
    for _ in range(3):
        live(broker)
    events = events_of(broker)
    files = sorted(events.rglob("*.parquet"), key=lambda file: (said(file)["incarnation"], said(file)["first"]))
    of_incarnations = [
        [file for file in files if said(file)["incarnation"] == incarnation] for incarnation in (1, 2, 3)
    ]
    assert [len(each) for each in of_incarnations] == [5, 5, 5]
    done = jobs.run("conservation", "--input", events, "--output", tmp_path / "whole")
    assert done.returncode == 0, done.stdout

    for lost in (
        of_incarnations[0][0],
        of_incarnations[1][2],
        of_incarnations[1][-1],
        of_incarnations[2][0],
        of_incarnations[2][-1],
    ):
        rest = tmp_path / lost.stem
        shutil.copytree(events, rest)
        (rest / lost.relative_to(events)).unlink()
        done = jobs.run("conservation", "--input", rest, "--output", tmp_path / f"{lost.stem}-tables")
        assert (done.returncode, "hole" in done.stdout) == (1, True), done.stdout
        found = jobs.table(tmp_path / f"{lost.stem}-tables" / "findings")
        holes = [(row["incarnation"], row["rows_from"], row["rows_to"]) for row in found if row["kind"] == "log_hole"]
        assert holes == [(said(lost)["incarnation"], said(lost)["first"], said(lost)["last"])]
        assert [row for row in found if row["kind"] in (*FAULTS, "rows_removed", "gap")] == []
