"""Who may not stay: other clusters, versions and names, bad certificates, and what is no forwarder at all.

What is verified: neither end is told of such a peer, both go on to serve others, and strangers are bounded in number,
bytes and time. Not verified: certificates that have expired or were revoked (OpenSSL does the former, nothing the
latter).
"""

from __future__ import annotations

import ssl
from dataclasses import replace

import pytest
import trio

from amqpd.cluster.links.tls import LinkTls
from amqpd.replication.encoding import HELLO_BYTES_MAX, LENGTH, MESSAGE_BYTES_MAX, encode
from amqpd.replication.messages import VERSION, Ask, Hello, Message, Told, Would
from amqpd.replication.seal import NONE
from amqpd.replication.take_over import Ballot
from tests.cluster.links.forwarders import (
    SHORT,
    Certificates,
    Forwarder,
    Peer,
    Wire,
    dial,
    forwarder,
    hello,
)

pytestmark = pytest.mark.trio

UNFIT = {
    "cluster": hello("b", cluster="shop2"),
    "version": hello("b", version=VERSION + 1),
    "same name": hello("a"),
    "no name": hello(""),
}


async def serves_others(a: Forwarder) -> None:
    """And has told of nobody before."""
    assert a.heard.all == []
    wire = await dial(a.address, hello("c"))
    assert (await a.heard.next_link("accepted")).peer == hello("c")
    await wire.close()


@pytest.mark.parametrize("peer", UNFIT.values(), ids=UNFIT)
async def test_a_peer_that_does_not_fit_is_not_let_in(peer: Hello) -> None:
    async with forwarder(hello("a")) as a:
        wire = await dial(a.address)
        await wire.say(peer)
        assert await wire.hear() == hello("a")  # so that both can say why
        await wire.wait_closed()
        await wire.close()
        await serves_others(a)


@pytest.mark.parametrize("peer", [*UNFIT.values(), hello("c")], ids=[*UNFIT, "another one's name"])
async def test_a_peer_that_does_not_fit_is_not_kept_when_it_is_dialed(peer: Hello) -> None:
    there = Peer()
    async with forwarder(hello("a")) as a:
        a.links.peers_are({"b": there.address})
        for _ in range(2):
            wire = await there.accept(peer)
            await wire.wait_closed()
            await wire.close()
        assert a.heard.all == []
        wire = await there.accept(hello("b"))
        assert (await a.heard.next_link("dialed")).peer == hello("b")
        await wire.close()
    await there.close()


async def test_two_clusters_that_dial_each_other_stay_apart() -> None:
    async with forwarder(hello("a")) as a, forwarder(hello("b", cluster="other")) as b:
        a.links.peers_are({"b": b.address})
        b.links.peers_are({"a": a.address})
        await serves_others(a)
        assert b.heard.all == []


FIRST_WORDS = {
    "garbage": b"GET / HTTP/1.1\r\n\r\n",
    "zeros": bytes(64),
    "a length only": LENGTH.pack(MESSAGE_BYTES_MAX),
    "too long for a Hello": LENGTH.pack(HELLO_BYTES_MAX + 1),
    "another message": b"".join(encode(Told(1, 1, 1))),
    "amqp": b"AMQP\0\0\x09\x01",
}


@pytest.mark.parametrize("words", FIRST_WORDS.values(), ids=FIRST_WORDS)
async def test_what_is_no_forwarder_is_not_let_in(words: bytes) -> None:
    async with forwarder(hello("a")) as a:
        wire = await dial(a.address)
        await wire.stream.send_all(words)
        await wire.wait_closed()
        await wire.close()
        await serves_others(a)


@pytest.mark.parametrize("count", [0, 1, 4, 20])
async def test_a_stranger_has_a_deadline(count: int) -> None:
    """It sends nothing, or a part of a Hello."""
    limits = replace(SHORT, handshake_s=0.02)
    async with forwarder(hello("a"), limits=limits) as a:
        wire = await dial(a.address)
        if count:
            await wire.stream.send_all(b"".join(encode(hello("b")))[:count])
        await wire.wait_closed()
        await wire.close()
        assert a.heard.all == []


@pytest.mark.parametrize("count", [0, 20])
async def test_a_peer_that_is_dialed_has_a_deadline(count: int) -> None:
    there, limits = Peer(), replace(SHORT, handshake_s=0.02)
    async with forwarder(hello("a"), limits=limits) as a:
        a.links.peers_are({"b": there.address})
        wire = await there.accept()
        await wire.stream.send_all(b"".join(encode(hello("b")))[:count])
        await wire.wait_closed()
        again = await there.accept()
        assert a.heard.all == []
        await wire.close()
        await again.close()
    await there.close()


async def test_the_oldest_stranger_makes_way() -> None:
    limits = replace(SHORT, strangers_max=3, handshake_s=3600)
    async with forwarder(hello("a"), limits=limits) as a:
        strangers = []
        for _ in range(4):
            strangers.append(await dial(a.address))
        await strangers[0].wait_closed()
        await serves_others(a)  # for which another one makes way
        await strangers[1].wait_closed()
        await strangers[3].say(hello("b"))
        assert (await a.heard.next_link("accepted")).peer == hello("b")
        for wire in strangers:
            await wire.close()


async def test_peers_are_bounded_in_number() -> None:
    async with forwarder(hello("a"), limits=replace(SHORT, accepted_max=2)) as a:
        wires = [await dial(a.address, hello(name)) for name in ("b", "c", "d")]
        await wires[2].wait_closed()
        await wires[0].close()
        await a.heard.next("left")
        wires.append(await dial(a.address, hello("d")))
        assert [(await a.heard.next_link("accepted")).peer.forwarder for _ in range(3)] == ["b", "c", "d"]
        for wire in wires:
            await wire.close()


HALVES = {
    "half a frame": (b"".join(encode(Told(1, 1, 1)))[:-3], "the peer closed the connection"),
    "garbage": (LENGTH.pack(4) + b"abcd", "what it sends is no message: there is no message of kind 97"),
    "an absurd length": (LENGTH.pack(MESSAGE_BYTES_MAX + 1), "what it sends is no message: a message of"),
    "a second Hello": (b"".join(encode(hello("b"))), "Hello is not for it to send"),
}


@pytest.mark.parametrize(("words", "why"), HALVES.values(), ids=HALVES)
async def test_a_peer_that_sends_what_it_should_not_loses_the_link(words: bytes, why: str) -> None:
    there = Peer()
    async with forwarder(hello("a")) as a:
        a.links.peers_are({"b": there.address})
        wire = await there.accept(hello("b"))
        await a.heard.next("dialed")
        await wire.stream.send_all(words)
        await wire.close()
        assert (await a.heard.next("lost")).what.startswith(why)
        assert a.heard.kinds("received") == []
    await there.close()


async def test_each_end_sends_its_own_messages_only() -> None:
    there = Peer()
    would: Message = Would(1, Ballot(True, NONE, (0, 0), 1))
    async with forwarder(hello("a")) as a:
        a.links.peers_are({"b": there.address})
        dialed = await there.accept(hello("b"))
        link = await a.heard.next_link("dialed")
        await dialed.say(would)
        assert (await a.heard.next("received")).what == would
        await dialed.say(Ask(1, 1))
        assert (await a.heard.next("lost")).what == "Ask is not for it to send"
        accepted = await dial(a.address, hello("b"))
        other_end = await a.heard.next_link("accepted")
        await accepted.say(Ask(1, 1))
        assert (await a.heard.next("received")).what == Ask(1, 1)
        for mine, wrong in ((other_end, Ask(1, 1)), (other_end, hello("a"))):
            with pytest.raises(AssertionError):
                mine.send(wrong)
        await accepted.say(would)
        await a.heard.next("left")
        assert link.ended
        await dialed.close()
        await accepted.close()
    await there.close()


# --- TLS


class Untrusted(Exception):
    """What a test's client says of the forwarder's certificate."""


async def dial_tls(a: Forwarder, context: ssl.SSLContext) -> Wire:
    stream = trio.SSLStream(await trio.open_tcp_stream(*a.address), context, server_hostname="127.0.0.1")
    return Wire(stream)


async def test_a_peer_without_a_certificate_is_not_let_in(certificates: Certificates) -> None:
    async with forwarder(hello("a"), tls=certificates.of("127.0.0.1")) as a:
        context = ssl.create_default_context(cafile=certificates.ca)
        wire = await dial_tls(a, context)
        await wire.say(hello("b"))
        await wire.wait_closed()
        await wire.close()
        member = await dial_tls(a, certificates.of("b.example").dialing)
        await member.say(hello("b"))
        assert await member.hear() == hello("a")
        assert (await a.heard.next_link("accepted")).peer == hello("b")
        assert len(a.heard.all) == 1
        await member.close()


def other_authority(certificates: Certificates, name: str) -> Certificates:
    folder = certificates.folder / name
    folder.mkdir()
    return Certificates(folder)


async def test_a_certificate_of_another_authority_is_not_let_in(certificates: Certificates) -> None:
    """Whichever end has it."""
    mine = certificates.of("127.0.0.1")
    theirs = other_authority(certificates, "other").of("127.0.0.1")
    foreign = LinkTls(theirs.accepting, theirs.dialing)
    for context in foreign:  # it takes everybody's word
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    async with forwarder(hello("a"), tls=mine) as a, forwarder(hello("b"), tls=foreign) as b:
        a.links.peers_are({"b": b.address})
        b.links.peers_are({"a": a.address})
        async with forwarder(hello("c"), tls=mine) as c:
            c.links.peers_are({"a": a.address})
            assert (await a.heard.next_link("accepted")).peer == hello("c")
        assert {each.link.peer.forwarder for each in a.heard.all} == {"c"}
        assert b.heard.all == []


async def test_a_certificate_for_another_host_is_not_enough_to_be_dialed(certificates: Certificates) -> None:
    elsewhere, here = certificates.of("elsewhere.example"), certificates.of("127.0.0.1")
    async with forwarder(hello("a"), tls=here) as a, forwarder(hello("b"), tls=elsewhere) as b:
        a.links.peers_are({"b": b.address})
        b.links.peers_are({"a": a.address})
        assert (await b.heard.next_link("dialed")).peer == hello("a")
        assert (await a.heard.next_link("accepted")).peer == hello("b")
        assert a.heard.kinds("dialed") == b.heard.kinds("accepted") == []


@pytest.mark.parametrize("dials_with_tls", [True, False])
async def test_tls_and_none_do_not_meet(certificates: Certificates, dials_with_tls: bool) -> None:
    tls = certificates.of("127.0.0.1")
    limits = replace(SHORT, handshake_s=0.1)
    ends = (tls, None) if dials_with_tls else (None, tls)
    async with (
        forwarder(hello("a"), tls=ends[0], limits=limits) as a,
        forwarder(hello("b"), tls=ends[1], limits=limits) as b,
    ):
        a.links.peers_are({"b": b.address})
        async with forwarder(hello("c"), tls=ends[1]) as c:
            c.links.peers_are({"b": b.address})
            assert (await b.heard.next_link("accepted")).peer == hello("c")
        assert a.heard.all == []
        assert {each.link.peer.forwarder for each in b.heard.all} == {"c"}
