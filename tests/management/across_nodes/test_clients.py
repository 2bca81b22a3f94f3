"""Clients of all nodes as an operator at one of them lists and closes them.

What is verified: rows with their node, filters, nodes that are silent or away; closing one wherever it is, many
everywhere, what could not be done. Not verified here: the questions between nodes (`test_rows.py`), real nodes
(`tests/clients/test_cluster_commands.py`).
"""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from amqpd.management.across_nodes import clients
from amqpd.management.across_nodes.answers import PeerAnswers
from amqpd.management.across_nodes.clients import Clients
from amqpd.management.across_nodes.leaders import Leaders
from amqpd.management.across_nodes.rows import PeerRows
from amqpd.management.attention.watch import AttentionWatch
from amqpd.management.connections import CloseRequest
from amqpd.management.errors import BadArgument, NotFound, Unavailable
from amqpd.management.figures.node_facts import NodeFacts
from amqpd.management.figures.samples import Series
from amqpd.management.figures.sampling import OF_NODE
from amqpd.management.operators import Operator
from amqpd.vocabulary.states import ConnectionState
from tests.harness.harness import Client
from tests.management.rig import ALICE, ROOT, running

pytestmark = pytest.mark.trio

A, B, AWAY = "amqpd@test", "b@x", "c@x"


class TwoNodes:
    """This node and b@x, each with a client that consumes; c@x is away. With `silent` b@x answers nothing."""

    def __init__(self) -> None:
        self.silent = False
        self.clients: dict[str, Client] = {}
        self.on = {}
        for name in (A, B):
            harness, self.on[name] = running()
            client: Client = harness.client()
            client.connection.name = f"{name}:1 -> y:2"
            client.declare("q")
            client.consume("q", f"tag of {name}")
            self.clients[name] = client
        there = self.on[B]
        facts = NodeFacts(there, dict, Series(OF_NODE), [], [], "/data")
        self.answers = PeerAnswers(there, facts, AttentionWatch(there.node, lambda: there.node.now_ms))
        self.leaders = Leaders(A, self.on[A].node.sources, self, PeerRows(self, self.others))  # type: ignore[arg-type]

    async def ask(self, peer: str, text: str, timeout_s: float) -> str | None:
        return await self.answers.answer(text) if peer == B and not self.silent else None

    def others(self) -> list[str]:
        return [B, AWAY]

    def lives(self, name: str) -> bool:
        return name != AWAY

    def why_silent(self, name: str) -> str:
        return "there is no link to it now" if self.silent else ""

    async def listed(self, of: str, **filters: str) -> tuple[list[dict[str, Any]], dict[str, str]]:
        found = Clients(self.on[A], self.leaders)
        rows = [row async for page in getattr(found, of)(filters) for row in page]
        return rows, found.missing

    async def close(self, by: Operator = ROOT, **which: Any) -> clients.Closed:
        return await clients.close(self.on[A], self.leaders, by, CloseRequest(**which))

    def closed(self, name: str) -> bool:
        return self.clients[name].connection.state is not ConnectionState.RUNNING

    def id_of(self, name: str) -> str:
        return str(self.clients[name].connection.id)


@pytest.mark.parametrize("of", ["connections", "channels", "consumers"])
async def test_a_list_has_the_rows_of_all_nodes_and_names_who_is_away(of: str) -> None:
    nodes = TwoNodes()
    here, there = (await nodes.listed(of))[0]
    assert (here["node"], there["node"]) == (A, B)
    assert here.keys() == there.keys()
    assert (await nodes.listed(of))[1] == {AWAY: "is away"}
    assert await nodes.listed(of, user="nobody") == ([], {AWAY: "is away"})
    assert (await nodes.listed(of, vhost="none"))[0] == []


@pytest.mark.parametrize("of", ["connections", "channels", "consumers"])
async def test_a_node_that_does_not_answer_is_named_with_the_reason(of: str) -> None:
    nodes = TwoNodes()
    nodes.silent = True
    rows, missing = await nodes.listed(of)
    assert [row["node"] for row in rows] == [A]
    assert missing == {AWAY: "is away", B: "does not answer: there is no link to it now"}


async def test_the_consumers_of_one_queue_are_those_of_all_nodes() -> None:
    nodes = TwoNodes()
    rows, _ = await nodes.listed("consumers", vhost="/", queue="q")
    assert {row["consumer_tag"] for row in rows} == {f"tag of {A}", f"tag of {B}"}
    assert (await nodes.listed("consumers", vhost="/", queue="other"))[0] == []


async def test_one_connection_is_closed_wherever_it_is() -> None:
    nodes = TwoNodes()
    done = await nodes.close(which=f"{B}:1 -> y:2", reason="enough")
    assert (done.count, done.missing) == (1, {})
    assert (nodes.closed(A), nodes.closed(B)) == (False, True)
    done = await nodes.close(which=nodes.id_of(A))
    assert (done.count, nodes.closed(A)) == (1, True)


async def test_one_that_a_silent_node_may_have_is_not_said_to_be_missing() -> None:
    nodes = TwoNodes()
    with pytest.raises(Unavailable, match=r"these do not answer: node c@x, which is away$"):
        await nodes.close(which="c99-none")
    assert not any(map(nodes.closed, (A, B)))


async def test_one_that_nobody_has_is_not_found() -> None:
    nodes = TwoNodes()
    nodes.leaders = Leaders(A, nodes.on[A].node.sources, nodes, PeerRows(nodes, lambda: [B]))  # type: ignore[arg-type]
    with pytest.raises(NotFound, match="no connection 'c99-none'"):
        await nodes.close(which="c99-none")


@pytest.mark.parametrize("which", [{"everything": True}, {"user": "guest"}, {"vhost": "/"}])
async def test_many_are_closed_at_all_nodes_and_who_did_not_is_told(which: dict[str, Any]) -> None:
    nodes = TwoNodes()
    done = await nodes.close(ALICE, **which)
    assert (done.count, done.missing) == (2, {AWAY: "is away"})
    assert nodes.closed(A)
    assert nodes.closed(B)


@pytest.mark.parametrize("which", [{"user": "guest", "vhost": "none"}, {"user": "nobody", "vhost": "/"}])
async def test_only_those_are_closed_that_are_meant_by_all_that_is_said(which: dict[str, Any]) -> None:
    nodes = TwoNodes()
    assert (await nodes.close(**which)).count == 0
    assert not any(map(nodes.closed, (A, B)))


async def test_without_a_word_which_nothing_is_closed_anywhere() -> None:
    nodes = TwoNodes()
    with pytest.raises(BadArgument):
        await nodes.close()
    assert '"refused":"bad_argument"' in await nodes.answers.answer('{"of": "close_many", "by": null, "reason": "x"}')
    assert not any(map(nodes.closed, (A, B)))


async def test_what_several_nodes_closed_at_the_same_time_is_added_up(autojump_clock: trio.testing.MockClock) -> None:
    nodes = TwoNodes()

    async def ask(peer: str, text: str, timeout_s: float) -> str:
        await trio.sleep(1 if peer == B else 2)
        return '{"rows": [{"closed": 3}], "next": null}'

    nodes.ask = ask  # type: ignore[method-assign]
    assert await nodes.close(everything=True) == clients.Closed(1 + 3 + 3)
