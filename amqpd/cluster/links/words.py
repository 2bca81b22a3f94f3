"""What stands in the way of a link, in words for the operator of two nodes, with the way out.

What comes in: what OpenSSL says of a handshake; words that are none of the protocol. What goes out: a sentence.
Rules: 1. What OpenSSL says stands behind it in brackets, for who looks it up. 2. What is not known here is said as
OpenSSL says it.
Not here: reasons that a node gives itself (`handshake.py`), the log (`dialing.py`, `accepting.py`).
"""

from __future__ import annotations

import ssl

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
