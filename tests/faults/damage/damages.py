"""One damage to a copy of an image: drawn from a seed, said in words, done.

What comes in: a random generator, and images. What goes out: `Damage`, whose `text` says exactly what `apply`
changes.
Rules: 1. A damage changes at least one byte, or a name, of one file; the kinds of `SETS` do so to files that
belong together. 2. Half of the offsets are drawn from the places that have names (`pages.py`), each name as
likely as any other. 3. Nothing here knows what the broker should do about it.
Not here: what must not happen (`judge.py`).
"""

from __future__ import annotations

import functools
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .images import KINDS
from .pages import FRAME_HEADER, WAL_HEADER, Anatomy, Place, anatomy, frame_starts

Change = Callable[[Path], None]

IN_PLACE = ("bit", "byte", "zero 512", "zero page", "other page")
"""One bit flipped; one byte changed; 512 bytes, a page zeroed; a page as another page of the file."""
WHOLE = ("truncated", "truncated at an edge", "grown", "removed", "older copy", "another broker's")
SECTOR_BYTES = 512
SETS = {
    "journal (db, wal)": ("journal.db", "journal.db-wal"),
    "journal (db, wal, mark)": ("journal.db", "journal.db-wal", "journal.mark"),
    "metadata (db, wal)": ("metadata.db", "metadata.db-wal", "metadata.db-shm"),
    "metadata (all)": (
        *("metadata.db", "metadata.db-wal", "metadata.db-shm", "metadata.mark", "metadata.db.1", "metadata.db.2"),
    ),
}
# How often a file is drawn; of the files that have no name here, one is drawn in OTHERS of the cases.
WEIGHTS = {
    "journal.db": 30,
    "journal.db-wal": 22,
    "metadata.db": 14,
    "metadata.db-wal": 10,
    "journal.mark": 4,
    "metadata.mark": 3,
    "metadata.db.1": 2,
    "metadata.db.2": 1,
}
OTHERS, SET = 12, 6


@dataclass
class Damage:
    """`file` is for the table: audit files by their kind. `text` is for people."""

    image: str
    file: str
    kind: str
    text: str
    apply: Change


def draw(chance: random.Random, images: Path, kinds: tuple[str, ...] = KINDS) -> Damage:
    image = chance.choice(kinds)
    data = images / image / "data"
    files = sorted(path.relative_to(data).as_posix() for path in data.rglob("*") if path.is_file())
    named = [name for name in WEIGHTS if name in files]
    others = [name for name in files if name not in WEIGHTS and not name.endswith("-shm")]
    weights = [*(WEIGHTS[name] for name in named), OTHERS, SET]
    [name] = chance.choices([*named, "others", "set"], weights)
    if name == "set":
        return _draw_set(chance, images, image)
    if name == "others":
        name = chance.choice(others)
    # A kind of damage that has many places is drawn more often than one that has one.
    kind = chance.choice(IN_PLACE * 2 + WHOLE)
    return make(chance, images, image, name, kind)


def every_field(images: Path, kinds: tuple[str, ...] = KINDS) -> list[tuple[str, str, str]]:
    """(image, file, name) of every named place: each field of each record, header and frame."""
    found = []
    for image in kinds:
        for name in ("journal.db", "journal.db-wal", "metadata.db", "metadata.db-wal"):
            source = images / image / "data" / name
            if source.exists():
                found += [(image, name, field) for field in _named(source)]
    return found


def make(chance: random.Random, images: Path, image: str, name: str, kind: str, field: str = "") -> Damage:
    """The damage of this kind to this file; offsets are drawn, within `field` if it is given."""
    source = images / image / "data" / name
    if kind in WHOLE:
        said, change = _whole(chance, images, image, name, kind)
    else:
        said, change = _in_place(chance, source, kind, field)
    return Damage(image, _file_kind(name), kind, f"{image}: {name}: {said}", _on(name, change))


def _draw_set(chance: random.Random, images: Path, image: str) -> Damage:
    title = chance.choice(list(SETS))
    kind = chance.choice(["removed", "older copy", "another broker's"])
    return make_set(images, image, title, kind, chance.choice([other for other in KINDS if other != image]))


def make_set(images: Path, image: str, title: str, kind: str, other: str) -> Damage:
    source = {"older copy": images / image / "older", "another broker's": images / other / "data"}.get(kind)

    def change(folder: Path) -> None:
        for name in SETS[title]:
            (folder / name).unlink(missing_ok=True)
            if source is not None and (source / name).exists():
                shutil.copyfile(source / name, folder / name)

    of = f" ({other})" if kind == "another broker's" else ""
    return Damage(image, title, kind, f"{image}: {title}: {kind}{of}", change)


def _on(name: str, change: Change) -> Change:
    return lambda folder: change(folder / name)


def _file_kind(name: str) -> str:
    if not name.startswith("audit/"):
        return name
    return f"audit: {'events' if name.endswith('.parquet') else 'spool' if '/spool/' in name else Path(name).name}"


def _one_byte(path: Path) -> None:
    path.write_bytes(b"\x01")


def _in_place(chance: random.Random, source: Path, kind: str, field: str) -> tuple[str, Change]:
    data = source.read_bytes()
    if not data:
        return "grown by a byte, it was empty", _one_byte
    where, place = _place(chance, source, data, field)
    page, base = _page_of(source, data, place.offset)
    offset = place.offset + chance.randrange(place.length)
    if kind == "bit":
        changed, length = bytes([data[offset] ^ 1 << chance.randrange(8)]), 1
    elif kind == "byte":
        changed, length = bytes([data[offset] ^ chance.randrange(1, 256)]), 1
    elif kind == "zero 512":
        offset -= offset % SECTOR_BYTES
        length = min(SECTOR_BYTES, len(data) - offset)
        changed = bytes(length)
    else:
        offset, length = base, min(page, len(data) - base)
        changed = bytes(length)
        if kind == "other page":
            step = page + (FRAME_HEADER if source.name.endswith("-wal") else 0)
            others = [at for at in range(base % step, len(data) - length + 1, step) if at != base]
            if others:
                other = chance.choice(others)
                changed = data[other : other + length]
                where += f", as the page at {other}"
    if changed == data[offset : offset + length]:
        # Zeroes over zeroes: the first byte that differs must.
        changed = bytes([changed[0] ^ 0xFF]) + changed[1:]
        where += ", first byte inverted"

    def change(path: Path) -> None:
        with path.open("r+b") as file:
            file.seek(offset)
            file.write(changed)

    return f"{kind}: {length} bytes at {offset} ({where})", change


def _place(chance: random.Random, source: Path, data: bytes, field: str) -> tuple[str, Place]:
    """A named place, or any."""
    found = _named(source) if source.name.startswith(("journal.db", "metadata.db")) else {}
    if field or (found and chance.random() < 0.5):
        name = field or chance.choice(list(found))
        places = found[name]
        # The first and the last one are where limits are.
        place = chance.choice([places[0], places[-1], chance.choice(places), chance.choice(places)])
        return f"{name}, place {places.index(place)} of {len(places)}", place
    if chance.random() < 0.2:
        page = _page_of(source, data, 0)[0]
        first, last = chance.random() < 0.5, max(0, len(data) - page)
        return (
            ("first page", Place(0, min(page, len(data)))) if first else ("last page", Place(last, len(data) - last))
        )
    return "anywhere", Place(0, len(data))


def _named(source: Path) -> dict[str, list[Place]]:
    database = source.with_name(source.name.removesuffix("-wal"))
    if not database.exists():
        return {}
    found = _anatomy(database, database.stat().st_mtime_ns)
    return found.wal if source.name.endswith("-wal") else found.database


@functools.lru_cache(maxsize=64)
def _anatomy(database: Path, _: int) -> Anatomy:
    return anatomy(database)


def _page_of(source: Path, data: bytes, offset: int) -> tuple[int, int]:
    """Length of the pages of the file, and where the page begins that holds the offset."""
    if not source.name.startswith(("journal.db", "metadata.db")):
        return SECTOR_BYTES, offset - offset % SECTOR_BYTES
    if source.name.endswith("-wal"):
        page = int.from_bytes(data[8:12], "big")
        frame = FRAME_HEADER + page
        number = max(0, offset - WAL_HEADER) // frame
        return page, min(WAL_HEADER + number * frame + FRAME_HEADER, max(0, len(data) - page))
    page = int.from_bytes(data[16:18], "big")
    return page, offset - offset % page


def _whole(chance: random.Random, images: Path, image: str, name: str, kind: str) -> tuple[str, Change]:
    source = images / image / "data" / name
    size = source.stat().st_size
    if kind == "removed":
        return "removed", lambda path: path.unlink()
    if kind in ("older copy", "another broker's"):
        other = image if kind == "older copy" else chance.choice([each for each in KINDS if each != image])
        given = images / other / ("older" if kind == "older copy" else "data") / name
        if given.exists() and given.read_bytes() != source.read_bytes():
            return f"{kind} ({other})", lambda path: shutil.copyfile(given, path) and None
        if name.endswith("-wal"):
            # The other one was stopped in order, and has none.
            return f"{kind}, which is none ({other})", lambda path: path.unlink()
        kind = "truncated"
    if kind == "grown":
        length, what = chance.choice([1, 24, 512, 4096, 8192 + 24]), chance.choice(["zeros", "noise", "its start"])
        noise = chance.randbytes(length)

        def grow(path: Path) -> None:
            data = path.read_bytes()[:length]
            with path.open("ab") as file:
                file.write({"zeros": bytes(length), "noise": noise, "its start": data}[what])

        return f"grown by {length} bytes of {what}", grow
    cut = _cut(chance, source, size) if kind == "truncated at an edge" else chance.randrange(size) if size else 0

    def truncate(path: Path) -> None:
        with path.open("r+b") as file:
            file.truncate(cut)

    if not size:
        return "removed, it was empty", lambda path: path.unlink()
    return f"truncated from {size} to {cut} bytes", truncate


def _cut(chance: random.Random, source: Path, size: int) -> int:
    if source.name.endswith("-wal"):
        data = source.read_bytes()
        starts = frame_starts(data, int.from_bytes(data[8:12], "big"))
        return chance.choice([0, WAL_HEADER, starts[-1], chance.choice(starts), chance.choice(starts)])
    page = _page_of(source, source.read_bytes(), 0)[0]
    edges = range(0, size, page)
    return chance.choice([0, edges[-1], chance.choice(edges), chance.choice(edges)])
