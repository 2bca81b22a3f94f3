"""The header x-delay: messages that wait before they are routed."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from pamqp import commands

from amqpd.audit.publication import Publication
from amqpd.journal.lane import NONE, Lanes
from amqpd.kernel import Run
from amqpd.message.delays import DELAY_MS_MAX, delay_ms_of, delayed_header
from amqpd.message.properties import Properties
from amqpd.node.dispatching import QUEUES_WORK_MAX
from amqpd.node.node import Node
from amqpd.publishing.unroutable import UnroutableOutcome
from amqpd.queues.delayed import RELEASE_WORK
from amqpd.vocabulary.records import PolicyRecord, Put
from amqpd.wire.fieldtypes import Short, SignedInt, UnsignedInt
from amqpd.wire.fieldwriter import write_value
from tests.harness.harness import Client, Harness, publish_bytes
from tests.harness.runs import raw_publish


class WaitingNode(Node):
    waiting: Waiting | None = None

    def delay(self, vhost: str, run: Run, delay_ms: int, publication: Publication | None) -> Lanes | None:
        if self.waiting is None:
            return super().delay(vhost, run, delay_ms, publication)
        properties = self.properties.read(run.properties)
        return self.journal.lane.alone if self.waiting.delay(vhost, run, properties, delay_ms) else NONE


class WaitingHarness(Harness):
    node_class = WaitingNode


class Waiting:
    """What the node keeps while it waits; `waits` says whether confirms wait for the journal."""

    def __init__(self, harness: Harness, waits: bool = False) -> None:
        assert isinstance(harness.node, WaitingNode)
        self.harness = harness
        self.waits = waits
        self.runs: list[tuple[str, Run, Properties, int]] = []
        harness.node.waiting = self

    def delay(self, vhost: str, run: Run, properties: Properties, delay_ms: int) -> bool:
        self.runs.append((vhost, run, properties, delay_ms))
        if self.waits:
            self.harness.node.journal.force()
        return self.waits

    def release(self) -> None:
        runs, self.runs = self.runs, []
        for vhost, run, _, _ in sorted(runs, key=lambda each: each[3]):
            self.harness.node.release(vhost, run)
        self.harness.step()


@pytest.fixture
def client() -> Client:
    client = WaitingHarness().client()
    client.declare("q")
    return client


def consumed(client: Client, queue: str = "q") -> list[Any]:
    client.consume(queue, tag=queue, no_ack=True)
    messages = client.messages()
    client.call(commands.Basic.Cancel(consumer_tag=queue), commands.Basic.CancelOk)
    return messages


@pytest.mark.parametrize(
    ("value", "delay_ms"),
    [
        (500, 500),
        (SignedInt(5), 5),
        (Short(5), 5),
        (UnsignedInt(2**32 - 1), 2**32 - 1),
        ("500", 500),
        ("+5", 5),
        (1.9, 1),
        (Decimal("2.5"), 2),
        (DELAY_MS_MAX, DELAY_MS_MAX),
        (DELAY_MS_MAX + 1, 0),
        (0, 0),
        (-5, 0),
        ("-5", 0),
        ("soon", 0),
        ("5 ", 0),
        ("9" * 200, 0),
        ("\u0661", 0),
        (True, 0),
        (None, 0),
        (float("inf"), 0),
        (float("nan"), 0),
        ([5], 0),
        (b"5", 0),
    ],
)
def test_what_is_a_delay(value: Any, delay_ms: int) -> None:
    assert delay_ms_of({"x-delay": value}) == delay_ms
    assert delay_ms_of({}) == 0


def test_the_header_of_what_was_delayed_is_the_delay_with_a_minus_sign() -> None:
    assert write_value(delayed_header(5)["x-delay"]) == b"I\xff\xff\xff\xfb"
    assert delayed_header(2**31) == {"x-delay": -(2**31)}
    assert delay_ms_of(delayed_header(5)) == 0


def test_a_delayed_message_waits_and_is_then_routed(client: Client) -> None:
    waiting = Waiting(client.harness)
    client.publish(b"late", headers={"x-delay": 500, "n": 1}, priority=2)
    client.publish(b"sooner", headers={"x-delay": "100"})
    client.publish(b"now", headers={"x-delay": 0})
    assert [message.body for message in consumed(client)] == [b"now"]
    assert [(vhost, delay_ms) for vhost, _, _, delay_ms in waiting.runs] == [("/", 500), ("/", 100)]
    assert waiting.runs[0][2].headers == {"x-delay": -500, "n": 1}
    waiting.release()
    sooner, late = consumed(client)
    assert (sooner.body, late.body, late.method.routing_key) == (b"sooner", b"late", "q")
    assert (late.properties.headers, late.properties.priority) == ({"x-delay": -500, "n": 1}, 2)
    client.publish(late.body, headers=late.properties.headers)
    assert [message.body for message in consumed(client)] == [b"late"]


def test_a_run_waits_as_one(client: Client) -> None:
    waiting = Waiting(client.harness)
    client.raw(b"".join(publish_bytes(b"%02d" % i, headers={"x-delay": 5}) for i in range(50)))
    assert [run.count for _, run, _, _ in waiting.runs] == [50]
    waiting.release()
    assert [message.body for message in consumed(client)] == [b"%02d" % i for i in range(50)]


def test_the_binding_counts_that_is_there_when_the_time_has_come(client: Client) -> None:
    waiting = Waiting(client.harness)
    client.publish(b"x", "k", "amq.direct", headers={"x-delay": 5})
    client.call(commands.Queue.Bind(0, "q", "amq.direct", "k", False, {}), commands.Queue.BindOk)
    waiting.release()
    assert [message.body for message in consumed(client)] == [b"x"]


def test_what_reaches_no_queue_then_is_dropped_and_counted(client: Client) -> None:
    waiting = Waiting(client.harness)
    client.call(commands.Exchange.Declare(exchange="x"), commands.Exchange.DeclareOk)
    client.raw(publish_bytes(b"x", "none", "x", mandatory=True, headers={"x-delay": 5}) * 2)
    client.call(commands.Exchange.Delete(exchange="x"), commands.Exchange.DeleteOk)
    waiting.release()
    assert client.messages() == []
    unroutable = client.harness.node.unroutable
    assert unroutable.of_vhost("/")[UnroutableOutcome.DROPPED] == 2
    assert sum(unroutable.of_exchange("/", "x").values()) == 0  # it is gone, and its counts with it


@pytest.mark.parametrize("waits", [False, True])
def test_it_is_confirmed_when_it_is_kept(waits: bool) -> None:
    harness = WaitingHarness(automatic=False)
    client = Client(harness)
    harness.automatic = True
    client.open()
    client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
    harness.automatic = False
    Waiting(harness, waits)
    client.publish(b"x", "anything", headers={"x-delay": 5}, mandatory=True)
    assert bool(client.take(commands.Basic.Ack)) is not waits
    if waits:
        harness.commit()
        client.collect()
        assert client.expect(commands.Basic.Ack).delivery_tag == 1


def test_checks_are_made_when_it_is_published(client: Client) -> None:
    waiting = Waiting(client.harness)
    client.publish(b"x", "k", "missing", headers={"x-delay": 5})
    assert client.expect(commands.Channel.Close).reply_code == 404
    client.send(commands.Channel.CloseOk())
    client.channel(1)
    client.publish(headers={"x-delay": 5, "CC": 1})
    assert client.expect(commands.Channel.Close).reply_code == 406
    assert waiting.runs == []


def test_copies_are_routed_then_and_blind_ones_stay_hidden(client: Client) -> None:
    waiting = Waiting(client.harness)
    client.declare("blind")
    client.publish(b"x", headers={"x-delay": 5, "BCC": ["blind"]})
    waiting.release()
    for queue in ("q", "blind"):
        (message,) = consumed(client, queue)
        assert message.properties.headers == {"x-delay": -5}


def test_in_a_transaction_the_delay_begins_with_the_commit(client: Client) -> None:
    waiting = Waiting(client.harness)
    client.call(commands.Tx.Select(), commands.Tx.SelectOk)
    client.publish(b"x", headers={"x-delay": 5})
    assert waiting.runs == []
    client.call(commands.Tx.Commit(), commands.Tx.CommitOk)
    assert len(waiting.runs) == 1


def test_the_delayed_exchange_routes_as_its_type(client: Client) -> None:
    waiting = Waiting(client.harness)
    arguments = {"x-delayed-type": "topic"}
    declare = commands.Exchange.Declare(exchange="d", exchange_type="x-delayed-message", arguments=arguments)
    client.call(declare, commands.Exchange.DeclareOk)
    client.call(commands.Queue.Bind(0, "q", "d", "a.*", False, {}), commands.Queue.BindOk)
    for key in ("a.b", "b.b", "a.c"):
        client.raw(raw_publish(key, b"\x07x-delayI\0\0\0\x64", "d", key.encode()))
    client.publish(b"at once", "a.d", "d")
    assert [message.body for message in consumed(client)] == [b"at once"]
    waiting.release()
    assert [message.body for message in consumed(client)] == [b"a.b", b"a.c"]


def test_a_queue_that_refuses_gets_no_more_than_it_has_place_for(client: Client) -> None:
    waiting = Waiting(client.harness)
    client.declare("small", arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    client.raw(publish_bytes(b"x", "small", headers={"x-delay": 5}) * 5)
    waiting.release()
    assert len(consumed(client, "small")) == 2


def test_a_virtual_host_that_is_gone_takes_what_waits_with_it(client: Client) -> None:
    waiting = Waiting(client.harness)
    client.publish(b"x", headers={"x-delay": 5})
    ((_, run, _, _),) = waiting.runs
    client.harness.step()
    client.harness.node.release("gone", run)
    assert not client.harness.node.to_dispatch


# -- with the node's own store


def later(harness: Harness, milliseconds: int) -> None:
    harness.node.now_ms += milliseconds
    harness.step()


def test_it_comes_when_its_time_is_up_and_not_before(client: Client) -> None:
    client.consume("q", no_ack=True)
    client.publish(b"late", headers={"x-delay": 500})
    client.publish(b"sooner", headers={"x-delay": 100})
    later(client.harness, 99)
    assert client.bodies() == []
    later(client.harness, 2)
    client.collect()
    assert client.bodies() == [b"sooner"]
    later(client.harness, 400)
    client.collect()
    assert client.bodies() == [b"late"]


def test_it_survives_a_restart_whatever_its_delivery_mode(client: Client) -> None:
    client.declare("kept", durable=True)
    for mode in (1, 2):
        client.publish(b"%d" % mode, "kept", headers={"x-delay": 500}, delivery_mode=mode)
    client.harness.restart()
    again = client.harness.client()
    again.consume("kept", no_ack=True)
    assert again.bodies() == []
    later(client.harness, 501)
    again.collect()
    assert sorted(again.bodies()) == [b"1", b"2"]


def test_random_is_drawn_for_each_when_the_time_has_come(client: Client) -> None:
    client.call(commands.Exchange.Declare(exchange="r", exchange_type="x-random"), commands.Exchange.DeclareOk)
    for queue in "ab":
        client.declare(queue)
        client.call(commands.Queue.Bind(0, queue, "r", "", False, {}), commands.Queue.BindOk)
    client.raw(publish_bytes(b"x", "k", "r", headers={"x-delay": 5}) * 100)
    later(client.harness, 6)
    found = [len(consumed(client, queue)) for queue in "ab"]
    assert sum(found) == 100
    assert min(found) > 30


def test_what_is_unroutable_then_takes_the_way_of_the_policy(client: Client) -> None:
    client.call(commands.Exchange.Declare(exchange="x"), commands.Exchange.DeclareOk)
    client.call(commands.Queue.Bind(0, "q", "amq.fanout", "", False, {}), commands.Queue.BindOk)
    policy = PolicyRecord("/", "p", "^x$", "exchanges", {"unroutable": "amq.fanout"})
    client.publish(b"x", "k", "x", headers={"x-delay": 5})
    client.harness._apply([Put(policy)])
    later(client.harness, 6)
    assert [message.body for message in consumed(client)] == [b"x"]
    assert client.harness.node.unroutable.of_exchange("/", "x")[UnroutableOutcome.REROUTED] == 1


def test_many_that_fall_due_at_once_come_in_portions(client: Client) -> None:
    harness = client.harness
    for number in range(QUEUES_WORK_MAX):
        client.connection.receive(publish_bytes(b"", headers={"x-delay": 100}, message_id=str(number)))
        harness.node.turns.next()
    harness.step()
    harness.node.now_ms += 101
    queue = harness.node.queues["/", "q"]
    ready = []
    while harness.node.tick() is not None and queue.backlog.ready < QUEUES_WORK_MAX:
        ready.append(queue.backlog.ready)
    portions = [after - before for before, after in pairwise([0, *ready])]
    assert max(portions) - min(portions) <= 1
    assert RELEASE_WORK * max(portions) <= QUEUES_WORK_MAX
    ids = [message.properties.message_id for message in consumed(client)]
    assert ids == [str(number) for number in range(QUEUES_WORK_MAX)]
