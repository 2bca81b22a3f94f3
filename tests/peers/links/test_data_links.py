"""Data links beside those of replication: when a peer is dialed for data, who may, and what goes over which.

What is verified: with and without a secret and TLS; nodes of version 5 in both directions; greetings that lie about
their purpose; that a data link which is lost, stalled or replaced is none of the other links' business. Not verified
here: sessions and their turns (`tests/cluster/test_data_links.py`), bytes (`tests/peers/test_encoding.py`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import structlog
import trio
import trio.testing

from amqpd.peers.encoding import encode
from amqpd.peers.links.framing import LENGTH, Crc, framed, framed_word
from amqpd.peers.links.link import CAPACITY_BYTES, PeerLink
from amqpd.peers.links.links import Links
from amqpd.peers.links.sockets import bind
from amqpd.peers.links.trust import ACCEPTOR, Trust
from amqpd.peers.messages import (
    DataHeartbeat,
    Greeting,
    Heartbeat,
    Hello,
    HoldsNothing,
    Message,
    Proof,
    Purpose,
    Query,
    Refusal,
    SourceEpoch,
    ToEdge,
    ToLeader,
)
from amqpd.peers.versions import HIGHEST
from tests.peers.links.forwarders import (
    OPEN,
    SHORT,
    Certificates,
    Forwarder,
    Heard,
    Peer,
    Wire,
    dial,
    forwarder,
    greeting,
    hello,
)

pytestmark = pytest.mark.trio

SECRET = b"of all nodes that are tested"
DATA = Purpose.DATA
OF_FIVE = Hello(5, "shop", "b", 1, 7, 4)


def to_leader(number: int, nbytes: int = 10) -> ToLeader:
    return ToLeader(1, 2, number, 4, (b"x" * nbytes,))


@asynccontextmanager
async def two(secret: bytes = b"") -> AsyncIterator[tuple[Forwarder, Forwarder]]:
    """Each knows the other, and a wants a data link to b."""
    async with forwarder(hello("a"), secret=secret) as a, forwarder(hello("b"), secret=secret) as b:
        a.links.want_data("b")
        peers = {"a": a.address, "b": b.address}
        a.links.peers_are(peers)
        b.links.peers_are(peers)
        yield a, b


@pytest.mark.parametrize("secret", [b"", SECRET], ids=["open", "secret"])
async def test_a_data_link_is_a_connection_of_its_own(secret: bytes) -> None:
    async with two(secret) as (a, b):
        link, other_end = await a.data.next_link("dialed"), await b.data.next_link("accepted")
        assert link.purpose is other_end.purpose is DATA
        assert (link.peer, other_end.peer) == (hello("b"), hello("a"))
        asked: list[Message] = [to_leader(1), HoldsNothing((SourceEpoch(5, 2),)), DataHeartbeat(), to_leader(2)]
        for message in asked:
            link.send(message)
        assert [(await b.data.next("received"))[1:] for _ in asked] == [(other_end, each) for each in asked]
        other_end.send(ToEdge(1, 2, 3, (b"head", b"y" * 100_000)))
        other_end.send(DataHeartbeat())
        assert (await a.data.next("received")).what == ToEdge(1, 2, 3, (b"head" + b"y" * 100_000,))
        assert (await a.data.next("received")).what == DataHeartbeat()
        replication = await a.heard.next_link("dialed")
        assert replication.purpose is Purpose.REPLICATION
        replication.send(Heartbeat(1, 1, 1))
        assert (await b.heard.next("received")).what == Heartbeat(1, 1, 1)
        assert b.data.kinds("dialed") == [], "b wants none"
        assert a.heard.kinds("lost", "left") == b.heard.kinds("lost", "left") == []


async def test_a_data_link_has_the_certificates_of_all_links(certificates: Certificates) -> None:
    tls, foreign = certificates.of("a", "b"), certificates.of("c")
    async with forwarder(hello("a"), tls=tls) as a, forwarder(hello("b"), tls=tls) as b:
        a.links.want_data("b")
        a.links.peers_are({"b": b.address})
        link = await a.data.next_link("dialed")
        link.send(to_leader(1))
        assert (await b.data.next("received")).what == to_leader(1)
        thief = Wire(trio.SSLStream(await trio.open_tcp_stream(*b.address), foreign.dialing, server_hostname="b"))
        await thief.say(greeting(hello("a"), "b", purpose=DATA))
        assert await thief.hear() == Refusal("the certificate is not of the node that dials")
        await thief.close()
        assert not link.ended


async def test_nobody_is_dialed_for_data_unless_that_is_wanted() -> None:
    async with forwarder(hello("a")) as a, forwarder(hello("b")) as b:
        a.links.peers_are({"b": b.address})
        await a.heard.next("dialed")
        await trio.testing.wait_all_tasks_blocked()
        assert a.data.all == b.data.all == []
        assert a.links.data_troubles == {}
        a.links.want_data("b")
        link = await a.data.next_link("dialed")
        a.links.want_data("b")
        a.links.drop_data("b")
        assert (await a.data.next("lost"))[1:] == (link, "it has no more use")
        a.links.want_data("b")
        assert (await a.data.next_link("dialed")).peer == hello("b")
        assert a.data.kinds("dialed", "lost") == ["dialed", "lost", "dialed"]
        assert a.heard.kinds("dialed", "lost") == ["dialed"]


async def test_a_data_link_that_is_lost_is_dialed_again_and_no_other_link_notices() -> None:
    async with two() as (a, b):
        for _ in range(3):
            link, other_end = await a.data.next_link("dialed"), await b.data.next_link("accepted")
            other_end.close("for a test")
            assert (await a.data.next("lost")).link is link
            assert (await b.data.next("left")).link is other_end
        assert (await a.data.next_link("dialed")).peer == hello("b")
        for each in (a, b):
            assert each.heard.kinds("lost", "left", "refused") == []
            assert each.links.troubles == {}


async def test_a_node_that_ends_takes_both_links_with_it_and_both_are_dialed_again() -> None:
    async with forwarder(hello("a")) as a:
        a.links.want_data("b")
        async with forwarder(hello("b")) as b:
            a.links.peers_are({"b": b.address})
            await a.heard.next("dialed")
            await a.data.next("dialed")
            address = b.address
        await a.heard.next("lost")
        await a.data.next("lost")
        await a.data.next("refused")
        assert a.links.data_troubles["b"].reason == "Connection refused"
        async with forwarder(hello("b", incarnation=2), port=address[1]):
            assert (await a.heard.next_link("dialed")).peer.incarnation == 2
            assert (await a.data.next_link("dialed")).peer.incarnation == 2
            assert a.links.data_troubles == {}


async def test_a_newer_incarnation_that_dials_ends_both_links_to_the_old_one() -> None:
    there = Peer()
    async with forwarder(hello("a")) as a:
        a.links.want_data("b")
        a.links.peers_are({"b": there.address})
        old = [await there.accept(hello("b")), await there.accept(hello("b"))]
        await a.heard.next("dialed")
        await a.data.next("dialed")
        new = await dial(a.address, hello("b", incarnation=2), purpose=DATA)
        for heard in (a.heard, a.data):
            assert (await heard.next("lost")).what == "a newer incarnation of it is there"
        for wire in (*old, new):
            await wire.close()
    await there.close()


async def test_a_peer_that_is_none_any_more_is_dialed_for_data_when_it_is_back() -> None:
    async with two() as (a, b):
        link = await a.data.next_link("dialed")
        a.links.peers_are({})
        assert (await a.data.next("lost"))[1:] == (link, "it is no peer any more")
        assert a.links.data_troubles["b"].reason == "it is no member of the cluster now"
        a.links.peers_are({"b": b.address})
        assert (await a.data.next_link("dialed")).peer == hello("b")


async def test_a_peer_takes_the_place_of_its_own_data_link_only() -> None:
    async with forwarder(hello("a")) as a:
        replication = await dial(a.address, hello("b"))
        kept = await a.heard.next_link("accepted")
        old = await dial(a.address, hello("b"), purpose=DATA)
        link = await a.data.next_link("accepted")
        new = await dial(a.address, hello("b"), purpose=DATA)
        assert (await a.data.next("left")).link is link
        await a.data.next("accepted")
        await old.wait_closed()
        older = await dial(a.address)
        late = await older.greet(hello("b", incarnation=0), "a", OPEN, DATA)
        assert late == Refusal("incarnation 1 of it is here")
        assert not kept.ended
        for wire in (replication, old, new, older):
            await wire.close()


async def test_accepted_links_are_bounded_for_each_purpose() -> None:
    """A node that many edges dial still takes those in that lead its sources."""
    async with forwarder(hello("a"), limits=replace(SHORT, accepted_max=1)) as a:
        wires = [await dial(a.address, hello("b"), purpose=DATA), await dial(a.address, hello("c"))]
        for purpose in Purpose:
            wires.append(await dial(a.address))
            assert await wires[-1].greet(hello("d"), "a", OPEN, purpose) == Refusal("1 others are here")
        for wire in wires:
            await wire.close()


async def test_strangers_are_bounded_for_both_purposes_together() -> None:
    limits = replace(SHORT, strangers_max=2, handshake_s=3600)
    async with forwarder(hello("a"), limits=limits) as a:
        strangers = [await dial(a.address) for _ in range(2)]
        for wire, purpose in zip(strangers, Purpose, strict=True):
            await wire.say(greeting(hello("b"), "a", purpose=purpose))
            await wire.hear()
        strangers.append(await dial(a.address))
        await strangers[0].wait_closed()
        for wire in strangers:
            await wire.close()


async def test_who_is_in_no_record_of_the_cluster_gets_no_data_link() -> None:
    async with forwarder(hello("a"), knows=lambda name: name != "b") as a:
        wire = await dial(a.address)
        answer = await wire.greet(hello("b"), "a", OPEN, DATA)
        assert isinstance(answer, Refusal)
        assert "no node 'b'" in answer.reason
        await wire.close()
        assert a.data.all == []


async def test_a_node_without_data_links_refuses_them_and_dials_none() -> None:
    heard, listeners = Heard(), bind([("127.0.0.1", 0)])
    links = Links(hello("a"), heard, listeners, OPEN, SHORT)
    async with trio.open_nursery() as nursery, forwarder(hello("b")) as b:
        await nursery.start(links.run)
        wire = await dial(listeners[0].getsockname()[:2])
        assert await wire.greet(hello("b"), "a", OPEN, DATA) == Refusal("'a' takes no links of data")
        links.want_data("b")
        links.peers_are({"b": b.address})
        await heard.next("dialed")
        await trio.testing.wait_all_tasks_blocked()
        assert b.data.all == []
        await wire.close()
        nursery.cancel_scope.cancel()


# --- What goes over which


WRONG: dict[str, tuple[Purpose, Message]] = {
    "replication over data": (DATA, Heartbeat(1, 1, 1)),
    "a question over data": (DATA, Query(1, "{}")),
    "data over replication": (Purpose.REPLICATION, to_leader(1)),
    "a heartbeat of data over replication": (Purpose.REPLICATION, DataHeartbeat()),
    "what the leader says, from the edge": (DATA, ToEdge(1, 1, 1, (b"x",))),
    "a second greeting": (DATA, greeting(hello("b"))),
}


@pytest.mark.parametrize(("purpose", "message"), WRONG.values(), ids=WRONG)
async def test_what_is_not_for_this_link_ends_it_with_one_line(purpose: Purpose, message: Message) -> None:
    async with forwarder(hello("a")) as a:
        good = await dial(a.address, hello("c"), purpose=purpose)
        with structlog.testing.capture_logs() as lines:
            wire = await dial(a.address, hello("b"), purpose=purpose)
            await wire.stream.send_all(b"".join(framed(message, wire.check)))
            await wire.wait_closed()
            heard = a.data if purpose is DATA else a.heard
            await heard.next("left")
        ended = [each for each in lines if each["event"] == "link from it ended"]
        assert [each["reason"] for each in ended] == [f"{type(message).__name__} is not for it to send"]
        assert [each.get("purpose") for each in ended] == ["data" if purpose is DATA else None]
        assert heard.kinds("received") == []
        assert heard.kinds("left") == ["left"]
        await wire.close()
        await good.close()


async def test_neither_end_can_send_what_is_not_for_its_link() -> None:
    async with two() as (a, b):
        link, other_end = await a.data.next_link("dialed"), await b.data.next_link("accepted")
        replication = await a.heard.next_link("dialed")
        wrong: list[tuple[PeerLink, Message]] = [
            (link, Heartbeat(1, 1, 1)),
            (link, ToEdge(1, 1, 1, (b"x",))),
            (other_end, to_leader(1)),
            (other_end, HoldsNothing(())),
            (replication, to_leader(1)),
            (replication, DataHeartbeat()),
        ]
        for mine, message in wrong:
            with pytest.raises(AssertionError):
                mine.send(message)


async def test_a_reader_that_stalls_on_data_delays_no_replication() -> None:
    async with two() as (a, b):
        link, other_end = await a.data.next_link("dialed"), await b.data.next_link("accepted")
        replication = await a.heard.next_link("dialed")
        other_end.pause()
        number = 0
        while link.out_bytes <= CAPACITY_BYTES:
            number += 1
            link.send(to_leader(number, 500_000))
            await trio.testing.wait_all_tasks_blocked()
        replication.send(Heartbeat(1, 2, 3))
        assert (await b.heard.next("received")).what == Heartbeat(1, 2, 3)
        assert replication.out_bytes == 0
        other_end.resume()
        for each in range(1, number + 1):
            assert (await b.data.next("received")).what == to_leader(each, 500_000)


async def test_a_data_link_that_floods_is_read_between_other_links() -> None:
    """Its bytes wait where they come from."""
    async with forwarder(hello("a")) as a:
        flood = await dial(a.address, hello("b"), purpose=DATA)
        quiet = await dial(a.address, hello("c"))
        came = 0
        done = trio.Event()

        def take(link: PeerLink, message: Message) -> None:
            nonlocal came
            came += 1
            if came % 1000 == 0:
                link.pause()
                a.data.note(link, message)

        a.data.on_received = take
        async with trio.open_nursery() as nursery:

            async def pour() -> None:
                words = b"".join(b"".join(framed(to_leader(1), flood.check)) for _ in range(1000))
                while not done.is_set():
                    await flood.stream.send_all(words)

            nursery.start_soon(pour)
            for number in range(1, 6):
                link = await a.data.next_link("noted")
                await quiet.say(Heartbeat(1, number, 1))
                assert (await a.heard.next("received")).what == Heartbeat(1, number, 1)
                assert came == 1000 * number, "it is paused"
                link.resume()
            done.set()
            nursery.cancel_scope.cancel()
        await flood.close()
        await quiet.close()


# --- Versions, and greetings that lie


async def answer_as_version_5(there: Peer) -> Wire:
    """As a node does that knows nothing of purposes: they are behind what it reads."""
    wire = await there.accept()
    asked = await wire.hear()
    assert isinstance(asked, Greeting)
    await wire.say(greeting(Hello(5, "", "", 0, 0, 4)))
    assert isinstance(await wire.hear(), Proof)
    await wire.say(greeting(OF_FIVE, asked.hello.forwarder))
    await wire.say(Proof(OPEN.proof(ACCEPTOR, wire.transcript_digest)))
    wire.incoming.begin(OPEN.check(b"dialer", wire.transcript_digest), 5)
    wire.check = OPEN.check(ACCEPTOR, wire.transcript_digest)
    return wire


async def test_a_node_of_version_5_is_not_dialed_for_data_and_the_trouble_says_why() -> None:
    there = Peer()
    async with forwarder(hello("a")) as a:
        a.links.want_data("b")
        a.links.peers_are({"b": there.address})
        assert "which says its version" in a.links.data_troubles["b"].reason
        wire = await answer_as_version_5(there)
        link = await a.heard.next_link("dialed")
        assert link.version == 5
        await trio.testing.wait_all_tasks_blocked()
        assert a.data.all == []
        assert "speaks version 5 of the messages, which has no data links" in a.links.data_troubles["b"].reason
        assert a.links.troubles == {}
        await wire.close()
        # It was upgraded.
        await a.heard.next("lost")
        again = await there.accept(hello("b", incarnation=2))
        assert (await a.heard.next_link("dialed")).version == HIGHEST
        data = await there.accept(hello("b", incarnation=2))
        assert (await a.data.next_link("dialed")).version == HIGHEST
        assert a.links.data_troubles == {}
        for each in (again, data):
            await each.close()
    await there.close()


async def test_a_node_that_goes_back_to_version_5_loses_the_data_link() -> None:
    there = Peer()
    async with forwarder(hello("a")) as a:
        a.links.want_data("b")
        a.links.peers_are({"b": there.address})
        wires = [await there.accept(hello("b")) for _ in range(2)]
        link = await a.data.next_link("dialed")
        older = await dial(a.address)
        await older.say(greeting(replace(OF_FIVE, incarnation=1), "a"))
        assert isinstance(await older.hear(), Greeting)
        await older.say(Proof(OPEN.proof(b"dialer", older.transcript_digest)))
        assert (await a.heard.next_link("accepted")).version == 5
        assert (await a.data.next("lost")).link is link
        for each in (*wires, older):
            await each.close()
    await there.close()


async def test_a_peer_that_turns_out_to_be_older_is_given_up_before_its_proof() -> None:
    """It would take the connection for one of replication, in the place of the one that it has."""
    there = Peer()
    async with forwarder(hello("a")) as a:
        a.links.want_data("b")
        a.links.peers_are({"b": there.address})
        replication = await there.accept(hello("b"))
        for version in (5, 4):
            wire = await there.accept()
            asked = await wire.hear()
            assert isinstance(asked, Greeting)
            assert asked.purpose is DATA
            await wire.say(greeting(Hello(version, "", "", 0, 0, 4)))
            await wire.wait_closed()
            await wire.close()
        data = await there.accept(hello("b"))
        await a.data.next("dialed")
        assert a.heard.kinds("dialed", "lost") == ["dialed"]
        for each in (replication, data):
            await each.close()
    await there.close()


async def test_a_node_of_version_5_reads_past_the_purpose_and_dials_as_it_did() -> None:
    async with forwarder(hello("a"), secret=SECRET) as a:
        wire, trust = await dial(a.address), Trust(None, SECRET)
        await wire.say(greeting(OF_FIVE, "a", trust))
        first = await wire.hear()
        assert isinstance(first, Greeting)
        assert (first.hello.versions.highest, first.purpose) == (HIGHEST, Purpose.REPLICATION)
        await wire.say(Proof(trust.proof(b"dialer", wire.transcript_digest)))
        assert isinstance(await wire.hear(), Greeting)
        assert isinstance(await wire.hear(), Proof)
        link = await a.heard.next_link("accepted")
        assert (link.version, link.purpose) == (5, Purpose.REPLICATION)
        assert a.data.all == []
        await wire.close()


@pytest.mark.parametrize("purpose", Purpose, ids=str)
async def test_an_acceptor_that_names_another_purpose_is_not_believed(purpose: Purpose) -> None:
    there, other = Peer(), next(each for each in Purpose if each is not purpose)
    async with forwarder(hello("a")) as a:
        a.links.want_data("b")
        a.links.peers_are({"b": there.address})
        wires = [await there.accept(hello("b"))] if purpose is DATA else []
        wire = await there.accept()
        asked = await wire.hear()
        assert isinstance(asked, Greeting)
        assert asked.purpose is purpose
        await wire.say(greeting(Hello(HIGHEST, "", "", 0, 0), purpose=other))
        await wire.hear()
        await wire.say(greeting(hello("b"), "a", purpose=other))
        await wire.say(Proof(b""))
        await wire.wait_closed()
        heard = a.data if purpose is DATA else a.heard
        assert heard.kinds("dialed") == []
        for each in (wire, *wires):
            await each.close()
    await there.close()


async def test_a_purpose_that_is_changed_on_the_way_is_found() -> None:
    """Whoever is between two nodes cannot make a link of replication out of one of data: both prove what was said."""
    async with forwarder(hello("a"), secret=SECRET) as a:
        wire, trust = await dial(a.address), Trust(None, SECRET)
        said, told = (greeting(hello("b"), "a", trust, purpose) for purpose in (DATA, Purpose.REPLICATION))
        await wire.stream.send_all(framed_word(told))
        wire._add(said)  # what the dialer itself has said
        await wire.hear()
        await wire.say(Proof(trust.proof(b"dialer", wire.transcript_digest)))
        assert isinstance(await wire.hear(), Refusal)
        assert a.heard.all == a.data.all == []
        await wire.close()


async def test_a_purpose_that_is_not_known_is_no_greeting() -> None:
    async with forwarder(hello("a")) as a:
        wire = await dial(a.address)
        words = bytearray(b"".join(encode(greeting(hello("b"), "a"))))
        words[-1] = 2
        head = LENGTH.pack(len(words) + Crc.nbytes) + words
        await wire.stream.send_all(head + Crc().of((head,)))
        await wire.wait_closed()
        await wire.close()
        assert a.heard.all == a.data.all == []
