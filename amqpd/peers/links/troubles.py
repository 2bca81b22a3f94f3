"""Why there is no link to a peer: kinds, for those who decide, and a reason, for people.

What comes in: nothing. What goes out: a value.
Rules: 1. What is refused is told from what is not reached: the first needs another configuration, the second a
network. 2. A secret and a certificate stay what they are until a process is started again; any other reason may pass
by itself.
Not here: which failure has which kind (`stream.py`, `handshake.py`), who is told, and the sentences of
a cluster (`amqpd/cluster/linkage.py`).
"""

from __future__ import annotations

from typing import NamedTuple

SECRET, CERTIFICATE, REFUSED, UNREACHED = "secret", "certificate", "refused", "unreached"
CHANGED = "changed"
"""There are links, and each one ends since what comes over it is not what was sent."""
LASTING = frozenset((SECRET, CERTIFICATE))
REFUSALS = frozenset((SECRET, CERTIFICATE, REFUSED))

NETWORK_CHANGES = "look at the network between them: something on the way changes what passes"
"""What to do about that, for an operator."""


class Trouble(NamedTuple):
    """The reason why there is no link to one peer: a kind for programs, a text for people."""

    kind: str
    reason: str
