"""Which leader an edge hears: the one that leads in the epoch that its node knows of, and no other.

What is verified: a leader that names another epoch, however high, keeps no honest one from being heard; a leader that
begins again at the same node has its edges attached again; so it is where the leader is of the edge's own node. Not
verified: how a node learns of epochs.
"""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from amqpd.peers.entry import EPOCH_MAX
from amqpd.remote.links import RemoteSource
from amqpd.remote.messages import Attached, FromLeader, Unknown
from tests.harness.harness import Client, Message
from tests.remote.two_nodes import SOURCE, TwoNodes

Basic = commands.Basic


def consumer(nodes: TwoNodes) -> Client:
    client = nodes.client("a")
    client.send(Basic.Consume(queue="q"))
    nodes.step()
    client.expect(Basic.ConsumeOk)
    return client


def edge_of(nodes: TwoNodes) -> Any:
    return nodes.harness["a"].node.edges.of(RemoteSource(SOURCE)).edge


def is_served(nodes: TwoNodes, client: Client, body: bytes) -> None:
    client.publish(body, "q")
    nodes.step()
    client.collect()
    assert [each.body for each in client.take(Message)] == [body]


@pytest.mark.parametrize("epoch", [2, EPOCH_MAX])
@pytest.mark.parametrize("kind", [Attached, Unknown])
def test_a_leader_that_names_a_later_epoch_than_its_own_is_not_heard(
    nodes: TwoNodes, epoch: int, kind: type[FromLeader]
) -> None:
    client = consumer(nodes)
    nodes.cut()
    nodes.linked = True
    edges = nodes.harness["a"].node.edges
    edges.links_changed("b")
    edge = edge_of(nodes)
    lie = Unknown(epoch) if kind is Unknown else Attached(epoch, edge.operation_count, (), ())
    edges.receive("b", SOURCE, edge.incarnation, edge.session, lie)
    assert edge_of(nodes) is edge
    nodes.step()
    assert edge.epoch == 1
    is_served(nodes, client, b"one")


def test_a_leader_of_an_earlier_epoch_than_its_own_is_not_heard(nodes: TwoNodes) -> None:
    """It has ended by then, and what is asked of it would never be answered."""
    client = consumer(nodes)
    nodes.epoch = 2
    edges = nodes.harness["a"].node.edges
    edges.leaders_changed()
    nodes.step()
    assert edge_of(nodes).epoch == 1
    assert not edges.of(RemoteSource(SOURCE)).is_attached
    nodes.begin("b", 2)
    nodes.harness["a"].node.now_ms += 1_000
    edges.beat()
    nodes.step()
    assert edge_of(nodes).epoch == 2
    is_served(nodes, client, b"one")


def test_a_leader_that_begins_again_at_the_same_node_has_its_edges_attached_again(nodes: TwoNodes) -> None:
    client = consumer(nodes)
    nodes.begin("b", 2)
    nodes.harness["a"].node.edges.leaders_changed()
    nodes.step()
    assert edge_of(nodes).epoch == 2
    is_served(nodes, client, b"one")


def test_an_edge_hears_the_leader_of_its_own_node_in_the_epoch_that_it_leads_in(nodes: TwoNodes) -> None:
    consumer(nodes)
    nodes.begin("a", 7)
    edges = nodes.harness["a"].node.edges
    edge = edge_of(nodes)
    edges.receive("a", SOURCE, edge.incarnation, edge.session, Attached(EPOCH_MAX, 0, (), ()))
    nodes.step()
    assert edge_of(nodes).epoch == 7
