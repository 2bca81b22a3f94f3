"""A queue of another node takes publishes, and refuses some of them later.

What is verified: basic.nack names exactly those, in time and once; the rest is confirmed in tag order; tx.commit is
answered when all is decided, with 406 if some of it was refused; the local journal is not forced for lanes of other
nodes. The queue is a test double (`tests/harness/late_port.py`). Not verified: confirms of several lanes without a
refusal by a queue (`tests/session/test_lanes_properties.py`).
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from pamqp import commands
from pamqp.exceptions import AMQPPreconditionFailed

from amqpd import KERNEL
from amqpd.publishing import acceptance
from tests.harness.harness import Client, Harness, publish_bytes
from tests.harness.invariants import check_node
from tests.harness.late_port import LatePort, late_port

Basic, Channel, Confirm, Connection, Queue, Tx = (
    commands.Basic,
    commands.Channel,
    commands.Confirm,
    commands.Connection,
    commands.Queue,
    commands.Tx,
)


class Scene:
    """Two queues of other nodes and one of this node; amq.direct has "late", "other", "here", and "all" for the
    three."""

    def __init__(self) -> None:
        self.harness = Harness()
        self.late, self.other = late_port(self.harness), late_port(self.harness, "other")
        owner = self.harness.client()
        owner.declare("here", durable=True)
        for queue in ("late", "other", "here"):
            for key in (queue, "all"):
                bind = Queue.Bind(queue=queue, exchange="amq.direct", routing_key=key)
                owner.call(bind, Queue.BindOk)

    def confirming(self) -> Client:
        client = self.harness.client()
        client.call(Confirm.Select(), Confirm.SelectOk)
        return client

    def in_transaction(self) -> Client:
        client = self.harness.client()
        client.call(Tx.Select(), Tx.SelectOk)
        return client

    def told(self, client: Client) -> list[tuple[str, int, bool]]:
        self.harness.step()
        return [
            (type(each).__name__, each.delivery_tag, each.multiple) for each in client.take((Basic.Ack, Basic.Nack))
        ]

    def check(self) -> None:
        check_node(self.harness.node)
        assert not self.harness.bugs


@pytest.fixture
def scene() -> Scene:
    return Scene()


def publish(client: Client, key: str, count: int = 1) -> None:
    """Equal ones, which are one run."""
    client.raw(publish_bytes(b"x", key, "amq.direct", delivery_mode=2) * count)


def test_a_refusal_in_the_middle_of_a_run_names_its_tags(scene: Scene) -> None:
    client = scene.confirming()
    publish(client, "here", 2)
    publish(client, "late", 10)
    [(run, _)] = scene.late.took
    assert run.count == 10
    assert scene.told(client) == [("Ack", 1, False), ("Ack", 2, False)]
    scene.late.refuse(0, 3, 6)
    assert scene.told(client) == [("Nack", tag, False) for tag in (6, 7, 8)]
    scene.late.report(scene.harness)
    assert scene.told(client) == [("Ack", 12, True)]
    scene.check()


def test_what_comes_behind_it_is_numbered_on_and_waits_its_turn(scene: Scene) -> None:
    client = scene.confirming()
    publish(client, "late", 3)
    publish(client, "here", 2)
    scene.late.refuse(0, 2, 3)
    assert scene.told(client) == [("Nack", 3, False)], "what is safe behind them waits for 1 and 2"
    scene.late.report(scene.harness)
    assert scene.told(client) == [("Ack", tag, False) for tag in (1, 2, 4, 5)]
    scene.check()


def test_two_queues_that_refuse_the_same_message_refuse_it_once(scene: Scene) -> None:
    client = scene.confirming()
    publish(client, "all", 4)
    scene.late.refuse(0, 1, 3)
    scene.other.refuse(0, 0, 2)
    assert scene.told(client) == [("Nack", tag, False) for tag in (2, 3, 1)]
    scene.late.report(scene.harness)
    assert scene.told(client) == []
    scene.other.report(scene.harness)
    assert scene.told(client) == [("Ack", 4, False)]
    scene.check()


@pytest.mark.parametrize("space", [0, 2])
def test_what_was_refused_when_it_was_offered_is_not_refused_again(scene: Scene, space: int) -> None:
    client = scene.confirming()
    scene.other.space = space
    publish(client, "all", 4)
    assert scene.told(client) == [("Nack", tag, False) for tag in range(space + 1, 5)]
    publish(client, "here", 1)
    scene.late.refuse(0, 1, 4)
    assert scene.told(client) == ([("Nack", 2, False)] if space else [("Ack", 5, False)])
    for port in (scene.late, scene.other):
        port.report(scene.harness)
    assert scene.told(client) == ([("Ack", 1, False), ("Ack", 5, False)] if space else [])
    scene.check()


@pytest.mark.skipif(KERNEL != "python", reason="what is compiled has its constants built in")
def test_a_refusal_before_all_queues_have_the_run_waits_until_they_do(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes to its queues in several turns."""
    monkeypatch.setattr(acceptance, "COPIES_AT_ONCE", 1)
    client = scene.confirming()

    refused: list[LatePort] = []

    def first_one_refuses() -> None:
        for port in (scene.late, scene.other):
            if port.took:
                port.refuse(0, 1, 2)
                refused.append(port)

    scene.late.before_publish = scene.other.before_publish = first_one_refuses
    publish(client, "all", 3)
    assert len(refused) == 1, "when it was the other one's turn"
    assert scene.told(client) == [("Nack", 2, False)]
    for port in (scene.late, scene.other):
        port.report(scene.harness)
    assert scene.told(client) == [("Ack", 1, False), ("Ack", 3, False)]
    scene.check()


@pytest.mark.parametrize("gone", ["closed", "lost"])
def test_a_refusal_for_a_channel_that_is_gone_is_told_to_nobody(scene: Scene, gone: str) -> None:
    client = scene.confirming()
    publish(client, "late", 3)
    if gone == "closed":
        client.call(Channel.Close(200, "", 0, 0), Channel.CloseOk)
    else:
        client.lose()
    scene.late.refuse(0, 0, 1)
    scene.late.report(scene.harness)
    assert scene.told(client) == []
    assert not scene.harness.node.durability.due
    assert not any(scene.harness.node.durability.waiting.values())
    scene.check()


def test_without_confirms_nobody_wants_to_know(scene: Scene) -> None:
    publish(scene.harness.client(), "late", 3)
    assert [receipt for _, receipt in scene.late.took] == [None]
    scene.check()


def test_random_runs_and_refusals_are_each_answered_once(scene: Scene) -> None:
    for seed in range(30):
        chance, client = Random(seed), scene.confirming()
        ports = {"late": (scene.late,), "other": (scene.other,), "all": (scene.late, scene.other), "here": ()}
        for port in (scene.late, scene.other):
            port.took.clear()
        published, refused = 0, set[int]()
        open_: list[tuple[LatePort, int, int, int]] = []
        nacked, acked = list[int](), 0
        for _ in range(60):
            if chance.random() < 0.5:
                key, count = chance.choice(list(ports)), chance.randint(1, 12)
                publish(client, key, count)
                open_ += [(port, len(port.took) - 1, published + 1, count) for port in ports[key]]
                published += count
            elif open_ and chance.random() < 0.7:
                port, number, first, count = chance.choice(open_)
                low = chance.randrange(count)
                high = chance.randint(low + 1, count)
                port.refuse(number, low, high)
                refused |= set(range(first + low, first + high))
            else:
                port = chance.choice((scene.late, scene.other))
                port.report(scene.harness)
                open_ = [each for each in open_ if each[0] is not port]
            for name, tag, _ in scene.told(client):
                if name == "Nack":
                    nacked.append(tag)
                else:
                    assert tag not in refused
                    acked = max(acked, tag)
            assert sorted(nacked) == sorted(refused), "each once, at once"
            waits = min((first + at for _, _, first, count in open_ for at in range(count)), default=published + 1)
            safe = [tag for tag in range(1, waits) if tag not in refused]
            assert acked == max(safe, default=0)
        for port in (scene.late, scene.other):
            port.report(scene.harness)
        last = max((tag for tag in range(1, published + 1) if tag not in refused), default=0)
        acked = max([acked, *(tag for name, tag, _ in scene.told(client) if name == "Ack")])
        assert acked == last
        scene.check()


# Transactions


def test_a_commit_is_answered_when_all_is_decided(scene: Scene) -> None:
    client = scene.in_transaction()
    publish(client, "all", 3)
    client.send(Tx.Commit())
    scene.late.report(scene.harness)
    client.collect()
    assert client.inbox == []
    scene.other.report(scene.harness)
    client.collect()
    client.expect(Tx.CommitOk)
    scene.check()


@pytest.mark.parametrize("at", [0, 1])
def test_a_commit_of_which_something_is_refused_fails_when_all_is_decided(scene: Scene, at: int) -> None:
    """As RabbitMQ: its channel is closed with 406, what other queues took stays."""
    client = scene.in_transaction()
    publish(client, "late", 3)
    publish(client, "all", 3)
    client.send(Tx.Commit())
    client.send(Basic.Qos(prefetch_count=1))
    scene.late.refuse(at, 1, 2)
    scene.late.report(scene.harness)
    client.collect()
    assert client.inbox == [], "the other queue may refuse some, too"
    scene.other.report(scene.harness)
    close = client.expect(Channel.Close)
    assert (close.reply_code, close.reply_text, close.class_id, close.method_id) == (
        406,
        "PRECONDITION_FAILED - partial tx completion",
        90,
        20,
    )
    assert scene.harness.node.queues["/", "here"].ready_count == 3
    client.send(Channel.CloseOk())
    assert client.inbox == []
    scene.check()


def test_the_next_commit_knows_nothing_of_the_one_before(scene: Scene) -> None:
    client = scene.in_transaction()
    publish(client, "late")
    client.send(Tx.Commit())
    scene.late.report(scene.harness)
    client.collect()
    client.expect(Tx.CommitOk)
    scene.late.refuse(0, 0, 1)
    publish(client, "late")
    client.send(Tx.Commit())
    scene.late.report(scene.harness)
    client.collect()
    client.expect(Tx.CommitOk)


def test_a_commit_whose_channel_is_closed_meanwhile_is_answered_to_nobody(scene: Scene) -> None:
    client = scene.in_transaction()
    publish(client, "late")
    client.send(Tx.Commit())
    channel: Any = client.connection.channels[1]
    client.connection.guard(lambda: channel.refuse_unfinished(AMQPPreconditionFailed("too much")))
    scene.harness.step()
    client.expect(Channel.Close)
    scene.late.refuse(0, 0, 1)
    scene.late.report(scene.harness)
    client.send(Channel.CloseOk())
    assert client.inbox == []
    assert client.connection.intake.held_bytes == 0
    scene.check()


def test_a_commit_whose_lane_is_lost_ends_the_connection(scene: Scene) -> None:
    client = scene.in_transaction()
    publish(client, "late")
    client.send(Tx.Commit())
    scene.harness.node.durability.abandon(scene.late.far)
    client.collect()
    assert client.expect(Connection.Close).reply_code == 320


# The journal


def test_what_waits_for_another_node_alone_forces_nothing_here(scene: Scene) -> None:
    client = scene.confirming()
    scene.harness.automatic = False
    commits = len(scene.harness.transactions)
    publish(client, "late", 3)
    assert not scene.harness.node.journal.pending
    assert scene.late.far.forced == 1
    assert len(scene.harness.transactions) == commits
    publish(client, "all", 1)
    assert scene.harness.node.journal.pending
    assert (scene.late.far.forced, scene.other.far.forced) == (2, 1)
    while scene.harness.node.journal.pending:
        scene.harness.commit()
    for port in (scene.late, scene.other):
        port.report(scene.harness)
    assert scene.told(client) == [("Ack", tag, False) for tag in (1, 2, 3, 4)]


def test_a_commit_to_another_node_alone_forces_nothing_here(scene: Scene) -> None:
    client = scene.in_transaction()
    publish(client, "late")
    scene.harness.automatic = False
    client.send(Tx.Commit())
    assert not scene.harness.node.journal.pending
    assert scene.late.far.forced == 1
    scene.late.report(scene.harness)
    client.collect()
    client.expect(Tx.CommitOk)
