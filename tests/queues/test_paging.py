"""A queue whose messages are partly on disk only: reads under way while other things happen, bounds, wake-ups."""

from __future__ import annotations

import pytest
from pamqp import commands

from amqpd.vocabulary.limits import Limits
from tests.harness.harness import Client, Harness, Message

Basic, Channel, Confirm, Queue, Tx = (
    commands.Basic,
    commands.Channel,
    commands.Confirm,
    commands.Queue,
    commands.Tx,
)
SMALL = Limits(queue_memory_bytes=4000, backlog_memory_bytes=4000, small_queue_bytes=0)
SIZE = 80_000
"""one message is more than a queue may keep in memory, and more than a queue that nobody minds"""


class Paged:
    """A queue `q` with messages 0..count-1, each in a row of its own; nearly all of them on disk only."""

    def __init__(self, count: int, **properties: int) -> None:
        self.harness = Harness(SMALL)
        self.publisher = self.harness.client()
        self.publisher.declare("q", durable=True)
        for number in range(count):
            self.publish(number, **{"delivery_mode": 2, **properties})
        self.client = self.harness.client()

    def publish(self, number: int, **properties: int) -> None:
        self.publisher.publish(b"%04d" % number + bytes(SIZE), **properties)

    @property
    def backlog(self):
        return self.harness.node.queues["/", "q"].backlog

    def numbers(self, client: Client | None = None) -> list[int]:
        return [int(body[:4]) for body in (client or self.client).bodies()]

    def hold_reads(self) -> None:
        """From now on reads, commits and the store's answers come when the test says so."""
        self.harness.automatic = False

    def read_once(self) -> None:
        """The oldest read that was asked for comes back."""
        reads, self.harness.reads = self.harness.reads, []
        reads, later = reads[:1], reads[1:]
        queue, request = reads[0]
        rows = self.harness.rows.get(request.queue_id, {})
        found = [row for f, row in sorted(rows.items()) if f <= request.last and row.last_seq >= request.first]
        self.harness.node.loaded(queue, request, found[:1])
        self.harness.reads = later + self.harness.node.tick()


def test_a_consumer_without_credit_causes_no_reads_without_end() -> None:
    """What is read ahead must fit beside what is there, or it would leave memory and be read again, for ever."""
    paged = Paged(10)
    paged.hold_reads()
    client = paged.client
    client.raw(b"")
    paged.harness.automatic = True
    paged.harness.automatic = False
    client.send(Basic.Qos(prefetch_count=1))
    client.send(Basic.Consume(queue="q", consumer_tag="t"))
    reads = 0
    while paged.harness.reads:
        paged.read_once()
        reads += 1
        assert reads < 30, "the same rows are read again and again"
    assert paged.numbers() == [0]
    for number in range(1, 10):
        client.send(Basic.Ack(number))
        while paged.harness.reads:
            paged.read_once()
            reads += 1
        assert paged.numbers() == [number]
    assert reads <= 30, "each row once, and now and then once more"


def test_everything_comes_in_order_with_requeues_in_between() -> None:
    paged = Paged(12)
    client = paged.client
    client.call(Basic.Qos(prefetch_count=4), Basic.QosOk)
    client.consume("q")
    assert paged.numbers() == [0, 1, 2, 3]
    client.send(Basic.Nack(2, False, True))
    assert paged.numbers() == [1]
    client.send(Basic.Nack(0, True, True))
    assert paged.numbers() == [0, 1, 2, 3]
    client.send(Basic.Ack(0, True))
    assert paged.numbers() == [4, 5, 6, 7]
    client.call(Basic.Cancel("t"), Basic.CancelOk)
    client.send(Basic.Nack(0, True, True))
    client.call(Basic.Qos(prefetch_count=0), Basic.QosOk)
    client.consume("q", "again")
    assert paged.numbers() == [4, 5, 6, 7, 8, 9, 10, 11]


@pytest.mark.parametrize("then", ["purge", "delete", "cancel", "close", "lose"])
def test_a_read_comes_back_after(then: str) -> None:
    paged = Paged(6)
    client = paged.client
    client.call(Basic.Qos(prefetch_count=2), Basic.QosOk)
    paged.hold_reads()
    client.send(Basic.Consume(queue="q", consumer_tag="t"))
    client.expect(Basic.ConsumeOk)
    while not paged.harness.reads:
        paged.read_once()
    other = paged.publisher
    if then == "purge":
        other.send(Queue.Purge(queue="q", nowait=True))
    elif then == "delete":
        other.send(Queue.Delete(queue="q", nowait=True))
    elif then == "cancel":
        client.send(Basic.Cancel("t"))
    elif then == "close":
        client.send(Channel.Close(200, "", 0, 0))
    else:
        client.lose()
    paged.harness.automatic = True
    paged.harness.step()
    assert not paged.harness.bugs
    if then == "delete":
        assert ("/", "q") not in paged.harness.node.queues
        return
    late = paged.harness.client()
    paged.publish(99, delivery_mode=2)
    late.consume("q")
    taken = set(paged.numbers(client)) if then == "cancel" else set()
    expected = [99] if then == "purge" else [*(n for n in range(6) if n not in taken), 99]
    if then == "purge":
        # What was delivered before stays with the first consumer; it gets nothing of what was purged.
        first = paged.numbers(client)
        assert len(first) <= 3
        expected = [] if 99 in first else [99]
    assert paged.numbers(late) == expected


def test_a_get_that_waits_for_a_read_keeps_the_order_of_its_channel() -> None:
    paged = Paged(4)
    client = paged.client
    # Take what is in memory anyway, so that the next one must be read.
    client.consume("q", no_ack=True)
    client.bodies()
    client.call(Basic.Cancel("t"), Basic.CancelOk)
    for number in range(4, 8):
        paged.publish(number, delivery_mode=2)
    message = client.call(Basic.Get(queue="q"), Message)
    paged.hold_reads()
    client.send(Basic.Get(queue="q"))
    client.send(Basic.Nack(message.tag, False, True))
    client.send(Basic.Get(queue="q"))
    client.send(Queue.Declare(queue="q", passive=True))
    paged.harness.automatic = True
    paged.harness.step()
    got = client.take(Message)
    assert [int(each.body[:4]) for each in got] == [5, 4]
    assert client.expect(Queue.DeclareOk).message_count == 2


def test_a_get_that_waits_is_answered_when_the_queue_is_purged_or_deleted() -> None:
    for method in (Queue.Purge(queue="q", nowait=True), Queue.Delete(queue="q", nowait=True)):
        paged = Paged(3)
        client = paged.client
        queue = paged.harness.node.queues["/", "q"]
        paged.hold_reads()
        client.send(Basic.Get(queue="q", no_ack=True))
        client.take(Message)
        client.send(Basic.Get(queue="q", no_ack=True))
        assert queue.getters, "it should wait for a read"
        paged.publisher.send(method)
        paged.harness.automatic = True
        paged.harness.step()
        client.expect(Basic.GetEmpty)
        assert not queue.getters


def test_a_row_that_is_missing_stops_the_queue_and_is_not_asked_for_again_and_again() -> None:
    paged = Paged(5)
    client = paged.client
    paged.hold_reads()
    client.send(Basic.Consume(queue="q", no_ack=True))
    queue_id = paged.harness.node.queues["/", "q"].record.id
    assert paged.harness.reads
    del paged.harness.rows[queue_id][paged.harness.reads[0].request.first]
    missing = paged.harness.reads[0].request.first
    paged.read_once()
    paged.harness.automatic = True
    paged.harness.step()
    assert paged.numbers() == list(range(missing))
    assert client.take(Basic.Cancel)
    assert not [read for read in paged.harness.reads_done if read[1] <= missing <= read[2]]


def test_settled_ranges_never_cross_the_edge_of_a_row() -> None:
    paged = Paged(0)
    harness, client = paged.harness, paged.client
    for _ in range(2):
        harness.automatic = False
        for number in range(3):
            paged.publisher.publish(b"%d" % number, delivery_mode=2)
        harness.automatic = True
        harness.step()
    client.consume("q")
    # 0 stays; 1, 2 are the rest of the first row; 3 begins the second.
    harness.automatic = False
    client.send(Basic.Ack(2))
    client.send(Basic.Ack(3))
    client.send(Basic.Ack(4))
    harness.commit()
    rows = harness.rows[harness.node.queues["/", "q"].record.id]
    for settled in harness.transactions[-1].settled:
        assert any(row.first_seq <= settled.first_seq and settled.last_seq <= row.last_seq for row in rows.values())


@pytest.mark.parametrize(("count", "delivery_mode", "on_disk"), [(3, 1, False), (3, 2, True), (8, 1, True)])
def test_a_deleted_queue_gives_its_memory_back_and_writes_nothing_more(
    count: int, delivery_mode: int, on_disk: bool
) -> None:
    """Though a client still has a message of it, and settles it later. A queue that the disk never heard of is not
    dropped from it either: that would be a commit for nothing."""
    paged = Paged(count, delivery_mode=delivery_mode)
    client, harness = paged.client, paged.harness
    queue = harness.node.queues["/", "q"]
    client.consume("q")
    messages = client.messages()
    paged.publisher.call(Queue.Delete(queue="q"), Queue.DeleteOk)
    client.take(Basic.Cancel)
    assert not queue.backlog.store.segments
    client.send(Basic.Nack(messages[0].tag, False, True))
    client.send(Basic.Ack(0, True))
    client.call(Channel.Close(200, "", 0, 0), Channel.CloseOk)
    harness.step()
    dropped = [i for i, each in enumerate(harness.transactions) if queue.record.id in each.dropped]
    assert len(dropped) == on_disk
    for transaction in harness.transactions[dropped[0] if dropped else 0 :]:
        assert not transaction.rows
        assert not transaction.settled
        assert queue.record.id not in transaction.delivered


def test_credit_that_comes_back_while_a_read_is_under_way_is_not_forgotten() -> None:
    paged = Paged(8)
    client = paged.client
    client.call(Basic.Qos(prefetch_count=1), Basic.QosOk)
    client.consume("q")
    seen = paged.numbers()
    tag = 1
    paged.hold_reads()
    while len(seen) < 8:
        client.send(Basic.Ack(tag))
        tag += 1
        got = paged.numbers()
        while not got:
            assert paged.harness.reads, f"stalled after {seen}"
            paged.read_once()
            got = paged.numbers()
        seen += got
    assert seen == list(range(8))


def test_a_restart_in_the_middle_of_paging_keeps_everything_in_order() -> None:
    paged = Paged(6)
    client = paged.client
    client.call(Basic.Qos(prefetch_count=3), Basic.QosOk)
    client.consume("q")
    assert paged.numbers() == [0, 1, 2]
    client.send(Basic.Ack(2))
    assert paged.numbers() == [3]
    paged.harness.step()  # the mark of what was delivered reaches the disk
    paged.harness.restart()
    again = paged.harness.client()
    again.consume("q")
    messages = again.messages()
    assert [int(each.body[:4]) for each in messages] == [0, 2, 3, 4, 5]
    # What was delivered says so; what was not may: the mark runs ahead.
    assert [each.redelivered for each in messages][:3] == [True, True, True]


def test_what_was_delivered_before_two_restarts_is_still_redelivered() -> None:
    """The second run's mark of what was delivered begins at the queue's front: it may not hide the first run's."""
    paged = Paged(6)
    client = paged.client
    client.consume("q")
    assert paged.numbers() == [0, 1, 2, 3, 4, 5]
    paged.harness.step()
    paged.harness.restart()
    again = paged.harness.client()
    again.call(Basic.Qos(prefetch_count=1), Basic.QosOk)
    again.consume("q")
    assert [message.redelivered for message in again.messages()] == [True]
    again.call(Basic.Cancel("t"), Basic.CancelOk)
    again.lose()
    paged.harness.step()
    paged.harness.restart()
    last = paged.harness.client()
    last.consume("q")
    messages = last.messages()
    assert [int(message.body[:4]) for message in messages] == [0, 1, 2, 3, 4, 5]
    assert [message.redelivered for message in messages] == [True] * 6
