"""Many clients ask for TLS at once: what that costs those who are served."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import trustme
from pamqp import commands

from .test_tls_connections import TlsBroker, TlsWire, client_context

HANDSHAKES = 400
AT_ONCE = 8


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def broker(tmp_path: Path, authority: trustme.CA) -> Iterator[TlsBroker]:
    broker = TlsBroker(tmp_path / "data", authority)
    # As most servers have, and dearer than elliptic curves.
    server = authority.issue_cert("localhost", key_type=trustme.KeyType.RSA)
    server.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "server.pem"))
    broker.environment["AMQPD_HANDSHAKE_TIMEOUT_S"] = "5"
    try:
        broker.start()
        yield broker
        assert broker.terminate() == 0
        assert "Traceback" not in broker.log
    finally:
        broker.close()


def loop_s(broker: TlsBroker) -> float:
    """Processor time of the message loop, which is the main thread."""
    fields = Path(f"/proc/{broker.broker_pid}/task/{broker.broker_pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def all_s(broker: TlsBroker) -> float:
    times = psutil.Process(broker.broker_pid).cpu_times()
    return float(times.user + times.system)


def flood(broker: TlsBroker, context: ssl.SSLContext, count: int) -> None:
    for _ in range(count):
        with socket.create_connection(("127.0.0.1", broker.tls_port), timeout=60) as client:
            context.wrap_socket(client, server_hostname="localhost").close()


def test_the_message_loop_computes_no_handshakes(broker: TlsBroker, authority: trustme.CA) -> None:
    context = client_context(authority)
    with TlsWire(broker.tls_port, context, "127.0.0.1") as victim:
        victim.open()
        victim.open_channel()
        before = loop_s(broker), all_s(broker)
        threads = [
            threading.Thread(target=flood, args=(broker, context, HANDSHAKES // AT_ONCE)) for _ in range(AT_ONCE)
        ]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            answer = victim.call(commands.Queue.Declare(queue="", exclusive=True), channel=1)
            assert isinstance(answer, commands.Queue.DeclareOk)
            victim.call(commands.Queue.Delete(queue=answer.queue), channel=1)
            for thread in threads:
                thread.join(0.05)
        loop, everything = loop_s(broker) - before[0], all_s(broker) - before[1]
    print(
        f"{loop / HANDSHAKES * 1000:.2f} ms of the loop, {everything / HANDSHAKES * 1000:.2f} ms of all, a handshake"
    )
    assert loop < 0.7 * everything


@pytest.mark.slow
def test_whoever_says_nothing_or_nonsense_in_a_handshake_is_cut_off_and_others_are_served(
    broker: TlsBroker, authority: trustme.CA
) -> None:
    context = client_context(authority)
    with contextlib.ExitStack() as stack:
        silent, rude, partly = (
            stack.enter_context(socket.create_connection(("127.0.0.1", broker.tls_port), timeout=60))
            for _ in range(3)
        )
        rude.sendall(b"AMQP\x00\x00\x09\x01" + bytes(100_000))
        partly.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01")
        with TlsWire(broker.tls_port, context, "127.0.0.1") as victim:
            victim.open()
        for each in (silent, rude, partly):
            with contextlib.suppress(ConnectionResetError):
                while each.recv(4096):
                    pass


@pytest.mark.slow
def test_renegotiation_and_compression_are_off(broker: TlsBroker, authority: trustme.CA) -> None:
    from amqpd.setting_tables import TlsSettings
    from amqpd.transport.tls import server_context

    files = broker.data_dir.parent
    context = server_context(TlsSettings(certificate=files / "server.pem"))
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.options & ssl.OP_NO_COMPRESSION
