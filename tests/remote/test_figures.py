"""What operators see of remote queues, at both ends."""

from __future__ import annotations

import pytest
from pamqp import commands

from amqpd.remote.figures import UNDECIDED_MS_MAX, edge_figures, leader_figures, stuck_sentences
from tests.harness.harness import Client
from tests.remote.two_nodes import SOURCE, TwoNodes

Basic, Confirm = commands.Basic, commands.Confirm


@pytest.fixture
def nodes() -> TwoNodes:
    return TwoNodes()


@pytest.fixture
def client(nodes: TwoNodes) -> Client:
    client = nodes.client("a")
    client.call(Confirm.Select(), Confirm.SelectOk)
    return client


def at_edge(nodes: TwoNodes) -> dict[str, int | float]:
    node = nodes.harness["a"].node
    return edge_figures(node.edges, node.now_ms)


def at_leader(nodes: TwoNodes) -> dict[str, int | float]:
    return leader_figures(nodes.harness["b"].node.remote_sessions.leaders)


def test_what_a_consumer_holds_is_seen_at_both_ends(nodes: TwoNodes, client: Client) -> None:
    client.call(Basic.Qos(prefetch_count=5), Basic.QosOk)
    client.send(Basic.Consume(queue="q"))
    for body in (b"one", b"two"):
        client.publish(body, "q")
    nodes.step()
    edge, leader = at_edge(nodes), at_leader(nodes)
    assert (edge["edges"], edge["edges_attached"], edge["edge_subscriptions"]) == (1, 1, 1)
    assert (leader["leader_sessions"], leader["leader_subscriptions"], leader["leader_messages_held"]) == (1, 1, 2)
    assert leader["leader_subscriptions_credit"] == 3
    assert edge["edge_operations_undecided"] == edge["edge_operations_undecided_bytes"] == 0


def test_operations_that_a_lost_link_holds_up_are_counted_and_those_that_are_sent_again(
    nodes: TwoNodes, client: Client
) -> None:
    client.publish(b"one", "q")
    nodes.step()
    client.publish(b"two", "q")
    nodes.harness["a"].step()
    nodes.cut()
    found = at_edge(nodes)
    assert (found["edge_operations_undecided"], found["edges_attached"]) == (1, 0)
    assert found["edge_operations_undecided_bytes"] > len(b"two")
    nodes.heal()
    found = at_edge(nodes)
    assert (found["edge_operations_undecided"], found["edge_operations_resent_total"]) == (0, 1)


def test_a_leader_that_decides_nothing_on_a_live_session_is_named(
    nodes: TwoNodes, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = nodes.harness["a"].node
    client.publish(b"one", "q")
    nodes.step()
    monkeypatch.setattr(TwoNodes, "_report", lambda self: None)
    client.publish(b"two", "q")
    nodes.step()
    node.edges.beat()
    assert stuck_sentences(node.edges, node.now_ms) == []
    node.now_ms += UNDECIDED_MS_MAX
    node.edges.beat()
    assert at_edge(nodes)["edge_oldest_undecided_seconds"] == 10
    assert stuck_sentences(node.edges, node.now_ms) == [
        "Node b has not decided for 10 s what clients of this node asked of its source "
        f"{SOURCE}. Operations that wait: 1."
    ]
    monkeypatch.undo()
    nodes.step()
    node.edges.beat()
    assert stuck_sentences(node.edges, node.now_ms) == []
