"""Confirms in the log: each tag once, with the publication that it is of."""

from __future__ import annotations

from pamqp import commands

from amqpd.vocabulary.audit_levels import COUNTS, FULL
from tests.audit.reading import told
from tests.audit.recorded import RecordedHarness
from tests.harness.harness import Client, Harness


def confirming(harness: Harness) -> Client:
    client = harness.client()
    client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
    return client


def confirms(harness: RecordedHarness) -> list[tuple[object, ...]]:
    return told(harness.log_rows("confirmed", "refused"), "event", "confirm_tag", "count", "publication")


def test_a_persistent_message_that_is_taken_at_once_is_confirmed_behind_its_end(harness: RecordedHarness) -> None:
    """Without a commit; the log says that it was acknowledged before it says that it is safe."""
    client, consumer = confirming(harness), harness.client()
    client.declare("q", durable=True)
    consumer.consume("q", no_ack=True)
    client.publish(b"x", "q", delivery_mode=2)
    harness.automatic = False
    while harness.node.journal.pending:
        harness.commit()
    client.publish(b"x", "q", mandatory=True, delivery_mode=2)
    assert not harness.node.journal.pending
    order = ("published", "routed", "delivered", "acked", "confirmed")
    assert told(harness.log_rows(*order), "event") == [(event,) for event in 2 * order]


def test_what_is_confirmed_together_is_one_row(harness: RecordedHarness) -> None:
    client = confirming(harness)
    client.declare("q", durable=True)
    harness.automatic = False
    for _ in range(3):
        client.publish(b"x", "q", delivery_mode=2)
    assert confirms(harness) == []
    harness.commit()
    assert confirms(harness) == [("confirmed", 1, 3, 1)]


def test_publications_of_others_in_between_make_two_rows(harness: RecordedHarness) -> None:
    client, other = confirming(harness), harness.client()
    client.declare("q", durable=True)
    harness.automatic = False
    client.publish(b"x", "q", delivery_mode=2)
    other.publish(b"x", "q", delivery_mode=2)
    client.publish(b"x", "q", delivery_mode=2)
    harness.commit()
    assert confirms(harness) == [("confirmed", 1, 1, 1), ("confirmed", 2, 1, 3)]


def test_what_was_refused_is_not_confirmed_with_its_neighbours(harness: RecordedHarness) -> None:
    """Also when publications of others lie between those that wait."""
    client, other = confirming(harness), harness.client()
    client.declare("full", durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    client.declare("q", durable=True)
    harness.automatic = False
    client.publish(b"1", "full", delivery_mode=2)
    other.publish(b"x", "q", delivery_mode=2)
    client.publish(b"2", "full", delivery_mode=2)
    client.publish(b"3", "q", delivery_mode=2)
    assert confirms(harness) == [("refused", 2, 1, 3)]
    harness.commit()
    assert confirms(harness) == [("confirmed", 1, 1, 1), ("confirmed", 3, 1, 4)]


def test_what_is_refused_later_is_not_confirmed_either(harness: RecordedHarness) -> None:
    """In front of what was refused before."""
    client = confirming(harness)
    client.declare("full", durable=True, arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    client.declare("q", durable=True)
    harness.automatic = False
    for queue in ("q", "q", "q", "full", "q"):
        client.publish(b"x", queue, delivery_mode=2)
    (channel,) = client.connection.channels.values()
    harness.node.durability.refuse(channel, 2, 2)
    harness.tick()
    assert confirms(harness) == [("refused", 4, 1, 4), ("refused", 2, 1, 2)]
    harness.commit()
    assert confirms(harness) == [("confirmed", 1, 1, 1), ("confirmed", 3, 1, 3), ("confirmed", 5, 1, 5)]


def test_what_is_recorded_nowhere_is_not_confirmed_in_the_log() -> None:
    """Another virtual host's level does not concern it; a queue's own does."""
    harness = RecordedHarness(COUNTS, other=FULL)
    client = confirming(harness)
    client.declare("q", durable=True)
    client.publish(b"1", "q", delivery_mode=2)
    assert harness.log_rows() == []
    harness.policy(audit="full")
    client.publish(b"2", "q", delivery_mode=2)
    assert told(harness.log_rows("published", "confirmed"), "event", "confirm_tag", "publication") == [
        ("published", 2, 2),
        ("confirmed", 2, 2),
    ]
