"""Mutual TLS between forwarders: the contexts from three files.

What comes in: paths of the settings `cluster_tls_...`. What goes out: a context for each end, or StartupError with
the file that is wrong.
Rules: 1. The authority is the cluster's own. Each end shows a certificate of it, which names its node
(`certificates.py`): that is compared when it is known which node is meant (`handshake.py`). Hosts are not compared: a
node may move. 2. TLS 1.3 only: both ends are ours, and a connection never asks for new keys in between. 3. Files are
read once, at the start.
Not here: the bytes (`stream.py`).
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NamedTuple

from amqpd.cluster.links.certificates import NODE_URI, nodes_named
from amqpd.cluster.links.stream import reason_of
from amqpd.errors import StartupError


class LinkTls(NamedTuple):
    """The contexts of the two ends."""

    accepting: ssl.SSLContext
    dialing: ssl.SSLContext


def link_tls(ca: Path, certificate: Path, key: Path | None = None) -> LinkTls:
    """`key`: None if it is in the file of the certificate. Raises StartupError."""
    ends = LinkTls(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    ends.dialing.check_hostname = False
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


def require_own_name(tls: LinkTls, name: str, certificate: Path) -> None:
    """Peers will take the certificate for this node: it is shown to itself, in memory. Raises StartupError."""
    to_dialer, to_acceptor = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        tls.dialing.wrap_bio(to_dialer, to_acceptor),
        tls.accepting.wrap_bio(to_acceptor, to_dialer, server_side=True),
    )
    waits = [True, True]
    try:
        for _ in range(4):  # two flights each way, and one more
            for at, end in enumerate(ends):
                waits[at] = _waits(end)
        named = nodes_named(ends[1].getpeercert() or {})
    except (OSError, ValueError) as error:
        raise StartupError(f"cluster_tls_certificate: peers will refuse {certificate}: {reason_of(error)}") from None
    if any(waits) or name not in named:
        raise StartupError(
            f"cluster_tls_certificate: {certificate} does not name this node: it needs the alternative name "
            f"URI:{NODE_URI}{name}; docs/clustering.md has the commands"
        )


def _waits(end: ssl.SSLObject) -> bool:
    """For the other end."""
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return True
    return False
