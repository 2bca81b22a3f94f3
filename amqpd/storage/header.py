"""The first bytes of a SQLite database: what is the same in every one of amqpd.

What comes in: a database's path. What goes out: what is wrong there.
Rules: the file alone is read, nothing is changed.
Not here: what follows (`amqpd.checking`, `topology/metadata/sqlite/database.py`).

Source: sqlite.org/fileformat2.html, 1.3.
"""

from __future__ import annotations

from pathlib import Path

HEADER_BYTES = 100
FIXED = {
    18: bytes((2, 2)),  # with a write-ahead log, to write and to read
    20: bytes((0, 64, 32, 32)),
    44: (4).to_bytes(4, "big"),  # format of the tables
    56: (1).to_bytes(4, "big"),  # UTF-8
    72: bytes(20),
}
VERSIONS_AT, VERSION_MAX = 18, 2
"""to write and to read, a byte each; a larger one to write makes SQLite open the file for reading only"""


def wrong_format(path: Path) -> str:
    """What is wrong in the bytes of the header that are the same in every database of amqpd: to read a file some of
    them do not matter, and then it cannot be written. Empty: nothing. Raises OSError."""
    with path.open("rb") as file:
        header = file.read(HEADER_BYTES)
    wrong = [at for at, octets in FIXED.items() if header[at : at + len(octets)] != octets]
    return f"its header is damaged (what it says at byte {wrong[0]} is in no database of amqpd)" if wrong else ""


def cannot_be_written(path: Path) -> bool:
    """By what its header says. Raises OSError."""
    with path.open("rb") as file:
        header = file.read(HEADER_BYTES)
    return any(version > VERSION_MAX for version in header[VERSIONS_AT : VERSIONS_AT + 2])
