"""Where a metadata store over a network is: the text of the setting `cluster_store`.

What comes in: `etcd://host:port,host:port/name`, as an operator writes it. What goes out: a `StoreAddress`, or
ValueError with a sentence that says what is possible.
Rules: 1. `etcds` is with TLS. A port that is not named is etcd's, an address of IPv6 is in brackets. 2. A password
has no place in it: it would be in process lists and logs. 3. The name keeps several clusters of amqpd apart in one
etcd.
Not here: reaching it (`topology/metadata/etcd/gateway.py`).
"""

from __future__ import annotations

import re
from typing import NamedTuple

# What IANA registered for etcd's clients.
PORT = 2379
DEFAULT_NAME = "amqpd"

_ADDRESS = re.compile(r"(?P<scheme>etcds?)://(?P<hosts>[^/]+)(?:/(?P<name>[A-Za-z0-9_.-]+))?/?")
_HOST = re.compile(r"(?P<host>[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?")
FORM = "etcd://HOST[:PORT],HOST[:PORT]... or etcds://... for TLS, and maybe /NAME behind it"


class StoreAddress(NamedTuple):
    """The address of a metadata store over a network. `endpoints`: `host:port` each, in the order in which they
    were named."""

    endpoints: tuple[str, ...]
    tls: bool
    name: str


def parse_store_address(text: str) -> StoreAddress:
    """Raises ValueError."""
    match = _ADDRESS.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"must be {FORM}")
    if "@" in match["hosts"]:
        raise ValueError(f"must be {FORM}; user and password are cluster_store_user and cluster_store_password")
    endpoints = tuple(_endpoint(part.strip()) for part in match["hosts"].split(","))
    if len(set(endpoints)) != len(endpoints):
        raise ValueError("names one host and port twice")
    return StoreAddress(endpoints, match["scheme"] == "etcds", match["name"] or DEFAULT_NAME)


def _endpoint(part: str) -> str:
    match = _HOST.fullmatch(part)
    if match is None:
        raise ValueError(f"must be {FORM}; {part!r} is no host")
    port = int(match["port"] or PORT)
    if not 0 < port < 65536:
        raise ValueError(f"must be {FORM}; {port} is no port")
    return f"{match['host']}:{port}"
