"""What a publisher's properties say, where they alone tell whether it can be so.

What comes in: an expiration, a table of headers. What goes out: the routing keys in CC and BCC; the text of the error
for what RabbitMQ refuses, or None.
Rules: texts are RabbitMQ's, Erlang terms and all: libraries and tests compare them.
Not here: claims that depend on the publishing user (`publishing/publish.py`).

Source: https://www.rabbitmq.com/docs/sender-selected, https://www.rabbitmq.com/docs/ttl; rabbit_basic.erl,
`header_routes` and `parse_expiration`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from amqpd.wire.values import field_type

CC, BCC = "CC", "BCC"
# Ten years in milliseconds: RabbitMQ's bound on times.
EXPIRATION_MS_MAX = 315_360_000_000
# Of a short string, which a routing key is (AMQP 0-9-1 section 4.2.5.3). RabbitMQ takes longer ones here; what looks
# at routing keys (patterns of topics and permissions, caches) would have to be bounded otherwise.
KEY_BYTES_MAX = 255
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)


def routing_keys(headers: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """The texts in the array of this header; nothing when it is absent or no array."""
    keys = headers.get(name)
    if not isinstance(keys, list):
        return ()
    texts = [key for key in keys if isinstance(key, str)]
    if len(texts) < len(keys):
        kinds = (str, bytes)
        texts = [
            key if isinstance(key, str) else key.decode("utf-8", "surrogateescape")
            for key in keys
            if isinstance(key, kinds)
        ]
    return tuple(texts)


def header_problem(headers: Mapping[str, Any]) -> str | None:
    for name in (CC, BCC):
        if name not in headers:
            continue
        if not isinstance(headers[name], list):
            return f'invalid message: {{unacceptable_type_in_header,"{name}",{field_type(headers[name])}}}'
        # Of the long ones alone it is to be found out how long they are on the wire: there may be twenty thousand.
        long = [key for key in routing_keys(headers, name) if len(key) > KEY_BYTES_MAX // 4]
        if any(len(key.encode("utf-8", "surrogateescape")) > KEY_BYTES_MAX for key in long):
            return f"invalid message: a routing key in {name} is longer than {KEY_BYTES_MAX} bytes"
    return None


def expiration_problem(expiration: str) -> str | None:
    number = _INTEGER.match(expiration)
    if number is None:
        reason = "no_integer"
    elif number.end() < len(expiration):
        end = number.end()
        reason = f'{{leftover_string,"{expiration[end:]}"}}'
    else:
        # The whole is at most 255 octets, so the conversion is short.
        value = int(expiration)
        if value < 0:
            reason = f"{{value_negative,{value}}}"
        elif value > EXPIRATION_MS_MAX:
            reason = f"{{value_too_large,{value}}}"
        else:
            return None
    return f"invalid expiration '{expiration}': {reason}"
