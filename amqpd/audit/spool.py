"""What gathers for the spool's file: records of one width, the names that they refer to, acts.

What comes in: events. What goes out: blocks of bytes, one for each write.
Rules: 1. A record is RECORD.size bytes and describes a stretch of messages, so recording costs per stretch. 2. A name
(publisher, consumer, queue) is written once in each file, before the first record that refers to
it, and is a number after that. 3. A block is whole or it is not there: it has its length and its checksum in front.
4. What waits grows only until it is `urgent`.
Not here: what is recorded (`recorder.py`, `book.py`), files (`files/writer.py`), reading them (`files/parquet.py`).
"""

from __future__ import annotations

from json import JSONEncoder
from struct import Struct
from typing import Any, Final
from zlib import crc32

RECORD: Final = Struct("<QQQQIIIIIBBH")
"""time (us since the epoch), first, publication, confirm tag; count, body bytes, name, queue, text (STANDING's
anchors: stretches that follow); kind, flags, channel"""
BLOCK: Final = Struct("<IIIIQI")
"""BLOCK_MAGIC; bytes of records, names, acts; rows before it in this incarnation; checksum of what is before it and
behind it"""
HEAD: Final = Struct("<IIIIQ")
"""what of it is before the checksum"""
BLOCK_MAGIC: Final = 0x61755632
BLOCK_MAGIC_1: Final = 0x61755631
"""as earlier versions wrote it: their checksum was of what is behind it only"""
# A tick with more than this is rare; its memory is given back.
KEPT_BYTES_MAX: Final = 1 << 20

_CHECKSUM: Final = Struct("<I")
_RECORD_BYTES: Final = RECORD.size
_encode = JSONEncoder(separators=(",", ":"), check_circular=False).encode


class SpoolBuffer:
    """The records that gather for the spool's file. `rows` counts the log's rows since the start of the
    incarnation; the next row has the number after it."""

    def __init__(self) -> None:
        self.rows = 0
        self.pending = False
        self.urgent = False
        """what waits is to be written before anything of it is sent, or committed"""
        self.generation = 1
        """of the file: what was named in an earlier one has to be named again"""
        self._records = bytearray(256 * _RECORD_BYTES)
        self._used = 0
        self.rows_before = 0
        """what waits comes behind this row; so does a block that could not be written"""
        self._names: list[str] = []
        self._acts: list[str] = []
        self._named = 0
        self._pack = RECORD.pack_into

    def put(
        self,
        kind: int,
        flags: int,
        rows: int,
        time_us: int,
        first: int,
        count: int,
        name: int = 0,
        queue: int = 0,
        publication: int = 0,
        tag: int = 0,
        body_bytes: int = 0,
        text: int = 0,
        channel: int = 0,
    ) -> None:
        """A record, of which `rows` rows are made."""
        used = self._used
        if used == len(self._records):
            self._records += bytes(used)
            self.urgent = True
        # fmt: off
        self._pack(self._records, used, time_us, first, publication, tag, count, body_bytes, name, queue, text, kind,
                   flags, channel)
        # fmt: on
        self._used = used + _RECORD_BYTES
        self.rows += rows
        self.pending = True

    def name(self, columns: dict[str, Any]) -> int:
        """A number for these columns, until the generation changes."""
        self._named += 1
        self._names.append(_encode([self._named, columns]))
        return self._named

    def act(self, columns: dict[str, Any]) -> None:
        """A row of its own, which is in its place by its number."""
        self.rows += 1
        self._acts.append(_encode({**columns, "number": self.rows}))
        self.pending = self.urgent = True

    def take(self) -> bytes:
        """The block of all that waits."""
        names, acts = self._names, self._acts
        records = bytes(memoryview(self._records)[: self._used])
        if not (names or acts):
            head = HEAD.pack(BLOCK_MAGIC, len(records), 0, 0, self.rows_before)
            block = b"".join((head, _CHECKSUM.pack(crc32(records, crc32(head))), records))
        else:
            named, acted = "\n".join(names).encode(), "\n".join(acts).encode()
            body = b"".join((records, named, acted))
            head = HEAD.pack(BLOCK_MAGIC, len(records), len(named), len(acted), self.rows_before)
            block = b"".join((head, _CHECKSUM.pack(crc32(body, crc32(head))), body))
        self._clear()
        return block

    def drop(self) -> None:
        """Forget what waits: there is no space for it."""
        self._clear()
        self.generation += 1

    def begin_file(self) -> None:
        """Names have to be said again. Call it when nothing waits."""
        assert not self.pending
        self.generation += 1
        self._named = 0

    def _clear(self) -> None:
        if len(self._records) > KEPT_BYTES_MAX:
            self._records = bytearray(256 * _RECORD_BYTES)
        self._used = 0
        self.rows_before = self.rows
        if self._names or self._acts:
            self._names, self._acts = [], []
        self.pending = self.urgent = False
