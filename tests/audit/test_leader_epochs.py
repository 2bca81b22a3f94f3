"""Queues that several nodes keep: what the log of one leader says, so that it can be held against the next one's.

What is verified: names of messages, anchors at a begin, on a node that records everything.
Not verified here: adding up the logs of several nodes (`tests/spark/test_epochs.py`, `tests/faults`).
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from pamqp import commands

from amqpd.audit.epochs import LeaderEpochs
from amqpd.journal.lane import Lane
from amqpd.journal.numbers import NUMBERS_STEP, Numbers
from amqpd.journal.records import Recovered, RecoveredQueue, RecoveredRow
from amqpd.node.cluster import LOCAL
from amqpd.vocabulary.audit_levels import FULL, Level
from tests.audit.reading import told
from tests.audit.recorded import RecordedHarness
from tests.harness.harness import Client

SOURCE = 5
NAME = ("event", "source", "source_epoch", "epoch", "first", "count")


class ReplicaLane(Lane):
    def force(self) -> None:
        pass


class Leader(RecordedHarness):
    """A node of a cluster."""

    def __init__(self, level: Level = FULL) -> None:
        super().__init__(level)
        sources = self.node.sources
        self.cluster.replicated, self.cluster.choose = True, lambda wanted: next(iter(sources.serving), LOCAL)
        self.lane = ReplicaLane(1, 0)

    def begin(self, epoch: int, queues: dict[int, RecoveredQueue] | None = None) -> None:
        self.node.journal.lead(SOURCE, epoch, Numbers(0, NUMBERS_STEP), self.lane)
        self.node.source_begins(SOURCE, Recovered(0, queues or {}))
        self.step()

    def end(self) -> None:
        self.node.journal.leave(SOURCE)
        self.node.source_ends(SOURCE, self.lane)
        self.step()


@pytest.fixture
def leader() -> Leader:
    return Leader()


def declared(leader: Leader) -> tuple[Client, int]:
    client = leader.client()
    client.declare("q", durable=True, arguments={"x-queue-type": "quorum"})
    return client, leader.node.queues["/", "q"].record.id


def standing(*rows: tuple[int, int, int]) -> RecoveredQueue:
    """(epoch, first, last)"""
    found = [RecoveredRow(first, last, 20, epoch=epoch) for epoch, first, last in rows]
    return RecoveredQueue(found, 100, 0)


def test_what_comes_in_and_goes_out_is_named_by_the_epoch_of_its_source(leader: Leader) -> None:
    leader.begin(7)
    client, _ = declared(leader)
    leader.log_rows()
    client.publish(b"one", "q")
    client.send(commands.Basic.Get(queue="q", no_ack=True))
    client.messages()
    assert told(leader.log_rows(), *NAME) == [
        ("published", 0, 0, 0, 0, 1),
        ("routed", 5, 7, 7, 0, 1),
        ("delivered", 5, 7, 7, 0, 1),
        ("acked", 5, 7, 7, 0, 1),
    ]


def test_a_begin_says_what_the_former_epochs_left(leader: Leader) -> None:
    leader.begin(7)
    _, queue_id = declared(leader)
    leader.end()
    leader.log_rows()
    leader.begin(9, {queue_id: standing((3, 0, 4), (3, 5, 9), (7, 20, 20))})
    rows = leader.log_rows("source_begins", "standing")
    assert told(rows, *NAME, "reason") == [
        ("source_begins", 5, 9, 0, 0, 1, None),
        ("standing", 5, 9, 9, 100, 0, "recovered"),
        ("standing", 5, 9, 3, 0, 10, None),
        ("standing", 5, 9, 7, 20, 1, None),
    ]
    assert json.loads(rows[0]["detail"]) == {"queues": 1, "messages": 11}
    assert rows[1]["detail"] == "2"
    assert all(row["persistent"] for row in rows[2:])


def test_an_empty_queue_is_said_to_be_empty(leader: Leader) -> None:
    leader.begin(7)
    declared(leader)
    leader.end()
    leader.log_rows()
    leader.begin(8)
    assert told(leader.log_rows("standing"), *NAME, "detail") == [("standing", 5, 8, 8, 0, 0, "0")]


def test_an_end_is_said_and_says_what_stands_in_no_anchor(leader: Leader) -> None:
    """Nobody knows yet what of it is committed: the next leader says."""
    leader.begin(7)
    client, _ = declared(leader)
    client.publish(b"one", "q")
    leader.log_rows()
    leader.end()
    [row] = leader.log_rows("source_ends", "standing")
    assert (row["source"], row["source_epoch"], json.loads(row["detail"])) == (5, 7, {"queues": 1, "messages": 1})


def test_an_end_counts_what_was_not_made_yet_as_the_begin_did(leader: Leader) -> None:
    leader.begin(7)
    _, queue_id = declared(leader)
    leader.end()
    leader.log_rows()
    leader.node.work_left = 0
    leader.node.journal.lead(SOURCE, 9, Numbers(0, NUMBERS_STEP), leader.lane)
    leader.node.source_begins(SOURCE, Recovered(0, {queue_id: standing((3, 0, 9))}))
    leader.node.source_ends(SOURCE, leader.lane)
    rows = leader.log_rows("source_begins", "source_ends")
    assert [json.loads(row["detail"]) for row in rows] == [{"queues": 1, "messages": 10}] * 2


def test_a_queue_whose_leader_is_another_node_has_no_book(leader: Leader) -> None:
    leader.begin(7)
    declared(leader)
    leader.end()
    leader.restart()
    assert told(leader.log_rows("standing"), "queue") == []
    leader.policy(audit="full")
    assert told(leader.log_rows("standing"), "queue") == []


def test_what_ends_keeps_the_epoch_in_which_it_came_in(leader: Leader) -> None:
    leader.begin(7)
    client, queue_id = declared(leader)
    client.publish(b"one", "q", delivery_mode=2)
    leader.end()
    leader.begin(9, {queue_id: standing((7, 0, 0))})
    leader.log_rows()
    assert leader.node.queues["/", "q"].ready_count == 1
    leader.client().call(commands.Queue.Purge(queue="q"), commands.Queue.PurgeOk)
    assert told(leader.log_rows(), *NAME) == [("purged", 5, 9, 7, 0, 1)]


def test_a_queue_that_is_declared_later_has_the_rows_that_waited_for_it() -> None:
    leader_epochs = LeaderEpochs()
    found = Recovered(0, {256: standing((3, 0, 3), (3, 4, 8), (7, 9, 9)), 512: standing((8, 0, 0)), 768: standing()})
    leader_epochs.begin(5, 9, found.standing().eras)
    assert leader_epochs.of(256) == [(3, 0), (7, 9)]
    assert leader_epochs.of(512) == [(8, 0)]
    leader_epochs.begin(5, 11, {256: [(7, 9)]})
    assert (leader_epochs.of(256), leader_epochs.of(512), leader_epochs.epochs) == ([(7, 9)], [], {5: 11})
    leader_epochs.end(5)
    assert (leader_epochs.of(256), leader_epochs.epochs) == ([], {})


def test_a_local_queue_has_no_source(leader: Leader) -> None:
    client: Any = leader.client()
    client.declare("local", durable=True)
    leader.log_rows()
    client.publish(b"one", "local")
    assert told(leader.log_rows("routed"), *NAME) == [("routed", 0, 0, 1, 0, 1)]
