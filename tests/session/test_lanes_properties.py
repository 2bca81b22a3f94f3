"""Confirms that wait for several lanes: random queues, reports and refusals in any order, on real channels.

What is verified, after each step: each publish is answered once; acknowledgements keep tag order; none comes before
every lane of that publish, and of those before it, has reported; none waits longer than that; a refusal comes at
once. The lanes are those of the local source and of two others led here. Not verified: the disk
(`tests/journal`), queues that refuse later (`tests/publishing/test_late_refusals.py`).
"""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from pamqp import commands

from amqpd.channels import Channel
from amqpd.journal.lane import JournalLane, Lane
from amqpd.journal.numbers import Numbers
from tests.harness.harness import Client, Harness, publish_bytes

Basic, Confirm, Exchange, Queue, Tx = (
    commands.Basic,
    commands.Confirm,
    commands.Exchange,
    commands.Queue,
    commands.Tx,
)

SOURCES = {"local": 0, "one": 1, "two": 2}
# Routing keys of amq.direct, and the queues that they reach.
KEYS = {
    "l": ("local",),
    "1": ("one",),
    "2": ("two",),
    "l1": ("local", "one"),
    "12": ("one", "two"),
    "l12": ("local", "one", "two"),
    "none": (),
}


class Lanes:
    """A node with three sources; the test is their disks and replicas."""

    def __init__(self) -> None:
        self.harness = harness = Harness()
        self.journal = harness.node.journal
        for source in (1, 2):
            self.journal.lead(
                source,
                1,
                Numbers(0, 1 << 40),
                JournalLane(self.journal.force, self.journal.index, self.journal.stored_index),
            )
        owner = harness.client()
        for name, source in SOURCES.items():
            if source:
                self.journal.assign((harness._count + 1) << 8, source)
            owner.declare(name, durable=True)
        for key, queues in KEYS.items():
            for queue in queues:
                owner.call(Queue.Bind(queue=queue, exchange="amq.direct", routing_key=key), Queue.BindOk)
        owner.declare("full", durable=True, arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
        owner.call(Queue.Bind(queue="full", exchange="amq.direct", routing_key="full"), Queue.BindOk)
        self.lanes = {name: harness.node.queues["/", name].lane for name in SOURCES}
        assert len(set(self.lanes.values())) == 3
        harness.automatic = False
        while self.journal.pending:
            self.write()
        for name in SOURCES:
            self.report(name, self.journal.stored_index)

    def client(self) -> Client:
        """Logged in."""
        self.harness.automatic = True
        client = self.harness.client()
        self.harness.automatic = False
        return client

    def write(self) -> int:
        """The local disk has another transaction; no lane has said anything."""
        transaction = self.journal.take()
        self.journal.stored(transaction.index)
        return transaction.index

    def report(self, name: str, number: int) -> None:
        if number <= self.lanes[name].reported:
            return
        if name == "local":
            self.journal.committed(number)
        else:
            self.journal.source_committed(SOURCES[name], number)
            self.journal.led_sources[SOURCES[name]].lane.reported = number
        self.harness.node.reported(self.lanes[name])
        self.harness.tick()


class Publisher:
    """A channel in confirm mode, and what its client must be told of it."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self.client = lanes.client()
        self.client.send(Confirm.Select())
        self.client.take(Confirm.SelectOk)
        (channel,) = self.client.connection.channels.values()
        assert isinstance(channel, Channel)
        self.channel = channel
        self.needs: list[dict[Lane, int]] = []
        self.refused: set[int] = set()
        self.answered: dict[int, str] = {}

    def publish(self, key: str, count: int) -> None:
        lanes = self._lanes.lanes
        self.needs += [{lanes[name]: lanes[name].gathering for name in KEYS.get(key, ())}] * count
        if key == "full":
            self.refused |= set(range(len(self.needs) - count + 1, len(self.needs) + 1))
        self.client.raw(publish_bytes(b"x", key, "amq.direct", delivery_mode=2) * count)

    def safe(self) -> int:
        """The last tag that may be acknowledged."""
        for at, needs in enumerate(self.needs):
            if any(lane.reported < number for lane, number in needs.items()):
                return at
        return len(self.needs)

    def waiting(self) -> list[int]:
        return [tag for tag in range(self.safe() + 1, len(self.needs) + 1) if tag not in self.refused]

    def refuse_some(self, chance: Random) -> None:
        """A stretch of what waits is refused after all."""
        waiting = self.waiting()
        if not waiting:
            return
        first = last = chance.choice(waiting)
        while last + 1 in waiting and chance.random() < 0.6:
            last += 1
        self._lanes.harness.node.durability.refuse(self.channel, first, last)
        self._lanes.harness.tick()
        self.refused |= set(range(first, last + 1))

    def check(self) -> None:
        acks = []
        for method in self.client.take((Basic.Ack, Basic.Nack)):
            tag = method.delivery_tag
            assert tag <= len(self.needs)
            if isinstance(method, Basic.Nack):
                assert not method.multiple
                assert tag in self.refused
                tags = {tag}
            else:
                assert tag not in self.refused, "a basic.ack names a tag that was refused"
                acks.append(tag)
                tags = {each for each in range(1, tag + 1) if each not in self.answered} if method.multiple else {tag}
                assert not tags & self.refused, "acknowledged before its basic.nack"
            assert tags
            assert not tags & self.answered.keys(), "told twice"
            self.answered |= dict.fromkeys(tags, type(method).__name__)
        assert all(before < after for before, after in pairwise(acks))
        expected = {tag for tag in range(1, self.safe() + 1) if tag not in self.refused}
        assert {tag for tag, told in self.answered.items() if told == "Ack"} == expected
        assert {tag for tag, told in self.answered.items() if told == "Nack"} == self.refused


@pytest.mark.parametrize("seed", range(40))
def test_each_publish_is_answered_once_in_order_when_its_lanes_have_reported(seed: int) -> None:
    chance, lanes = Random(seed), Lanes()
    publishers = [Publisher(lanes) for _ in range(3)]
    keys = [*KEYS, "full"]
    for _ in range(120):
        step, publisher = chance.random(), chance.choice(publishers)
        if step < 0.55:
            publisher.publish(chance.choice(keys), chance.choice((1, 1, 2, 12)))
        elif step < 0.7:
            lanes.write()
        elif step < 0.9:
            name = chance.choice(list(SOURCES))
            if lanes.lanes[name].reported < lanes.journal.stored_index:
                lanes.report(name, chance.randint(lanes.lanes[name].reported + 1, lanes.journal.stored_index))
        else:
            publisher.refuse_some(chance)
        for each in publishers:
            each.check()
    for name in chance.sample(list(SOURCES), 3):
        lanes.report(name, lanes.write())
    for each in publishers:
        each.check()
        assert each.answered.keys() == set(range(1, len(each.needs) + 1))
    assert not any(lanes.harness.node.durability.waiting.values()), "nothing waits, so nothing is looked at"
    assert not lanes.harness.bugs


def test_a_slow_lane_delays_only_what_waits_for_it() -> None:
    lanes = Lanes()
    fast, slow = Publisher(lanes), Publisher(lanes)
    for _ in range(20):
        fast.publish("1", 1)
        slow.publish("12", 1)
        number = lanes.write()
        lanes.report("one", number)
        fast.check()
        slow.check()
    assert len(fast.answered) == 20
    assert not slow.answered
    assert lanes.harness.node.durability.waiting.keys() == {lanes.lanes["two"]}, "a report of the other looks at none"
    lanes.report("two", number)
    slow.check()
    assert len(slow.answered) == 20


def test_the_middle_of_what_waits_is_refused_and_the_rest_confirmed() -> None:
    lanes = Lanes()
    publisher = Publisher(lanes)
    publisher.publish("1", 3)
    publisher.publish("2", 3)
    publisher.publish("1", 3)
    lanes.harness.node.durability.refuse(publisher.channel, 4, 6)
    lanes.harness.tick()
    told = publisher.client.take((Basic.Ack, Basic.Nack))
    assert [(type(each), each.delivery_tag) for each in told] == [(Basic.Nack, tag) for tag in (4, 5, 6)]
    number = lanes.write()
    lanes.report("two", number)
    assert not publisher.client.take(Basic.Ack)
    lanes.report("one", number)
    (ack,) = publisher.client.take(Basic.Ack)
    assert (ack.delivery_tag, ack.multiple) == (9, True)


def test_what_a_channel_remembers_is_bounded_by_the_lanes_and_not_by_its_publishes() -> None:
    lanes = Lanes()
    publisher = Publisher(lanes)
    for _ in range(200):
        publisher.publish("1", 1)
        publisher.publish("2", 1)
    publisher.publish("full", 1)
    publisher.publish("full", 1)
    assert publisher.channel.confirms is not None
    assert len(publisher.channel.confirms._waiting) == 2
    assert len(publisher.channel.confirms._refused) == 1
    for name in SOURCES:
        lanes.report(name, lanes.write())
    publisher.check()
    assert not publisher.channel.confirms._awaited
    for _ in range(200):
        publisher.publish("full", 1)
        publisher.publish("none", 1)
        publisher.check()
    assert len(publisher.channel.confirms._refused) <= 2


def test_what_does_not_wait_cannot_be_refused() -> None:
    lanes = Lanes()
    publisher = Publisher(lanes)
    publisher.publish("none", 2)
    publisher.publish("1", 2)
    for first, last in ((2, 3), (3, 5), (4, 3)):
        with pytest.raises(ValueError, match="do not wait"):
            lanes.harness.node.durability.refuse(publisher.channel, first, last)


def test_what_was_refused_is_not_refused_again_by_another_queue() -> None:
    lanes = Lanes()
    publisher = Publisher(lanes)
    publisher.publish("12", 5)
    for first, last in ((3, 3), (2, 4), (1, 5), (1, 5)):
        lanes.harness.node.durability.refuse(publisher.channel, first, last)
    lanes.harness.tick()
    told = publisher.client.take((Basic.Ack, Basic.Nack))
    assert [(type(each), each.delivery_tag) for each in told] == [(Basic.Nack, tag) for tag in (3, 2, 4, 1, 5)]
    assert publisher.channel.confirms is not None
    assert publisher.channel.confirms.refusals == 5


@pytest.mark.parametrize("order", [("one", "two"), ("two", "one")])
def test_a_commit_waits_for_all_lanes_of_its_publishes_and_settles(order: tuple[str, str]) -> None:
    """And not for the local one, where nothing of it is."""
    lanes = Lanes()
    client = lanes.client()
    client.raw(publish_bytes(b"x", "two", delivery_mode=2))
    client.send(Tx.Select())
    client.send(Basic.Get(queue="two"))
    lanes.harness.tick()
    client.take(Tx.SelectOk)
    lanes.report("two", lanes.write())
    client.raw(publish_bytes(b"x", "one", delivery_mode=2))
    client.send(Basic.Ack(0, True))
    before = lanes.write()
    client.send(Tx.Commit())
    assert lanes.journal.pending
    number = lanes.write()
    for name in order:
        lanes.report(name, before)
    lanes.report(order[0], number)
    assert not client.take(Tx.CommitOk)
    lanes.report(order[1], number)
    assert len(client.take(Tx.CommitOk)) == 1


def test_a_commit_of_one_lane_is_not_answered_by_another() -> None:
    lanes = Lanes()
    client = lanes.client()
    client.send(Tx.Select())
    client.raw(publish_bytes(b"x", "one", delivery_mode=2))
    client.send(Tx.Commit())
    number = lanes.write()
    lanes.report("local", number)
    lanes.report("two", number)
    assert not client.take(Tx.CommitOk)
    lanes.report("one", number)
    assert len(client.take(Tx.CommitOk)) == 1


def test_a_commit_waits_for_what_it_delays() -> None:
    """Delayed messages are on this node's disk, wherever the queues of the other publishes are."""
    lanes = Lanes()
    client = lanes.client()
    delayed = Exchange.Declare(
        exchange="d", exchange_type="x-delayed-message", arguments={"x-delayed-type": "direct"}
    )
    lanes.harness.automatic = True
    client.call(delayed, Exchange.DeclareOk)
    lanes.harness.automatic = False
    client.send(Tx.Select())
    client.raw(publish_bytes(b"x", "one", delivery_mode=2))
    client.raw(publish_bytes(b"x", "later", "d", headers={"x-delay": 1000}))
    client.send(Tx.Commit())
    number = lanes.write()
    lanes.report("one", number)
    assert not client.take(Tx.CommitOk)
    lanes.report("local", number)
    assert len(client.take(Tx.CommitOk)) == 1


def test_a_channel_that_closes_is_forgotten_by_its_lane() -> None:
    lanes = Lanes()
    publisher = Publisher(lanes)
    publisher.publish("12", 5)
    publisher.client.send(commands.Channel.Close(200, "", 0, 0))
    assert not any(lanes.harness.node.durability.waiting.values())
    number = lanes.write()
    for name in SOURCES:
        lanes.report(name, number)
    assert not publisher.client.take(Basic.Ack)
    assert not lanes.harness.bugs
