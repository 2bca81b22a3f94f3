"""Every family of addresses that a client may come from, plain and through TLS, on the build that is there.

A socket address is a pair for IPv4 and has four members for IPv6. Annotations of compiled modules are checked when
they run, so they must hold for both.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pika
import pika.credentials
import pytest
import trustme
from pamqp import commands

from tests.harness.slow import slow

from .address import HOSTS, connection_name, url
from .broker_process import REPOSITORY, BrokerProcess
from .test_tls_connections import TlsBroker, TlsWire, client_context
from .wire import Wire, publish_bytes

TRANSPORTS = [(host, tls) for host in HOSTS for tls in (False, True)]
MAPPED = "::ffff:127.0.0.1"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, authority: trustme.CA) -> Iterator[TlsBroker]:
    broker = TlsBroker(tmp_path_factory.mktemp("addresses") / "data", authority)
    try:
        broker.start()
        broker.command_line("user", "add", "app", "--no-password")
        broker.command_line("permission", "set", "/", "app", ".*", ".*", ".*")
        yield broker
        assert broker.terminate() == 0
    finally:
        broker.close()


def opened(broker: TlsBroker, authority: trustme.CA, host: str, tls: bool) -> Wire:
    if tls:
        return TlsWire(broker.tls_port, client_context(authority), host)
    return Wire(broker.port, host=host, tls=False)


def names(broker: BrokerProcess) -> list[str]:
    command = [sys.executable, "-m", "amqpd", "connection", "list", "--json", "--data-dir", str(broker.data_dir)]
    done = subprocess.run(command, check=True, cwd=REPOSITORY, env=broker.child_environment(), capture_output=True)
    return [row["name"] for row in json.loads(done.stdout)]


@pytest.mark.parametrize(("host", "tls"), TRANSPORTS)
def test_a_message_goes_through_over_every_family(
    broker: TlsBroker, authority: trustme.CA, host: str, tls: bool
) -> None:
    """As guest, who may log in over loopback only: an IPv4-mapped address is loopback too."""
    with opened(broker, authority, host, tls) as wire:
        wire.open()
        wire.open_channel()
        queue = wire.call(commands.Queue.Declare(queue="", exclusive=True), channel=1).queue
        wire.call(commands.Confirm.Select(), channel=1)
        wire.call(commands.Basic.Consume(queue=queue, no_ack=True), channel=1)
        wire.send_bytes(publish_bytes(1, "", queue, b"x" * 300_000))
        kinds = set()
        for _ in range(2):  # the delivery and the confirm, in whichever order
            channel, message = read_either(wire)
            assert channel == 1
            kinds.add(message)
        assert kinds == {b"x" * 300_000, 1}
        wire.close()


def read_either(wire: Wire) -> tuple[int, bytes | int]:
    """The body of a delivery, or the tag of a confirm."""
    kind, channel, payload = wire.read_frame()
    assert kind == 1
    if payload[:4] == b"\0\x3c\0\x50":
        return channel, int.from_bytes(payload[4:12], "big")
    assert payload[:4] == b"\0\x3c\0\x3c"
    size, parts = None, b""
    while size is None or len(parts) < size:
        kind, _, payload = wire.read_frame()
        if kind == 2:
            size = int.from_bytes(payload[4:12], "big")
        else:
            parts += payload
    return channel, parts


@pytest.mark.parametrize(
    ("host", "tls"), [each if each[0] != "127.0.0.1" and each[1] else slow(*each) for each in TRANSPORTS]
)
def test_a_connection_is_named_as_rabbitmq_names_it(
    broker: TlsBroker, authority: trustme.CA, host: str, tls: bool
) -> None:
    with opened(broker, authority, host, tls) as wire:
        wire.open()
        assert names(broker) == [connection_name(wire.socket)]
        wire.close()


@pytest.mark.parametrize("host", HOSTS)
def test_a_certificate_logs_in_over_every_family(
    broker: TlsBroker, authority: trustme.CA, tmp_path: Path, host: str
) -> None:
    context = client_context(authority, "app", tmp_path)
    parameters = pika.ConnectionParameters(
        host,
        broker.tls_port,
        credentials=pika.credentials.ExternalCredentials(),
        ssl_options=pika.SSLOptions(context, host),
    )
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        channel.basic_publish("", queue, b"y", pika.BasicProperties(user_id="app"))
        assert channel.basic_get(queue, auto_ack=True)[2] == b"y"


@pytest.mark.slow
def test_a_listener_may_be_bound_to_a_mapped_address(tmp_path: Path) -> None:
    """Then its clients' addresses are of the family AF_INET6, and name an IPv4 host."""
    broker = BrokerProcess(tmp_path / "data", arguments=["--bind", MAPPED])
    broker._plain_port = broker.port  # not through TLS, whatever the run is
    try:
        broker.start()
        with pika.BlockingConnection(pika.URLParameters(url(broker.port, "127.0.0.1", tls=False))) as connection:
            assert connection.channel().queue_declare("", exclusive=True).method.queue
            assert names(broker)[0].startswith("127.0.0.1:")
        assert broker.terminate() == 0
    finally:
        broker.close()
