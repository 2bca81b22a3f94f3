"""What a single setting may be: checks of values, and the types that carry them.

What comes in: a value, as TOML, the environment or flags give it. What goes out: the value that counts, or ValueError
with what it must be.
Rules: 1. A text that goes behind the name of a setting: "must be ...". 2. What two settings together may not be is
not for here.
Not here: the settings (`config.py`), the whole sentence (`process/config_sources.py`).
"""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_settings import NoDecode

from amqpd.vocabulary.audit_levels import parse_level
from amqpd.vocabulary.endpoint import parse_endpoint
from amqpd.vocabulary.store_address import parse_store_address

# It is part of reply texts, which have 255 bytes.
NODE_NAME_MAX = 100
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": KIB, "MIB": MIB, "GIB": GIB, "TIB": 1 << 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE)


def parse_bytes(value: Any) -> Any:
    """A number of bytes from text such as "50MB" (10**6) or "128 MiB" (2**20); other values are returned as
    they are."""
    if isinstance(value, bool):
        raise ValueError("must be a number of bytes, not true or false")
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value.strip())
    if match is None or match[2].upper() not in _UNITS:
        raise ValueError("must be a number of bytes, or a size such as 50MB or 128MiB")
    return round(float(match[1]) * _UNITS[match[2].upper()])


def parse_watermark(value: Any) -> Any:
    """A float up to 1 is a fraction of the memory, everything above is bytes (an int)."""
    if isinstance(value, str):
        value = float(value) if re.fullmatch(r"\s*(0?\.\d+|1\.0*)\s*", value) else parse_bytes(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("must be a fraction such as 0.6, or a size such as 2GiB")
    if 0 < value <= 1:
        return float(value)
    # A broker with nothing in it takes some 95 MB; a limit near that would block publishers for ever.
    if value < 128 * MIB:
        raise ValueError("must be a fraction of the memory (more than 0, up to 1), or at least 128MiB")
    return int(value)


def split_commas(value: Any) -> Any:
    """A list from "a, b" (environment variables and flags have no lists); other values are returned as they
    are."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def refuse_long(value: str) -> str:
    """server-properties go out before frame_max is negotiated, so all of them together fit the smallest frame."""
    if len(value.encode("utf-8", "surrogateescape")) > 255 or not value.isprintable():
        raise ValueError("must be printable text of at most 255 bytes")
    return value


class ImpliedHost(str):
    """A node's name of which the host is this machine's, since nobody said it."""


def complete_node_name(value: str) -> str:
    """`name@host`; without a host, this machine's. The name goes into texts of at most 255 bytes and into names of
    files, so it is short, and without what has a meaning there."""
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*(@[A-Za-z0-9_.-]+)?", value) is None or len(value) > NODE_NAME_MAX:
        raise ValueError(
            f"must be a name such as amqpd, or name@host: letters, digits, '_', '.' and '-', at most {NODE_NAME_MAX}"
        )
    return value if "@" in value else ImpliedHost(f"{value}@{host_name()}")


def host_name() -> str:
    """This machine's, as far as it can be part of a node's name."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname()) or "localhost"


def require_store_address(value: str) -> str:
    if value:
        parse_store_address(value)
    return value


def require_level(value: str) -> str:
    return parse_level(value).text


def require_endpoint(value: str) -> str:
    """Normalised; empty stays empty."""
    return str(parse_endpoint(value)) if value else value


def require_reachable(value: str) -> str:
    """An endpoint that others can connect to."""
    if value and ((endpoint := parse_endpoint(value)).is_every_interface or not endpoint.port):
        raise ValueError("must be one address and port at which others reach this node")
    return require_endpoint(value)


def require_label(value: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9_.-]*", value) is None or len(value) > NODE_NAME_MAX:
        raise ValueError(f"must be of letters, digits, '_', '.' and '-', at most {NODE_NAME_MAX}")
    return value


def bare_host(value: str) -> str:
    """As names of hosts are compared: in lower case, without the dot that ends a complete one."""
    return value.lower().removesuffix(".")


def require_hosts(value: tuple[str, ...]) -> tuple[str, ...]:
    """Normalised."""
    for each in value:
        if re.fullmatch(r"(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?", each) is None:
            raise ValueError(f"must be names of hosts, without a port: {each!r} is none")
    return tuple(map(bare_host, value))


def require_http_url(value: str) -> str:
    """Empty, or http or https with a host."""
    try:
        parts = urlsplit(value)
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        right = False
    if value and not right:
        raise ValueError("must be a URL such as http://localhost:4318")
    return value


def require_odd(value: int) -> int:
    if value % 2 == 0:
        raise ValueError(f"must be odd: {value} copies outlive no more losses than {value - 1}")
    return value


def refuse_switch(value: Any) -> Any:
    """`port = true` would otherwise be port 1, because Python's True is a number."""
    if isinstance(value, bool):
        raise ValueError("must be a number, not true or false")
    return value


def refuse_empty(value: Any) -> Any:
    """Path("") is the current directory, which is never meant by it."""
    if isinstance(value, str) and not value.strip():
        raise ValueError("must not be empty")
    return value


Count = Annotated[int, BeforeValidator(refuse_switch)]
Seconds = Annotated[float, BeforeValidator(refuse_switch), Field(allow_inf_nan=False)]
Bytes = Annotated[int, BeforeValidator(parse_bytes)]
Port = Annotated[int, BeforeValidator(refuse_switch), Field(ge=0, le=65535)]
Watermark = Annotated[float | int, BeforeValidator(parse_watermark)]
Place = Annotated[Path, BeforeValidator(refuse_empty), AfterValidator(Path.expanduser)]
Places = Annotated[tuple[Place, ...], NoDecode, BeforeValidator(split_commas)]
ShortName = Annotated[str, AfterValidator(refuse_long)]
StoreUrl = Annotated[str, AfterValidator(require_store_address)]
NodeName = Annotated[str, AfterValidator(complete_node_name)]
Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(split_commas)]
Collector = Annotated[str, AfterValidator(require_http_url)]
Hosts = Annotated[Names, AfterValidator(require_hosts)]
Level = Annotated[str, AfterValidator(require_level)]
Listening = Annotated[str, AfterValidator(require_endpoint)]
Reachable = Annotated[str, AfterValidator(require_reachable)]
Label = Annotated[str, AfterValidator(require_label)]
