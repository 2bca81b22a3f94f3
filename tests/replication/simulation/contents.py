"""What an entry has, as the law and the simulated disk read it: messages by number, and ranges that are settled.

Each source has one queue, of the same number. A message is eight digits, in frames of one size.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

from amqpd.journal.records import Row, SourceEntry
from amqpd.kernel import Run, scan_publishes
from tests.harness.harness import publish_bytes
from tests.journal.payloads import entry_of

_model = publish_bytes(b"00000000")
_begins = _model.index(b"00000000")
_ends = _begins + 8
FRAMES_BYTES = len(_model)
_scanned = scan_publishes(_model, 0, FRAMES_BYTES, FRAMES_BYTES)
assert _scanned is not None
_shape = (_scanned.method_size, _scanned.header_size, _scanned.body_size, _scanned.body_frames)


class Content(NamedTuple):
    """Of one entry."""

    rows: tuple[tuple[int, bytes], ...]
    """number and value of each message"""
    settled: tuple[tuple[int, int], ...]
    reserved: int

    def numbers(self) -> Iterator[int]:
        """Those that are settled."""
        for first, last in self.settled:
            yield from range(first, last + 1)


Read = Callable[[bytes], Content]


def run_of(value: int) -> Run:
    return Run(_model[:_begins] + b"%08d" % value + _model[_ends:], 0, FRAMES_BYTES, 1, *_shape)


def values_of(row: Row) -> list[bytes]:
    return [row.data[at + _begins : at + _ends] for at in range(0, len(row.data), FRAMES_BYTES)]


def content_of(entry: SourceEntry) -> Content:
    """Of an entry with joined rows."""
    rows = tuple((row.first_seq + at, value) for row in entry.rows for at, value in enumerate(values_of(row)))
    return Content(rows, tuple((each.first_seq, each.last_seq) for each in entry.settled), entry.reserved)


def short(entry: SourceEntry) -> bytes:
    """A payload with what a simulation has, in place of the journal's own: for runs that are to be many."""
    for row in entry.rows:
        row.join()
    return marshal.dumps(tuple(content_of(entry)))


@cache
def read_short(payload: bytes) -> Content:
    """Each forwarder reads it, several times."""
    return Content(*marshal.loads(payload))


def read_real(payload: bytes) -> Content:
    return content_of(entry_of(payload))
