"""A leader that hands its source over: what clients of other nodes hold is theirs at the next one, at once.

What is verified: nobody waits for claims, nothing that is held is given to others, and nothing that nobody had is
`redelivered`; a hand-over that is cut, or of which nothing comes, is a take-over. Not verified: how the hand-over
comes to the next leader (`tests/cluster`), its bytes (`test_handed_bytes.py`).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pamqp import commands

from amqpd.remote.leader import CLAIM_WAIT_MS
from tests.harness.harness import Client, Message
from tests.remote.two_nodes import TwoNodes

Basic = commands.Basic
BODIES = [b"one", b"two", b"three", b"four"]


def consumer(nodes: TwoNodes, name: str, prefetch: int) -> Client:
    client = nodes.client(name)
    client.call(Basic.Qos(prefetch_count=prefetch), Basic.QosOk)
    client.send(Basic.Consume(queue="q"))
    nodes.step()
    client.collect()
    client.expect(Basic.ConsumeOk)
    return client


def taken(client: Client) -> list[tuple[bytes, bool]]:
    client.collect()
    return [(each.body, each.redelivered) for each in client.take(Message)]


def published(nodes: TwoNodes, client: Client) -> None:
    for body in BODIES:
        client.publish(body, "q")
    nodes.step()


@pytest.fixture
def held(nodes: TwoNodes) -> Client:
    """A client of node a, which holds two of four messages."""
    client = consumer(nodes, "a", 2)
    published(nodes, client)
    assert taken(client) == [(b"one", False), (b"two", False)]
    return client


@pytest.mark.parametrize("moves", [["a"], ["a", "b"], ["b"]], ids=["to it", "to it and back", "to the same node"])
def test_what_a_client_holds_is_its_own_and_nothing_comes_again(
    nodes: TwoNodes, held: Client, moves: list[str]
) -> None:
    for name in moves:
        nodes.move(name)
        queue = nodes.harness[name].node.queues["/", "q"]
        assert (queue.ready_count, queue.unacked_count) == (2, 2), "before an edge of another node has attached"
        assert not queue.withholds
        nodes.look_for_leaders()
        assert (queue.ready_count, queue.unacked_count) == (2, 2)
        assert taken(held) == []
    held.send(Basic.Ack(delivery_tag=2, multiple=True))
    nodes.step()
    assert taken(held) == [(b"three", False), (b"four", False)]
    held.send(Basic.Ack(delivery_tag=4, multiple=True))
    nodes.step()
    assert (queue.ready_count, queue.unacked_count) == (0, 0)
    assert not held.harness.bugs


def test_what_a_client_settles_while_its_leader_moves_is_settled(nodes: TwoNodes, held: Client) -> None:
    nodes.move("a")
    held.send(Basic.Ack(delivery_tag=1))
    nodes.look_for_leaders()
    held.collect()
    assert taken(held) == [(b"three", False)]
    queue = nodes.harness["a"].node.queues["/", "q"]
    assert (queue.ready_count, queue.unacked_count) == (1, 2)


def test_what_a_client_of_the_old_leader_had_is_redelivered_and_nothing_else(nodes: TwoNodes) -> None:
    """Its clients are told that their queue moves."""
    far, near = consumer(nodes, "a", 1), consumer(nodes, "b", 1)
    published(nodes, far)
    of_near = taken(near)
    assert len(taken(far)) == len(of_near) == 1
    nodes.move("a")
    nodes.look_for_leaders()
    other = consumer(nodes, "a", 9)
    assert sorted(taken(other)) == sorted([(of_near[0][0], True), (b"three", False), (b"four", False)])


@pytest.mark.parametrize(
    "change",
    [lambda handed: b"", lambda handed: handed[:-1], lambda handed: handed + b"\0", lambda handed: b"\xff" * 40],
    ids=["nothing", "cut", "more", "no hand-over"],
)
def test_a_hand_over_that_is_not_whole_is_a_take_over(
    nodes: TwoNodes, held: Client, change: Callable[[bytes], bytes]
) -> None:
    nodes.move("a", change)
    node = nodes.harness["a"].node
    queue = node.queues["/", "q"]
    assert queue.withholds, "node b may have claims"
    nodes.look_for_leaders()
    assert (queue.ready_count, queue.unacked_count) == (2, 2), "by the claims of node a"
    held.send(Basic.Ack(delivery_tag=2, multiple=True))
    nodes.step()
    assert taken(held) == []
    node.now_ms += int(CLAIM_WAIT_MS)
    node.remote_sessions.beat()
    nodes.step()
    assert taken(held) == [(b"three", True), (b"four", True)], "as far as the log knows"


def test_what_is_passed_is_forgotten_when_it_was_asked_for(nodes: TwoNodes, held: Client) -> None:
    node = nodes.harness["b"].node
    node.source_stops(5)
    assert node.remote_sessions.handed(5)
    assert node.remote_sessions.handed(5) == b""
