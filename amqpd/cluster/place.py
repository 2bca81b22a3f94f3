"""Where a node listens for the others of its cluster, and where they reach it.

What comes in: settings. What goes out: bound sockets, an address, TLS.
Rules: 1. A port is bound before anything is done to the data directory.
Not here: connections (`links/`).
"""

from __future__ import annotations

import socket
from typing import NamedTuple

from amqpd.cluster.links.sockets import bind
from amqpd.cluster.links.tls import LinkTls, link_tls
from amqpd.config import Settings
from amqpd.vocabulary.endpoint import Endpoint, parse_endpoint


class Place(NamedTuple):
    """Where this node listens for others; bound, and not listening yet."""

    listeners: list[socket.socket]
    reached_at: Endpoint
    tls: LinkTls | None


def place_of(settings: Settings) -> Place | None:
    """None: it is in no cluster. Raises StartupError."""
    reached_at = settings.cluster_address
    if reached_at is None:
        return None
    tls = None
    if settings.cluster_tls_ca is not None and settings.cluster_tls_certificate is not None:
        tls = link_tls(settings.cluster_tls_ca, settings.cluster_tls_certificate, settings.cluster_tls_key)
    listeners = bind([parse_endpoint(settings.cluster_listen)])
    if not reached_at.port:
        reached_at = Endpoint(reached_at.host, listeners[0].getsockname()[1])
    return Place(listeners, reached_at, tls)
