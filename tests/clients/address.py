"""Over which address the clients of a test run speak to the brokers that it starts, and whether through TLS.

What comes in: AMQPD_TEST_HOST (127.0.0.1, ::1, ::ffff:127.0.0.1), AMQPD_TEST_TLS (1: the clients speak TLS).
What goes out: sockets and URLs for a port; settings of a broker; the name that a broker gives a connection.
Rules: 1. The default is 127.0.0.1 without TLS. 2. What the sockets module says of an address is formatted here again,
and not by the broker's own function: a test compares the two.
Not here: tests of TLS itself (`test_tls_connections.py`).
"""

from __future__ import annotations

import functools
import ipaddress
import os
import socket
import ssl
import tempfile
from pathlib import Path
from typing import Any

import trustme

HOSTS = ("127.0.0.1", "::1", "::ffff:127.0.0.1")
HOST = os.environ.get("AMQPD_TEST_HOST") or "127.0.0.1"
TLS = os.environ.get("AMQPD_TEST_TLS", "") == "1"
assert HOST in HOSTS, f"AMQPD_TEST_HOST is {HOST!r}, not one of {HOSTS}"


def issue(authority: trustme.CA) -> trustme.LeafCert:
    """A server's certificate that is valid for every one of HOSTS. A client checks the address as it wrote it."""
    return authority.issue_cert("localhost", *HOSTS)


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    """For clients that trust that authority."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def url(port: int, host: str = "", tls: bool = TLS) -> str:
    """Of the broker there; of the run's address unless `host` says another."""
    host = host or HOST
    inside = f"[{host}]" if ":" in host else host
    return f"{'amqps' if tls else 'amqp'}://guest:guest@{inside}:{port}/%2F"


def connect(port: int, timeout_s: float, host: str = "", tls: bool = TLS) -> socket.socket:
    """A socket to a broker of this run, after the TLS handshake if there is one."""
    plain = socket.create_connection((host or HOST, port), timeout=timeout_s)
    if not tls:
        return plain
    context = ssl.create_default_context()
    return context.wrap_socket(plain, server_hostname=host or HOST, suppress_ragged_eofs=False)


def connection_name(client: socket.socket) -> str:
    """What RabbitMQ calls the connection of that socket: `[::1]:4711 -> [::1]:5672`."""
    return f"{address_text(client.getsockname())} -> {address_text(client.getpeername())}"


def address_text(address: tuple[Any, ...]) -> str:
    """host:port, an IPv6 host in brackets, an IPv4-mapped one as the IPv4 address."""
    host = ipaddress.ip_address(address[0])
    mapped = getattr(host, "ipv4_mapped", None)
    if host.version == 4 or mapped:
        return f"{mapped or host}:{address[1]}"
    return f"[{host}]:{address[1]}"


def client_host(host: str = HOST) -> str:
    """The host of a client's address, as a broker names it: of an IPv4-mapped one the IPv4 address."""
    return address_text((host, 0)).rpartition(":")[0].strip("[]")


@functools.cache
def tls_settings() -> dict[str, str]:
    """Certificate and key for brokers of this run, as settings. Clients of this process trust their authority from
    now on: `ssl.create_default_context` reads SSL_CERT_FILE."""
    files = Path(tempfile.mkdtemp(prefix="amqpd-test-tls-"))
    authority = trustme.CA()
    issue(authority).private_key_and_cert_chain_pem.write_to_path(str(files / "server.pem"))
    authority.cert_pem.write_to_path(str(files / "authority.pem"))
    os.environ["SSL_CERT_FILE"] = str(files / "authority.pem")
    return {"AMQPD_TLS_CERTIFICATE": str(files / "server.pem")}
