"""Where a node listens for the others of its cluster, where they reach it, and how they prove who they are.

What comes in: settings. What goes out: bound sockets, an address, what links trust; or StartupError.
Rules: 1. A port is bound before anything is done to the data directory. 2. Without certificates and without a secret
only loopback is listened on. 3. A secret, or a key, that others can read is none; a secret is in no text.
Not here: connections (`links/`).
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import NamedTuple

import structlog

from amqpd.config import Settings
from amqpd.errors import StartupError
from amqpd.peers.links.sockets import bind, is_loopback
from amqpd.peers.links.tls import LinkTls, link_tls, require_own_name
from amqpd.peers.links.trust import BOTH_WAYS_OUT, SECRET_BYTES_MIN, Trust
from amqpd.storage.files import exposed
from amqpd.vocabulary.endpoint import Endpoint, parse_endpoint

SECRET_BYTES_MAX = 4096

log = structlog.get_logger(component="cluster")


class Place(NamedTuple):
    """The listening sockets of this node for its peers, bound and not listening yet; its address; what its links
    trust."""

    listeners: list[socket.socket]
    reached_at: Endpoint
    trust: Trust


def place_of(settings: Settings) -> Place | None:
    """None: it is in no cluster. Raises StartupError."""
    reached_at = settings.cluster_address
    if reached_at is None:
        return None
    trust = Trust(_tls(settings), _secret(settings))
    listeners = bind([parse_endpoint(settings.cluster_listen)])
    if trust.is_loopback_only:
        others = [where for each in listeners if not is_loopback(where := each.getsockname())]
        if others:
            for each in listeners:
                each.close()
            raise StartupError(
                f"cluster_listen: on {others[0][0]} everybody could pretend to be a node: {BOTH_WAYS_OUT}, "
                "or listen on 127.0.0.1 if all nodes are on this machine"
            )
        log.warning(
            "links between nodes prove nothing: every process of this machine is believed", ways=BOTH_WAYS_OUT
        )
    if not reached_at.port:
        reached_at = Endpoint(reached_at.host, listeners[0].getsockname()[1])
    return Place(listeners, reached_at, trust)


def require_own_certificate(place: Place, settings: Settings) -> None:
    """It is this node's, by the name that the data directory keeps. Raises StartupError."""
    if place.trust.tls is not None and settings.cluster_tls_certificate is not None:
        require_own_name(place.trust.tls, settings.node_name, settings.cluster_tls_certificate)


def _tls(settings: Settings) -> LinkTls | None:
    if settings.cluster_tls_ca is None or settings.cluster_tls_certificate is None:
        return None
    tls = link_tls(settings.cluster_tls_ca, settings.cluster_tls_certificate, settings.cluster_tls_key)
    key = settings.cluster_tls_key or settings.cluster_tls_certificate
    if who := exposed(key):
        name = "cluster_tls_key" if settings.cluster_tls_key else "cluster_tls_certificate, which has the key"
        raise StartupError(f"{name}: {who}: chmod 600 it; who has read it can be this node, so make a new one")
    return tls


def _secret(settings: Settings) -> bytes:
    """Empty: there is none."""
    path = settings.cluster_secret_file
    secret = settings.cluster_secret.get_secret_value().strip().encode()
    name = "cluster_secret"
    if path is not None:
        name, secret = f"cluster_secret_file: {path}", _read(path)
    if (path is not None or secret) and not SECRET_BYTES_MIN <= len(secret) <= SECRET_BYTES_MAX:
        raise StartupError(
            f"{name} has {len(secret)} bytes, and is to have {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX}: "
            "make one with openssl rand -base64 32"
        )
    return secret


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            who = exposed(path)
            secret = file.read(SECRET_BYTES_MAX + 2).strip()
    except OSError as error:
        raise StartupError(f"cluster_secret_file: cannot read {path}: {error.strerror}") from None
    if who:
        raise StartupError(f"cluster_secret_file: {who}: chmod 600 it, or give the secret in AMQPD_CLUSTER_SECRET")
    return secret
