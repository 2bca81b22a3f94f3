"""Paths, and their parts as names.

What comes in: paths as they were written, and parts of them. What goes out: paths that routes know; names.
Rules: 1. A part is decoded once, after the path was taken apart (`shield.py`). 2. One slash at the end says nothing:
clients' libraries add it. 3. An empty part in the middle is a name, that of the default exchange in most cases; as
routes take no empty part, `EMPTY` stands for it.

Source for 2 and 3: what RabbitMQ 3.10 answers.
"""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import quote, unquote

from pydantic import BeforeValidator

DEFAULT_EXCHANGE = "amq.default"
"""the default exchange's name in a path, where it cannot be empty"""

PRINTED = "".join(map(chr, range(0x21, 0x7F)))
"""stays as it is written in a path; another octet is one of a name, as if it were escaped"""

EMPTY = "\ud800"
"""an empty part: half a surrogate pair that neither comes in a request nor out of `decoded`"""


# In front of the path, as clients behind a proxy write it (RFC 9112, 3.2.2): whose it is says the header Host.
_ORIGIN = re.compile(rb"\Ahttps?://[^/?#]*(?=/)", re.IGNORECASE)


# Not escaped: two readers would take it for two names.
_NOT_ESCAPED = re.compile(rb"%(?![0-9A-Fa-f]{2})")


def is_escaped(written: bytes) -> bool:
    """Whether each percent sign of a path begins an octet in two hexadecimal digits (RFC 3986, 2.1)."""
    return _NOT_ESCAPED.search(written) is None


def routed(written: bytes) -> str:
    """The path of a request as routes know it."""
    path = quote(_ORIGIN.sub(b"", written), safe=PRINTED)
    first, *parts = path.split("/")
    if len(parts) > 1 and not parts[-1]:
        parts.pop()
    return "/".join([first, *(part or EMPTY for part in parts)]) if any(parts) else path


def decoded(part: str) -> str:
    """What is no UTF-8 stays in bytes that nobody can use for a name."""
    return "" if part == EMPTY else unquote(part, errors="surrogateescape")


def exchange_of(part: str) -> str:
    name = decoded(part)
    return "" if name == DEFAULT_EXCHANGE else name


Name = Annotated[str, BeforeValidator(decoded)]
ExchangeName = Annotated[str, BeforeValidator(exchange_of)]
