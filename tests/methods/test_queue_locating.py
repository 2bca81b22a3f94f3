"""Quorum queues of a cluster: what a declaration asks of their source, and its answer when the leader is another
node.

What is verified: the node's half, with a cluster that answers as a test says. Not verified here: which source that is
(`tests/cluster/test_choosing.py`), real nodes (`tests/faults/test_cluster_operators.py`).
"""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from amqpd.journal.lane import Lane
from amqpd.journal.numbers import NUMBERS_STEP, Numbers
from amqpd.journal.records import Recovered
from amqpd.node.cluster import LOCAL, Answer, WantedSource
from amqpd.vocabulary.records import PolicyRecord, Put, VhostRecord
from tests.harness.harness import Client, Harness

Channel, Queue = commands.Channel, commands.Queue
HERE, REMOTE = 5, 6
QUORUM: dict[str, Any] = {"x-queue-type": "quorum"}


class ReplicaLane(Lane):
    def force(self) -> None:
        pass


class Cluster:
    """Source 5 is served here, 6 is led by `b`, where balanced queues go."""

    def __init__(self) -> None:
        self.harness = Harness()
        self.node = self.harness.node
        self.wants: list[WantedSource] = []
        self.answers: list[Answer] = []
        self.there: set[int] = {HERE, REMOTE}
        cluster = self.harness.cluster
        cluster.replicated, cluster.choose, cluster.want = True, self.choose, self.want
        cluster.leaders = {HERE: "a", REMOTE: "b"}.__getitem__
        self.node.journal.lead(HERE, 1, Numbers(0, NUMBERS_STEP), ReplicaLane(1, 0))
        self.node.source_begins(HERE, Recovered(0, {}))
        self.client: Client = self.harness.client()

    def choose(self, wanted: WantedSource) -> int:
        self.wants.append(wanted)
        source = REMOTE if wanted.balanced else HERE
        return source if source in self.there else LOCAL

    def want(self, wanted: WantedSource, answer: Answer) -> None:
        self.answers.append(answer)

    def declare(self, name: str = "q", **arguments: Any) -> None:
        self.client.declare(name, durable=True, arguments={**QUORUM, **arguments})

    def source(self, name: str = "q") -> int:
        return self.node.topology.vhosts["/"].queues[name].source


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


LOCATORS = ["balanced", "random", "least-leaders", "min-masters"]


def test_a_queue_is_led_by_the_node_where_it_is_declared(cluster: Cluster) -> None:
    cluster.declare("one")
    cluster.declare("two", **{"x-queue-leader-locator": "client-local"})
    assert cluster.wants == [WantedSource(), WantedSource()]
    assert (cluster.source("one"), cluster.source("two")) == (HERE, HERE)


@pytest.mark.parametrize("locator", LOCATORS)
def test_a_balanced_queue_is_declared_led_by_another_node_and_used_there(cluster: Cluster, locator: str) -> None:
    cluster.client.call(
        Queue.Declare(queue="q", durable=True, arguments={**QUORUM, "x-queue-leader-locator": locator}),
        Queue.DeclareOk,
    )
    assert (cluster.wants, cluster.source()) == ([WantedSource(0, "//q")], REMOTE)
    cluster.client.call(Queue.Bind(queue="q", exchange="amq.direct", routing_key="k"), Queue.BindOk)
    cluster.client.send(commands.Basic.Consume(queue="q"))
    closed = cluster.client.expect(Channel.Close)
    assert (closed.reply_code, closed.reply_text) == (
        404,
        "NOT_FOUND - home node 'b' of durable queue 'q' in vhost '/' is another node: connect to that one",
    )


def test_a_queue_that_is_there_is_not_declared_again_away_from_its_leader(cluster: Cluster) -> None:
    cluster.declare(**{"x-queue-leader-locator": "balanced"})
    arguments = {**QUORUM, "x-queue-leader-locator": "balanced"}
    cluster.client.send(Queue.Declare(queue="q", durable=True, arguments=arguments))
    assert cluster.client.expect(Channel.Close).reply_code == 404


def test_a_policys_locator_counts_more_than_the_arguments(cluster: Cluster) -> None:
    def policy(locator: str) -> None:
        definition = {"queue-leader-locator": locator}
        cluster.harness.topology.apply([Put(PolicyRecord("/", "p", ".*", "queues", definition))])

    policy("balanced")
    cluster.declare("one")
    cluster.declare("two", **{"x-queue-leader-locator": "client-local"})
    policy("client-local")
    cluster.declare("three", **{"x-queue-leader-locator": "balanced"})
    assert [cluster.source(name) for name in ("one", "two", "three")] == [REMOTE, REMOTE, HERE]


def test_a_policy_for_mirrored_queues_says_nothing_of_quorum_queues(cluster: Cluster) -> None:
    definition = {"queue-master-locator": "min-masters", "queue-leader-locator": "balanced"}
    cluster.harness.topology.apply([Put(PolicyRecord("/", "p", ".*", "queues", definition))])
    cluster.declare()
    assert cluster.source() == HERE


def test_a_number_of_copies_is_asked_for(cluster: Cluster) -> None:
    cluster.declare("q", **{"x-quorum-initial-group-size": 5})
    assert cluster.wants == [WantedSource(5)]


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("x-quorum-initial-group-size", 0, "{value_zero,0}"),
        ("x-quorum-initial-group-size", -1, "{value_negative,-1}"),
        ("x-quorum-initial-group-size", "3", '"expected integer, got longstr"'),
        ("x-queue-leader-locator", "here", "invalid_queue_locator_arg"),
        ("x-queue-leader-locator", 1, "{unacceptable_type,"),
    ],
)
def test_what_makes_no_sense_is_refused_in_rabbitmqs_words(
    cluster: Cluster, name: str, value: Any, reason: str
) -> None:
    cluster.client.send(Queue.Declare(queue="q", durable=True, arguments={**QUORUM, name: value}))
    text = cluster.client.expect(Channel.Close).reply_text
    assert text.startswith(f"PRECONDITION_FAILED - invalid arg '{name}' for queue 'q' in vhost '/': {reason}")
    assert cluster.wants == []


def test_the_locator_of_classic_queues_is_refused(cluster: Cluster) -> None:
    arguments = {**QUORUM, "x-queue-master-locator": "min-masters"}
    cluster.client.send(Queue.Declare(queue="q", durable=True, arguments=arguments))
    assert cluster.client.expect(Channel.Close).reply_text == (
        "PRECONDITION_FAILED - invalid arg 'x-queue-master-locator' for queue 'q' in vhost '/' of queue type "
        "rabbit_quorum_queue"
    )


def test_the_default_type_of_a_virtual_host_makes_queues_that_are_copied(cluster: Cluster) -> None:
    cluster.harness.topology.apply([Put(VhostRecord("/", metadata={"default_queue_type": "quorum"}))])
    cluster.client.declare("copied", durable=True)
    cluster.client.declare("mine", exclusive=True, durable=True)
    cluster.client.declare("fleeting", durable=True, auto_delete=True)
    cluster.client.declare("transient")
    assert cluster.source("copied") == HERE
    assert [cluster.source(name) for name in ("mine", "fleeting", "transient")] == [LOCAL] * 3
    assert cluster.wants == [WantedSource()]


def test_a_declaration_waits_for_a_source(cluster: Cluster) -> None:
    cluster.there.clear()
    cluster.client.send(Queue.Declare(queue="q", durable=True, arguments=QUORUM))
    assert len(cluster.answers) == 1
    cluster.there.add(HERE)
    cluster.answers.pop()(True)
    cluster.harness.step()
    cluster.client.collect()
    cluster.client.expect(Queue.DeclareOk)


def test_a_balanced_queue_is_here_when_there_is_no_source_elsewhere_in_time(cluster: Cluster) -> None:
    cluster.there.remove(REMOTE)
    cluster.client.send(
        Queue.Declare(queue="q", durable=True, arguments={**QUORUM, "x-queue-leader-locator": "balanced"})
    )
    cluster.answers.pop()(False)
    cluster.harness.step()
    cluster.client.collect()
    cluster.client.expect(Queue.DeclareOk)
    assert cluster.source() == HERE


def test_without_a_majority_a_declaration_is_refused(cluster: Cluster) -> None:
    cluster.there.clear()
    cluster.client.send(Queue.Declare(queue="q", durable=True, arguments=QUORUM))
    cluster.answers.pop()(False)
    cluster.harness.step()
    cluster.client.collect()
    closed = cluster.client.expect(Channel.Close)
    assert closed.reply_code == 406
    assert "this node reaches no majority of the cluster's nodes" in closed.reply_text


def test_policies_count_for_a_queue_that_comes_here(cluster: Cluster) -> None:
    """It was led by another node when they were set: nothing of it was here that they could be applied to."""
    cluster.declare("q", **{"x-queue-leader-locator": "balanced", "x-max-length": 7})
    definition: dict[str, Any] = {
        "delivery-limit": 3,
        "expires": 60_000,
        "message-ttl": 9_000,
        "max-length": 5,
        "overflow": "reject-publish",
        "dead-letter-exchange": "amq.fanout",
        "dead-letter-routing-key": "dead",
        "dead-letter-strategy": "at-least-once",
    }
    cluster.harness.topology.apply([Put(PolicyRecord("/", "p", ".*", "quorum_queues", definition))])
    cluster.node.journal.lead(REMOTE, 1, Numbers(0, NUMBERS_STEP), ReplicaLane(1, 0))
    cluster.node.source_begins(REMOTE, Recovered(0, {}))
    settings = cluster.node.queues["/", "q"].settings
    assert (settings.delivery_limit, settings.expires_ms, settings.message_ttl_ms) == (3, 60_000, 9_000)
    assert (settings.max_length, settings.overflow) == (5, "reject-publish")
    assert (settings.dead_letter_exchange, settings.dead_letter_routing_key) == ("amq.fanout", "dead")
    assert settings.at_least_once
