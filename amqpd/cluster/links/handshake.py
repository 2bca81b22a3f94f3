"""The first word over a link, each way: who speaks, and whether that one may stay.

What comes in: a stream. What goes out: the peer's Hello, or `Broken` with what is wrong with it.
Rules: 1. The one that dials speaks first. 2. The other one says its Hello also to a peer that may not stay: both then
know why. 3. Nothing longer than a Hello is taken from a stranger.
Not here: certificates (`tls.py`), the deadline (`dialing.py`, `accepting.py`).
"""

from __future__ import annotations

from amqpd.cluster.links.incoming import Incoming
from amqpd.cluster.links.outgoing import Outgoing
from amqpd.cluster.links.stream import Broken, Stream
from amqpd.replication.encoding import HELLO_BYTES_MAX, MESSAGE_BYTES_MAX, encode
from amqpd.replication.formats import MalformedMessage
from amqpd.replication.messages import Hello


async def dial_hello(stream: Stream, incoming: Incoming, me: Hello, name: str) -> Hello:
    """To the peer of this name. Raises Broken."""
    await _say(stream, me)
    peer = await _hear(stream, incoming)
    _check(me, peer)
    if peer.forwarder != name:
        raise Broken(f"the forwarder there is {peer.forwarder!r}")
    return peer


async def accept_hello(stream: Stream, incoming: Incoming, me: Hello) -> Hello:
    """From a peer that dialed. Raises Broken."""
    peer = await _hear(stream, incoming)
    await _say(stream, me)
    _check(me, peer)
    return peer


def stranger() -> Incoming:
    """For what a peer sends that has not said who it is."""
    return Incoming(HELLO_BYTES_MAX)


def _check(me: Hello, peer: Hello) -> None:
    if peer.version != me.version:
        raise Broken(f"it speaks version {peer.version} of the messages, this forwarder {me.version}")
    if peer.cluster != me.cluster:
        raise Broken(f"it is of the cluster {peer.cluster!r}, this forwarder of {me.cluster!r}")
    if not peer.forwarder or peer.forwarder == me.forwarder:
        raise Broken(f"its name is {peer.forwarder!r}, this forwarder's is {me.forwarder!r}")


async def _say(stream: Stream, me: Hello) -> None:
    out = Outgoing()
    out.add(encode(me))
    while out.nbytes:
        out.sent(await stream.send(out.next()))


async def _hear(stream: Stream, incoming: Incoming) -> Hello:
    try:
        while (message := incoming.next()) is None:
            incoming.took(await stream.receive_into(incoming.space()))
    except MalformedMessage as error:
        raise Broken(f"what it sends is no Hello: {error}") from None
    if not isinstance(message, Hello):
        raise Broken(f"what it sends first is {type(message).__name__}")
    incoming.bytes_max = MESSAGE_BYTES_MAX
    return message
