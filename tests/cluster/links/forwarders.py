"""Doubles for tests of links: one that writes down what happens, and a peer that says what a test lets it say."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import trio
import trustme

from amqpd.cluster.links.limits import LinkLimits
from amqpd.cluster.links.link import Link
from amqpd.cluster.links.links import Links
from amqpd.cluster.links.sockets import Address, bind
from amqpd.cluster.links.tls import LinkTls, link_tls
from amqpd.replication.encoding import LENGTH, decode, encode
from amqpd.replication.messages import VERSION, Hello, Message

PATIENCE_S = 30
"""after which a test that waits for something has failed"""
SHORT = LinkLimits(back_off_first_s=0.001, back_off_max_s=0.01)


def hello(name: str, life: int = 1, generation: int = 7, cluster: str = "shop", version: int = VERSION) -> Hello:
    return Hello(version, cluster, name, life, generation)


class Happened(NamedTuple):
    kind: str
    link: Link | None
    what: Any = None


class Heard:
    """`LinkEvents` that are kept until a test asks for them."""

    def __init__(self) -> None:
        self.all: list[Happened] = []
        self.on_received: Callable[[Link, Message], None] | None = None
        """in place of keeping them"""
        self._left: list[Happened] = []
        self._changed = trio.Event()

    def dialed(self, link: Link) -> None:
        self._add(Happened("dialed", link))

    def lost(self, link: Link, why: str) -> None:
        self._add(Happened("lost", link, why))

    def refused(self, name: str) -> None:
        self._add(Happened("refused", None, name))

    def accepted(self, link: Link) -> None:
        self._add(Happened("accepted", link))

    def left(self, link: Link) -> None:
        self._add(Happened("left", link))

    def received(self, link: Link, message: Message) -> None:
        if self.on_received is not None:
            self.on_received(link, message)
        else:
            self._add(Happened("received", link, message))

    def note(self, link: Link, message: Message) -> None:
        """For `on_received`: keep it after all, as another kind."""
        self._add(Happened("noted", link, message))

    def _add(self, happened: Happened) -> None:
        self.all.append(happened)
        self._left.append(happened)
        self._changed.set()

    async def next(self, kind: str) -> Happened:
        """The next one of this kind that no test has asked for."""
        with trio.fail_after(PATIENCE_S):
            while True:
                for at, each in enumerate(self._left):
                    if each.kind == kind:
                        return self._left.pop(at)
                self._changed = trio.Event()
                await self._changed.wait()

    async def next_link(self, kind: str) -> Link:
        found = (await self.next(kind)).link
        assert found is not None
        return found

    def kinds(self, *kinds: str) -> list[str]:
        return [each.kind for each in self.all if each.kind in kinds]


class Forwarder(NamedTuple):
    """Real links, and what they told."""

    links: Links
    heard: Heard
    address: Address


@asynccontextmanager
async def forwarder(
    me: Hello, host: str = "127.0.0.1", tls: LinkTls | None = None, limits: LinkLimits = SHORT, port: int = 0
) -> AsyncIterator[Forwarder]:
    """It runs, and knows no peers."""
    heard = Heard()
    listeners = bind([(host, port)])
    address = listeners[0].getsockname()[:2]
    links = Links(me, heard, listeners, tls, limits, chance=lambda: 0.5)
    async with trio.open_nursery() as nursery:
        await nursery.start(links.run)
        yield Forwarder(links, heard, address)
        nursery.cancel_scope.cancel()


class Wire:
    """The end of a connection of a peer that does what a test wants."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self._data = b""

    async def say(self, message: Message) -> None:
        await self.stream.send_all(b"".join(encode(message)))

    async def hear(self) -> Message:
        with trio.fail_after(PATIENCE_S):
            while len(self._data) < LENGTH.size or len(self._data) < LENGTH.size + LENGTH.unpack_from(self._data)[0]:
                data = await self.stream.receive_some()
                assert data, "the other end closed the connection"
                self._data += data
        end = LENGTH.size + LENGTH.unpack_from(self._data)[0]
        message = decode(self._data[LENGTH.size : end])
        self._data = self._data[end:]
        return message

    async def wait_closed(self) -> None:
        """By the other end."""
        with trio.fail_after(PATIENCE_S), contextlib.suppress(trio.BrokenResourceError, ssl.SSLError):
            while await self.stream.receive_some():
                pass

    async def close(self) -> None:
        await trio.aclose_forcefully(self.stream)


async def dial(address: Address, me: Hello | None = None) -> Wire:
    """A connection to a forwarder; with `me`, also the handshake."""
    wire = Wire(await trio.open_tcp_stream(*address))
    if me is not None:
        await wire.say(me)
        assert isinstance(await wire.hear(), Hello)
    return wire


class Peer:
    """Listens where a forwarder dials."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._socket = bind([(host, 0)])[0]
        self._socket.listen()
        self._listener = trio.SocketListener(trio.socket.from_stdlib_socket(self._socket))
        self.address: Address = self._socket.getsockname()[:2]

    async def accept(self, me: Hello | None = None) -> Wire:
        """With `me`, also the handshake."""
        with trio.fail_after(PATIENCE_S):
            wire = Wire(await self._listener.accept())
        if me is not None:
            assert isinstance(await wire.hear(), Hello)
            await wire.say(me)
        return wire

    async def close(self) -> None:
        await self._listener.aclose()


def nobodys_address() -> Address:
    """Where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address: Address = taken.getsockname()
    return address


class Certificates:
    """Of an authority, as files, and what links make of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = trustme.CA()
        self.ca = folder / "ca.pem"
        self.authority.cert_pem.write_to_path(self.ca)

    def of(self, *hosts: str) -> LinkTls:
        """A member's."""
        path = self.folder / f"{len(list(self.folder.iterdir()))}.pem"
        self.authority.issue_cert(*hosts).private_key_and_cert_chain_pem.write_to_path(path)
        return link_tls(self.ca, path)
