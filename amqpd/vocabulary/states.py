"""What a connection is waiting for, and what is known of its other end.

Not here: what happens in each state (`connection.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

TLS_FIELDS = (
    "ssl_protocol",
    "ssl_key_exchange",
    "ssl_cipher",
    "ssl_hash",
    "peer_cert_subject",
    "peer_cert_issuer",
    "peer_cert_serial_number",
    "peer_cert_validity",
)
"""what is told of TLS, by RabbitMQ's names"""


class ConnectionState(Enum):
    """The state of a connection: what it waits for. HEADER -> HANDSHAKE -> RUNNING -> CLOSING or LINGERING ->
    CLOSED; each may go to CLOSED at once. In LINGERING and CLOSED the node does not know the connection any more."""

    HEADER = "protocol header"
    HANDSHAKE = "handshake"
    RUNNING = "running"
    CLOSING = "close-ok"
    LINGERING = "the client to end the stream"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class PeerAddress:
    """The other end: `name` as RabbitMQ writes it ("127.0.0.1:4711 -> 127.0.0.1:5672")."""

    name: str
    loopback: bool
    tls: bool = False
    certificate_user: str | None = None
    """the user that a verified client certificate names"""
    facts: Mapping[str, str | None] = field(default_factory=dict)
    """by the names in `TLS_FIELDS`; of those there is None where there is nothing to say; empty without TLS"""
