"""Decryption in parts: what one call may do, whatever records a client makes."""

from __future__ import annotations

import ssl

import pytest
import trustme

from amqpd.transport.tls_stream import CONTROL_WORK, RECORD_WORK, RECORDS_AT_ONCE, TlsStream


class Client:
    """The client's end of a stream, in memory. `sent` is what it has to say."""

    def __init__(self, authority: trustme.CA) -> None:
        context = ssl.create_default_context()
        authority.configure_trust(context)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")

    def sent(self) -> bytes:
        return self._outgoing.read()

    def shake_hands(self, server: TlsStream, at_once: int) -> bytes:
        """What it says is cut into pieces of this many bytes. Returns what came behind the handshake."""
        data = b""
        while not server.handshaken:
            try:
                self.tls.do_handshake()
                self.tls.write(b"early")
            except ssl.SSLWantReadError:
                pass
            data = self.sent()
            for at in range(0, len(data), at_once):
                server.handshake(data[at : at + at_once])
            self._incoming.write(server.output())
        return server.receive(b"")


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def server(authority: trustme.CA) -> TlsStream:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    return TlsStream(context)


@pytest.mark.parametrize("at_once", [16384, 1])
def test_what_comes_with_the_end_of_the_handshake_is_received(
    authority: trustme.CA, server: TlsStream, at_once: int
) -> None:
    assert Client(authority).shake_hands(server, at_once) == b"early"


def test_one_call_decrypts_a_bounded_number_of_records(authority: trustme.CA, server: TlsStream) -> None:
    client = Client(authority)
    client.shake_hands(server, 16384)
    for at in range(3 * RECORDS_AT_ONCE + 1):
        client.tls.write(bytes((at % 251,)))
    got = [server.receive(client.sent())]
    assert len(got[0]) == RECORDS_AT_ONCE
    assert server.work == RECORD_WORK * RECORDS_AT_ONCE
    while server.behind:
        got.append(server.receive(b""))
    assert [len(part) for part in got] == [RECORDS_AT_ONCE] * 3 + [1]
    assert b"".join(got) == bytes(at % 251 for at in range(3 * RECORDS_AT_ONCE + 1))


def test_records_that_are_cut_anywhere_come_out_whole(authority: trustme.CA, server: TlsStream) -> None:
    client = Client(authority)
    client.shake_hands(server, 16384)
    said = b""
    for size in (1, 16384, 3, 40000, 250):
        client.tls.write(bytes(size))
        said += client.sent()
    for size in (1, 4, 5, 6, 1000, len(said)):
        piece, said = said[:size], said[size:]
        server.receive(piece)
        assert not server.behind
    assert not said


def test_records_without_data_are_the_dear_ones(authority: trustme.CA, server: TlsStream) -> None:
    client = Client(authority)
    client.shake_hands(server, 16384)
    client.tls.write(b"x")
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.unwrap()
    assert server.receive(client.sent()) == b"x"
    assert server.ended
    assert not server.behind
    assert server.work == RECORD_WORK + CONTROL_WORK


def test_what_is_no_tls_is_refused(server: TlsStream) -> None:
    with pytest.raises(ssl.SSLError):
        server.handshake(b"AMQP\x00\x00\x09\x01" + bytes(16384))
