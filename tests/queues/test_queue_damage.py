"""A damaged row stops its queue and nothing else: who gets what, what goes on, and what is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, frame

from amqpd.kernel.rows import parse_row
from amqpd.management.figures.overview import overview
from amqpd.management.figures.queue_facts import queue_facts
from amqpd.queues.damage import TOLD_MAX
from amqpd.queues.messages import RowsWanted
from amqpd.queues.queue import Queue
from amqpd.vocabulary.records import PolicyRecord, Put
from tests.harness.harness import Client, Harness, Message, publish_bytes
from tests.harness.invariants import check_node

Basic, Channel, Confirm = commands.Basic, commands.Channel, commands.Confirm
WHY = "a byte of it is not what was written"
DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}


class Scene:
    """A durable queue `q` with messages 0..count-1 on disk only, each a row of its own, some of them damaged; and
    `other` and `dead`, which are whole. The node has just started."""

    def __init__(self, count: int, damaged: Sequence[int], priorities: Sequence[int] = (), **arguments: Any) -> None:
        self.harness = Harness()
        client = self.harness.client()
        client.declare("q", durable=True, arguments=arguments)
        client.declare("other", durable=True)
        client.declare("dead", durable=True)
        for number in range(count):
            more = {"priority": priorities[number]} if priorities else {}
            client.publish(b"%d" % number, delivery_mode=2, **more)
        client.publish(b"theirs", "other", delivery_mode=2)
        client.lose()
        self.damage(damaged)
        self.restart()

    def damage(self, numbers: Sequence[int]) -> None:
        for queue_id, rows in self.harness.rows.items():
            for first, row in rows.items():
                if row.data and any(b"\x03\x00\x01\x00\x00\x00" in row.data for _ in (0,)):
                    body = row.data.rpartition(b"\x03\x00\x01")[2][4:-1]
                    if body.isdigit() and int(body) in numbers:
                        self.harness.damaged[queue_id, first] = WHY

    def restart(self) -> None:
        self.harness.restart()
        self.harness.step()
        self.client = self.harness.client()

    @property
    def queue(self) -> Queue:
        return self.harness.node.queues["/", "q"]

    def told(self, event: str) -> list[dict[str, Any]]:
        return [fields for each, fields in self.harness.logged if each == event]

    def numbers(self, client: Client | None = None) -> list[int]:
        return [int(body) for body in (client or self.client).bodies()]

    def refused(self, method: Any) -> str:
        """On a channel of its own: the text of the 406."""
        self.client.take(Basic.Cancel)
        self.client.channel(9)
        self.client.send(method, 9)
        close = self.client.expect(Channel.Close)
        assert close.reply_code == 406
        self.client.send(Channel.CloseOk(), 9)
        return str(close.reply_text)

    def free(self) -> None:
        """What an operator does in the end: the damaged messages that are known leave."""
        for damage in self.queue.damaged():
            damage.level.backlog.leave(damage.segment.first, damage.segment.last, 0)
        self.harness.node.to_dispatch.add(self.queue)
        self.harness.step()

    def wait(self, now_ms: int) -> None:
        self.harness.node.now_ms = now_ms
        self.harness.step()


def test_what_stands_before_is_delivered_and_nothing_else_until_it_is_gone() -> None:
    scene = Scene(6, [3])
    scene.client.consume("q", "mine")
    assert scene.numbers() == [0, 1, 2]
    assert [cancel.consumer_tag for cancel in scene.client.take(Basic.Cancel)] == ["mine"]
    assert (scene.queue.backlog.ready, scene.queue.backlog.unacked, len(scene.queue.consumers)) == (3, 3, 0)
    scene.client.send(Basic.Ack(2, True))
    assert scene.queue.backlog.unacked == 1
    scene.client.send(Basic.Reject(3, True))
    scene.client.consume("q", "again")
    assert scene.numbers() == [2], "what came back stands before it"
    assert scene.client.take(Basic.Cancel)
    scene.client.consume("other")
    assert scene.client.bodies() == [b"theirs"]
    scene.free()
    scene.client.consume("q", "third")
    assert scene.numbers() == [4, 5]
    assert not scene.client.take(Basic.Cancel)
    check_node(scene.harness.node)
    assert not scene.harness.bugs


def test_a_client_that_tries_again_is_told_why_without_a_read_and_without_a_line_each() -> None:
    scene = Scene(4, [1])
    scene.client.consume("q", no_ack=True)
    assert scene.numbers() == [0]
    scene.client.take(Basic.Cancel)
    reads = len(scene.harness.reads_done)
    sentence = (
        "PRECONDITION_FAILED - messages 1..1 of queue 'q' in vhost '/' are damaged on the broker's disk; ask its "
        "operator: amqpd message quarantine, or delete"
    )
    for method in (Basic.Consume(queue="q"), Basic.Get(queue="q")) * 20:
        assert scene.refused(method) == sentence
    assert len(scene.harness.reads_done) == reads
    [fenced] = scene.told("queue_fenced")
    assert (fenced["queue"], fenced["vhost"], fenced["first"], fenced["last"]) == ("q", "/", 1, 1)
    assert fenced["reason"] == WHY
    assert "amqpd message quarantine" in fenced["remedy"]
    assert len(scene.told("channel_error")) == 1
    scene.wait(60_000)
    scene.refused(Basic.Get(queue="q"))
    assert len(scene.told("channel_error")) == 2


def test_a_get_that_meets_it_is_answered_and_the_rest_goes_on() -> None:
    scene = Scene(3, [1])
    scene.client.send(Basic.Get(queue="q", no_ack=True))
    assert scene.numbers() == [0]
    scene.refused(Basic.Get(queue="q"))
    scene.client.call(Confirm.Select(), Confirm.SelectOk)
    scene.client.publish(b"3", delivery_mode=2)
    assert scene.client.take(Basic.Ack)
    assert scene.client.declare("q", passive=True).message_count == 3
    assert scene.client.declare("q", durable=True).message_count == 3
    assert scene.client.call(commands.Queue.Purge(queue="q"), commands.Queue.PurgeOk).message_count == 3
    scene.client.publish(b"4", delivery_mode=2)
    scene.client.take(Basic.Ack)
    scene.client.consume("q")
    assert scene.numbers() == [4]
    assert scene.told("queue_fence_cleared")
    assert not scene.queue.damage
    scene.harness.commit()
    assert len(scene.harness.rows[scene.queue.record.id]) == 1, "it is gone from the disk too"


def test_the_log_does_not_name_each_of_very_many() -> None:
    scene = Scene(TOLD_MAX + 30, range(TOLD_MAX + 30))
    rows = scene.harness.rows_of(scene.queue.record.id, 0, 1000)
    request = RowsWanted(scene.queue.messages, False, 0, rows[-1].last_seq)
    scene.harness.node.loaded(scene.queue, request, rows)
    assert len(scene.told("queue_fenced")) == TOLD_MAX + 1
    assert len(scene.queue.damaged()) == TOLD_MAX + 30
    scene.refused(Basic.Get(queue="q"))


def test_what_is_damaged_is_deleted_with_the_queue() -> None:
    scene = Scene(3, [1])
    scene.refused(Basic.Get(queue="q")) if scene.queue.damage else scene.client.consume("q", no_ack=True)
    scene.client.take(Basic.Cancel)
    scene.client.bodies()
    assert scene.client.call(commands.Queue.Delete(queue="q"), commands.Queue.DeleteOk).message_count == 2
    assert overview(scene.harness.node)["queues_fenced"] == []


def test_facts_name_it() -> None:
    scene = Scene(5, [2, 3])
    node = scene.harness.node
    assert queue_facts(scene.queue, 0)["fenced"] is None, "nobody has read it"
    scene.client.consume("q")
    facts = queue_facts(scene.queue, 0)
    assert facts["state"] == "fenced"
    damage = {"first": 2, "last": 2, "reason": WHY, "messages": 2, "rows": 2, "blocked": True}
    assert facts["fenced"] == damage
    assert overview(node)["queues_fenced"] == [{"vhost": "/", "name": "q", **damage}]
    scene.client.send(Basic.Reject(1, True))
    facts = queue_facts(scene.queue, 0)
    assert (facts["state"], facts["fenced"]["blocked"]) == ("running", False)


def test_a_row_that_does_not_parse_is_damage_too() -> None:
    scene = Scene(3, [])
    rows = scene.harness.rows[scene.queue.record.id]
    rows[1].data = rows[1].data[:-1]
    scene.client.consume("q")
    assert scene.numbers() == [0]
    assert scene.client.take(Basic.Cancel)
    [fenced] = scene.told("queue_fenced")
    assert "not what was written" in fenced["reason"]


def test_a_row_with_other_messages_than_the_index_said_is_damage_and_not_read_without_end() -> None:
    scene = Scene(4, [])
    rows = scene.harness.rows[scene.queue.record.id]
    rows[1].last_seq, rows[1].data = 2, rows[1].data + rows[2].data + rows[3].data
    scene.client.consume("q")
    assert scene.numbers() == [0]
    assert scene.client.take(Basic.Cancel)
    assert len(scene.harness.reads_done) < 5
    check_node(scene.harness.node)


@pytest.mark.parametrize("durable", [True, False])
def test_an_unused_queue_does_not_go_because_of_its_damage(durable: bool) -> None:
    scene = Scene(3, [1], **{"x-expires": 1000})
    scene.client.consume("q", no_ack=True)
    assert scene.client.take(Basic.Cancel)
    for at in range(1, 20):
        scene.wait(at * 900)
    assert ("/", "q") in scene.harness.node.queues
    scene.free()
    for at in range(20, 25):
        scene.wait(at * 900)
    assert ("/", "q") not in scene.harness.node.queues


def test_a_queue_that_goes_with_its_last_consumer_does_not_go_with_one_that_damage_took_from_it() -> None:
    scene = Scene(0, [])
    scene.client.declare("auto", durable=True, auto_delete=True)
    for number in range(3):
        scene.client.publish(b"%d" % number, "auto", delivery_mode=2)
    scene.damage([1])
    scene.restart()
    scene.client.consume("auto")
    assert scene.numbers() == [0]
    assert scene.client.take(Basic.Cancel)
    scene.client.lose()
    assert scene.harness.node.queues["/", "auto"].backlog.ready == 3


def test_all_consumers_are_told() -> None:
    scene = Scene(3, [1])
    consumes = [Basic.Consume(queue="q", consumer_tag=tag) for tag in "abc"]
    scene.client.raw(b"".join(frame.marshal(each, 1) for each in consumes))
    assert scene.numbers() == [0]
    assert {cancel.consumer_tag for cancel in scene.client.take(Basic.Cancel)} == {"a", "b", "c"}
    check_node(scene.harness.node)


def test_each_priority_has_its_own_numbers_where_dead_letters_are_put_back() -> None:
    scene = Scene(6, [2, 3], [0, 0, 1, 2, 2, 1], **{"x-max-priority": 3, "x-message-ttl": 5000, **DEAD})
    scene.wait(5001)
    scene.wait(6002)
    assert (scene.queue.backlog.ready, scene.queue.backlog.unacked) == (2, 0)
    scene.client.consume("dead", "dead")
    assert sorted(scene.numbers()) == [0, 1, 4, 5]
    scene.refused(Basic.Get(queue="q"))
    assert {fields["first"] >> 55 for fields in scene.told("queue_fenced")} == {1, 2}
    check_node(scene.harness.node)


def test_without_a_dead_letter_exchange_it_expires_unread() -> None:
    scene = Scene(4, [1], **{"x-message-ttl": 5000})
    scene.client.consume("q")
    assert scene.numbers() == [0]
    scene.wait(4999)
    scene.client.publish(b"4", delivery_mode=2)
    scene.wait(5001)
    assert scene.told("queue_fence_cleared")
    assert scene.client.take(Basic.Cancel)
    scene.client.consume("q")
    assert scene.numbers() == [4]
    assert scene.queue.facts.expired == 3


@pytest.mark.parametrize("known", [True, False])
def test_with_one_it_stays_and_what_stands_behind_it_expires(known: bool) -> None:
    """Whether its damage is found before its time or because of it."""
    scene = Scene(5, [1, 3], **{"x-message-ttl": 5000, **DEAD})
    if known:
        scene.client.consume("q")
        assert scene.numbers() == [0]
        scene.client.send(Basic.Reject(1, True))
    scene.wait(5001)
    for at in range(5002, 20_000, 1000):
        scene.wait(at)
    assert (scene.queue.backlog.ready, scene.queue.backlog.unacked) == (2, 0)
    assert len(scene.told("queue_fenced")) == 2
    scene.refused(Basic.Get(queue="q"))
    scene.client.consume("dead")
    assert scene.numbers() == [0, 2, 4]
    reads = len(scene.harness.reads_done)
    for at in range(20_000, 30_000, 1000):
        scene.wait(at)
    assert len(scene.harness.reads_done) == reads
    check_node(scene.harness.node)
    scene.free()
    assert scene.queue.backlog.ready == 0


def test_once_nobody_asks_for_its_body_any_more_it_expires() -> None:
    scene = Scene(3, [1], **{"x-message-ttl": 5000})
    dead_letters = {"dead-letter-exchange": "", "dead-letter-routing-key": "dead"}
    policy = PolicyRecord("/", "dlx", "q", "queues", dead_letters)
    scene.harness._apply([Put(policy)])
    scene.wait(5001)
    scene.wait(6002)
    assert scene.queue.backlog.ready == 1
    scene.harness._apply([Put(PolicyRecord("/", "dlx", "q", "queues", {"max-length": 9}))])
    scene.wait(6003)
    assert scene.queue.backlog.ready == 0
    assert scene.told("queue_fence_cleared")


def test_a_rejected_message_that_cannot_be_dead_lettered_is_back_in_line() -> None:
    scene = Scene(4, [], **DEAD)
    scene.client.call(Basic.Qos(prefetch_count=2), Basic.QosOk)
    scene.client.consume("q")
    assert scene.numbers() == [0, 1]
    for segment in scene.queue.backlog.store.segments[:2]:
        scene.queue.backlog.store.memory_bytes -= segment.memory_bytes
        segment.evict()
    scene.damage([1])
    scene.client.send(Basic.Reject(2, False))
    assert scene.client.take(Basic.Cancel)
    assert scene.numbers() == [2], "its credit, before the disk answered"
    assert (scene.queue.backlog.ready, scene.queue.backlog.unacked) == (2, 2)
    scene.refused(Basic.Get(queue="q"))
    scene.client.send(Basic.Reject(1, False))
    scene.client.consume("dead", "dead")
    assert scene.numbers() == [0], "others die"
    check_node(scene.harness.node)


def test_over_the_length_limit_it_is_dropped_unread() -> None:
    scene = Scene(4, [0, 1], **{"x-max-length": 4})
    scene.client.consume("q")
    assert scene.client.take(Basic.Cancel)
    for number in (4, 5):
        scene.client.publish(b"%d" % number, delivery_mode=2)
    assert scene.queue.facts.dropped == 2
    scene.client.consume("q")
    assert scene.numbers() == [2, 3, 4, 5]


def test_over_a_limit_of_bytes_too() -> None:
    scene = Scene(4, [0, 1], **{"x-max-length-bytes": 4})
    scene.client.consume("q")
    scene.client.publish(b"4", delivery_mode=2)
    assert (scene.queue.facts.dropped, scene.queue.backlog.ready) == (1, 4)


def test_it_is_not_dropped_where_it_would_be_dead_lettered() -> None:
    scene = Scene(4, [1], **{"x-max-length": 4, **DEAD})
    for number in range(4, 8):
        scene.client.publish(b"%d" % number, delivery_mode=2)
    assert scene.queue.backlog.ready == 7, "what is in front of it has gone, and no more"
    scene.free()
    assert scene.queue.backlog.ready == 4
    scene.client.consume("dead")
    assert scene.numbers() == [0, 2, 3]


def test_a_higher_priority_goes_first_and_a_lower_one_waits_behind_it() -> None:
    scene = Scene(4, [2], [1, 1, 2, 2], **{"x-max-priority": 3})
    scene.client.consume("q")
    assert scene.numbers() == [], "2 would be first, 3 is behind it, and 0 and 1 are lower"
    assert scene.client.take(Basic.Cancel)
    scene.client.publish(b"9", delivery_mode=2, priority=3)
    scene.client.consume("q")
    assert scene.numbers() == [9]
    assert scene.client.take(Basic.Cancel)
    [fenced] = scene.told("queue_fenced")
    assert (fenced["first"] >> 55, fenced["first"] & 1) == (2, 0)


def test_a_message_that_came_back_too_often_waits_for_an_operator_when_it_is_damaged() -> None:
    scene = Scene(3, [], **{"x-queue-type": "quorum", "x-delivery-limit": 1, **DEAD})
    scene.client.consume("q")
    assert scene.numbers() == [0, 1, 2]
    scene.client.send(Basic.Reject(2, True))
    assert scene.numbers() == [1]
    scene.client.call(Basic.Cancel("t"), Basic.CancelOk)
    scene.client.send(Basic.Reject(4, True))
    scene.restart()
    scene.client.consume("dead", "dead")
    assert scene.numbers() == [1]
    scene = Scene(3, [], **{"x-queue-type": "quorum", "x-delivery-limit": 0, **DEAD})
    scene.client.consume("q")
    assert scene.numbers() == [0, 1, 2]
    for segment in scene.queue.backlog.store.segments:
        scene.queue.backlog.store.memory_bytes -= segment.memory_bytes
        segment.evict()
    scene.damage([1])
    scene.client.send(Basic.Reject(2, True))
    assert scene.client.take(Basic.Cancel)
    scene.client.consume("dead", "dead")
    assert scene.numbers() == []
    assert scene.queue.backlog.ready == 1
    scene.restart()
    scene.client.consume("q", no_ack=True)
    assert scene.numbers() == [0]
    scene.refused(Basic.Get(queue="q"))
    check_node(scene.harness.node)


def test_a_damaged_row_of_messages_that_fall_due_in_any_order_holds_back_no_other() -> None:
    scene = Scene(0, [])
    client = later(scene)
    for first in (0, 3, 6):
        delays = {first: 3000, first + 1: 1000, first + 2: 2000}
        client.raw(
            b"".join(
                publish_bytes(b"%d" % number, "", "later", delivery_mode=2, headers={"x-delay": delay})
                for number, delay in delays.items()
            )
        )
    [store_id] = [queue_id for queue_id in scene.harness.rows if scene.harness.rows[queue_id][0].deadlines]
    scene.harness.damaged[store_id, 3] = WHY
    scene.restart()
    for at in range(0, 9000, 500):
        scene.wait(at)
    scene.client.consume("q")
    assert scene.numbers() == [1, 7, 2, 8, 0, 6]
    assert scene.harness.node.delayed["/"].backlog.ready == 3
    assert len(scene.told("queue_fenced")) == 1


def later(scene: Scene) -> Client:
    """An exchange that delays, to `q`; and a client."""
    client = scene.harness.client()
    delayed = {"exchange_type": "x-delayed-message", "arguments": {"x-delayed-type": "fanout"}}
    client.call(commands.Exchange.Declare(exchange="later", durable=True, **delayed), commands.Exchange.DeclareOk)
    client.call(commands.Queue.Bind(queue="q", exchange="later"), commands.Queue.BindOk)
    return client


def test_a_damaged_delayed_message_holds_back_no_other() -> None:
    scene = Scene(0, [])
    client = later(scene)
    for number in range(5):
        client.publish(b"%d" % number, "", "later", delivery_mode=2, headers={"x-delay": 1000 + 1000 * (number % 2)})
    scene.damage([2])
    scene.restart()
    for at in range(0, 5000, 500):
        scene.wait(at)
    scene.client.consume("q")
    assert scene.numbers() == [0, 4, 1, 3]
    [fenced] = scene.told("queue_fenced")
    assert fenced["queue"] == "delayed messages"
    [row] = overview(scene.harness.node)["queues_fenced"]
    assert (row["name"], row["messages"]) == ("delayed messages", 1)
    assert scene.harness.node.delayed["/"].backlog.ready == 1
    reads = len(scene.harness.reads_done)
    for at in range(5000, 9000, 500):
        scene.wait(at)
    assert len(scene.harness.reads_done) == reads
    check_node(scene.harness.node)


lives = st.lists(
    st.tuples(
        st.lists(st.integers(1, 4), max_size=5),  # rows that are published: how many messages each
        st.sets(st.integers(0, 15), max_size=3),  # which rows are damaged then
        st.integers(0, 4),  # prefetch of who consumes
        st.lists(st.sampled_from(["ack", "requeue", "reject", "free", "publish", "consume"]), max_size=12),
    ),
    min_size=1,
    max_size=4,
)


@given(lives, st.booleans())
def test_nobody_gets_a_damaged_message_or_one_out_of_order_or_one_that_is_settled(lives: Any, dead: bool) -> None:
    scene = Scene(0, [], **(DEAD if dead else {}))
    model = Model(scene)
    for rows, damaged, prefetch, steps in lives:
        model.publish(rows)
        model.restart(damaged, prefetch)
        for step in steps:
            model.do(step)
            check_node(scene.harness.node)
    model.drain()
    assert not scene.harness.bugs


class Model:
    """What is not settled, in order; of that what is unacked, and by which channel and tag."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.next = 0
        self.left: set[int] = set()
        self.unacked: dict[tuple[int, int], int] = {}
        self.unreadable: set[int] = set()
        self.numbers: dict[int, int] = {}
        """of messages that are unreadable, by what the queue calls them"""
        self.prefetch = 0
        self.channel = 1

    @property
    def first(self) -> int | None:
        """Of what is ready."""
        return min(self.left - set(self.unacked.values()), default=None)

    def publish(self, rows: Sequence[int]) -> None:
        for count in rows:
            frames = b"".join(publish_bytes(b"%d" % (self.next + at), delivery_mode=2) for at in range(count))
            self.left |= set(range(self.next, self.next + count))
            self.next += count
            self.scene.client.raw(frames)
            self.take()

    def restart(self, damaged: set[int], prefetch: int) -> None:
        """All is on disk only then."""
        queue_id = self.scene.queue.record.id
        for at, (first, row) in enumerate(sorted(self.scene.harness.rows.get(queue_id, {}).items())):
            if at in damaged:
                self.scene.harness.damaged[queue_id, first] = WHY
                runs = parse_row(row.data)
                bodies = [int(run.body(i)) for run in runs for i in range(run.count)]
                self.numbers |= dict(zip(range(first, row.last_seq + 1), bodies, strict=True))
                self.unreadable |= set(bodies)
        self.unacked.clear()
        self.scene.restart()
        self.prefetch, self.channel = prefetch, 1
        self.consume()

    def take(self) -> None:
        """What came: each is the first of what is ready, and is not damaged."""
        inbox, self.scene.client.inbox = self.scene.client.inbox, []
        for channel, value in inbox:
            if isinstance(value, Message):
                number = int(value.body)
                assert number == self.first
                assert number not in self.unreadable
                self.unacked[channel, value.tag] = number
            elif isinstance(value, Basic.Cancel | Channel.Close):
                assert self.first in self.unreadable

    def consume(self) -> None:
        client = self.scene.client
        if not len(self.scene.queue.consumers):
            self.channel += 1
            client.channel(self.channel)
            client.call(Basic.Qos(prefetch_count=self.prefetch), Basic.QosOk, self.channel)
            client.send(Basic.Consume(queue="q"), self.channel)
            self.take()

    def free(self) -> None:
        known = {seq for each in self.scene.queue.damaged() for seq in range(each.first, each.last + 1)}
        self.left -= {self.numbers[seq] for seq in known}
        self.scene.free()
        self.take()

    def settle(self, how: str) -> None:
        if self.unacked:
            channel, tag = max(self.unacked)
            number = self.unacked.pop((channel, tag))
            if how != "requeue":
                self.left.discard(number)
            self.scene.client.send(Basic.Ack(tag) if how == "ack" else Basic.Reject(tag, how == "requeue"), channel)
            self.take()

    def do(self, step: str) -> None:
        if step == "publish":
            self.publish([2])
        elif step == "consume":
            self.consume()
        elif step == "free":
            self.free()
        else:
            self.settle(step)

    def drain(self) -> None:
        """What an operator frees, and consumers take: at the end each has gone one way."""
        for _ in range(100):
            if not self.left:
                break
            self.free()
            self.consume()
            while self.unacked:
                self.settle("ack")
        assert not self.left
        backlog = self.scene.queue.backlog
        assert (backlog.ready, backlog.unacked, backlog.ready_bytes, backlog.unacked_bytes) == (0, 0, 0, 0)
