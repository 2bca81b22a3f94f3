"""Who may not stay: other clusters, versions and names, bad certificates, and what is no forwarder at all.

What is verified: neither end is told of such a peer, both go on to serve others, and strangers are bounded in number,
bytes and time. Not verified: certificates that have expired or were revoked (OpenSSL does the former, nothing the
latter).
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import pytest
import structlog
import trio
import trio.testing
import trustme

from amqpd.peers.encoding import GREETING_BYTES_MAX, MESSAGE_BYTES_MAX
from amqpd.peers.entry import NO_VOTE
from amqpd.peers.links.accepting import ACCEPTED_AT_ONCE
from amqpd.peers.links.framing import INVERTED, LENGTH, LENGTHS, Crc, framed, framed_word
from amqpd.peers.links.link import LinkLimits
from amqpd.peers.links.stream import HandshakeTurns
from amqpd.peers.messages import Ballot, Greeting, Heartbeat, Hello, Message, Proof, Refusal, RequestPreVote, Would
from amqpd.peers.versions import HIGHEST
from tests.peers.links.forwarders import (
    OPEN,
    PATIENCE_S,
    SHORT,
    Certificates,
    Forwarder,
    Peer,
    Wire,
    dial,
    forwarder,
    greeting,
    hello,
)

pytestmark = pytest.mark.trio

UNFIT = {
    "cluster": hello("b", cluster="shop2"),
    "version": Hello(HIGHEST + 2, "shop", "b", 1, 7, HIGHEST + 1),
    "same name": hello("a"),
    "no name": hello(""),
}


async def serves_others(a: Forwarder) -> None:
    """And has told of nobody before."""
    assert a.heard.all == []
    wire = await dial(a.address, hello("c"))
    assert (await a.heard.next_link("accepted")).peer == hello("c")
    await wire.close()


@pytest.mark.parametrize("peer", [each for name, each in UNFIT.items() if name != "version"])
async def test_a_peer_that_does_not_fit_is_not_let_in(peer: Hello) -> None:
    async with forwarder(hello("a")) as a:
        wire = await dial(a.address)
        answer = await wire.greet(peer, "a", OPEN)
        assert isinstance(answer, Refusal)  # so that both can say why
        assert "'a'" in answer.reason or "'shop'" in answer.reason
        await wire.wait_closed()
        await wire.close()
        await serves_others(a)


async def test_another_version_is_told_which_one_this_is_and_nothing_else() -> None:
    async with forwarder(hello("a")) as a:
        for words in (b"".join(OF_VERSION_3), framed_word(greeting(UNFIT["version"], "a"))):
            wire = await dial(a.address)
            await wire.stream.send_all(words)
            answer = await wire.hear()
            assert isinstance(answer, Greeting)
            assert answer.hello == Hello(HIGHEST, "", "", 0, 0)
            await wire.wait_closed()
            await wire.close()
        await serves_others(a)


OF_VERSION_3 = (
    LENGTH.pack(36),
    bytes.fromhex("01 616d7170640d0a00 0300 0100000000000000 0700000000000000 0400 0100") + b"shopb",
)
"""a Hello, as nodes said it then"""


@pytest.mark.parametrize("peer", [*UNFIT.values(), hello("c")], ids=[*UNFIT, "another one's name"])
async def test_a_peer_that_does_not_fit_is_not_kept_when_it_is_dialed(peer: Hello) -> None:
    there = Peer()
    async with forwarder(hello("a")) as a:
        a.links.peers_are({"b": there.address})
        for _ in range(2):
            wire = await there.accept()
            with contextlib.suppress(AssertionError):  # of the version it hears before it sends a proof
                await wire.welcome(peer, OPEN)
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
    "too long for a Greeting": LENGTH.pack(GREETING_BYTES_MAX + 5),
    "another message": framed_word(Heartbeat(1, 1, 1)),
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
            await wire.stream.send_all(framed_word(greeting(hello("b"), "a"))[:count])
        await wire.wait_closed()
        await wire.close()
        assert a.heard.all == []


@pytest.mark.parametrize("count", [0, 20])
async def test_a_peer_that_is_dialed_has_a_deadline(count: int) -> None:
    there, limits = Peer(), replace(SHORT, handshake_s=0.02)
    async with forwarder(hello("a"), limits=limits) as a:
        a.links.peers_are({"b": there.address})
        wire = await there.accept()
        await wire.stream.send_all(framed_word(greeting(hello("b"), "a"))[:count])
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
        assert isinstance(await strangers[3].greet(hello("b"), "a", OPEN), Greeting)
        assert (await a.heard.next_link("accepted")).peer == hello("b")
        for wire in strangers:
            await wire.close()


async def test_nobody_at_one_address_keeps_those_at_others_out() -> None:
    """A thousand connections of one machine, which come faster than a node far away can answer."""
    limits = replace(SHORT, strangers_max=3, handshake_s=3600)
    async with forwarder(hello("a"), limits=limits) as a:
        far = Wire(await trio.open_tcp_stream(*a.address, local_address="127.0.0.2"))
        await far.say(greeting(hello("b"), "a"))
        assert isinstance(await far.hear(), Greeting)
        near = [await dial(a.address) for _ in range(10)]
        await near[6].wait_closed()  # only the last two of them are there
        await far.say(Proof(b""))
        assert isinstance(await far.hear(), Greeting)
        assert (await a.heard.next_link("accepted")).peer == hello("b")
        for wire in (far, *near):
            await wire.close()


async def test_peers_are_bounded_in_number() -> None:
    async with forwarder(hello("a"), limits=replace(SHORT, accepted_max=2)) as a:
        wires = [await dial(a.address, hello(name)) for name in ("b", "c")]
        refused = await dial(a.address)
        assert await refused.greet(hello("d"), "a", OPEN) == Refusal("2 others are here")
        await refused.close()
        await wires[0].close()
        await a.heard.next("left")
        wires.append(await dial(a.address, hello("d")))
        assert [(await a.heard.next_link("accepted")).peer.forwarder for _ in range(3)] == ["b", "c", "d"]
        for wire in wires:
            await wire.close()


def told(at: int, bit: int = 1) -> bytes:
    """With a bit that was flipped."""
    words = bytearray(b"".join(framed(Heartbeat(1, 1, 1), Crc())))
    words[at] ^= bit
    return bytes(words)


CHANGED = "what it sends is no message: its check does not fit: bytes have changed on the way"
HALVES = {
    "half a frame": (told(0, 0)[:-3], "the peer closed the connection"),
    "garbage": (told(8), CHANGED),
    "a flipped bit at its end": (told(-1, 128), CHANGED),
    "a flipped length": (told(3, 64), "what it sends is no message: its length is not as it was sent"),
    "an absurd length": (
        LENGTHS.pack(MESSAGE_BYTES_MAX + 5, (MESSAGE_BYTES_MAX + 5) ^ INVERTED),
        "what it sends is no message: a message of",
    ),
    "no message": (LENGTHS.pack(4, 4 ^ INVERTED) + b"abcd", "what it sends is no message: a message of 4 bytes"),
    "a second Greeting": (b"".join(framed(greeting(hello("b")), Crc())), "Greeting is not for it to send"),
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


async def test_bytes_that_change_on_the_way_are_a_warning_and_not_one_each_time() -> None:
    """The end that is dialed is the one that sees it: the other one sees only that links end."""
    async with forwarder(hello("a")) as a:
        with structlog.testing.capture_logs() as lines:
            for words in (told(8), told(8), told(0, 0)[:-3]):
                wire = await dial(a.address, hello("b"))
                await a.heard.next("accepted")
                await wire.stream.send_all(words)
                await wire.close()
                await a.heard.next("left")
    ended = [each for each in lines if each["event"] == "link from it ended"]
    assert [(each["log_level"], each["reason"]) for each in ended] == [
        ("warning", CHANGED),
        ("info", CHANGED),
        ("info", "the peer closed the connection"),
    ]
    assert ended[0]["do"] == "look at the network between them: something on the way changes what passes"


async def test_each_end_sends_its_own_messages_only() -> None:
    there = Peer()
    would: Message = Would(1, Ballot(True, NO_VOTE, (0, 0), 1))
    async with forwarder(hello("a")) as a:
        a.links.peers_are({"b": there.address})
        dialed = await there.accept(hello("b"))
        link = await a.heard.next_link("dialed")
        await dialed.say(would)
        assert (await a.heard.next("received")).what == would
        await dialed.say(RequestPreVote(1, 1))
        assert (await a.heard.next("lost")).what == "RequestPreVote is not for it to send"
        accepted = await dial(a.address, hello("b"))
        other_end = await a.heard.next_link("accepted")
        await accepted.say(RequestPreVote(1, 1))
        assert (await a.heard.next("received")).what == RequestPreVote(1, 1)
        for mine, wrong in ((other_end, RequestPreVote(1, 1)), (other_end, greeting(hello("a")))):
            with pytest.raises(AssertionError):
                mine.send(wrong)
        await accepted.say(would)
        await a.heard.next("left")
        assert link.ended
        await dialed.close()
        await accepted.close()
    await there.close()


# --- TLS


async def dial_tls(a: Forwarder, context: ssl.SSLContext) -> Wire:
    return Wire(trio.SSLStream(await trio.open_tcp_stream(*a.address), context, server_hostname="a"))


async def test_a_peer_without_a_certificate_is_not_let_in(certificates: Certificates) -> None:
    async with forwarder(hello("a"), tls=certificates.of("a")) as a:
        context = ssl.create_default_context(cafile=certificates.ca)
        context.check_hostname = False
        wire = await dial_tls(a, context)
        await wire.say(greeting(hello("b"), "a"))
        await wire.wait_closed()
        await wire.close()
        member = await dial_tls(a, certificates.of("b").dialing)
        assert isinstance(await member.greet(hello("b"), "a", OPEN), Greeting)
        assert (await a.heard.next_link("accepted")).peer == hello("b")
        assert len(a.heard.all) == 1
        await member.close()


async def test_a_certificate_of_another_authority_is_not_let_in(certificates: Certificates) -> None:
    """Whichever end has it."""
    mine = certificates.of("a", "b", "c")
    foreign = certificates.of("a", "b", "c", authority=trustme.CA())
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


async def test_a_certificate_of_one_node_is_not_another_ones(certificates: Certificates) -> None:
    """Whichever end shows it: c has a certificate of the cluster, and says that it is b."""
    async with forwarder(hello("a"), tls=certificates.of("a")) as a:
        thief = await dial_tls(a, certificates.of("c").dialing)
        refused = Refusal("the certificate is not of the node that dials")
        await thief.say(greeting(hello("b"), "a"))
        assert await thief.hear() == refused
        await thief.wait_closed()
        await thief.close()
        async with forwarder(hello("b"), tls=certificates.of("c")) as b:
            a.links.peers_are({"b": b.address})
            await serves_tls(a, certificates)
            assert b.heard.all == []


async def serves_tls(a: Forwarder, certificates: Certificates) -> None:
    """And has told of nobody before."""
    assert a.heard.all == []
    wire = await dial_tls(a, certificates.of("d").dialing)
    assert isinstance(await wire.greet(hello("d"), "a", OPEN), Greeting)
    assert (await a.heard.next_link("accepted")).peer == hello("d")
    await wire.close()


@pytest.mark.parametrize("dials_with_tls", [True, False])
async def test_tls_and_none_do_not_meet(certificates: Certificates, dials_with_tls: bool) -> None:
    tls = certificates.of("a", "b", "c")
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


class RecordedTurns(HandshakeTurns):
    """Whose turn it was, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.hosts: list[str] = []

    @asynccontextmanager
    async def turn(self, host: str) -> AsyncIterator[None]:
        async with super().turn(host):
            self.hosts.append(host)
            yield


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> RecordedTurns:
    made = RecordedTurns()
    monkeypatch.setattr("amqpd.peers.links.stream._turns", made)
    return made


async def test_addresses_take_turns_and_who_gives_up_keeps_nobody_waiting() -> None:
    turns = RecordedTurns()
    scopes: list[trio.CancelScope] = []

    async def take(host: str) -> None:
        with trio.CancelScope() as scope:
            scopes.append(scope)
            async with turns.turn(host):
                await trio.lowlevel.checkpoint()

    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery, turns.turn("held"):
            for host in [*["many"] * 4, "one", "other", "late"]:
                nursery.start_soon(take, host)
                await trio.testing.wait_all_tasks_blocked()
            scopes[1].cancel()  # of many
            scopes[6].cancel()  # the only one of its address
            await trio.testing.wait_all_tasks_blocked()
            scopes[0].cancel()  # it is given the turn before it runs again
        assert turns.hosts == ["held", "one", "other", "many", "many"]
        async with turns.turn("again"):  # nobody has it
            pass


async def test_strangers_of_one_address_keep_no_node_at_another_one_waiting(
    turns: RecordedTurns, certificates: Certificates
) -> None:
    """Silent connections have no turn; those with a hello that does not go on have one after the other, and who comes
    from another address is next."""
    limits = LinkLimits(handshake_s=PATIENCE_S)
    async with AsyncExitStack() as open_ones:
        a = await open_ones.enter_async_context(forwarder(hello("a"), tls=certificates.of("a"), limits=limits))

        async def come_from(host: str, words: bytes) -> None:
            stranger = await trio.open_tcp_stream(*a.address, local_address=host)
            open_ones.push_async_callback(stranger.aclose)
            await stranger.send_all(words)

        with trio.fail_after(PATIENCE_S):
            async with turns.turn("held"):
                for words in [b""] * 5 + [UNFINISHED_HELLO] * 5:
                    await come_from("127.0.0.2", words)
                await waiting_in(turns, {"127.0.0.2": 5})
                await come_from("127.0.0.1", UNFINISHED_HELLO)
                await waiting_in(turns, {"127.0.0.2": 5, "127.0.0.1": 1})
            await waiting_in(turns, {})
            async with turns.turn("last"):
                pass
        assert turns.hosts == ["held", "127.0.0.2", "127.0.0.1", *["127.0.0.2"] * 4, "last"]


async def test_connections_that_come_together_are_taken_in_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy node's turns of the event loop are long, and a peer would wait one for each stranger in front of it."""
    async with forwarder(hello("a"), limits=replace(SHORT, handshake_s=3600)) as a:
        await trio.testing.wait_all_tasks_blocked()
        waits, wait = [], trio.lowlevel.wait_readable

        async def wait_readable(of: socket.socket) -> None:
            if of.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                waits.append(of)
            await wait(of)

        monkeypatch.setattr(trio.lowlevel, "wait_readable", wait_readable)
        with contextlib.ExitStack() as open_ones:
            for _ in range(2 * ACCEPTED_AT_ONCE):
                open_ones.enter_context(socket.create_connection(a.address))
            await trio.testing.wait_all_tasks_blocked()
            assert len(a.links._acceptor._strangers) == 2 * ACCEPTED_AT_ONCE
            assert len(waits) <= 3


UNFINISHED_HELLO = bytes.fromhex("16030102000100")
"""It begins as a ClientHello does."""


async def waiting_in(turns: HandshakeTurns, wanted: dict[str, int]) -> None:
    while {host: len(waiting) for host, waiting in turns._waiting.items()} != wanted:
        await trio.testing.wait_all_tasks_blocked(0.001)
