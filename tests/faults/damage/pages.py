"""Where things are in the files of SQLite: each field of each record, page headers, cell pointers, frames of a
WAL.

What comes in: a database and its WAL, at rest. What goes out: for each of the two files, name -> places. A name
is as `settled.first_seq`, `page.type`, `frame.salt1`; a place is an offset in the file and a length.
Rules: 1. The files are only read; SQLite looks at a copy, for the names and the roots of the tables. 2. A page in
a WAL belongs to the table that the page of this number belongs to in the end. 3. What cannot be parsed is left
out: pages that are free now were something else once. After sqlite.org/fileformat2.html.
Not here: what is done to a place (`damages.py`).
"""

from __future__ import annotations

import shutil
import sqlite3
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

INDEX_INNER, TABLE_INNER, INDEX_LEAF, TABLE_LEAF = 2, 5, 10, 13
WAL_HEADER = 32
FRAME_HEADER = 24
PLACES_MAX = 400
"""Of one name: the first and the last ones are among them."""

Places = dict[str, list["Place"]]


class Place(NamedTuple):
    offset: int
    length: int


class Anatomy(NamedTuple):
    """`wal` is empty when there is none."""

    page_bytes: int
    database: Places
    wal: Places


DATABASE_HEADER = {
    "magic": (0, 16),
    "page size": (16, 2),
    "format": (18, 2),
    "change counter": (24, 4),
    "page count": (28, 4),
    "free list": (32, 8),
    "schema cookie": (40, 4),
    "user version": (60, 4),
    "application id": (68, 4),
    "version valid for": (92, 8),
}
WAL_HEADER_FIELDS = {
    "magic": (0, 4),
    "version": (4, 4),
    "page size": (8, 4),
    "sequence": (12, 4),
    "salt1": (16, 4),
    "salt2": (20, 4),
    "checksum": (24, 8),
}
FRAME_FIELDS = {"page number": (0, 4), "commit size": (4, 4), "salts": (8, 8), "checksum": (16, 8)}


def anatomy(database: Path) -> Anatomy:
    wal = database.with_name(database.name + "-wal")
    data = database.read_bytes()
    log = wal.read_bytes() if wal.exists() else b""
    page_bytes = int.from_bytes(data[16:18], "big") or 4096
    page_bytes = 65536 if page_bytes == 1 else page_bytes
    merged, names = _merged(database, wal)
    owners = _owners(merged, page_bytes, {root: name for name, (root, _) in names.items()})
    columns = {name: listed for name, (_, listed) in names.items()}
    found: Places = {}
    for name, (offset, length) in DATABASE_HEADER.items():
        _add(found, f"database header.{name}", offset, length)
    for number in range(1, len(data) // page_bytes + 1):
        start = (number - 1) * page_bytes
        _page(found, data[start : start + page_bytes], start, number, owners.get(number, "free"), columns)
    logged: Places = {}
    if len(log) >= WAL_HEADER:
        _frames(logged, log, page_bytes, owners, columns)
    return Anatomy(page_bytes, _thinned(found), _thinned(logged))


def frame_starts(wal: bytes, page_bytes: int) -> list[int]:
    """Offsets of the frames that carry the salts of the header: those behind are of an earlier round of the file."""
    salts = wal[16:24]
    starts = range(WAL_HEADER, len(wal) - FRAME_HEADER - page_bytes + 1, FRAME_HEADER + page_bytes)
    valid = []
    for start in starts:
        if wal[start + 8 : start + 16] != salts:
            break
        valid.append(start)
    return valid


def _frames(
    found: Places, log: bytes, page_bytes: int, owners: dict[int, str], columns: dict[str, list[str]]
) -> None:
    for name, (offset, length) in WAL_HEADER_FIELDS.items():
        _add(found, f"wal header.{name}", offset, length)
    starts = frame_starts(log, page_bytes)
    commits = [start for start in starts if log[start + 4 : start + 8] != b"\0\0\0\0"]
    for start in starts:
        kind = "frame"
        if commits and start == commits[-1]:
            kind = "last commit frame"
        elif start in commits:
            kind = "commit frame"
        for name, (offset, length) in FRAME_FIELDS.items():
            _add(found, f"{kind}.{name}", start + offset, length)
        _add(found, f"{kind}.page", start + FRAME_HEADER, page_bytes)
        number = int.from_bytes(log[start : start + 4], "big")
        page = log[start + FRAME_HEADER : start + FRAME_HEADER + page_bytes]
        _page(found, page, start + FRAME_HEADER, number, owners.get(number, "free"), columns)
    behind = starts[-1] + FRAME_HEADER + page_bytes if starts else WAL_HEADER
    if behind < len(log):
        _add(found, "behind the last frame", behind, len(log) - behind)


def _merged(database: Path, wal: Path) -> tuple[bytes, dict[str, tuple[int, list[str]]]]:
    """The database with its WAL in it; table or index -> (root page, columns of a record)."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.db"
        shutil.copyfile(database, copy)
        if wal.exists():
            shutil.copyfile(wal, copy.with_name("copy.db-wal"))
        connection = sqlite3.connect(copy, isolation_level=None)
        try:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            listed = connection.execute(
                "SELECT name, type, rootpage FROM sqlite_master WHERE rootpage > 0"
            ).fetchall()
            names = {name: (root, _columns(connection, name, kind)) for name, kind, root in listed}
        finally:
            connection.close()
        names["sqlite_master"] = (1, ["type", "name", "tbl_name", "rootpage", "sql"])
        return copy.read_bytes(), names


def _columns(connection: sqlite3.Connection, name: str, kind: str) -> list[str]:
    if kind == "index":
        return [row[2] or "rowid" for row in connection.execute(f"PRAGMA index_xinfo({name})")]
    rows = connection.execute(f"PRAGMA table_xinfo({name})").fetchall()
    (without_rowid,) = connection.execute("SELECT wr FROM pragma_table_list WHERE name = ?", (name,)).fetchone()
    if without_rowid:
        # Stored as an index: the key's columns, in the order of the key, then the others.
        rows.sort(key=lambda row: (not row[5], row[5]))
    return [row[1] for row in rows]


def _owners(data: bytes, page_bytes: int, roots: dict[int, str]) -> dict[int, str]:
    """Page number -> whose page it is; `NAME overflow` for what does not fit into a cell."""
    owners: dict[int, str] = {}
    for root, name in roots.items():
        waiting = [root]
        while waiting:
            number = waiting.pop()
            page = data[(number - 1) * page_bytes : number * page_bytes]
            if number in owners or len(page) < page_bytes:
                continue
            owners[number] = name
            at = 100 if number == 1 else 0
            kind = page[at]
            for cell in _pointers(page, at):
                if kind in (TABLE_INNER, INDEX_INNER):
                    waiting.append(int.from_bytes(page[cell : cell + 4], "big"))
                overflow = _cell(page, kind, cell)[3] if kind != TABLE_INNER else 0
                while overflow and overflow not in owners:
                    owners[overflow] = f"{name} overflow"
                    start = (overflow - 1) * page_bytes
                    overflow = int.from_bytes(data[start : start + 4], "big")
            if kind in (TABLE_INNER, INDEX_INNER):
                waiting.append(int.from_bytes(page[at + 8 : at + 12], "big"))
    return owners


def _page(found: Places, page: bytes, base: int, number: int, owner: str, columns: dict[str, list[str]]) -> None:
    at = 100 if number == 1 else 0
    if owner.endswith("overflow"):
        _add(found, f"{owner}.next", base, 4)
        _add(found, f"{owner}.content", base + 4, len(page) - 4)
        return
    kind = page[at]
    if owner not in columns or kind not in (INDEX_INNER, TABLE_INNER, INDEX_LEAF, TABLE_LEAF):
        return
    for name, offset, length in (
        ("type", 0, 1),
        ("first free block", 1, 2),
        ("cells", 3, 2),
        ("content start", 5, 2),
        ("fragments", 7, 1),
    ):
        _add(found, f"page.{name}", base + at + offset, length)
    if kind in (INDEX_INNER, TABLE_INNER):
        _add(found, "page.right child", base + at + 8, 4)
    pointers = at + (12 if kind in (INDEX_INNER, TABLE_INNER) else 8)
    for place, cell in enumerate(_pointers(page, at)):
        _add(found, "page.cell pointer", base + pointers + 2 * place, 2)
        if kind in (INDEX_INNER, TABLE_INNER):
            _add(found, "page.left child", base + cell, 4)
        if kind == TABLE_INNER:
            continue
        try:
            for name, offset, length in _fields(page, kind, cell, columns[owner]):
                _add(found, f"{owner}.{name}", base + offset, length)
        except (IndexError, struct.error):
            continue


def _pointers(page: bytes, at: int) -> list[int]:
    count = int.from_bytes(page[at + 3 : at + 5], "big")
    first = at + (12 if page[at] in (INDEX_INNER, TABLE_INNER) else 8)
    if page[at] not in (INDEX_INNER, TABLE_INNER, INDEX_LEAF, TABLE_LEAF) or first + 2 * count > len(page):
        return []
    pointers = struct.unpack_from(f">{count}H", page, first)
    return [pointer for pointer in pointers if first < pointer < len(page) - 3]


def _cell(page: bytes, kind: int, cell: int) -> tuple[int, int, int, int]:
    """Start of the record, its length, how much of it is here, and the page with the rest (0: none)."""
    at = cell + (4 if kind == INDEX_INNER else 0)
    payload, at = _varint(page, at)
    if kind == TABLE_LEAF:
        _, at = _varint(page, at)
    usable = len(page)
    most = usable - 35 if kind == TABLE_LEAF else (usable - 12) * 64 // 255 - 23
    if payload <= most:
        return at, payload, payload, 0
    least = (usable - 12) * 32 // 255 - 23
    local = least + (payload - least) % (usable - 4)
    local = local if local <= most else least
    return at, payload, local, int.from_bytes(page[at + local : at + local + 4], "big")


def _fields(page: bytes, kind: int, cell: int, columns: list[str]) -> Iterator[tuple[str, int, int]]:
    at, _, local, overflow = _cell(page, kind, cell)
    yield "(payload length)", cell + (4 if kind == INDEX_INNER else 0), 1
    if kind == TABLE_LEAF:
        rowid = cell
        while page[rowid] & 0x80:
            rowid += 1
        yield "(row id)", rowid + 1, at - rowid - 1
    if overflow:
        yield "(overflow page)", at + local, 4
    header, types_at = _varint(page, at)
    body = at + header
    yield "(header length)", at, 1
    for column in columns:
        if types_at >= at + header:
            return
        begin = types_at
        serial, types_at = _varint(page, types_at)
        length = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0)[serial] if serial < 12 else (serial - 12) // 2
        # What is 0, 1 or nothing is only in its type.
        yield f"{column} (type)", begin, types_at - begin
        here = min(length, at + local - body)
        if here > 0:
            yield column, body, here
        body += length


def _varint(page: bytes, at: int) -> tuple[int, int]:
    value = 0
    for step in range(9):
        byte = page[at + step]
        if step == 8:
            return value << 8 | byte, at + 9
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + step + 1
    raise AssertionError("nine bytes are the most")


def _add(found: Places, name: str, offset: int, length: int) -> None:
    found.setdefault(name, []).append(Place(offset, length))


def _thinned(found: Places) -> Places:
    """At most PLACES_MAX of each name, evenly, with the first and the last."""
    thin: Places = {}
    for name, places in sorted(found.items()):
        step = (len(places) - 1) / (PLACES_MAX - 1)
        thin[name] = places if step <= 1 else [places[round(step * number)] for number in range(PLACES_MAX)]
    return thin
