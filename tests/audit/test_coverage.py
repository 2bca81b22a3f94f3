"""Which queues are recorded from when on: levels, policies, starts."""

from __future__ import annotations

from pamqp import commands

from amqpd.vocabulary.audit_levels import COUNTS, FULL, SHARE_FULL
from tests.audit.reading import told
from tests.audit.recorded import RecordedHarness
from tests.harness.harness import Client


def test_a_start_with_policies_anchors_each_queue_once_with_the_incarnations_of_its_messages(
    harness: RecordedHarness, client: Client
) -> None:
    client.declare("q", durable=True)
    harness.policy(max_length=10)
    client.publish(b"1", "q", delivery_mode=2)
    harness.log_rows()
    harness.restart()
    harness.client().publish(b"2", "q", delivery_mode=2)
    found = told(harness.log_rows("standing", "routed"), "event", "reason", "epoch", "first", "count")
    assert found == [
        ("standing", "recovered", 2, 1, 0),
        ("standing", None, 1, 0, 1),
        ("routed", None, 2, 1, 1),
    ]


def test_a_policy_begins_and_ends_recording() -> None:
    harness = RecordedHarness(COUNTS)
    client = harness.client()
    client.declare("q")
    client.publish(b"1", "q")
    assert harness.log_rows() == []
    harness.policy(audit="full")
    client.publish(b"2", "q")
    assert told(harness.log_rows(), "event", "reason", "first", "count", "detail") == [
        ("standing", "level", 1, 0, "1"),
        ("standing", None, 0, 1, None),
        ("published", None, 0, 1, None),
        ("routed", None, 1, 1, None),
    ]
    assert harness.recorder.active
    harness.policy()
    client.publish(b"3", "q")
    assert harness.log_rows() == []
    assert not harness.recorder.active


def test_recording_that_begins_again_says_that_a_queue_is_empty() -> None:
    """What the log has of it would stand there for ever."""
    harness = RecordedHarness(COUNTS)
    client = harness.client()
    client.declare("q")
    harness.policy(audit="full")
    client.publish(b"1", "q")
    harness.policy()
    client.call(commands.Queue.Purge(queue="q"), commands.Queue.PurgeOk)
    harness.log_rows()
    harness.policy(audit="full")
    assert told(harness.log_rows(), "reason", "first", "detail") == [("level", 1, "0")]


def test_a_new_queue_has_nothing_to_say(harness: RecordedHarness, client: Client) -> None:
    client.declare("q")
    client.declare("levels", arguments={"x-max-priority": 3})
    assert harness.log_rows() == []


def test_a_policy_is_stronger_than_the_virtual_hosts_level(harness: RecordedHarness, client: Client) -> None:
    client.declare("q")
    harness.policy(audit="off")
    client.publish(b"1", "q")
    assert told(harness.log_rows(), "event") == [("published",)]
    harness.policy(audit="sample(0.5)")
    assert harness.node.queues["/", "q"].recorded_share == SHARE_FULL // 2


def test_queues_that_are_recorded_and_deleted_leave_nothing_on() -> None:
    harness = RecordedHarness(COUNTS)
    client = harness.client()
    harness.policy(audit=FULL.text)
    for name in "ab":
        client.declare(name)
    assert harness.recorder.active
    for name in "ab":
        client.call(commands.Queue.Delete(queue=name), commands.Queue.DeleteOk)
    assert not harness.recorder.active
