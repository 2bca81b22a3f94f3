"""Where the node listens, and which types of exchanges it has, in RabbitMQ's fields.

What comes in: addresses. What goes out: rows.
Rules: `contexts` has the port as a text, as in RabbitMQ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from amqpd.exchanges import EXCHANGE_TYPES

Row = dict[str, Any]

DESCRIPTIONS = {
    "direct": "AMQP direct exchange, as per the AMQP specification",
    "fanout": "AMQP fanout exchange, as per the AMQP specification",
    "headers": "AMQP headers exchange, as per the AMQP specification",
    "topic": "AMQP topic exchange, as per the AMQP specification",
    "x-consistent-hash": "Consistent Hashing Exchange",
    "x-delayed-message": "Delayed Message Exchange.",
    "x-local-random": "Picks one random local binding (queue) to route via (to).",
    "x-modulus-hash": "Modulus Hashing Exchange",
    "x-random": "Randomly picks a binding (queue) to route via (to).",
    "x-recent-history": "Recent History Exchange.",
}
"""RabbitMQ's, because tools show them"""


def exchange_types() -> list[Row]:
    return [
        {"name": name, "description": DESCRIPTIONS.get(name, ""), "enabled": True} for name in sorted(EXCHANGE_TYPES)
    ]


def listeners(node: str, amqp: Sequence[tuple[str, int, bool]], http: Sequence[str]) -> list[Row]:
    """`http`: as URLs."""
    found = [("amqp/ssl" if tls else "amqp", host, port, tls) for host, port, tls in amqp]
    found += [(each.scheme, *_of(each.netloc), each.scheme == "https") for each in map(urlsplit, http)]
    names = ("protocol", "ip_address", "port", "tls")
    return [{"node": node, **dict(zip(names, each, strict=True))} for each in found]


def contexts(http: Sequence[str], node: str | None = None) -> list[Row]:
    """Of this API. With `node`, each row names it."""
    named = {} if node is None else {"node": node}
    rows = []
    for each in map(urlsplit, http):
        host, port = _of(each.netloc)
        rows.append({**named, "description": "amqpd management API", "path": "/", "ip": host, "port": str(port)})
    return rows


def _of(netloc: str) -> tuple[str, int]:
    host, _, port = netloc.rpartition(":")
    return host.strip("[]"), int(port)
