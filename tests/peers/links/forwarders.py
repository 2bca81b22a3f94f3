"""Doubles for tests of links: one that writes down what happens, and a peer that says what a test lets it say."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import trio
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from amqpd.peers.encoding import encode
from amqpd.peers.links.framing import LENGTH, Check, Crc, Incoming, framed, framed_word
from amqpd.peers.links.link import LinkLimits, PeerLink
from amqpd.peers.links.links import Links
from amqpd.peers.links.sockets import Address, bind
from amqpd.peers.links.tls import NODE_URI, LinkTls, link_tls
from amqpd.peers.links.trust import ACCEPTOR, DIALER, Trust
from amqpd.peers.messages import HANDSHAKE, NONCE_BYTES, Greeting, Hello, Message, Proof, Purpose, Refusal
from amqpd.peers.versions import HIGHEST

PATIENCE_S = 30
"""after which a test that waits for something has failed"""
SHORT = LinkLimits(back_off_first_s=0.001, back_off_max_s=0.01)


def hello(
    name: str, incarnation: int = 1, generation: int = 7, cluster: str = "shop", version: int = HIGHEST
) -> Hello:
    return Hello(version, cluster, name, incarnation, generation)


class Happened(NamedTuple):
    kind: str
    link: PeerLink | None
    what: Any = None


class Heard:
    """`LinkEvents` that are kept until a test asks for them."""

    def __init__(self) -> None:
        self.all: list[Happened] = []
        self.on_received: Callable[[PeerLink, Message], None] | None = None
        """in place of keeping them"""
        self._left: list[Happened] = []
        self._changed = trio.Event()

    def dialed(self, link: PeerLink) -> None:
        self._add(Happened("dialed", link))

    def lost(self, link: PeerLink, why: str) -> None:
        self._add(Happened("lost", link, why))

    def refused(self, name: str) -> None:
        self._add(Happened("refused", None, name))

    def accepted(self, link: PeerLink) -> None:
        self._add(Happened("accepted", link))

    def left(self, link: PeerLink) -> None:
        self._add(Happened("left", link))

    def received(self, link: PeerLink, message: Message) -> None:
        if self.on_received is not None:
            self.on_received(link, message)
        else:
            self._add(Happened("received", link, message))

    def note(self, link: PeerLink, message: Message) -> None:
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

    async def next_link(self, kind: str) -> PeerLink:
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
    data: Heard
    """of data links"""


@asynccontextmanager
async def forwarder(
    me: Hello,
    host: str = "127.0.0.1",
    tls: LinkTls | None = None,
    limits: LinkLimits = SHORT,
    port: int = 0,
    *,
    secret: bytes = b"",
    knows: Callable[[str], bool] = lambda name: True,
) -> AsyncIterator[Forwarder]:
    """It runs, and knows no peers. `knows`: who may dial it."""
    heard, data = Heard(), Heard()
    listeners = bind([(host, port)])
    address = listeners[0].getsockname()[:2]
    links = Links(me, heard, listeners, Trust(tls, secret), limits, knows, chance=lambda: 0.5, data_events=data)
    async with trio.open_nursery() as nursery:
        await nursery.start(links.run)
        yield Forwarder(links, heard, address, data)
        nursery.cancel_scope.cancel()


def greeting(
    me: Hello, target: str = "", trust: Trust | None = None, purpose: Purpose = Purpose.REPLICATION
) -> Greeting:
    return Greeting(me, target, bytes(NONCE_BYTES), bool(trust and trust.secret), purpose=purpose)


class Wire:
    """The end of a connection of a peer that does what a test wants."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.incoming = Incoming()
        self.check: Check = Crc()
        self._transcript = hashlib.sha256()

    async def say(self, message: Message) -> None:
        if type(message) in HANDSHAKE:
            self._add(message)
            await self.stream.send_all(framed_word(message))
        else:
            await self.stream.send_all(b"".join(framed(message, self.check)))

    async def hear(self) -> Message:
        with trio.fail_after(PATIENCE_S):
            while (message := self.incoming.next()) is None:
                space = self.incoming.space()
                data = await self.stream.receive_some(len(space))
                assert data, "the other end closed the connection"
                space[: len(data)] = data
                self.incoming.took(len(data))
        if type(message) in HANDSHAKE:
            self._add(message)
        return message

    @property
    def transcript_digest(self) -> bytes:
        return self._transcript.digest()

    def _add(self, word: Message) -> None:
        data = b"".join(encode(word))
        self._transcript.update(LENGTH.pack(len(data)) + data)

    async def greet(self, me: Hello, target: str, trust: Trust, purpose: Purpose = Purpose.REPLICATION) -> Message:
        """As the one that dialed, up to what is said to the proof: its Greeting, or a Refusal."""
        await self.say(greeting(me, target, trust, purpose))
        first = await self.hear()
        if isinstance(first, Refusal):
            return first
        assert isinstance(first, Greeting)
        await self.say(Proof(trust.proof(DIALER, self.transcript_digest)))
        answer = await self.hear()
        if isinstance(answer, Greeting):
            transcript = self.transcript_digest
            proof = await self.hear()
            assert isinstance(proof, Proof)
            assert trust.is_proven(proof.digest, ACCEPTOR, transcript)
            self.incoming.begin(trust.check(ACCEPTOR, self.transcript_digest), HIGHEST)
            self.check = trust.check(DIALER, self.transcript_digest)
        return answer

    async def welcome(self, me: Hello, trust: Trust) -> Greeting:
        """As the one that was dialed; what the other end said first."""
        asked = await self.hear()
        assert isinstance(asked, Greeting)
        purpose = asked.purpose
        await self.say(greeting(Hello(me.version, "", "", 0, 0, me.lowest), trust=trust, purpose=purpose))
        assert isinstance(await self.hear(), Proof)
        await self.say(greeting(me, asked.hello.forwarder, trust, purpose))
        await self.say(Proof(trust.proof(ACCEPTOR, self.transcript_digest)))
        self.incoming.begin(trust.check(DIALER, self.transcript_digest), HIGHEST)
        self.check = trust.check(ACCEPTOR, self.transcript_digest)
        return asked

    async def wait_closed(self) -> None:
        """By the other end."""
        with trio.fail_after(PATIENCE_S), contextlib.suppress(trio.BrokenResourceError, ssl.SSLError):
            while await self.stream.receive_some():
                pass

    async def close(self) -> None:
        await trio.aclose_forcefully(self.stream)


OPEN = Trust()
"""everybody is believed"""


async def dial(
    address: Address,
    me: Hello | None = None,
    target: str = "a",
    trust: Trust = OPEN,
    purpose: Purpose = Purpose.REPLICATION,
) -> Wire:
    """A connection to a forwarder; with `me`, also the handshake."""
    wire = Wire(await trio.open_tcp_stream(*address))
    if me is not None:
        assert isinstance(await wire.greet(me, target, trust, purpose), Greeting)
    return wire


class Peer:
    """Listens where a forwarder dials."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._socket = bind([(host, 0)])[0]
        self._socket.listen()
        self._listener = trio.SocketListener(trio.socket.from_stdlib_socket(self._socket))
        self.address: Address = self._socket.getsockname()[:2]

    async def accept(self, me: Hello | None = None, trust: Trust = OPEN) -> Wire:
        """With `me`, also the handshake."""
        with trio.fail_after(PATIENCE_S):
            wire = Wire(await self._listener.accept())
        if me is not None:
            await wire.welcome(me, trust)
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

    def of(self, *nodes: str, authority: trustme.CA | None = None) -> LinkTls:
        """A member's, which is of these nodes."""
        return link_tls(self.ca, self.file_of(*nodes, authority=authority))

    def file_of(self, *nodes: str, authority: trustme.CA | None = None) -> Path:
        """The certificate and its key."""
        issuer = authority or self.authority
        signer: Any = load_pem_private_key(issuer.private_key_pem.bytes(), None)
        issued_by = x509.load_pem_x509_certificate(issuer.cert_pem.bytes())
        key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
        names = [x509.UniformResourceIdentifier(f"{NODE_URI}{node}") for node in nodes]
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(issued_by.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName(names or [x509.DNSName("localhost")]), critical=True)
            .sign(signer, hashes.SHA256())
        )
        path = self.folder / f"{len(list(self.folder.iterdir()))}.pem"
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        path.touch(0o600)
        path.write_bytes(private + certificate.public_bytes(Encoding.PEM))
        return path
