"""Dead letters and delayed messages of one node, for queues that another one leads.

What is verified: the message stays where it died until the leader of the target has decided; what a refusal leads to
by strategy; mixed targets; bounds; breaks of the connection; delayed messages; alternate exchanges and bindings
between exchanges. Not verified here: random faults at each step (`test_dead_letter_faults.py`), real processes
(`tests/clients/test_cluster_remote_queues.py`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pamqp import commands

from amqpd.queues import transit
from amqpd.queues.expiry import RETRY_MS
from amqpd.queues.queue import Queue
from amqpd.remote.edges import AWAY_MS
from tests.harness.harness import Client, Message
from tests.remote.faulty_nodes import FaultyNodes

Basic, Confirm, Exchange, Queues = commands.Basic, commands.Confirm, commands.Exchange, commands.Queue
DEATHS: dict[str, dict[str, Any]] = {
    "expired": {"x-message-ttl": 1000},
    "maxlen": {"x-max-length": 0},
    "rejected": {},
    "zero": {"x-message-ttl": 0},
}
FULL = {"x-max-length": 1, "x-overflow": "reject-publish"}


def dying(nodes: FaultyNodes, **arguments: Any) -> Client:
    """A client of node a, which has a queue whose dead letters are for q."""
    client = nodes.client("a")
    to_q = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"}
    client.declare("dying", durable=True, arguments={**to_q, **arguments})
    return client


def queue_of(nodes: FaultyNodes, name: str, node: str = "a") -> Queue:
    return nodes.harness[node].node.queues["/", name]


def die(nodes: FaultyNodes, client: Client, why: str, *bodies: bytes) -> None:
    for body in bodies:
        client.publish(body, "dying", delivery_mode=2)
        if why == "rejected":
            client.send(Basic.Get(queue="dying"))
            client.collect()
            (message,) = client.take(Message)
            client.send(Basic.Reject(delivery_tag=message.tag, requeue=False))
    if why == "expired":
        pass_ms(nodes, 2000)


def at_least_once(nodes: FaultyNodes) -> Queue:
    """As a quorum queue may ask for it."""
    queue = queue_of(nodes, "dying")
    queue.settings = queue.removal.settings = replace(queue.settings, at_least_once=True)
    return queue


def pass_ms(nodes: FaultyNodes, ms: int) -> None:
    nodes.beat(ms)


def waits_in(queue: Queue) -> int:
    assert not queue.ready_count
    return queue.unacked_count


def bodies(nodes: FaultyNodes, queue: str = "q", node: str = "b") -> list[bytes]:
    client = nodes.client(node)
    client.send(Basic.Consume(queue=queue, no_ack=True))
    nodes.step()
    client.collect()
    found = [message.body for message in client.take(Message)]
    client.lose()
    nodes.step()
    return found


@pytest.mark.parametrize("why", DEATHS)
def test_a_message_stays_where_it_died_until_the_leader_of_the_target_has_committed_it(why: str) -> None:
    nodes = FaultyNodes()
    client = dying(nodes, **DEATHS[why])
    nodes.commits = False
    die(nodes, client, why, b"1", b"2", b"3")
    nodes.step()
    queue, target = queue_of(nodes, "dying"), queue_of(nodes, "q", "b")
    assert (waits_in(queue), queue.facts.dead_lettered, target.facts.accepted) == (3, 0, 3)
    assert queue.statistics(0).dying == 3
    nodes.commits = True
    nodes.step()
    facts = queue.facts
    assert (waits_in(queue), queue.statistics(0).dying) == (0, 0)
    assert facts.accepted == 3 == facts.dead_lettered == facts.left
    assert target.facts.dead_letters_in == 3
    assert bodies(nodes) == [b"1", b"2", b"3"]


def test_what_the_dead_letter_says_of_its_death_comes_with_it() -> None:
    nodes = FaultyNodes()
    client = dying(nodes)
    die(nodes, client, "rejected", b"x")
    nodes.step()
    reader = nodes.client("a")
    reader.send(Basic.Get(queue="q"))
    nodes.step()
    reader.collect()
    (message,) = reader.take(Message)
    (death,) = message.properties.headers["x-death"]
    assert (death["queue"], death["reason"], death["count"]) == ("dying", "rejected", 1)


@pytest.mark.parametrize("why", DEATHS)
def test_a_break_of_the_connection_at_any_time_loses_and_repeats_nothing(why: str) -> None:
    for at in range(8):
        nodes = FaultyNodes()
        client = dying(nodes, **DEATHS[why])
        die(nodes, client, why, b"1", b"2")
        # The first one has made the edge; the second breaks at each step.
        nodes.step()
        client.publish(b"3", "dying", delivery_mode=2)
        if why == "rejected":
            client.send(Basic.Get(queue="dying"))
            client.collect()
            client.send(Basic.Reject(delivery_tag=client.take(Message)[0].tag, requeue=False))
        elif why == "expired":
            for each in nodes.harness.values():
                each.node.now_ms += 2000
                each.step()
        nodes.some(at)
        nodes.cut()
        nodes.step()
        nodes.heal()
        pass_ms(nodes, RETRY_MS)
        assert bodies(nodes) == [b"1", b"2", b"3"], at
        assert waits_in(queue_of(nodes, "dying")) == 0


def test_while_the_target_is_away_dead_letters_wait_and_then_go_on() -> None:
    nodes = FaultyNodes()
    nodes.cut()
    pass_ms(nodes, AWAY_MS)
    client = dying(nodes)
    die(nodes, client, "rejected", b"1", b"2")
    pass_ms(nodes, RETRY_MS)
    assert waits_in(queue_of(nodes, "dying")) == 2
    told = [name for name, _ in nodes.harness["a"].logged]
    assert told.count("dead_letters_wait") == 1
    nodes.heal()
    pass_ms(nodes, RETRY_MS)
    assert bodies(nodes) == [b"1", b"2"]
    assert waits_in(queue_of(nodes, "dying")) == 0


def test_what_the_target_refuses_is_lost_once_and_said_so() -> None:
    nodes = FaultyNodes(FULL)
    client = dying(nodes)
    die(nodes, client, "rejected", b"1", b"2", b"3")
    pass_ms(nodes, RETRY_MS)
    assert waits_in(queue_of(nodes, "dying")) == 0
    assert ("dead_letter_lost", "its queues refuse it") in [
        (name, fields.get("reason")) for name, fields in nodes.harness["a"].logged
    ]
    assert queue_of(nodes, "q", "b").facts.refused == 2
    assert bodies(nodes) == [b"1"]


def test_at_least_once_keeps_what_the_target_refuses_and_tries_it_again() -> None:
    nodes = FaultyNodes({**FULL, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "other"})
    other = nodes.client("b")
    other.declare("other", durable=True)
    client = dying(nodes)
    queue = at_least_once(nodes)
    die(nodes, client, "rejected", b"1", b"2")
    pass_ms(nodes, RETRY_MS)
    assert waits_in(queue) == 1
    assert bodies(nodes) == [b"1"]
    pass_ms(nodes, RETRY_MS)
    assert bodies(nodes) == [b"2"]
    assert waits_in(queue) == 0
    assert bodies(nodes, "other") == [], "what comes again is not dead-lettered by the target that has no space"


def test_an_incarnation_that_has_ended_repeats_what_nobody_knows_of() -> None:
    nodes = FaultyNodes()
    client = dying(nodes)
    die(nodes, client, "rejected", b"1")
    nodes.step()
    nodes.commits = False
    die(nodes, client, "rejected", b"2")
    nodes.step()
    assert waits_in(queue_of(nodes, "dying")) == 1
    nodes.commits = True
    nodes.cut()
    nodes.living = frozenset({"b"})
    nodes.beat(100)
    nodes.living = frozenset({"a", "b"})
    nodes.heal()
    pass_ms(nodes, RETRY_MS)
    assert set(bodies(nodes)) == {b"1", b"2"}
    assert waits_in(queue_of(nodes, "dying")) == 0


def to_both(nodes: FaultyNodes, **arguments: Any) -> Client:
    """Dead letters for q and for a queue of node a."""
    client = nodes.client("a")
    client.declare("here", durable=True)
    client.declare("dying", durable=True, arguments={"x-dead-letter-exchange": "amq.fanout", **arguments})
    for queue in ("q", "here"):
        client.call(Queues.Bind(0, queue, "amq.fanout"), Queues.BindOk)
    return client


def test_a_queue_of_this_node_gets_its_dead_letter_when_the_other_node_has_its_own() -> None:
    nodes = FaultyNodes()
    client = to_both(nodes)
    nodes.commits = False
    die(nodes, client, "rejected", b"1", b"2")
    nodes.step()
    here = queue_of(nodes, "here")
    assert (waits_in(queue_of(nodes, "dying")), here.facts.accepted) == (2, 0)
    nodes.cut()
    nodes.heal()
    assert here.facts.accepted == 0
    nodes.commits = True
    nodes.step()
    assert waits_in(queue_of(nodes, "dying")) == 0
    assert (bodies(nodes), bodies(nodes, "here", "a")) == ([b"1", b"2"], [b"1", b"2"])


def test_what_only_one_of_two_queues_refuses_comes_again_for_that_one() -> None:
    nodes = FaultyNodes(FULL)
    client = to_both(nodes)
    queue = at_least_once(nodes)
    die(nodes, client, "rejected", b"1", b"2")
    for _ in range(3):
        pass_ms(nodes, RETRY_MS)
    assert waits_in(queue) == 1
    assert (bodies(nodes), queue_of(nodes, "here").facts.accepted) == ([b"1"], 1)
    for _ in range(3):
        pass_ms(nodes, RETRY_MS)
    assert (bodies(nodes), bodies(nodes, "here", "a")) == ([b"2"], [b"1", b"2"])
    assert waits_in(queue) == 0


def test_a_bounded_number_is_on_its_way_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transit, "TRANSIT_MESSAGES_MAX", 3)
    nodes = FaultyNodes()
    client = dying(nodes)
    nodes.commits = False
    die(nodes, client, "rejected", *[b"%d" % i for i in range(10)])
    for _ in range(3):
        pass_ms(nodes, RETRY_MS)
    assert (waits_in(queue_of(nodes, "dying")), queue_of(nodes, "q", "b").facts.accepted) == (10, 3)
    nodes.commits = True
    for _ in range(5):
        nodes.step()
    assert waits_in(queue_of(nodes, "dying")) == 0
    assert bodies(nodes) == [b"%d" % i for i in range(10)]


def test_large_messages_go_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transit, "PIECE_BYTES_MAX", 1000)
    nodes = FaultyNodes()
    client = dying(nodes, **DEATHS["expired"])
    client.raw(b"")
    for i in range(7):
        client.publish(b"%d" % i + bytes(400), "dying", delivery_mode=2)
    pass_ms(nodes, 2000)
    nodes.step()
    assert [body[:1] for body in bodies(nodes)] == [b"%d" % i for i in range(7)]
    assert waits_in(queue_of(nodes, "dying")) == 0


def test_messages_with_priorities_die_for_another_node_too() -> None:
    nodes = FaultyNodes()
    client = dying(nodes, **{"x-max-priority": 5, "x-message-ttl": 1000})
    for priority in (1, 5, 3, 1):
        client.publish(b"%d" % priority, "dying", delivery_mode=2, priority=priority)
    pass_ms(nodes, 2000)
    nodes.step()
    assert sorted(bodies(nodes)) == [b"1", b"1", b"3", b"5"]
    assert waits_in(queue_of(nodes, "dying")) == 0


def test_a_queue_that_is_deleted_meanwhile_is_not_asked_for_what_has_arrived() -> None:
    nodes = FaultyNodes()
    client = dying(nodes)
    nodes.commits = False
    die(nodes, client, "rejected", b"1")
    client.call(Queues.Delete(queue="dying"), Queues.DeleteOk)
    nodes.commits = True
    nodes.step()
    assert bodies(nodes) == [b"1"]
    assert not nodes.harness["a"].bugs


def test_dead_letters_of_what_a_full_queue_refuses_go_to_another_node() -> None:
    nodes = FaultyNodes()
    client = dying(nodes, **{"x-max-length": 1, "x-overflow": "reject-publish-dlx"})
    for i in range(3):
        client.publish(b"%d" % i, "dying", delivery_mode=2)
    pass_ms(nodes, 10)
    nodes.step()
    assert bodies(nodes) == [b"1", b"2"]


# Delayed messages


@pytest.mark.parametrize("breaks", [False, True])
def test_a_delayed_message_leaves_its_store_when_the_other_node_has_it(breaks: bool) -> None:
    nodes = FaultyNodes()
    client = nodes.client("a")
    nodes.commits = False
    client.publish(b"1", "q", delivery_mode=2, headers={"x-delay": 500})
    client.publish(b"2", "q", delivery_mode=2, headers={"x-delay": 600})
    pass_ms(nodes, 1000)
    nodes.step()
    store = nodes.harness["a"].node.delayed["/"]
    assert (store.unacked_count, queue_of(nodes, "q", "b").facts.accepted) == (2, 2)
    if breaks:
        nodes.cut()
        nodes.step()
        nodes.heal()
    nodes.commits = True
    nodes.step()
    assert (store.ready_count, store.unacked_count, store.facts.expired) == (0, 0, 2)
    assert bodies(nodes) == [b"1", b"2"]
    assert store.waiting_for("", True) == 0


def test_a_delayed_message_for_queues_of_both_nodes_enters_each_once() -> None:
    nodes = FaultyNodes()
    client = to_both(nodes)
    client.publish(b"1", "", "amq.fanout", delivery_mode=2, headers={"x-delay": 500})
    pass_ms(nodes, 1000)
    nodes.step()
    assert (bodies(nodes), bodies(nodes, "here", "a")) == ([b"1"], [b"1"])
    assert nodes.harness["a"].node.delayed["/"].unacked_count == 0


def test_a_delayed_message_waits_while_its_queue_is_away() -> None:
    nodes = FaultyNodes()
    nodes.cut()
    pass_ms(nodes, AWAY_MS)
    client = nodes.client("a")
    client.publish(b"1", "q", delivery_mode=2, headers={"x-delay": 500})
    pass_ms(nodes, 1000)
    store = nodes.harness["a"].node.delayed["/"]
    assert store.unacked_count == 1
    nodes.heal()
    pass_ms(nodes, 1000)
    nodes.step()
    assert bodies(nodes) == [b"1"]


# Publishes that reach the queue by way of several exchanges


def test_bindings_between_exchanges_and_alternate_exchanges_reach_a_queue_of_another_node() -> None:
    nodes = FaultyNodes()
    client = nodes.client("a")
    client.call(Confirm.Select(), Confirm.SelectOk)
    made: dict[str, dict[str, Any]] = {"first": {"alternate-exchange": "last"}, "second": {}, "last": {}}
    for name, arguments in made.items():
        client.call(Exchange.Declare(exchange=name, exchange_type="topic", arguments=arguments), Exchange.DeclareOk)
    client.call(Exchange.Bind(destination="second", source="first", routing_key="a.#"), Exchange.BindOk)
    client.call(Queues.Bind(0, "q", "second", "#.z"), Queues.BindOk)
    client.call(Queues.Bind(0, "q", "last", "b"), Queues.BindOk)
    for body, key in ((b"by binding", "a.z"), (b"by alternate", "b"), (b"nowhere", "c"), (b"not on", "a.y")):
        client.publish(body, key, "first", mandatory=True)
    nodes.step()
    client.collect()
    assert [each.body for each in client.take(Message)] == [b"nowhere", b"not on"]
    nodes.step()
    client.collect()
    acks = client.take(Basic.Ack)
    assert acks[-1].delivery_tag == 4
    assert not client.take(Basic.Nack)
    assert bodies(nodes) == [b"by binding", b"by alternate"]
