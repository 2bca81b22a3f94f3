"""Parts of a path as names.

What comes in: parts of a path as they were written. What goes out: names.
Rules: a part is decoded once, after the path was taken apart (`shield.py`).
"""

from __future__ import annotations

from typing import Annotated
from urllib.parse import unquote

from pydantic import BeforeValidator

DEFAULT_EXCHANGE = "amq.default"
"""the default exchange's name in a path, where it cannot be empty"""


def decoded(part: str) -> str:
    """What is no UTF-8 stays in bytes that nobody can use for a name."""
    return unquote(part, errors="surrogateescape")


def exchange_of(part: str) -> str:
    name = decoded(part)
    return "" if name == DEFAULT_EXCHANGE else name


Name = Annotated[str, BeforeValidator(decoded)]
ExchangeName = Annotated[str, BeforeValidator(exchange_of)]
