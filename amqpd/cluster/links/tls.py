"""Mutual TLS between forwarders: the contexts from three files.

What comes in: paths of the settings `cluster_tls_...`. What goes out: a context for each end, or StartupError with
the file that is wrong.
Rules: 1. The authority is the cluster's own: who has a certificate of it is a member. 2. Each end shows its
certificate, and the one that dials checks that it is for the host that it dialed. 3. TLS 1.3 only: both ends are
ours, and a connection never asks for new keys in between. 4. Files are read once, at the start.
Not here: the bytes (`stream.py`), the cluster's name (`handshake.py`).
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NamedTuple

from amqpd.cluster.links.stream import reason_of
from amqpd.errors import StartupError


class LinkTls(NamedTuple):
    """The contexts of the two ends."""

    accepting: ssl.SSLContext
    dialing: ssl.SSLContext


def link_tls(ca: Path, certificate: Path, key: Path | None = None) -> LinkTls:
    """`key`: None if it is in the file of the certificate. Raises StartupError."""
    ends = LinkTls(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    for context in ends:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(cafile=ca)
        except OSError as error:
            raise StartupError(f"cluster_tls_ca: cannot use {ca}: {reason_of(error)}") from None
        try:
            # A key with a passphrase is refused: a broker has no terminal to ask at.
            context.load_cert_chain(certificate, key, password=lambda: "")
        except (OSError, ValueError) as error:
            raise StartupError(
                f"cluster_tls_certificate: cannot use {certificate} with the key in {key or certificate}: "
                f"{reason_of(error)}"
            ) from None
    return ends
