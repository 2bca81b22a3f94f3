"""The generator's TLS: what is sent is what comes, wake times and flags work, certificates are checked."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.errors import BenchError
from bench.tls import Certificate, TlsSocket, client_context, make_certificate
from bench.wire import Address


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


def server_context(files: Certificate) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    return context


@pytest.fixture
def ends(files: Certificate) -> Iterator[tuple[TlsSocket, TlsSocket]]:
    """(client, server), both after the handshake."""
    left, right = socket.socketpair()
    made: list[TlsSocket] = []
    serving = threading.Thread(target=lambda: made.append(TlsSocket(right, server_context(files), None, server=True)))
    serving.start()
    client = TlsSocket(left, client_context(str(files.ca)), "127.0.0.1")
    serving.join()
    yield client, made[0]
    client.close()
    made[0].close()


def test_what_is_sent_comes(ends: tuple[TlsSocket, TlsSocket]) -> None:
    client, server = ends
    data = bytes(range(256)) * 4096
    sending = threading.Thread(target=client.sendall, args=(data,))
    sending.start()
    buffer, came = bytearray(100_000), bytearray()
    while len(came) < len(data):
        came += buffer[: server.recv_into(buffer)]
    sending.join()
    assert came == data
    client.send(b"and back")
    assert server.recv(3) + server.recv(100) == b"and back"
    assert "TLSv1." in client.version


def test_nothing_there_is_said_and_not_waited_for(ends: tuple[TlsSocket, TlsSocket]) -> None:
    client, _ = ends
    with pytest.raises(BlockingIOError):
        client.recv(10, socket.MSG_DONTWAIT)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 1000))
    with pytest.raises(BlockingIOError):
        client.recv_into(bytearray(10))


def test_what_is_not_taken_now_goes_with_the_next_call(ends: tuple[TlsSocket, TlsSocket]) -> None:
    client, server = ends
    piece, taken = bytes(65_536), 0
    try:
        while True:
            taken += client.send(piece, socket.MSG_DONTWAIT)
    except BlockingIOError:
        pass
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 5, 0))
    received = 0
    while received < taken:
        received += len(server.recv(1 << 18))
        with pytest.raises(BlockingIOError):
            client.recv(1, socket.MSG_DONTWAIT)
    assert received == taken


def test_the_end_is_an_end(ends: tuple[TlsSocket, TlsSocket]) -> None:
    client, server = ends
    server.send(b"x")
    assert client.recv(1) == b"x"  # and the session tickets before it: closing on unread bytes is a reset
    client.close()
    assert server.recv(10) == b""


def test_a_certificate_that_nobody_vouches_for_is_refused(files: Certificate, tmp_path: Path) -> None:
    other = make_certificate(tmp_path)
    left, right = socket.socketpair()
    failures: list[BaseException] = []

    def serve() -> None:
        try:
            TlsSocket(right, server_context(files), None, server=True)
        except (OSError, BenchError) as error:
            failures.append(error)
        right.close()

    serving = threading.Thread(target=serve)
    serving.start()
    with pytest.raises(ssl.SSLCertVerificationError):
        TlsSocket(left, client_context(str(other.ca)), "127.0.0.1")
    left.close()
    serving.join()
    assert failures


def test_addresses_of_tls() -> None:
    assert Address.parse("amqps://h/").port == 5671
    address = Address.parse("amqps://h:1/?cacertfile=/a%20b.pem&verify=verify_none")
    assert (address.tls, address.cacertfile, address.verify) == (True, "/a b.pem", False)
    for wrong in ("amqp://h/?cacertfile=x", "amqps://h/?depth=3", "amqps://h/?verify=no"):
        with pytest.raises(ValueError, match="not understood"):
            Address.parse(wrong)
