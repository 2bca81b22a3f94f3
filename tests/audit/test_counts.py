"""The figures of a minute: increases, of what is not recorded message by message."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from amqpd.audit.coverage.counts import MinuteCounts
from amqpd.vocabulary.audit_levels import COUNTS, OFF
from tests.audit.recorded import RecordedHarness
from tests.audit.test_leader_epochs import Leader, declared, standing
from tests.harness.harness import Client

Found = dict[tuple[str, str], int]


@pytest.fixture
def harness() -> RecordedHarness:
    return RecordedHarness(COUNTS)


@pytest.fixture
def counts(harness: RecordedHarness) -> MinuteCounts:
    return MinuteCounts(harness.node.books)


def counted(harness: RecordedHarness, counts: MinuteCounts) -> Found:
    """What the minute brought: (queue or user, figure) -> count."""
    for _ in counts.write_in_steps(harness.node.audited(), list(harness.node.connections.values())):
        pass
    return figures(harness)


def figures(harness: RecordedHarness) -> Found:
    rows = [row for row in harness.acts() if row["event"] == "counted"]
    found = {(row["queue"] or row["user"], row["detail"]): row["count"] for row in rows}
    assert len(found) == len(rows)
    return found


def traffic(client: Client, count: int = 2) -> None:
    for _ in range(count):
        client.publish(b"four", "q", delivery_mode=2)
    client.send(commands.Basic.Get(queue="q", no_ack=True))
    client.messages()


def test_each_figure_is_the_increase_since_the_last_row(
    harness: RecordedHarness, client: Client, counts: MinuteCounts
) -> None:
    client.declare("q", durable=True)
    traffic(client)
    expected = {
        ("q", "accepted"): 2,
        ("q", "delivered"): 1,
        ("q", "acked"): 1,
        ("guest", "published"): 2,
        ("guest", "published_bytes"): 8,
    }
    assert counted(harness, counts) == expected
    assert counted(harness, counts) == {}
    traffic(client)
    assert counted(harness, counts) == expected


def test_what_was_there_at_the_start_was_counted_before(harness: RecordedHarness, client: Client) -> None:
    client.declare("q", durable=True)
    traffic(client, 5)
    harness.restart()
    counts = MinuteCounts(harness.node.books)
    counts.begin(harness.node.audited())
    assert counted(harness, counts) == {}
    harness.client().publish(b"x", "q")
    assert counted(harness, counts)["q", "accepted"] == 1


def test_what_a_connection_published_is_counted_when_it_is_gone(
    harness: RecordedHarness, client: Client, counts: MinuteCounts
) -> None:
    harness.node.connection_left = counts.left
    client.declare("q")
    client.publish(b"four", "q")
    client.lose()
    assert counted(harness, counts)["guest", "published_bytes"] == 4
    assert counted(harness, counts) == {}


def test_a_queue_that_is_recorded_has_no_figures_and_none_of_that_time_later(
    harness: RecordedHarness, client: Client, counts: MinuteCounts
) -> None:
    client.declare("q", durable=True)
    harness.policy(audit="full")
    traffic(client)
    assert {name for name, _ in counted(harness, counts)} == {"guest"}
    harness.policy()
    assert counted(harness, counts) == {}
    client.publish(b"x", "q")
    assert counted(harness, counts)["q", "accepted"] == 1


def test_a_queue_that_is_deleted_leaves_its_figures(
    harness: RecordedHarness, client: Client, counts: MinuteCounts
) -> None:
    """Also one that was made in the same minute."""
    client.declare("q")
    client.publish(b"x", "q")
    client.call(commands.Queue.Purge(queue="q"), commands.Queue.PurgeOk)
    client.call(commands.Queue.Delete(queue="q"), commands.Queue.DeleteOk)
    assert figures(harness) == {("q", "accepted"): 1, ("q", "purged"): 1}


@pytest.mark.parametrize("level", ["off", "admin"])
def test_who_wants_no_figures_has_none(
    harness: RecordedHarness, client: Client, counts: MinuteCounts, level: Any
) -> None:
    client.declare("q")
    harness.policy(audit=level)
    client.publish(b"x", "q")
    assert {name for name, _ in counted(harness, counts)} == {"guest"}


def test_a_policy_may_ask_for_figures_where_nothing_else_is_recorded() -> None:
    harness = RecordedHarness(OFF)
    client, counts = harness.client(), MinuteCounts(harness.node.books)
    client.declare("q")
    harness.policy(audit="counts")
    client.publish(b"x", "q")
    assert counted(harness, counts) == {("q", "accepted"): 1}


def test_a_queue_that_goes_between_two_steps_is_counted_once(
    harness: RecordedHarness, client: Client, counts: MinuteCounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("amqpd.audit.coverage.counts.AT_ONCE", 1)
    client.declare("q", durable=True)
    client.declare("other", durable=True)
    traffic(client)
    steps = counts.write_in_steps(harness.node.audited(), list(harness.node.connections.values()))
    next(steps)
    client.call(commands.Queue.Delete(queue="q"), commands.Queue.DeleteOk)
    for _ in steps:
        pass
    assert figures(harness)["q", "accepted"] == 2


class Moving:
    """A node at level `counts` to which a source comes, and from which it goes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.leader = Leader(COUNTS)
        self.leader.begin(7)
        self.client, self.queue_id = declared(self.leader)
        self.counts = MinuteCounts(self.leader.node.books)
        monkeypatch.setattr("amqpd.audit.coverage.counts.AT_ONCE", 1)

    def comes_back(self, epoch: int) -> None:
        self.leader.begin(epoch, {self.queue_id: standing((3, 0, 9))})

    def counted(self) -> Found:
        return counted(self.leader, self.counts)


@pytest.fixture
def moving(monkeypatch: pytest.MonkeyPatch) -> Moving:
    return Moving(monkeypatch)


def test_what_a_new_leader_recovers_is_not_accepted_again(moving: Moving) -> None:
    for epoch in (9, 11, 13):
        moving.leader.end()
        moving.comes_back(epoch)
        assert moving.counted() == {}
    moving.leader.end()
    moving.comes_back(15)
    moving.leader.client().publish(b"x", "q")
    moving.leader.end()
    assert figures(moving.leader)["q", "accepted"] == 1


def test_a_queue_whose_source_ends_between_two_steps_is_counted_once(moving: Moving) -> None:
    moving.client.publish(b"x", "q")
    node = moving.leader.node
    steps = moving.counts.write_in_steps(node.audited(), list(node.connections.values()))
    next(steps)
    moving.leader.end()
    for _ in steps:
        pass
    assert figures(moving.leader)["q", "accepted"] == 1
    moving.comes_back(9)
    assert moving.counted() == {}
