"""A host and a port as one text: where a node listens for others, or is reached by them.

What comes in: `host:port`, as an operator writes it. What goes out: an `Endpoint`, or ValueError with a sentence that
says what is possible.
Rules: 1. An address of IPv6 is in brackets in the text, and without them in the value. 2. No port is assumed.
Not here: addresses of the metadata store (`store_address.py`), where clients connect (settings `bind` and `port`).
"""

from __future__ import annotations

import re
from typing import NamedTuple

FORM = "HOST:PORT, such as 10.0.0.1:5673, node1.example:5673 or [fd00::1]:5673"

_NAME, _IPV6 = r"(?P<name>[A-Za-z0-9_.-]+)", r"\[(?P<ipv6>[0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.-]+)?)\]"
_ENDPOINT = re.compile(rf"(?:{_NAME}|{_IPV6}):(?P<port>[0-9]{{1,5}})")
_EVERY_INTERFACE = re.compile(r"0+(\.0+){0,3}|[0:]+")


class Endpoint(NamedTuple):
    """A host and a port, where a connection goes to. `port` 0: the system chooses one, for the process that
    listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_every_interface(self) -> bool:
        """One can listen there, and nobody can connect to it."""
        return _EVERY_INTERFACE.fullmatch(self.host) is not None


def parse_endpoint(text: str) -> Endpoint:
    """Raises ValueError."""
    match = _ENDPOINT.fullmatch(text.strip())
    if match is None or int(match["port"]) > 65535:
        raise ValueError(f"must be {FORM}")
    return Endpoint(match["name"] or match["ipv6"], int(match["port"]))
