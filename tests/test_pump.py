"""What the pump does with what still comes from a client whose connection is over."""

from __future__ import annotations

import socket
import ssl

import trio
import trustme

from amqpd.pump import Pump
from amqpd.transport.link import Link
from amqpd.transport.tls_stream import TlsStream
from tests.harness.harness import Harness

# The smallest record of application data there is (RFC 8446 section 5.2): a read brings thousands.
RECORD = b"\x17\x03\x03\x00\x12" + bytes(18)


def pump_of(harness: Harness, connections_max: int = 10) -> Pump:
    return Pump(
        harness.node,
        connections_max=connections_max,
        new_connection_id=harness.token,
        certificate_user=lambda certificate: None,
        want_reads=harness.reads.extend,
        want_commit=lambda: None,
        clock_ms=lambda: 0,
        alone=lambda: True,
    )


def tls_stream() -> TlsStream:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("localhost").configure_cert(context)
    stream = TlsStream(context)
    stream.handshaken = True
    return stream


def test_what_comes_behind_the_end_is_not_decrypted_and_not_kept() -> None:
    """The client takes nothing of the last words, so the socket stays open for a while; what it sends meanwhile was
    kept, a read for each tick, because a call decrypts a bounded number of records."""

    async def main() -> None:
        pump = pump_of(Harness())
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            theirs.setblocking(False)
            link = Link(ours, Harness().client().connection, tls_stream())
            link.connection.lost()
            assert link.tls is not None
            for _ in range(3):
                theirs.send(RECORD * 1000)
                pump._read(link, 0.0)
            assert not link.tls.behind
            assert not link.tls._waiting
            assert not link.ended
        pump.close()

    trio.run(main)
