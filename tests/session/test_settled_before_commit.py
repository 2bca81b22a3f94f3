"""A persistent message that consumers have settled before its commit begins is confirmed without it.

What is verified: by random commands on a real node, that whatever was confirmed is on the disk, itself or as the dead
letter that it became, or was settled by a consumer; that it is confirmed at once when nothing that its channel
published into the transaction is left. By cases: what looks settled and is not.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from pamqp import commands, frame

from amqpd.journal.transaction import JournalTransaction
from tests.harness.harness import Client, Harness, publish_bytes

Basic, Channel, Confirm, Exchange, Queue, Tx = (
    commands.Basic,
    commands.Channel,
    commands.Confirm,
    commands.Exchange,
    commands.Queue,
    commands.Tx,
)

# Queues, and what becomes of their messages.
QUEUES = ("taken", "also taken", "acknowledged", "rejected", "left", "dead")
KEYS = {
    "t": ("taken",),
    "tt": ("taken", "also taken"),
    "a": ("acknowledged",),
    "ta": ("taken", "acknowledged"),
    "r": ("rejected",),
    "tr": ("taken", "rejected"),
    "l": ("left",),
    "tl": ("taken", "left"),
}


class World:
    """A node whose commits the test makes, in two halves; who publishes, and who consumes."""

    def __init__(self) -> None:
        self.harness = harness = Harness()
        owner = harness.client()
        owner.call(Exchange.Declare(exchange="dlx", exchange_type="fanout"), Exchange.DeclareOk)
        for name in QUEUES:
            arguments = {"x-dead-letter-exchange": "dlx"} if name == "rejected" else {}
            owner.declare(name, durable=True, arguments=arguments)
        owner.call(Queue.Bind(queue="dead", exchange="dlx"), Queue.BindOk)
        for key, queues in KEYS.items():
            for queue in queues:
                owner.call(Queue.Bind(queue=queue, exchange="amq.direct", routing_key=key), Queue.BindOk)
        self.publishers = [harness.client() for _ in range(3)]
        for each in self.publishers:
            each.call(Confirm.Select(), Confirm.SelectOk)
        self.takers = [self.consumer("taken", no_ack=True), self.consumer("also taken", no_ack=True)]
        self.acknowledging, self.rejecting = self.consumer("acknowledged"), self.consumer("rejected")
        self.transacting = harness.client()
        harness.automatic = False
        self.disk = b""
        """all bodies that were ever written; what was settled leaves it too, but not here"""
        self.running: JournalTransaction | None = None
        self.published: list[list[tuple[bytes, str]]] = [[] for _ in self.publishers]
        self.confirmed = [0 for _ in self.publishers]
        self.settled: set[tuple[bytes, str]] = set()
        """(body, queue)"""
        self.unacked: dict[int, bytes] = {}
        self.to_reject: list[int] = []
        # How far deliveries may have come is written with the first one.
        for at, key in enumerate(("tt", "a", "r")):
            self.publish(at, key, 1)
        while harness.node.journal.pending:
            self.commit()
        self.look()
        self.acknowledge(next(iter(self.unacked)))
        self.rejecting.send(Basic.Reject(self.to_reject.pop(), requeue=False))
        while harness.node.journal.pending:
            self.commit()
        self.look()
        assert self.confirmed == [1, 1, 1]

    def consumer(self, queue: str, **options: Any) -> Client:
        client = self.harness.client()
        client.consume(queue, **options)
        return client

    def publish(self, at: int, key: str, count: int) -> None:
        data = b""
        for _ in range(count):
            body = b"%d-%06d." % (at, len(self.published[at]))
            self.published[at].append((body, key))
            data += publish_bytes(body, key, "amq.direct", mandatory=True, delivery_mode=2)
        self.publishers[at].raw(data)

    def look(self) -> None:
        """What came to the clients."""
        for client, queue in zip(self.takers, ("taken", "also taken"), strict=True):
            self.settled |= {(body, queue) for body in client.bodies()}
        self.unacked |= {message.tag: message.body for message in self.acknowledging.messages()}
        self.to_reject += [message.tag for message in self.rejecting.messages()]
        for at, client in enumerate(self.publishers):
            for ack in client.take(Basic.Ack):
                assert ack.delivery_tag > self.confirmed[at]
                self.confirmed[at] = ack.delivery_tag

    @property
    def told(self) -> list[int]:
        """How many of each publisher's are confirmed, since the test began."""
        self.look()
        return [confirmed - 1 for confirmed in self.confirmed]

    def acknowledge(self, tag: int) -> None:
        self.settled.add((self.unacked.pop(tag), "acknowledged"))
        self.acknowledging.send(Basic.Ack(tag))

    def begin(self) -> JournalTransaction:
        """A commit begins."""
        self.running = transaction = self.harness.node.journal.take()
        for row in transaction.rows:
            row.join()
        return transaction

    def end(self) -> None:
        """The commit that runs is on the disk."""
        transaction, self.running = self.running, None
        assert transaction is not None
        node = self.harness.node
        self.disk += b"".join([row.data for row in transaction.rows])
        node.journal.stored(transaction.index)
        node.journal.committed(transaction.index)
        node.reported(node.journal.lane)
        self.harness.tick()

    def commit(self) -> JournalTransaction:
        transaction = self.begin()
        self.end()
        return transaction

    def check(self) -> None:
        """If the node died now, nothing that was confirmed would be lost."""
        self.look()
        for published, confirmed in zip(self.published, self.confirmed, strict=True):
            for body, key in published[:confirmed]:
                for queue in KEYS[key]:
                    assert (body, queue) in self.settled or body in self.disk, (body, queue)


@pytest.mark.parametrize("seed", range(30))
def test_what_is_confirmed_and_not_settled_is_on_the_disk(seed: int) -> None:
    chance, world = Random(seed), World()
    journal = world.harness.node.journal
    for _ in range(80):
        step = chance.random()
        if step < 0.5:
            world.publish(chance.randrange(3), chance.choice(list(KEYS)), chance.choice((1, 1, 3)))
        elif step < 0.65 and world.unacked:
            world.acknowledge(chance.choice(list(world.unacked)))
        elif step < 0.75 and world.to_reject:
            world.rejecting.send(Basic.Reject(world.to_reject.pop(), requeue=False))
        elif step < 0.8:
            journal.hold()
            world.publish(chance.randrange(3), chance.choice(list(KEYS)), 1)
            world.check()
            journal.release()
            world.harness.tick()
        elif world.running is not None:
            world.end()
        elif journal.pending:
            world.begin()
        world.check()
    if world.running is not None:
        world.end()
    while journal.pending:
        world.commit()
    world.check()
    assert world.confirmed == [len(each) for each in world.published]
    assert not any(world.harness.node.durability.waiting.values())
    assert not world.harness.bugs


@pytest.fixture
def world() -> World:
    return World()


def test_what_is_published_after_that_into_the_same_transaction_waits_for_it(world: World) -> None:
    world.publish(0, "l", 1)
    world.begin()
    world.publish(0, "t", 1)
    world.publish(0, "l", 1)
    world.end()
    assert world.told[0] == 2
    world.commit()
    assert world.told[0] == 3


def test_others_that_wait_for_the_commit_do_not_delay_it(world: World) -> None:
    world.publish(0, "l", 1)
    for count in range(1, 4):
        world.publish(1, "t", 1)
        world.publish(2, "tt", 2)
        assert world.told == [0, count, 2 * count]
    assert world.harness.node.journal.pending
    rows = world.commit().rows
    assert world.told == [1, 3, 6]
    assert [row.last_seq for row in rows] == [0], "only what waited is written"


def test_it_is_confirmed_in_order_behind_what_waits(world: World) -> None:
    world.publish(0, "l", 1)
    world.publish(0, "t", 1)
    assert world.told[0] == 0
    world.commit()
    assert world.told[0] == 2


def test_behind_what_waits_for_the_commit_that_runs_it_does_not_wait_for_the_next(world: World) -> None:
    world.publish(0, "l", 1)
    world.begin()
    world.publish(0, "t", 1)
    assert world.told[0] == 0
    world.end()
    assert world.told[0] == 2
    assert not world.harness.node.journal.pending


def test_acknowledged_while_another_commit_runs(world: World) -> None:
    world.publish(1, "l", 1)
    running = world.begin()
    world.publish(0, "a", 3)
    world.look()
    for tag in list(world.unacked):
        assert world.told[0] == 0
        world.acknowledge(tag)
    assert world.told == [3, 0, 0]
    assert running.rows


def test_a_queue_that_has_another_message_again_waits_for_that_one_too(world: World) -> None:
    """It was settled and is not any more, before anybody looked."""
    world.publish(0, "a", 1)
    world.look()
    (tag,) = world.unacked
    world.acknowledging.connection.receive(frame.marshal(Basic.Ack(tag), 1))
    world.publish(0, "a", 1)
    assert world.told[0] == 0
    world.unacked.pop(tag)
    world.acknowledge(next(iter(world.unacked)))
    assert world.told[0] == 2


def test_a_message_that_became_a_dead_letter_waits_for_the_dead_letter(world: World) -> None:
    world.publish(0, "r", 1)
    world.look()
    world.rejecting.send(Basic.Reject(world.to_reject.pop(), requeue=False))
    assert world.told[0] == 0
    world.commit()
    assert world.told[0] == 1
    assert world.published[0][-1][0] in world.disk


@pytest.mark.parametrize("held", [True, False])
def test_an_acknowledgement_in_a_transaction_waits_for_what_is_published_in_it(
    world: World, held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as its client has no commit-ok, it did not acknowledge it, and it is not to be lost."""
    if not held:
        monkeypatch.setattr("amqpd.session.holds.HOLD_WORK_MAX", 0)
    client = world.transacting
    client.send(Tx.Select())
    world.publish(0, "l", 1)
    client.send(Basic.Get(queue="left"))
    client.publish(b"instead.", "dead", delivery_mode=2)
    client.send(Basic.Ack(0, True))
    client.send(Tx.Commit())
    assert world.told[0] == 0
    assert not client.take(Tx.CommitOk)
    world.commit()
    assert world.told[0] == 1
    assert client.take(Tx.CommitOk)


def test_a_channel_that_closes_is_forgotten(world: World) -> None:
    world.publish(0, "a", 1)
    world.look()
    world.publishers[0].send(Channel.Close(200, "", 0, 0))
    world.acknowledge(next(iter(world.unacked)))
    assert not any(world.harness.node.durability.waiting.values())
    assert world.told[0] == 0
    assert not world.harness.bugs
