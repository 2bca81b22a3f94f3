"""The server's own bounds: connections, bodies, clients that do not read; addresses and TLS; the end."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
import trustme

from amqpd_admin import connection
from amqpd_admin.connection import BoundedStream
from tests.admin.conftest import Api
from tests.clients.broker_process import BrokerProcess, free_port

MIB = 1 << 20


def broker_with(directory: Path, **settings: object) -> tuple[BrokerProcess, int]:
    port = free_port()
    environment = {"AMQPD_HTTP_ENABLED": "true", "AMQPD_HTTP_PORT": str(port)}
    environment |= {f"AMQPD_{name.upper()}": str(value) for name, value in settings.items()}
    broker = BrokerProcess(directory / "data", environment=environment)
    broker.start()
    return broker, port


def opened(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def asked(connection: socket.socket, request: bytes = b"GET /api/whoami HTTP/1.1\r\nHost: x\r\n\r\n") -> bytes:
    """An answer; nothing, when the connection was closed."""
    answer = b""
    try:
        connection.sendall(request)
        while not answer.endswith(b"}") and (more := connection.recv(4096)):
            answer += more
        return answer
    except ConnectionError:
        return b""


def another(port: int) -> bytes:
    with opened(port) as connection:
        return asked(connection)


@pytest.mark.slow
def test_who_has_not_logged_in_gives_way_and_clients_of_amqp_are_served(tmp_path: Path):
    broker, port = broker_with(tmp_path, http_connections_max=2)
    request = b"GET /api/whoami HTTP/1.1\r\nHost: x\r\nAuthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n\r\n"
    try:
        with opened(port) as first, opened(port) as second:
            assert asked(first, request).startswith(b"HTTP/1.1 200")
            assert asked(second).startswith(b"HTTP/1.1 401")
            with opened(port) as third:
                assert asked(third).startswith(b"HTTP/1.1 401")
                assert asked(second) == b""
                assert asked(first, request).startswith(b"HTTP/1.1 200")
            # SIGTERM, with a connection that is open and idle.
            assert broker.terminate(30) == 0
    finally:
        broker.close()


@pytest.mark.slow
def test_the_broker_s_end_waits_for_no_client_of_http(tmp_path: Path):
    """Half a minute for one that does not read, when it was waited for until its piece was taken."""
    broker, port = broker_with(tmp_path)
    asked_often = b"GET /api/openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 200
    late = b"PUT /api/vhosts/late HTTP/1.1\r\nHost: x\r\nAuthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n"
    late += b"Content-Length: 2\r\n\r\n{"
    try:
        with opened(port) as unread, opened(port) as unsent, opened(port) as idle:
            unread.sendall(asked_often)
            assert unread.recv(1) == b"H"
            unsent.sendall(late)
            assert asked(idle).startswith(b"HTTP/1.1 401")
            assert broker.terminate(20) == 0
            with pytest.raises(ConnectionError):
                opened(port)
        assert "drained" in broker.log
        broker.start()
        assert httpx2.get(f"http://127.0.0.1:{port}/api/vhosts/late", auth=("guest", "guest")).status_code == 404
    finally:
        broker.close()


def test_it_listens_on_both_addresses(api: Api):
    for host in ("127.0.0.1", "[::1]"):
        assert httpx2.get(f"http://{host}:{api.port}/api/whoami", auth=("guest", "guest")).status_code == 200


def test_a_body_that_is_too_long_is_refused_however_it_comes(tmp_path: Path):
    broker, port = broker_with(tmp_path, http_body_bytes_max="1KiB")
    url = f"http://127.0.0.1:{port}/api/queues/%2F/q"
    body = b'{"arguments": {"x": "' + b"x" * (100 << 10) + b'"}}'
    try:
        said = httpx2.put(url, content=body, auth=("guest", "guest"))
        assert (said.status_code, said.json()["reason"]) == (400, "Exceeded HTTP request body size limit")
        unsaid = httpx2.put(url, content=iter([body]), auth=("guest", "guest"))
        assert unsaid.status_code == 400
        assert httpx2.get(url, auth=("guest", "guest")).status_code == 404
    finally:
        broker.close()


@pytest.mark.parametrize(
    ("body", "reason"),
    [(b"{", "not_json"), (b"[]", "not_json"), (b"[" * 100_000, "not_json")],
)
def test_a_body_that_is_no_object(api: Api, body: bytes, reason: str):
    answer = httpx2.put(f"{api.url}/api/queues/%2F/q", content=body, auth=("guest", "guest"))
    assert (answer.status_code, answer.json()) == (400, {"error": "bad_request", "reason": reason})


@pytest.mark.parametrize("body", [b"", b"null"])
def test_no_body_is_an_object_without_members(api: Api, body: bytes):
    answer = httpx2.put(f"{api.url}/api/queues/%2F/bare", content=body, auth=("guest", "guest"))
    assert answer.status_code in (201, 204)


@pytest.mark.parametrize(
    "request_line",
    [
        b"GET /api/queues/%FF HTTP/1.1",
        b"GET /api/queues/%zz/%00 HTTP/1.1",
        b"GET //api/queues HTTP/1.1",
        b"GET * HTTP/1.1",
    ],
)
def test_odd_paths_are_not_found(api: Api, request_line: bytes):
    authorization = b"Authorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n"
    with opened(api.port) as client:
        client.sendall(request_line + b"\r\nHost: x\r\n" + authorization + b"Connection: close\r\n\r\n")
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert answer.startswith((b"HTTP/1.1 404", b"HTTP/1.1 400")), answer


@pytest.mark.parametrize(
    "garbage", [b"\x00" * 100, b"AMQP\x00\x00\x09\x01", b"GET / HTTP/9.9\r\n\r\n", b"x" * 100_000]
)
def test_what_is_no_http_is_that_connection_s_alone(api: Api, garbage: bytes):
    with opened(api.port) as client:
        client.sendall(garbage)
        assert api.get("/whoami")["name"] == "guest"
    assert "http connection failed" not in api.broker.log


async def stalled(monkeypatch: pytest.MonkeyPatch) -> tuple[BoundedStream, Any]:
    monkeypatch.setattr(connection, "SEND_S", 0.05)
    ours, theirs = socket.socketpair()
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
    return BoundedStream(stream), theirs


@pytest.mark.trio
async def test_who_does_not_read_is_cut_off_though_nobody_may_interrupt_the_server(monkeypatch):
    bounded, theirs = await stalled(monkeypatch)
    with theirs, trio.CancelScope(shield=True), pytest.raises(trio.BrokenResourceError):
        await bounded.send_all(bytes(64 * MIB))


def test_tls(tmp_path: Path):
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost", "127.0.0.1", "::1")
    pem = tmp_path / "server.pem"
    certificate.private_key_and_cert_chain_pem.write_to_path(str(pem))
    broker, port = broker_with(tmp_path, http_tls="true", tls_certificate=pem, tls_port=free_port())
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    try:
        for host in ("127.0.0.1", "[::1]"):
            with httpx2.Client(verify=trusting, auth=("guest", "guest")) as client:
                answer = client.get(f"https://{host}:{port}/api/overview")
            assert answer.status_code == 200
            assert {each["protocol"] for each in answer.json()["listeners"]} == {"amqp", "amqp/ssl", "https"}
        assert not another(port).startswith(b"HTTP/1.1 2"), "it was answered without TLS"
        assert broker.running
        assert broker.terminate(30) == 0
    finally:
        broker.close()


def test_a_port_that_is_taken_is_one_sentence(tmp_path: Path, api: Api):
    environment = {"AMQPD_HTTP_ENABLED": "true", "AMQPD_HTTP_PORT": str(api.port)}
    broker = BrokerProcess(tmp_path / "data", environment=environment)
    broker.spawn()
    try:
        assert broker.wait(60) == 1
        assert (
            f"cannot listen on 127.0.0.1 port {api.port}: another program does; stop it, or choose another http.port"
            in (broker.log)
        )
        assert not (tmp_path / "data" / "journal.db").exists(), "the data directory was touched"
    finally:
        broker.close()


@pytest.mark.parametrize(
    ("body", "reason"),
    [(b'{"arguments": {"x": NaN}}', "not_json"), (b'{"a": [' + b"[]," * 100_000 + b"[]]}", "Exceeded HTTP")],
)
def test_a_body_that_takes_long_or_is_python_s_own_is_refused(api: Api, body: bytes, reason: str):
    answer = httpx2.put(f"{api.url}/api/queues/%2F/q", content=body, auth=("guest", "guest"))
    assert answer.status_code == 400
    assert reason in answer.json()["reason"]


def test_an_origin_that_is_no_address_is_foreign(api: Api):
    assert api("PUT", "/queues/%2F/q", {}, headers={"origin": "http://["}).status_code == 403


def test_a_web_socket_is_refused(api: Api):
    request = (
        b"GET /api/overview HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    with opened(api.port) as client:
        client.sendall(request)
        assert client.recv(100).startswith(b"HTTP/1.1 403")
    assert "http connection failed" not in api.broker.log


@pytest.mark.trio
async def test_who_reads_slowly_gets_all_of_it(monkeypatch):
    """The bound is for each piece, not for the whole answer."""
    bounded, theirs = await stalled(monkeypatch)
    monkeypatch.setattr(connection, "SEND_S", 5.0)
    got = 0
    with theirs:
        theirs.setblocking(False)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bounded.send_all, bytes(4 * MIB))
            reader = trio.socket.from_stdlib_socket(theirs)
            while got < 4 * MIB:
                got += len(await reader.recv(1 << 14))
    await bounded.aclose()
