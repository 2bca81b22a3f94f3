"""What a broker's sockets cost without a broker: one process pours, one relays, one drains.

What comes in: a port, a size, whether there is TLS. What goes out: bytes in the measured window, and processor time.
Rules: 1. the relay looks at nothing: it receives and sends, one process on one core, which is the least that a broker
with one thread can do for a message; 2. what is poured are real publishes, as `publish.py` sends them; 3. all
that was poured must be drained.
Not here: running them and the table (`bench/limits.py`).
"""

from __future__ import annotations

import socket
import ssl
from typing import Any

from bench.clock import Stopwatch, now
from bench.encode import PublishRing, encode_publish
from bench.errors import BenchError
from bench.link import Link
from bench.mixed import MixedRing
from bench.roles.recipes import make_recipe
from bench.tls import TlsSocket
from bench.wire import Address, Socket, connect

GO_SECONDS_MAX = 60.0
CONNECT_SECONDS_MAX = 30.0
RELAY_BYTES = 1 << 20
"""An upper bound wants the best: 64 KiB carried a third less per second of processor time, 256 KiB a tenth less."""
RING_BYTES = 1 << 20


def relay(link: Link, *, port: int, certificate: str = "", key: str = "") -> dict[str, Any]:
    """Takes the drain's connection first, then the pour's, and carries from the second to the first."""
    with socket.create_server(("127.0.0.1", port)) as server:
        server.settimeout(CONNECT_SECONDS_MAX)
        link.say("ready")
        out, into = (_accept(server, certificate, key) for _ in range(2))
    go = link.hear("go", GO_SECONDS_MAX)
    watch = Stopwatch(go["start"], go["stop"])
    buffer, carried = bytearray(RELAY_BYTES), 0
    view = memoryview(buffer)
    while came := into.recv_into(buffer):
        out.sendall(view[:came])
        carried += came
        if (moment := now()) >= watch.mark:
            watch.take(moment, carried)
    out.close()
    into.close()
    return {"bytes": carried, "window": watch.report()}


def _accept(server: socket.socket, certificate: str, key: str) -> Socket:
    sock, _ = server.accept()
    sock.settimeout(None)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not certificate:
        return sock
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return TlsSocket(sock, context, None, server=True)


def pour(link: Link, *, url: str, body_bytes: int = 0, recipe: dict[str, Any] | None = None) -> dict[str, Any]:
    """Sends whole publishes, of bodies of one size or of a recipe, until the window is over, then ends the
    connection."""
    sock = _connect(url)
    ring: PublishRing | MixedRing
    if recipe:
        ring = MixedRing("bench-00000000-x", make_recipe(**recipe))
    else:
        one, body_at = encode_publish("", "bench-00000000", bytes(body_bytes))
        ring = PublishRing([one], body_at, max(1, RING_BYTES // len(one)))
    view, message_bytes = memoryview(ring.data), len(ring.data) / ring.messages
    link.say("ready")
    go = link.hear("go", GO_SECONDS_MAX)
    watch = Stopwatch(go["start"], go["stop"])
    poured = laps = 0
    while (moment := now()) < watch.stop:
        # All of the ring, so that what comes out is whole messages; stamped as a publisher does.
        sock.sendall(view)
        poured += len(view)
        laps += 1
        ring.stamp_lap(laps)
        if moment >= watch.mark:
            watch.take(moment, poured)
    watch.take(now(), poured)
    # Not just closed: with session tickets unread that would be a reset, and what is on its way would be lost.
    sock.shutdown(socket.SHUT_WR)
    while sock.recv(RELAY_BYTES):
        pass
    sock.close()
    return {"bytes": poured, "message_bytes": message_bytes, "window": watch.report()}


def drain(link: Link, *, url: str) -> dict[str, Any]:
    sock = _connect(url)
    link.say("ready")
    go = link.hear("go", GO_SECONDS_MAX)
    watch = Stopwatch(go["start"], go["stop"])
    buffer, drained = bytearray(RELAY_BYTES), 0
    while came := sock.recv_into(buffer):
        drained += came
        if (moment := now()) >= watch.mark:
            watch.take(moment, drained)
    sock.close()
    report = watch.report()
    if not report["count"]:
        raise BenchError("nothing came in the measured window")
    return {"bytes": drained, "window": report}


def _connect(url: str) -> Socket:
    sock = connect(Address.parse(url), CONNECT_SECONDS_MAX)
    sock.settimeout(None)
    return sock
