"""TLS between nodes: contexts, names in certificates, and what goes wrong, in words with the way out.

What comes in: paths of the settings `cluster_tls_...`; what OpenSSL says of a handshake; words that are none of the
protocol. What goes out: a context for each end, or StartupError with the file that is wrong; a sentence for the
operator of two nodes.
Rules: 1. The authority is the cluster's own. Each end shows a certificate of it, which names its node: that is
compared when it is known which node is meant (`handshake.py`). Hosts are not compared: a node may move. 2. TLS 1.3
only: both ends are ours, and a connection never asks for new keys in between. 3. Files are read once, at the start.
4. What OpenSSL says stands behind the sentence in brackets, for who looks it up; what is not known here is said as
OpenSSL says it.
Not here: the bytes (`stream.py`), reasons that a node gives itself (`handshake.py`).
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from amqpd.errors import StartupError

NODE_URI = "amqpd:"
"""of a certificate's alternative names: the node's name follows"""
ONE_AUTHORITY = "all nodes of a cluster have certificates of one authority, and name that one in cluster_tls_ca"
NO_TLS_THERE = (
    "it speaks no TLS: cluster_tls_ca and cluster_tls_certificate are set on this node and not on that one, or it is "
    "another program"
)
ENDED = (
    "it ended the TLS handshake: maybe one of the two nodes was stopped or slow, or the connection broke; or "
    f"{NO_TLS_THERE}"
)
TLS_THERE = "it speaks TLS: cluster_tls_ca and cluster_tls_certificate are set on that node and not on this one"
SILENT = f"maybe {TLS_THERE}; or it is another program"
SAME_SECRET = "the file of cluster_secret_file is the same on all nodes"

# X509_V_ERR_... of openssl/x509_vfy.h: what is wrong with the certificate that the peer has shown.
_OF_PEER = {
    9: "its certificate is not valid yet: set the clocks of both machines",
    10: "its certificate has expired: make a new one for it",
    18: f"its certificate is of another authority than cluster_tls_ca here: {ONE_AUTHORITY}",
    19: f"its certificate is of another authority than cluster_tls_ca here: {ONE_AUTHORITY}",
    20: f"its certificate is of another authority than cluster_tls_ca here: {ONE_AUTHORITY}",
    21: f"its certificate is of another authority than cluster_tls_ca here: {ONE_AUTHORITY}",
}
_SIGN = (
    "have it signed by the authority in cluster_tls_ca, or put the certificate of its authority into that file, on "
    "all nodes"
)
# What is wrong with this node's own one, by the same numbers.
_OWN_WAYS_OUT = {9: "set this machine's clock", **dict.fromkeys((18, 19, 20, 21), _SIGN)}
# OpenSSL's names: what the peer says of what this node has shown, or what came instead of a handshake.
_OF_THIS = {
    "TLSV1_ALERT_UNKNOWN_CA": f"it takes this node's certificate for one of another authority: {ONE_AUTHORITY}",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it says that this node's certificate has expired: make a new one for it",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not take this node's certificate: set the clocks of both machines",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it shows no certificate: set cluster_tls_certificate there",
    "WRONG_VERSION_NUMBER": NO_TLS_THERE,
    "HTTP_REQUEST": NO_TLS_THERE,
    "RECORD_LAYER_FAILURE": NO_TLS_THERE,
    "PACKET_LENGTH_TOO_LONG": NO_TLS_THERE,
    "UNEXPECTED_EOF_WHILE_READING": ENDED,
    "UNSUPPORTED_PROTOCOL": "it speaks an older TLS than 1.3: is another program there?",
}
# The first two bytes of TLS, whichever record it is (RFC 8446 section 5.1).
_TLS_RECORDS = frozenset({20, 21, 22, 23})
_TLS_MAJOR = 3


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
    except ssl.SSLCertVerificationError as error:
        way_out = _OWN_WAYS_OUT.get(error.verify_code, "make another one for it")
        raise StartupError(
            f"cluster_tls_certificate: peers will refuse this node's own certificate, {certificate}: "
            f"{error.verify_message}: {way_out}"
        ) from None
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


def nodes_named(certificate: Mapping[str, Any]) -> list[str]:
    """Nodes that a certificate is of, in their order there: URIs among its subject's alternative names. So one node's
    certificate is not another one's, and what else is in it (hosts, a common name) does not matter."""
    names = certificate.get("subjectAltName", ())
    return [value.removeprefix(NODE_URI) for kind, value in names if kind == "URI" and value.startswith(NODE_URI)]


def of_tls(error: OSError | ValueError) -> str:
    """Of a handshake, or of what came instead of the first bytes behind it."""
    said = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error) or type(error).__name__
    words = None
    if isinstance(error, ssl.SSLCertVerificationError):
        words, said = _OF_PEER.get(error.verify_code, "its certificate is not taken"), error.verify_message
    elif isinstance(error, ssl.SSLError):
        words = _OF_THIS.get(getattr(error, "reason", ""))
    elif isinstance(error, ConnectionError):
        words = _OF_THIS["UNEXPECTED_EOF_WHILE_READING"]
    return f"no TLS: {said}" if words is None else f"{words} ({said})"


def is_tls(received: bytes) -> bool:
    """What came first, where the protocol's own words were to come."""
    return len(received) >= 2 and received[0] in _TLS_RECORDS and received[1] == _TLS_MAJOR


def reason_of(error: Exception) -> str:
    """For the log."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the peer's certificate: {error.verify_message}"
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error) or type(error).__name__
