"""Links between real forwarders over loopback: messages both ways, breaks, lives, and bounds.

What is verified: over IPv4 and IPv6, plain and with TLS, in order; what is told when, and in which order; that
nothing grows without a bound. Not verified: speed, a network that loses packets; who may not stay is in
`test_strangers.py`.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio
import trio.testing

from amqpd.peers.entry import START, Frame, Vote, new_entry
from amqpd.peers.links.link import CAPACITY_BYTES, PeerLink
from amqpd.peers.links.links import Links
from amqpd.peers.links.sockets import bind
from amqpd.peers.links.tls import LinkTls
from amqpd.peers.messages import (
    Acknowledgement,
    Answered,
    Ballot,
    Cut,
    Ended,
    Greeting,
    Heartbeat,
    Hello,
    Message,
    Refusal,
    RequestPreVote,
    Would,
)
from tests.peers.links.forwarders import (
    OPEN,
    PATIENCE_S,
    SHORT,
    Certificates,
    Forwarder,
    Heard,
    Peer,
    dial,
    forwarder,
    hello,
    nobodys_address,
)

pytestmark = pytest.mark.trio


@pytest.fixture(params=["127.0.0.1", "::1"])
def host(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["plain", "tls"])
def tls(request: pytest.FixtureRequest, certificates: Certificates) -> LinkTls | None:
    return certificates.of("a", "b", "c") if request.param == "tls" else None


def cut(number: int, nbytes: int, entries: int = 1) -> Cut:
    made = (new_entry(source, (1, number), START, bytes([number % 256]) * nbytes) for source in range(1, entries + 1))
    return Cut(1, number, Frame(number, number - 1, tuple(made), 0))


def answered(number: int) -> Answered:
    return Answered(1, number, Acknowledgement(number, {}, {}, frozenset(), frozenset()))


@asynccontextmanager
async def two(host: str = "127.0.0.1", tls: LinkTls | None = None) -> AsyncIterator[tuple[Forwarder, Forwarder]]:
    """Each knows the other."""
    async with forwarder(hello("a"), host, tls) as a, forwarder(hello("b"), host, tls) as b:
        peers = {"a": a.address, "b": b.address}
        a.links.peers_are(peers)
        b.links.peers_are(peers)
        yield a, b


async def test_each_dials_the_other_and_messages_arrive_in_order(host: str, tls: LinkTls | None) -> None:
    async with two(host, tls) as (a, b):
        for here, there, name in ((a, b, "a"), (b, a, "b")):
            link, other_end = await here.heard.next_link("dialed"), await there.heard.next_link("accepted")
            assert other_end.peer == hello(name)
            assert (link.dialed, other_end.dialed) == (True, False)
            asked: list[Message] = [
                RequestPreVote(1, 5),
                cut(1, 100_000, 3),
                Heartbeat(1, 2, 1),
                cut(3, 0),
                Ended(1, 5, 2),
            ]
            for message in asked:
                link.send(message)
            assert [(await there.heard.next("received"))[1:] for _ in asked] == [(other_end, each) for each in asked]
            replies: list[Message] = [Would(1, Ballot(True, Vote(1, "a", 1), START, 7)), answered(3)]
            for message in replies:
                other_end.send(message)
            assert [(await here.heard.next("received"))[1:] for _ in replies] == [(link, each) for each in replies]
        assert a.heard.kinds("lost", "left", "refused") == b.heard.kinds("lost", "left", "refused") == []


class TwoAddresses(trio.abc.HostnameResolver):
    """Every name has one of either family."""

    async def getaddrinfo(self, host, port, family=0, type=0, proto=0, flags=0):
        found = [(socket.AF_INET6, ("::1", port, 0, 0)), (socket.AF_INET, ("127.0.0.1", port))]
        return [(each, socket.SOCK_STREAM, 0, "", address) for each, address in found]

    async def getnameinfo(self, sockaddr, flags):
        raise NotImplementedError


async def test_all_addresses_of_a_name_are_tried(host: str, tls: LinkTls | None) -> None:
    trio.socket.set_custom_hostname_resolver(TwoAddresses())
    async with forwarder(hello("a"), tls=tls) as a, forwarder(hello("b"), host, tls) as b:
        a.links.peers_are({"b": ("localhost", b.address[1])})
        assert (await a.heard.next_link("dialed")).peer == hello("b")
        a.links.peers_are({"c": ("localhost", nobodys_address()[1])})
        assert (await a.heard.next("refused")).what == "c"


async def test_two_hundred_megabytes_come_through(host: str, tls: LinkTls | None) -> None:
    frames, in_flight, nbytes = 200, 8, 1_000_000
    done = trio.Event()
    async with two(host, tls) as (a, b):
        link, other_end = await a.heard.next_link("dialed"), await b.heard.next_link("accepted")

        def take(link: PeerLink, message: Message) -> None:
            assert isinstance(message, Cut)
            assert message == cut(message.question, nbytes)
            link.send(answered(message.question))

        def send_next(link: PeerLink, message: Message) -> None:
            assert isinstance(message, Answered)
            if message.question + in_flight <= frames:
                link.send(cut(message.question + in_flight, nbytes))
            if message.question == frames:
                done.set()

        a.heard.on_received, b.heard.on_received = send_next, take
        for number in range(1, in_flight + 1):
            link.send(cut(number, nbytes))
        with trio.fail_after(PATIENCE_S):
            await done.wait()
        assert link.out_bytes == other_end.out_bytes == 0


async def test_a_connection_that_breaks_is_dialed_again() -> None:
    peer = Peer()
    async with forwarder(hello("a")) as a:
        a.links.peers_are({"b": peer.address})
        for incarnation in (1, 2, 3):
            wire = await peer.accept(hello("b", incarnation))
            link = await a.heard.next_link("dialed")
            assert link.peer.incarnation == incarnation
            await wire.close()
            lost = await a.heard.next("lost")
            assert lost.link is link
            link.send(Heartbeat(1, 1, 1))
            assert link.out_bytes == 0
    assert a.heard.kinds("dialed", "lost") == ["dialed", "lost"] * 3
    await peer.close()


async def test_a_peer_that_is_not_there_is_told_as_refused_until_it_is() -> None:
    host, port = nobodys_address()
    async with forwarder(hello("a")) as a:
        a.links.peers_are({"b": (host, port)})
        assert (await a.heard.next("refused")).what == "b"
        assert (await a.heard.next("refused")).what == "b"
        async with forwarder(hello("b"), host, port=port):
            assert (await a.heard.next_link("dialed")).peer == hello("b")
        assert (await a.heard.next("lost")).what == "the peer closed the connection"


async def test_a_name_that_is_not_known_is_tried_again() -> None:
    async with forwarder(hello("a")) as a, forwarder(hello("b")) as b:
        a.links.peers_are({"b": ("\udcff no host", 1)})
        await trio.testing.wait_all_tasks_blocked()
        a.links.peers_are({"b": b.address})
        await a.heard.next("dialed")
    assert a.heard.kinds("refused") == []


@pytest.mark.parametrize("again", [hello("b", incarnation=2), hello("b"), hello("b", 1, generation=8)])
async def test_a_peer_that_dials_again_takes_the_place_of_its_old_connection(again: Hello) -> None:
    """The machine of its old incarnation lost its network, say: nobody has closed that one."""
    async with forwarder(hello("a")) as a:
        old = await dial(a.address, hello("b"))
        link = await a.heard.next_link("accepted")
        new = await dial(a.address, again)
        assert (await a.heard.next("left")).link is link
        assert (await a.heard.next_link("accepted")).peer == again
        assert a.heard.kinds("accepted", "left") == ["accepted", "left", "accepted"]
        await old.wait_closed()
        await new.say(Heartbeat(1, 1, 1))
        assert (await a.heard.next("received")).link.peer == again
        await old.close()
        await new.close()


async def test_an_older_incarnation_does_not_take_the_place_of_a_newer_one() -> None:
    async with forwarder(hello("a")) as a:
        new = await dial(a.address, hello("b", incarnation=2))
        await a.heard.next("accepted")
        old = await dial(a.address)
        assert await old.greet(hello("b", incarnation=1), "a", OPEN) == Refusal("incarnation 2 of it is here")
        await old.wait_closed()
        await new.say(Heartbeat(1, 1, 1))
        await a.heard.next("received")
        assert a.heard.kinds("accepted", "left") == ["accepted"]
        await old.close()
        await new.close()


async def test_a_newer_incarnation_that_dials_ends_the_link_to_the_old_one() -> None:
    peer = Peer()
    async with forwarder(hello("a")) as a:
        a.links.peers_are({"b": peer.address})
        old = await peer.accept(hello("b"))
        link = await a.heard.next_link("dialed")
        same = await dial(a.address, hello("b"))
        await a.heard.next("accepted")
        assert not link.ended
        new = await dial(a.address, hello("b", incarnation=2))
        assert (await a.heard.next("lost"))[1:] == (link, "a newer incarnation of it is there")
        again = await peer.accept(hello("b", incarnation=2))
        assert (await a.heard.next_link("dialed")).peer.incarnation == 2
        for wire in (old, same, new, again):
            await wire.close()
    await peer.close()


async def test_what_is_sent_part_by_part_waits_for_a_peer_that_reads_slowly() -> None:
    """Without that the link was closed, and a state of more than its bound began again, for ever."""
    peer = Peer()
    limits = replace(SHORT, out_bytes_max=CAPACITY_BYTES + 2_000_000)
    async with forwarder(hello("a"), limits=limits) as a:
        a.links.peers_are({"b": peer.address})
        wire = await peer.accept(hello("b"))
        link = await a.heard.next_link("dialed")
        parts = 60
        async with trio.open_nursery() as nursery:

            async def send() -> None:
                for number in range(1, parts + 1):
                    link.send(cut(number, 500_000))
                    await link.wait_capacity()

            nursery.start_soon(send)
            got = 0
            while got < parts:
                got += isinstance(await wire.hear(), Cut)
        assert not link.ended
        await wire.close()
    await peer.close()


async def test_nobody_waits_for_room_over_a_link_that_ends() -> None:
    peer = Peer()
    async with forwarder(hello("a")) as a:
        a.links.peers_are({"b": peer.address})
        wire = await peer.accept(hello("b"))
        link = await a.heard.next_link("dialed")
        number = 0
        while link.out_bytes <= CAPACITY_BYTES:
            number += 1
            link.send(cut(number, 500_000))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(link.wait_capacity)
            await trio.testing.wait_all_tasks_blocked()
            link.close()
        await wire.close()
    await peer.close()


async def test_a_peer_that_does_not_read_holds_a_bounded_number_of_bytes() -> None:
    peer = Peer()
    limits = replace(SHORT, out_bytes_max=4_000_000)
    async with forwarder(hello("a"), limits=limits) as a:
        a.links.peers_are({"b": peer.address})
        wire = await peer.accept(hello("b"))
        link = await a.heard.next_link("dialed")
        number = most = 0
        while not link.ended:
            number += 1
            link.send(cut(number, 500_000))
            most = max(most, link.out_bytes)
            await trio.lowlevel.checkpoint()
        assert most <= 4_000_000
        assert link.out_bytes == 0
        assert "does not take" in (await a.heard.next("lost")).what
        again = await peer.accept(hello("b"))
        assert not (await a.heard.next_link("dialed")).ended
        await wire.close()
        await again.close()
    await peer.close()


async def test_a_message_above_the_bound_goes_by_itself() -> None:
    limits = replace(SHORT, out_bytes_max=100_000)
    async with forwarder(hello("a"), limits=limits) as a, forwarder(hello("b")) as b:
        a.links.peers_are({"b": b.address})
        link = await a.heard.next_link("dialed")
        link.send(cut(1, 8_000_000))
        assert (await b.heard.next("received")).what == cut(1, 8_000_000)
        assert not link.ended


async def test_a_link_that_is_paused_tells_nothing_and_holds_the_sender_up() -> None:
    async with two() as (a, b):
        link, other_end = await a.heard.next_link("dialed"), await b.heard.next_link("accepted")

        def pause(link: PeerLink, message: Message) -> None:
            link.pause()
            b.heard.note(link, message)

        b.heard.on_received = pause
        link.send(cut(1, 10))
        link.send(cut(2, 10))
        assert (await b.heard.next("noted")).what == cut(1, 10)
        b.heard.on_received = None
        while link.out_bytes < 1_000_000:
            link.send(cut(3, 500_000))
            await trio.testing.wait_all_tasks_blocked()
        assert b.heard.kinds("received") == []
        other_end.resume()
        assert (await b.heard.next("received")).what == cut(2, 10)
        assert (await b.heard.next("received")).what == cut(3, 500_000)


async def test_peers_that_are_no_more_are_let_go_and_others_stay() -> None:
    async with forwarder(hello("a")) as a, forwarder(hello("b")) as b, forwarder(hello("c")) as c:
        a.links.peers_are({"a": a.address, "b": b.address, "c": c.address})
        links = {link.peer.forwarder: link for link in [await a.heard.next_link("dialed") for _ in range(2)]}
        assert set(links) == {"b", "c"}
        a.links.peers_are({"c": c.address})
        assert (await a.heard.next("lost"))[1:] == (links["b"], "it is no peer any more")
        await b.heard.next("left")
        assert not links["c"].ended
        a.links.peers_are({"b": b.address, "c": c.address})
        assert (await a.heard.next_link("dialed")).peer == hello("b")
        assert a.heard.kinds("lost") == ["lost"]


async def test_a_peer_that_moves_is_dialed_where_it_is() -> None:
    async with forwarder(hello("a")) as a, forwarder(hello("b")) as b, forwarder(hello("b", incarnation=2)) as moved:
        a.links.peers_are({"b": nobodys_address()})
        await a.heard.next("refused")
        a.links.peers_are({"b": b.address})
        link = await a.heard.next_link("dialed")
        a.links.peers_are({"b": moved.address})
        assert (await a.heard.next("lost"))[1:] == (link, "it has another address")
        assert (await a.heard.next_link("dialed")).peer.incarnation == 2


async def test_a_peer_that_moves_while_it_is_dialed() -> None:
    silent = Peer()
    async with forwarder(hello("a")) as a, forwarder(hello("b")) as b:
        a.links.peers_are({"b": silent.address})
        wire = await silent.accept()
        asked = await wire.hear()
        assert isinstance(asked, Greeting)
        assert (asked.hello, asked.target) == (hello("a"), "b")
        a.links.peers_are({})
        await wire.wait_closed()
        a.links.peers_are({"b": silent.address})
        again = await silent.accept()
        a.links.peers_are({"b": b.address})
        assert (await a.heard.next_link("dialed")).peer == hello("b")
        await wire.close()
        await again.close()
    await silent.close()


async def test_a_link_that_is_closed_tells_nothing_any_more() -> None:
    async with two() as (a, b):
        link = await a.heard.next_link("dialed")

        def close(link: PeerLink, message: Message) -> None:
            link.close()
            b.heard.note(link, message)

        b.heard.on_received = close
        for number in range(1, 20):
            link.send(cut(number, 10))
        await b.heard.next("left")
        assert (await a.heard.next("lost")).link is link
        await a.heard.next("dialed")
        assert [each.what for each in b.heard.all if each.kind == "noted"] == [cut(1, 10)]


@pytest.mark.parametrize("begins", [True, False])
async def test_what_an_event_raises_ends_the_links(begins: bool) -> None:
    class Bug(Exception):
        pass

    class Faulty(Heard):
        def accepted(self, link: PeerLink) -> None:
            if begins:
                raise Bug

        def received(self, link: PeerLink, message: Message) -> None:
            raise Bug

    listeners = bind([("127.0.0.1", 0)])
    with pytest.raises(BaseExceptionGroup) as raised:  # noqa: PT012
        async with trio.open_nursery() as nursery:
            await nursery.start(Links(hello("a"), Faulty(), listeners, OPEN).run)
            wire = await dial(listeners[0].getsockname()[:2], hello("b"))
            await wire.say(Heartbeat(1, 1, 1))
            await wire.wait_closed()
            await wire.close()
            await trio.sleep_forever()
    assert raised.group_contains(Bug)
    assert listeners[0].fileno() == -1
