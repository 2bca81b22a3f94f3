"""A backlog between memory and disk: what leaves, what comes back, and the races between."""

from __future__ import annotations

import pytest
from pamqp import commands

from amqpd.queues.messages import RowsWanted
from amqpd.queues.paging import MISSING
from amqpd.queues.segment import RUN_BYTES
from amqpd.session.services import Read
from amqpd.vocabulary.limits import Limits
from tests.harness.harness import Client, Harness

BODY_BYTES = 500
# Seven messages, each a run of its own.
MEMORY_BYTES = 7 * (BODY_BYTES + 71 + RUN_BYTES)
LIMITS = Limits(queue_memory_bytes=MEMORY_BYTES, backlog_memory_bytes=MEMORY_BYTES, small_queue_bytes=500)


@pytest.fixture
def harness() -> Harness:
    return Harness(LIMITS, automatic=False)


def filled(harness: Harness, rows: int, persistent: bool = True) -> Client:
    """A queue of `rows` messages, each a row of the journal, and nobody who consumes."""
    harness.automatic = True
    client = harness.client()
    client.declare("q", durable=True)
    harness.automatic = False
    for number in range(rows):
        publish(harness, client, number, persistent)
    return client


def publish(harness: Harness, client: Client, number: int, persistent: bool = True) -> None:
    client.publish(b"%03d" % number + bytes(BODY_BYTES), "q", delivery_mode=2 if persistent else 1)
    harness.commit()


def numbers(client: Client) -> list[int]:
    return [int(message.body[:3]) for message in client.messages()]


def on_disk_only(harness: Harness) -> list[tuple[int, int]]:
    return [(s.first, s.last) for s in harness.node.queues["/", "q"].backlog.store.segments if s.runs is None]


@pytest.mark.parametrize("persistent", [True, False])
def test_a_backlog_leaves_memory_as_one_stretch_and_comes_back_in_order(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, persistent: bool
) -> None:
    monkeypatch.setattr("amqpd.queues.store.SEGMENT_BYTES_MAX", BODY_BYTES)
    client = filled(harness, 40, persistent)
    backlog = harness.node.queues["/", "q"].backlog
    assert backlog.store.memory_bytes <= LIMITS.queue_memory_bytes
    assert len(on_disk_only(harness)) == 1, "neighbours on disk are one entry"
    harness.automatic = True
    client.consume("q", no_ack=True)
    assert numbers(client) == list(range(40))
    assert backlog.store.memory_bytes == 0


@pytest.mark.parametrize("body_bytes", [16, BODY_BYTES])
def test_transient_messages_that_leave_memory_in_many_transactions_come_back_in_order(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, body_bytes: int
) -> None:
    """The disk is slower than the publisher, so most of them wait for a later transaction than the one to come."""
    monkeypatch.setattr("amqpd.queues.store.SEGMENT_BYTES_MAX", body_bytes)
    monkeypatch.setattr("amqpd.journal.buffer.PAGED_BYTES_MAX", 3 * body_bytes)
    harness.automatic = True
    client = harness.client()
    client.declare("q", durable=True)
    harness.automatic = False
    for number in range(200):
        client.publish(b"%03d" % number + bytes(body_bytes), "q", delivery_mode=1)
        harness.step()
        if number % 10 == 0:
            harness.commit()
    backlog = harness.node.queues["/", "q"].backlog
    assert backlog.store.memory_bytes > LIMITS.queue_memory_bytes
    for _ in range(200):
        harness.commit()
    assert backlog.store.memory_bytes <= LIMITS.queue_memory_bytes
    assert not harness.node.journal.pending
    harness.automatic = True
    client.consume("q", no_ack=True)
    assert numbers(client) == list(range(200))
    assert (backlog.store.memory_bytes, backlog.ready, backlog.unacked) == (0, 0, 0)


def test_what_is_evicted_while_a_read_is_under_way_does_not_look_like_a_lost_row(harness: Harness) -> None:
    """Found by the load generator: the evicted neighbour became one with what was being read, and the row that came
    back did not begin where the stretch did."""
    client = filled(harness, 20)
    client.send(commands.Basic.Qos(prefetch_count=1))
    client.send(commands.Basic.Consume(queue="q", consumer_tag="t"))
    (stretch,) = on_disk_only(harness)
    queue = harness.node.queues["/", "q"]
    harness.reads = [Read(queue, RowsWanted(queue.messages, False, *stretch))]
    queue.messages.shrink(0)
    assert on_disk_only(harness)[0][0] < stretch[0], "the stretch grew at its front"
    harness.read()
    harness.automatic = True
    seen = numbers(client)
    while len(seen) < 20:
        client.send(commands.Basic.Ack(0, True))
        seen += numbers(client)
    assert seen == list(range(20))


def test_a_row_that_is_missing_is_damage_and_never_skipped(harness: Harness) -> None:
    filled(harness, 20)
    (stretch,) = on_disk_only(harness)
    queue = harness.node.queues["/", "q"]
    del harness.rows[queue.record.id][stretch[0]]
    harness.reads = [Read(queue, RowsWanted(queue.messages, False, *stretch))]
    harness.read()
    [damaged] = queue.backlog.store.damaged.values()
    assert (damaged.first, damaged.last, damaged.damage) == (stretch[0], stretch[0], MISSING)


def test_a_purge_overtakes_a_read(harness: Harness) -> None:
    client = filled(harness, 20)
    queue = harness.node.queues["/", "q"]
    (stretch,) = on_disk_only(harness)
    rows = [row for row in harness.rows[queue.record.id].values() if row.first_seq >= stretch[0]]
    client.send(commands.Queue.Purge(queue="q"))
    assert client.expect(commands.Queue.PurgeOk).message_count == 20
    harness.node.loaded(queue, RowsWanted(queue.messages, False, *stretch), rows)
    assert (queue.backlog.ready, queue.messages.memory_bytes, queue.backlog.store.segments) == (0, 0, [])
    harness.commit()
    harness.commit()
    assert not harness.rows[queue.record.id]


def test_get_waits_for_the_read_and_so_does_what_is_behind_it(harness: Harness) -> None:
    client = filled(harness, 20)
    harness.node.queues["/", "q"].messages.shrink(0)
    for _ in range(3):
        client.send(commands.Basic.Get(queue="q", no_ack=True))
    assert numbers(client) == [0], "the segment at the cursor stays in memory"
    harness.automatic = True
    harness.step()
    assert numbers(client) == [1, 2]


def test_messages_taken_from_memory_that_left_it_meanwhile_are_read_again_for_a_requeue(harness: Harness) -> None:
    client = filled(harness, 6)
    harness.automatic = True
    client.consume("q")
    assert numbers(client) == list(range(6))
    harness.automatic = False
    harness.node.queues["/", "q"].messages.shrink(0)
    assert on_disk_only(harness), "unacked messages may leave memory too"
    harness.automatic = True
    client.send(commands.Basic.Nack(0, True, True))
    messages = client.messages()
    assert [int(message.body[:3]) for message in messages] == list(range(6))
    assert all(message.redelivered for message in messages)


def test_after_a_crash_what_may_have_been_delivered_is_redelivered(harness: Harness) -> None:
    client = filled(harness, 6)
    client.send(commands.Basic.Qos(prefetch_count=2))
    client.send(commands.Basic.Consume(queue="q", consumer_tag="t"))
    harness.commit()
    harness.restart()
    harness.automatic = True
    again = harness.client()
    again.consume("q", "again")
    assert all(message.redelivered for message in again.messages()[:2])


def test_after_an_orderly_end_only_what_was_delivered_is_redelivered(harness: Harness) -> None:
    client = filled(harness, 6)
    client.send(commands.Basic.Qos(prefetch_count=2))
    client.send(commands.Basic.Consume(queue="q", consumer_tag="t"))
    harness.commit()
    client.lose()
    while harness.node.journal.pending:
        harness.commit()
    harness.restart()
    harness.automatic = True
    again = harness.client()
    again.consume("q", "again")
    assert [message.redelivered for message in again.messages()] == [True, True, False, False, False, False]


def test_a_purge_in_steps_leaves_what_came_meanwhile_and_left_memory_too(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that the purge takes and rows that it leaves are one stretch on disk by then."""
    monkeypatch.setattr("amqpd.queues.messages.PURGED_AT_ONCE_MAX", 1)
    client = filled(harness, 20)
    queue, gone = harness.node.queues["/", "q"], list[object]()
    steps = queue.purging(gone.append)
    next(steps)
    for number in range(20, 40):
        publish(harness, client, number)
    assert any(first < 20 <= last for first, last in on_disk_only(harness))
    list(steps)
    assert gone == [20]
    harness.automatic = True
    client.consume("q")
    assert numbers(client) == list(range(20, 40))
    assert not queue.damage


def test_what_had_come_back_too_often_before_a_restart_dies_without_its_neighbours(harness: Harness) -> None:
    """They are one stretch on disk, and nothing of it has to be read."""
    harness.automatic = True
    client = harness.client()
    client.declare("q", durable=True, arguments={"x-queue-type": "quorum", "x-delivery-limit": 3})
    for number in range(20):
        publish(harness, client, number)
    queue_id = harness.node.queues["/", "q"].record.id
    harness.counts.append((queue_id, 7, 4))
    harness.restart()
    client, queue = harness.client(), harness.node.queues["/", "q"]
    harness.node.to_dispatch.add(queue)
    harness.step()
    client.consume("q")
    assert numbers(client) == [number for number in range(20) if number != 7]
    assert not queue.damage
