"""Publishes with headers that are written by hand, for types that client libraries do not send."""

from __future__ import annotations

import struct

from amqpd.kernel import Run
from amqpd.kernel.rows import parse_row
from amqpd.message.propertylist import HEADERS
from amqpd.message.rewriting import readdressed, with_properties
from tests.harness.harness import publish_bytes


def run_of_table(entries: bytes, data: bytes = b"x") -> Run:
    """A publish with these entries of a header table."""
    raw = HEADERS.to_bytes(2, "big") + struct.pack(">I", len(entries)) + entries
    (run,) = parse_row(publish_bytes(data))
    return with_properties(run, raw)


def raw_publish(key: str, entries: bytes, exchange: str = "", data: bytes = b"x") -> bytes:
    """The frames of the same, for channel 1."""
    run = run_of_table(entries, data)
    return readdressed(run, exchange, key, run.properties).raw()
