"""TLS from the socket to the user: a broker process, certificates of a made-up authority, the EXTERNAL mechanism."""

from __future__ import annotations

import datetime
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pika
import pika.credentials
import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtensionOID, NameOID
from pamqp import commands

from . import address
from .broker_process import REPOSITORY, BrokerProcess, free_port
from .wire import PROTOCOL_HEADER, Wire, described, publish_bytes

Connection = commands.Connection


class TlsBroker(BrokerProcess):
    def __init__(self, data_dir: Path, authority: trustme.CA, **options: object) -> None:
        super().__init__(data_dir, **options)  # type: ignore[arg-type]
        self.tls_port, self._plain_port = free_port(), self.port
        files = data_dir.parent
        server = address.issue(authority)
        server.private_key_and_cert_chain_pem.write_to_path(str(files / "server.pem"))
        authority.cert_pem.write_to_path(str(files / "ca.pem"))
        self.environment |= {
            "AMQPD_TLS_PORT": str(self.tls_port),
            "AMQPD_TLS_CERTIFICATE": str(files / "server.pem"),
            "AMQPD_TLS_CA": str(files / "ca.pem"),
            "AMQPD_TLS_VERIFY_PEER": "optional",
            "AMQPD_TLS_LOGIN_FROM": "common_name",
        }

    def command_line(self, *words: str) -> None:
        command = [sys.executable, "-m", "amqpd", *words, "--data-dir", str(self.data_dir)]
        subprocess.run(command, check=True, cwd=REPOSITORY, env=self.child_environment(), capture_output=True)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, authority: trustme.CA) -> Iterator[TlsBroker]:
    broker = TlsBroker(tmp_path_factory.mktemp("tls") / "data", authority)
    try:
        broker.start()
        broker.command_line("user", "add", "app", "--no-password")
        broker.command_line("permission", "set", "/", "app", ".*", ".*", ".*")
        yield broker
        assert broker.terminate() == 0
    finally:
        broker.close()


def client_context(authority: trustme.CA, name: str | None = None, files: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if name is not None and files is not None:
        certificate = authority.issue_cert(common_name=name)
        path = files / f"{name}.pem"
        certificate.private_key_and_cert_chain_pem.write_to_path(str(path))
        context.load_cert_chain(path)
    return context


class TlsWire(Wire):
    def __init__(self, port: int, context: ssl.SSLContext, host: str = "") -> None:
        super().__init__(port, host=host, tls=False)
        # Without it a stream that ends without close_notify looks like one that ends with it.
        self.socket = context.wrap_socket(self.socket, server_hostname="localhost", suppress_ragged_eofs=False)


@pytest.mark.slow
def test_a_certificate_is_who_one_is(broker: TlsBroker, authority: trustme.CA, tmp_path: Path) -> None:
    context = client_context(authority, "app", tmp_path)
    parameters = pika.ConnectionParameters(
        "localhost",
        broker.tls_port,
        credentials=pika.credentials.ExternalCredentials(),
        ssl_options=pika.SSLOptions(context, "localhost"),
    )
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        channel.basic_publish("", queue, bytes(1_000_000), pika.BasicProperties(user_id="app"))
        assert channel.basic_get(queue, auto_ack=True)[2] == bytes(1_000_000)


def test_external_is_offered_to_a_certificate_that_names_a_user(
    broker: TlsBroker, authority: trustme.CA, tmp_path: Path
) -> None:
    """A client that takes EXTERNAL whenever it is there would not get in with its password otherwise."""
    for name, offered in (("app", True), ("nobody", False), (None, False)):
        with TlsWire(broker.tls_port, client_context(authority, name, tmp_path)) as wire:
            wire.send_bytes(PROTOCOL_HEADER)
            assert ("EXTERNAL" in wire.read_method()[1].mechanisms.split()) == offered


@pytest.mark.parametrize("name", [None, "nobody"])
def test_external_without_a_user_is_refused(
    broker: TlsBroker, authority: trustme.CA, tmp_path: Path, name: str | None
) -> None:
    with TlsWire(broker.tls_port, client_context(authority, name, tmp_path)) as wire:
        wire.send_bytes(PROTOCOL_HEADER)
        wire.read_method()
        capabilities = {"capabilities": {"authentication_failure_close": True}}
        close = wire.call(Connection.StartOk(capabilities, "EXTERNAL", ""))
        assert isinstance(close, Connection.Close), described(close)
        assert close.reply_code == (403 if name else 503)


def test_a_password_is_as_good_over_tls(broker: TlsBroker, authority: trustme.CA, tmp_path: Path) -> None:
    for name in (None, "app"):
        with TlsWire(broker.tls_port, client_context(authority, name, tmp_path)) as wire:
            wire.open()
            wire.close()


def test_the_broker_ends_tls_before_the_stream(broker: TlsBroker, authority: trustme.CA) -> None:
    """close_notify (RFC 8446 6.1): without it the client cannot tell the end from an attack."""
    with TlsWire(broker.tls_port, client_context(authority)) as wire:
        wire.open()
        wire.send(commands.Channel.Open())
        assert isinstance(wire.read_method()[1], Connection.Close)
        wire.send(Connection.CloseOk())
        assert wire.socket.recv(1) == b"", "an error when the stream just ends"


def test_a_client_that_ends_tls_but_not_the_stream_is_gone(broker: TlsBroker, authority: trustme.CA) -> None:
    with TlsWire(broker.tls_port, client_context(authority)) as wire:
        wire.open()
        wire.open_channel()
        wire.call(commands.Queue.Declare(queue="tls.end", durable=True), channel=1)
        wire.call(commands.Queue.Purge(queue="tls.end"), channel=1)
        tls = wire.socket
        assert isinstance(tls, ssl.SSLSocket)
        wire.send_bytes(publish_bytes(1, "", "tls.end", b"x"))
        # Both in one segment as often as not; the broker answers in kind, and closes.
        tls.unwrap()
    with Wire(broker.port, tls=False) as plain:
        plain.open()
        plain.open_channel()
        answer = plain.call(commands.Queue.Declare(queue="tls.end", passive=True, durable=True), channel=1)
        assert answer.message_count == 1


def test_plain_amqp_on_the_tls_port_and_the_reverse(broker: TlsBroker, authority: trustme.CA) -> None:
    with Wire(broker.tls_port, tls=False) as wire:
        wire.send_bytes(PROTOCOL_HEADER + bytes(100))
        assert wire.at_end()
    with (
        pytest.raises((ssl.SSLError, ConnectionError)),
        socket.create_connection((address.HOST, broker.port)) as plain,
    ):
        client_context(authority).wrap_socket(plain, server_hostname="localhost")


def test_a_stranger_is_refused(broker: TlsBroker, authority: trustme.CA, tmp_path: Path) -> None:
    context = client_context(authority)
    stranger = trustme.CA().issue_cert(common_name="app")
    stranger.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "stranger.pem"))
    context.load_cert_chain(tmp_path / "stranger.pem")
    with pytest.raises((ssl.SSLError, ConnectionError)), TlsWire(broker.tls_port, context) as wire:
        wire.open()


def unreadable_certificate(authority: trustme.CA, files: Path) -> Path:
    """Of the authority; its alternative name is no UTF-8, which OpenSSL lets through and Python cannot decode."""
    issuer = x509.load_pem_x509_certificate(authority.cert_pem.bytes())
    issuer_key = serialization.load_pem_private_key(authority.private_key_pem.bytes(), None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    name = b"\xff\xfe.example"
    alternative = bytes((0x30, 2 + len(name), 0x82, len(name))) + name
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "app")]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, alternative), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    path = files / "unreadable.pem"
    encoded = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(encoded + certificate.public_bytes(serialization.Encoding.PEM))
    return path


def test_a_certificate_that_cannot_be_read_names_nobody_and_hurts_nobody(
    broker: TlsBroker, authority: trustme.CA, tmp_path: Path
) -> None:
    context = client_context(authority)
    context.load_cert_chain(unreadable_certificate(authority, tmp_path))
    with Wire(broker.port, tls=False) as other:
        other.open()
        with TlsWire(broker.tls_port, context) as wire:
            wire.send_bytes(PROTOCOL_HEADER)
            assert "EXTERNAL" not in wire.read_method()[1].mechanisms.split()
        with TlsWire(broker.tls_port, context) as wire:
            wire.open()  # with a password
            wire.close()
        other.open_channel()


def test_a_flood_of_tiny_records_is_all_there_in_order(broker: TlsBroker, authority: trustme.CA) -> None:
    """More than one call of the stream decrypts, and a close behind it."""
    with TlsWire(broker.tls_port, client_context(authority)) as wire:
        wire.open()
        wire.open_channel()
        queue = wire.call(commands.Queue.Declare(exclusive=True), channel=1).queue
        wire.send(commands.Basic.Consume(queue=queue, no_ack=True), channel=1)
        wire.expect(commands.Basic.ConsumeOk)
        said = b"".join(publish_bytes(1, "", queue, b"%d" % n) for n in range(50))
        for at in range(len(said)):
            wire.send_bytes(said[at : at + 1])
        assert [wire.read_message()[1].body for _ in range(50)] == [b"%d" % n for n in range(50)]
        wire.close()
