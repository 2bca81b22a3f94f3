"""What nodes of a cluster prove to each other who they are with: certificates, a shared secret, or neither.

What comes in: the contexts of TLS, the secret. What goes out: proofs, and keys.
Rules: 1. A certificate names the nodes that may show it (`tls.nodes_named`). 2. A proof is a digest of all that was
said over the connection, for which each end draws a number: what was heard on another connection proves nothing. 3.
Each direction of each connection has a key of its own. 4. With neither, everybody who reaches the port is believed:
then only loopback is listened on and dialed. 5. The secret is in no text.
Not here: what is said in which order (`handshake.py`), files of certificates (`tls.py`).
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field

from amqpd.peers.links.framing import Check, Crc, Mac
from amqpd.peers.links.tls import LinkTls

SECRET_BYTES_MIN = 16
BOTH_WAYS_OUT = "set cluster_tls_ca and cluster_tls_certificate, or cluster_secret_file"
DIALER, ACCEPTOR = b"dialer", b"acceptor"


@dataclass(frozen=True, slots=True)
class Trust:
    """The certificates and the secret by which one node trusts its peers; where both are given, a peer needs both."""

    tls: LinkTls | None = None
    secret: bytes = field(default=b"", repr=False)

    @property
    def is_loopback_only(self) -> bool:
        """A peer proves nothing."""
        return self.tls is None and not self.secret

    def proof(self, end: bytes, said: bytes) -> bytes:
        """Of this end. `said`: a digest of all that was. Empty without a secret."""
        return self._digest(b"proof", end, said)

    def is_proven(self, digest: bytes, end: bytes, said: bytes) -> bool:
        """By the peer, which is this end."""
        return hmac.compare_digest(digest, self.proof(end, said))

    def check(self, end: bytes, said: bytes) -> Check:
        """Of what this end sends from now on."""
        return Mac(self._digest(b"key", end, said)) if self.secret else Crc()

    def _digest(self, purpose: bytes, end: bytes, said: bytes) -> bytes:
        if not self.secret:
            return b""
        return hmac.digest(self.secret, b"amqpd link\0" + purpose + b"\0" + end + b"\0" + said, "sha256")
