"""The first words over a connection, each way: who speaks, whom it is for, and the proof of both.

What comes in: a stream. What goes out: the peer's Hello and the checks of what follows, or `Broken` with what is
wrong with the peer.
Rules: 1. The one that dials speaks first, and says whom it means. 2. The other one says who it is only to a peer that
has proven who that is, and that means this node: a stranger learns the version, and whether a secret is asked for. 3.
A proven peer that may not stay is told why: so both logs have it. 4. Nothing longer than a Greeting is taken before.

| dialer | acceptor | |
|---|---|---|
| Greeting: itself, the target, a nonce | | |
| | Greeting: no names, a nonce | or Refusal: of another certificate |
| | | or the end: no version in common, or only one has a secret |
| Proof of both Greetings | | |
| | Greeting: itself; Proof of all | or Refusal |

Both Greetings name the versions that their node speaks, and both ends use the highest common one
(`peers/versions.py`). A peer of version 4 answers nothing but its own: it is dialed a second time with that one, and
its log has a line for the first.

The dialer says what the connection is for, and the acceptor says the same, so that both have proven it. One for data
is given up before its Proof when the peer turns out to be of a version that would take it for one of replication.

Not here: what proves (`trust.py`), the deadline (`dialing.py`, `accepting.py`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, TypeVar

from amqpd.peers.encoding import encode
from amqpd.peers.formats import MalformedMessage
from amqpd.peers.links.framing import LENGTH, Check, Incoming, framed_word
from amqpd.peers.links.stream import Broken, Distrusted, Stream
from amqpd.peers.links.tls import NODE_URI, SAME_SECRET, SILENT, TLS_THERE, is_tls
from amqpd.peers.links.troubles import CERTIFICATE, REFUSED, SECRET
from amqpd.peers.links.trust import ACCEPTOR, DIALER, Trust
from amqpd.peers.messages import NONCE_BYTES, Greeting, Hello, Message, Proof, Purpose, Refusal
from amqpd.peers.versions import HAS_DATA_LINKS, HIGHEST, RANGED, none_in_common

NOBODY = ""
ONE_STORE = "the name behind the slash of cluster_store is the same on all nodes of a cluster"
OTHER_ADDRESS = "it is at that address since, or two nodes have one cluster_listen or cluster_advertise"
OTHER_SECRET = "the cluster_secret there is another one"
OTHER_CERTIFICATE = "the certificate is not of the node that dials"
# As a cluster's status says it of two nodes, which says the way out itself.
SECRETS_DIFFER = "the shared secret differs"
ONE_SECRET = "only one of the two has a shared secret"

M = TypeVar("M", Greeting, Proof)


def wrong_proof(name: str) -> str:
    """Of a peer that calls itself so."""
    return (
        f"it says that it is {name}, and cannot prove it: its cluster_secret is another one ({SAME_SECRET}), or it "
        "repeats what another one has said"
    )


class OneVersionOnly(Broken):
    """The peer is of a version that answers no other one, and that this node speaks, too: it is to be dialed again in
    that version."""

    def __init__(self, version: int) -> None:
        super().__init__(f"it answers version {version} of the messages only")
        self.version = version


class Proven(NamedTuple):
    """A peer whose handshake has succeeded, and the check of what is sent to it; the check of what it sends is in
    `Incoming` already."""

    hello: Hello
    check: Check
    version: int = HIGHEST
    """of the messages, that both ends use"""
    purpose: Purpose = Purpose.REPLICATION
    """of the connection"""


Refuses = Callable[[Hello, Purpose], str]
"""why a peer that has proven who it is may not stay, with a link for this; empty: it may"""


def speaking_only(me: Hello, version: int) -> Hello:
    """This node, to a peer of a version before `RANGED`."""
    return replace(me, version=version, lowest=version)


async def dial_hello(
    stream: Stream,
    incoming: Incoming,
    me: Hello,
    name: str,
    trust: Trust,
    purpose: Purpose = Purpose.REPLICATION,
) -> Proven:
    """To the peer of this name. Raises Broken, and OneVersionOnly if it is to be tried with `speaking_only`."""
    _require_certificate(stream, name, trust)
    talk = _Talk(stream, incoming)
    await talk.say(Greeting(me, name, os.urandom(NONCE_BYTES), bool(trust.secret), purpose=purpose))
    try:
        first = await talk.hear(Greeting)
    except Broken as error:
        if trust.tls is None and not incoming.first_bytes:
            raise Broken(f"{error}, and it has said nothing: {SILENT}") from None
        raise
    spoken = first.hello.versions
    if purpose is Purpose.DATA and spoken.highest < HAS_DATA_LINKS:
        raise Broken(f"it speaks version {spoken} of the messages, which has no connections for data: upgrade it")
    if spoken.highest < RANGED <= me.version and me.versions.common(spoken) is not None:
        raise OneVersionOnly(spoken.highest)
    version = _require_alike(me, first, trust)
    await talk.say(Proof(trust.proof(DIALER, talk.transcript_digest)))
    answer = await talk.hear(Greeting)
    peer = answer.hello
    if peer.versions != spoken:
        raise Distrusted(f"it says that it speaks version {spoken} of the messages, and then {peer.versions}")
    if answer.purpose is not purpose:
        raise Distrusted(f"it is dialed for {purpose}, and takes the connection for one of {answer.purpose}")
    transcript = talk.transcript_digest
    if not trust.is_proven((await talk.hear(Proof)).digest, ACCEPTOR, transcript):
        raise Distrusted(wrong_proof(peer.forwarder), SECRET, SECRETS_DIFFER)
    if peer.cluster != me.cluster:
        raise Distrusted(f"it is of the cluster {peer.cluster!r}, this node of {me.cluster!r}: {ONE_STORE}")
    if peer.forwarder != name:
        raise Distrusted(f"the node there is {peer.forwarder!r}: {OTHER_ADDRESS}")
    incoming.begin(trust.check(ACCEPTOR, talk.transcript_digest), version)
    return Proven(peer, trust.check(DIALER, talk.transcript_digest), version, purpose)


async def accept_hello(stream: Stream, incoming: Incoming, me: Hello, trust: Trust, refuses: Refuses) -> Proven:
    """From a peer that dialed. Raises Broken."""
    talk = _Talk(stream, incoming)
    asked = await talk.hear(Greeting)
    try:
        return await _accept(talk, asked, me, trust, refuses)
    except Broken as error:
        error.node = error.node or f"maybe {asked.hello.forwarder}, as it says"
        raise


async def _accept(talk: _Talk, asked: Greeting, me: Hello, trust: Trust, refuses: Refuses) -> Proven:
    stream, incoming = talk.stream, talk.incoming
    spoken, purpose = asked.hello.versions, asked.purpose
    if spoken.highest < RANGED and me.versions.common(spoken) is not None:
        me = speaking_only(me, spoken.highest)  # it reads nothing else
    nobody = Hello(me.version, NOBODY, NOBODY, 0, 0, me.lowest)
    if me.versions.common(spoken) is not None:  # else it may not know a Refusal
        try:
            _require_certificate(stream, asked.hello.forwarder, trust)
        except Broken:
            # Who repeats another one's Greeting has no Proof, and may say nothing more.
            await talk.say(Refusal(OTHER_CERTIFICATE))
            raise
    await talk.say(Greeting(nobody, NOBODY, os.urandom(NONCE_BYTES), bool(trust.secret), purpose=purpose))
    version = _require_alike(me, asked, trust)
    transcript = talk.transcript_digest
    proof = await talk.hear(Proof)
    peer = asked.hello
    if not trust.is_proven(proof.digest, DIALER, transcript):
        await talk.say(Refusal(OTHER_SECRET))
        raise Distrusted(wrong_proof(peer.forwarder), SECRET, SECRETS_DIFFER)
    reason = _unfit(me, asked) or refuses(peer, purpose)
    if reason:
        await talk.say(Refusal(reason))
        told = Broken(f"it is told: {reason}")
        told.node = peer.forwarder
        raise told
    await talk.say(Greeting(me, peer.forwarder, os.urandom(NONCE_BYTES), bool(trust.secret), purpose=purpose))
    await talk.say(Proof(trust.proof(ACCEPTOR, talk.transcript_digest)))
    incoming.begin(trust.check(DIALER, talk.transcript_digest), version)
    return Proven(peer, trust.check(ACCEPTOR, talk.transcript_digest), version, purpose)


def _require_alike(me: Hello, peer: Greeting, trust: Trust) -> int:
    """What both ends need for a proof; the version that both use. Raises Broken."""
    version = me.versions.common(peer.hello.versions)
    if version is None:
        raise Distrusted(none_in_common(me.versions, peer.hello.versions))
    if peer.secret != bool(trust.secret):
        one, other = ("it has", "this node has none") if peer.secret else ("this node has", "it has none")
        raise Distrusted(f"{one} a cluster_secret and {other}: {SAME_SECRET}", SECRET, ONE_SECRET)
    return version


def _require_certificate(stream: Stream, name: str, trust: Trust) -> None:
    """The certificate that the peer has shown is of the node of this name. Raises Broken."""
    if trust.tls is None:
        return
    named = stream.nodes_named()
    if name not in named:
        names = ", ".join(map(repr, named[:4])) or "no node"
        wanted = f"URI:{NODE_URI}{name}"
        raise Distrusted(
            f"its certificate names {names}, not {name!r}: it needs the alternative name {wanted}", CERTIFICATE
        )


def _unfit(me: Hello, asked: Greeting) -> str:
    """Why a peer that has proven who it is has no business here."""
    peer = asked.hello
    if peer.cluster != me.cluster:
        return f"this is a node of the cluster {me.cluster!r}, not of {peer.cluster!r}"
    if asked.target != me.forwarder:
        return f"this is the node {me.forwarder!r}, not {asked.target!r}"
    if not peer.forwarder or peer.forwarder == me.forwarder:
        return f"this is the node {me.forwarder!r}, and the one that dials calls itself {peer.forwarder!r}"
    return ""


def _refused(reason: str) -> Distrusted:
    """By the peer."""
    kind, said = {OTHER_SECRET: (SECRET, SECRETS_DIFFER), OTHER_CERTIFICATE: (CERTIFICATE, "")}.get(
        reason, (REFUSED, reason)
    )
    return Distrusted(f"it refuses: {reason}", kind, said)


class _Talk:
    """The messages of one handshake in both directions, and a digest of them."""

    def __init__(self, stream: Stream, incoming: Incoming) -> None:
        self.stream = stream
        self.incoming = incoming
        self._transcript = hashlib.sha256()

    @property
    def transcript_digest(self) -> bytes:
        """A digest of all words up to now, in order."""
        return self._transcript.digest()

    async def say(self, word: Message) -> None:
        """Raises Broken."""
        self._add(word)
        left = memoryview(framed_word(word))
        while left:
            left = left[await self.stream.send([left]) :]

    async def hear(self, wanted: type[M]) -> M:
        """Raises Broken, also for a Refusal."""
        try:
            while (word := self.incoming.next()) is None:
                self.incoming.took(await self.stream.receive_into(self.incoming.space()))
        except MalformedMessage as error:
            if is_tls(self.incoming.first_bytes):
                raise Distrusted(TLS_THERE, CERTIFICATE) from None
            raise Broken(f"what it sends is no {wanted.__name__}: {error}") from None
        if isinstance(word, Refusal):
            raise _refused(word.reason)
        if not isinstance(word, wanted):
            raise Broken(f"what it sends is {type(word).__name__}, and no {wanted.__name__}")
        self._add(word)
        return word

    def _add(self, word: Message) -> None:
        data = b"".join(encode(word))
        self._transcript.update(LENGTH.pack(len(data)) + data)
