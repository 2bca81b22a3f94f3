"""Data links of nodes over loopback: who is told what, turns of sessions, bounds, and links over which nothing comes.

What is verified: both ends with real sockets; peers that flood, stall, lie, fall silent and come back. Not verified
here: greetings and versions (`tests/peers/links/test_data_links.py`), sessions themselves (`tests/remote/`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
import structlog
import trio
import trio.testing

from amqpd.cluster import data_links
from amqpd.cluster.data_links import AHEAD_BYTES, CAPACITY_BYTES, HEARTBEATS, DataLink, DataLinks, weight_of
from amqpd.cluster.linkage import LinkWatch
from amqpd.peers.links.links import Links
from amqpd.peers.links.sockets import Address, bind
from amqpd.peers.messages import DataHeartbeat, HoldsNothing, Message, Purpose, SourceEpoch, ToEdge, ToLeader
from tests.peers.links.forwarders import OPEN, PATIENCE_S, SHORT, Heard, Peer, Wire, dial, hello

pytestmark = pytest.mark.trio

BEATS_IN_LEASE = 8


def to_leader(source: int, number: int, nbytes: int = 10) -> ToLeader:
    return ToLeader(source, 1, number, 2, (b"x" * nbytes,))


def to_edge(source: int, number: int, nbytes: int = 10) -> ToEdge:
    return ToEdge(source, 1, number, (b"x" * nbytes,))


class Told:
    """`DataEvents`, kept until a test asks for them."""

    def __init__(self) -> None:
        self.all: list[tuple[Any, ...]] = []
        self.on_edge: Callable[[DataLink, Message], None] | None = None
        """in place of keeping what edges say"""
        self._left: list[tuple[Any, ...]] = []
        self._changed = trio.Event()

    def edge_linked(self, peer: str, incarnation: int) -> None:
        self._add("edge_linked", peer, incarnation)

    def edge_lost(self, peer: str) -> None:
        self._add("edge_lost", peer)

    def edge_drained(self, peer: str, source: int) -> None:
        self._add("edge_drained", peer, source)

    def from_leader(self, peer: str, message: ToEdge) -> None:
        self._add("from_leader", peer, message)

    def accepted(self, link: DataLink) -> None:
        self._add("accepted", link)

    def left(self, link: DataLink) -> None:
        self._add("left", link)

    def drained(self, link: DataLink, source: int) -> None:
        self._add("drained", link, source)

    def from_edge(self, link: DataLink, message: ToLeader | HoldsNothing) -> None:
        if self.on_edge is not None:
            self.on_edge(link, message)
        else:
            self._add("from_edge", link, message)

    def _add(self, *what: Any) -> None:
        self.all.append(what)
        self._left.append(what)
        self._changed.set()

    def kinds(self) -> list[str]:
        return [each[0] for each in self.all]

    async def next(self, kind: str) -> tuple[Any, ...]:
        """What comes with the next one of this kind that no test has asked for."""
        with trio.fail_after(PATIENCE_S):
            while True:
                for at, each in enumerate(self._left):
                    if each[0] == kind:
                        return self._left.pop(at)[1:]
                self._changed = trio.Event()
                await self._changed.wait()


class Node(NamedTuple):
    """Real links, and what the node of them is told."""

    data: DataLinks
    told: Told
    links: Links
    heard: Heard
    """of links of replication"""
    address: Address
    closed: list[tuple[str, str]]
    full: list[bool]
    """whether the journal is, in the last place"""
    effects: list[int]
    """how often the node acted"""


@asynccontextmanager
async def node(name: str, wired: bool = True, port: int = 0) -> AsyncIterator[Node]:
    closed, full, effects = list[tuple[str, str]](), [False], [0]

    def do(what: Callable[[], None]) -> None:
        what()
        effects[0] += 1

    data = DataLinks(do, lambda: full[-1], lambda peer, why: closed.append((peer, why)), BEATS_IN_LEASE)
    told, heard, listeners = Told(), Heard(), bind([("127.0.0.1", port)])
    if wired:
        data.tell(told)
    links = Links(hello(name), heard, listeners, OPEN, SHORT, chance=lambda: 0.5, data_events=data)
    data.begin(links)
    async with trio.open_nursery() as nursery:
        await nursery.start(links.run)
        yield Node(data, told, links, heard, listeners[0].getsockname()[:2], closed, full, effects)
        nursery.cancel_scope.cancel()


class Pair(NamedTuple):
    edge: Node
    leader: Node
    link: DataLink
    """at the leader"""


@asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    """`a` has clients that use queues of b."""
    async with node("a") as edge, node("b") as leader:
        edge.data.want("b")
        edge.links.peers_are({"b": leader.address})
        assert await edge.told.next("edge_linked") == ("b", 1)
        [link] = await leader.told.next("accepted")
        yield Pair(edge, leader, link)


async def test_an_edge_and_a_leader_are_told_of_each_other_and_of_what_comes() -> None:
    async with pair() as (edge, leader, link):
        assert (link.forwarder, link.incarnation, edge.data.incarnation_of("b")) == ("a", 1, 1)
        said: list[ToLeader | HoldsNothing] = [to_leader(5, 1), HoldsNothing((SourceEpoch(6, 2),)), to_leader(5, 2)]
        for message in said:
            edge.data.send("b", message)
        assert [await leader.told.next("from_edge") for _ in said] == [(link, each) for each in said]
        link.send(to_edge(5, 1))
        assert await edge.told.next("from_leader") == ("b", to_edge(5, 1))
        assert edge.effects[0] == len(edge.told.all) == 2
        assert leader.effects[0] == len(leader.told.all) == 4
        assert edge.data.facts()["data_links_to"] == ["b"]
        assert leader.data.facts()["data_links_from"] == ["a"]
        assert leader.data.incarnation_of("a") is None, "b has dialed nobody"
        leader.data.send("a", to_leader(5, 1))
        assert not leader.data.has_capacity("a", 5)


async def test_what_is_wanted_before_there_are_links_is_dialed_when_there_are() -> None:
    data = DataLinks(lambda what: what(), lambda: False, lambda peer, why: None, BEATS_IN_LEASE)
    assert data.sentences() == []
    data.want("b")
    data.want("c")
    data.drop("c")
    listeners = bind([("127.0.0.1", 0)])
    links = Links(hello("a"), Heard(), listeners, OPEN, SHORT, data_events=data)
    data.begin(links)
    assert data.sentences() == [
        "This node has no data connection to b, whose queues its clients use: it is no member of the cluster now."
    ]
    for each in listeners:
        each.close()


async def test_a_link_that_is_lost_is_told_of_and_made_again() -> None:
    async with pair() as (edge, leader, link):
        link.close("for a test")
        assert leader.closed == [("a", "for a test")]
        assert await edge.told.next("edge_lost") == ("b",)
        assert await leader.told.next("left") == (link,)
        edge.data.send("b", to_leader(5, 1))
        link.send(to_edge(5, 1))
        link.close("once more")
        assert await edge.told.next("edge_linked") == ("b", 1)
        [again] = await leader.told.next("accepted")
        assert again is not link
        edge.data.send("b", to_leader(5, 2))
        assert await leader.told.next("from_edge") == (again, to_leader(5, 2))
        assert (edge.data.facts()["data_links_lost_total"], leader.data.facts()["data_links_closed_total"]) == (1, 1)
        assert len(leader.closed) == 1
        assert edge.heard.kinds("lost") == []


async def test_a_leader_that_lies_loses_its_link() -> None:
    async with pair() as (edge, leader, link):
        edge.data.close("b", "it named a session that there is not")
        assert edge.closed == [("b", "it named a session that there is not")]
        await edge.told.next("edge_lost")
        assert await leader.told.next("left") == (link,)
        edge.data.close("c", "there is no such link")
        assert len(edge.closed) == 1


async def test_a_peer_that_dials_again_has_left_before() -> None:
    async with node("b") as leader:
        old = await dial(leader.address, hello("a"), "b", purpose=Purpose.DATA)
        [first] = await leader.told.next("accepted")
        new = await dial(leader.address, hello("a", 2), "b", purpose=Purpose.DATA)
        assert await leader.told.next("left") == (first,)
        [second] = await leader.told.next("accepted")
        assert (second.incarnation, leader.told.kinds()) == (2, ["accepted", "left", "accepted"])
        for wire in (old, new):
            await wire.close()


async def test_before_the_node_is_there_messages_are_dropped_and_counted() -> None:
    async with node("b", wired=False) as leader:
        wire = await dial(leader.address, hello("a"), "b", purpose=Purpose.DATA)
        for message in (to_leader(1, 1), HoldsNothing(()), DataHeartbeat(), to_leader(1, 2)):
            await wire.say(message)
        with trio.fail_after(PATIENCE_S):
            while leader.data.counters.dropped < 3:
                await trio.testing.wait_all_tasks_blocked()
        assert leader.data.facts()["data_messages_dropped_total"] == 3
        await wire.close()


# --- Bounds and turns


async def stalled(leader: Node, link: DataLink) -> None:
    """Its peer reads nothing: what is sent from now on waits."""
    number = 0
    while link.waiting_bytes < AHEAD_BYTES:
        link.send(to_edge(99, number, 100_000))
        number += 1
        await trio.testing.wait_all_tasks_blocked()


async def messages_of(wire: Wire, count: int) -> list[ToEdge]:
    """The next ones of sources but 99."""
    found: list[ToEdge] = []
    while len(found) < count:
        message = await wire.hear()
        if isinstance(message, ToEdge) and message.source != 99:
            found.append(message)
    return found


@asynccontextmanager
async def scripted_edge() -> AsyncIterator[tuple[Node, DataLink, Wire]]:
    async with node("b") as leader:
        wire = await dial(leader.address, hello("a"), "b", purpose=Purpose.DATA)
        [link] = await leader.told.next("accepted")
        yield leader, link, wire
        await wire.close()


async def test_no_session_waits_for_the_backlog_of_another_one() -> None:
    async with scripted_edge() as (leader, link, wire):
        await stalled(leader, link)
        for number in range(300):
            link.send(to_edge(1, number, 10_000))
        for number in range(5):
            link.send(to_edge(2, number, 1_000))
        found = await messages_of(wire, 305)
        assert [each for each in found if each.source == 1] == [to_edge(1, number, 10_000) for number in range(300)]
        of_two = [at for at, each in enumerate(found) if each.source == 2]
        assert [found[at] for at in of_two] == [to_edge(2, number, 1_000) for number in range(5)]
        assert of_two[-1] < 20, "behind a turn of the other one"


async def test_who_asks_for_capacity_is_told_when_there_is_some_and_little_waits() -> None:
    """Several sessions that have without end, and one that has something now and then."""
    busy = (1, 2, 3)
    async with scripted_edge() as (leader, link, wire):
        await stalled(leader, link)
        sent = dict.fromkeys(busy, 0)

        def hand_over(source: int) -> None:
            while link.has_capacity(source):
                link.send(to_edge(source, sent[source], 50_000))
                sent[source] += 1

        for source in busy:
            hand_over(source)
        most = link.waiting_bytes
        assert CAPACITY_BYTES < most < CAPACITY_BYTES + 4 * 51_000
        assert all(sent.values()), "one of them has all there is, and each has a message"
        assert link.has_capacity(4), "it has nothing waiting"
        link.send(to_edge(4, 1, 50_000))
        assert not link.has_capacity(4)
        assert "drained" not in leader.told.kinds()
        found = list[ToEdge]()
        told = dict.fromkeys((*busy, 4), 0)
        while min(told.values()) == 0 or len(found) < 300:
            found += await messages_of(wire, 1)
            while "drained" in [each[0] for each in leader.told._left]:
                of, source = await leader.told.next("drained")
                assert of is link
                told[source] += 1
                if source != 4:
                    hand_over(source)
            most = max(most, link.waiting_bytes)
        assert most < CAPACITY_BYTES + 5 * 51_000
        by_source = [[each.session for each in found if each.source == source] for source in busy]
        assert all(numbers == list(range(len(numbers))) for numbers in by_source)
        assert told[4] == 1


async def test_the_edge_is_held_up_and_told_in_the_same_way() -> None:
    there = Peer()
    async with node("a") as edge:
        edge.data.want("b")
        edge.links.peers_are({"b": there.address})
        replication = await there.accept(hello("b"))
        wire = await there.accept(hello("b"))
        await edge.told.next("edge_linked")
        number = 0
        while edge.data.has_capacity("b", 7):
            number += 1
            edge.data.send("b", to_leader(7, number, 100_000))
            await trio.testing.wait_all_tasks_blocked()
        for each in range(1, number + 1):
            message = await wire.hear()
            assert message == to_leader(7, each, 100_000)
        assert await edge.told.next("edge_drained") == ("b", 7)
        assert edge.data.has_capacity("b", 7)
        for each_wire in (replication, wire):
            await each_wire.close()
    await there.close()


async def test_who_asks_nobody_loses_its_link_to_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_links, "WAITING_BYTES_MAX", 1_000_000)
    async with scripted_edge() as (leader, link, _):
        await stalled(leader, link)
        most = number = 0
        while not link.ended:
            number += 1
            link.send(to_edge(1, number, 10_000))
            most = max(most, link.waiting_bytes)
        assert most < 1_000_000 + 2 * AHEAD_BYTES + 200_000
        assert link.waiting_bytes == 0
        await leader.told.next("left")
        [(peer, why)] = leader.closed
        assert (peer, why.partition(":")[0]) == ("a", "it does not take what is sent")


async def test_a_message_that_is_larger_than_what_may_wait_goes_by_itself() -> None:
    async with pair() as (edge, leader, _):
        small, large = to_leader(1, 1, 300_000), to_leader(2, 1, 80_000_000)
        for message in (small, large, small):
            edge.data.send("b", message)
        came = [(await leader.told.next("from_edge"))[1] for _ in range(3)]
        assert sorted(came, key=weight_of) == [small, small, large]


async def test_while_the_journal_is_full_edges_are_not_heard() -> None:
    async with pair() as (edge, leader, link):
        leader.full.append(True)
        for number in range(1, 4):
            edge.data.send("b", to_leader(5, number))
        assert await leader.told.next("from_edge") == (link, to_leader(5, 1))
        await trio.testing.wait_all_tasks_blocked()
        leader.data.look_at_journal()
        await trio.testing.wait_all_tasks_blocked()
        assert leader.told.kinds().count("from_edge") == 1
        link.pause("for the node")
        leader.full.append(False)
        leader.data.look_at_journal()
        await trio.testing.wait_all_tasks_blocked()
        assert leader.told.kinds().count("from_edge") == 1, "for another reason"
        link.resume("for the node")
        assert [(await leader.told.next("from_edge"))[1] for _ in range(2)] == [to_leader(5, 2), to_leader(5, 3)]


async def test_an_edge_that_floods_is_held_up_where_it_is() -> None:
    async with scripted_edge() as (leader, link, wire):
        came = [0]
        paused = trio.Event()

        def take(link: DataLink, message: Message) -> None:
            came[0] += 1
            if came[0] == 1000:
                link.pause()
                paused.set()

        leader.told.on_edge = take
        with trio.fail_after(PATIENCE_S):
            async with trio.open_nursery() as nursery:

                async def pour() -> None:
                    while True:
                        await wire.say(to_leader(1, 1, 10_000))

                nursery.start_soon(pour)
                await paused.wait()
                await trio.testing.wait_all_tasks_blocked()
                for _ in range(3 * BEATS_IN_LEASE):
                    leader.data.beat()
                    await trio.testing.wait_all_tasks_blocked()
                assert came == [1000]
                assert link._link._incoming.nbytes <= 1 << 20, "the rest waits where it comes from"
                assert not link.ended, "it is this end that takes nothing in"
                nursery.cancel_scope.cancel()


# --- Links over which nothing comes


async def beat(*nodes: Node, times: int = 1) -> None:
    for _ in range(times):
        for each in nodes:
            each.data.beat()
        await trio.testing.wait_all_tasks_blocked()


async def test_two_nodes_that_have_nothing_to_say_keep_their_link() -> None:
    async with pair() as (edge, leader, link):
        for _ in range(4 * BEATS_IN_LEASE):
            before = (link._link.in_bytes, edge.data._to["b"]._link.in_bytes)
            await beat(edge, leader)
            with trio.fail_after(PATIENCE_S):
                while edge.data._beats % (BEATS_IN_LEASE // HEARTBEATS) == 0 and (
                    link._link.in_bytes == before[0] or edge.data._to["b"]._link.in_bytes == before[1]
                ):
                    await trio.testing.wait_all_tasks_blocked()
        assert edge.told.kinds() == ["edge_linked"]
        assert leader.told.kinds() == ["accepted"], "heartbeats are nobody's business"


@pytest.mark.parametrize("dialed", [True, False])
async def test_a_link_over_which_nothing_comes_for_a_lease_ends(dialed: bool) -> None:
    there = Peer()
    async with node("a") as a:
        if dialed:
            a.data.want("b")
            a.links.peers_are({"b": there.address})
            wires = [await there.accept(hello("b")), await there.accept(hello("b"))]
            await a.told.next("edge_linked")
        else:
            wires = [await dial(a.address, hello("b"), purpose=Purpose.DATA)]
            await a.told.next("accepted")
        await beat(a, times=BEATS_IN_LEASE)
        assert "edge_lost" not in a.told.kinds()
        assert "left" not in a.told.kinds()
        with structlog.testing.capture_logs() as lines:
            await beat(a)
            await a.told.next("edge_lost" if dialed else "left")
        [line] = [each for each in lines if not each["event"].startswith("linked")]
        assert line["reason"] == "nothing came from it for the time of a lease"
        assert a.closed == [], "that is no lie"
        assert a.heard.kinds("lost") == [], "the link of replication has its own ways"
        for wire in wires:
            await wire.close()
    await there.close()


async def test_bytes_of_a_message_that_is_on_its_way_are_heard() -> None:
    """A large message over a slow network takes longer than a lease."""
    async with scripted_edge() as (leader, link, wire):
        for _ in range(3 * BEATS_IN_LEASE):
            before = link._link.in_bytes
            await wire.stream.send_all(LARGE[before : before + 100])
            with trio.fail_after(PATIENCE_S):
                while link._link.in_bytes == before:
                    await trio.testing.wait_all_tasks_blocked()
            await beat(leader)
        assert not link.ended


LARGE = (1_000_004).to_bytes(4, "little") + ((1_000_004) ^ 0xFFFF_FFFF).to_bytes(4, "little") + b"\x15" * 1_000_000


async def test_a_node_that_was_stopped_itself_judges_nobody() -> None:
    """It has one beat after a pause of any length, and then hears what came meanwhile."""
    async with pair() as (edge, leader, _):
        await beat(leader, times=BEATS_IN_LEASE - 1)
        edge.data.beat()
        edge.data.send("b", to_leader(5, 1))
        leader.data.beat()
        await leader.told.next("from_edge")
        await beat(leader, times=BEATS_IN_LEASE)
        assert "left" not in leader.told.kinds()


# --- What operators are told


async def test_a_missing_data_link_is_said_and_is_no_missing_link_of_replication() -> None:
    async with node("a") as edge:
        edge.data.want("b")
        there = Peer()
        edge.links.peers_are({"b": there.address})
        replication = await there.accept(hello("b"))
        await edge.heard.next("dialed")
        data = await there.accept(hello("b"))
        await edge.told.next("edge_linked")
        assert edge.data.facts()["data_links_missing"] == []
        with structlog.testing.capture_logs() as lines:
            await data.say(DataHeartbeat())
            await data.say(to_leader(1, 1))
            await edge.told.next("edge_lost")
        reason = "ToLeader is not for it to send"
        assert edge.data.sentences() == [
            f"This node has no data connection to b, whose queues its clients use: {reason}."
        ]
        [line] = [each for each in lines if each["event"] == "no link to a node"]
        assert (line["reason"], line["purpose"]) == (reason, "data")
        assert edge.links.troubles == {}
        watch = LinkWatch("a", 1.0)
        assert watch.look(["a", "b"], ["b"], edge.links.troubles, 100.0) == ()
        for wire in (replication, data):
            await wire.close()
        await there.close()
