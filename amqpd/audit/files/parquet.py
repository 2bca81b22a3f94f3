"""A spool file, turned into a file of the log.

What comes in: a spool file, whole or cut off by a kill. What goes out: a Parquet file with its rows, or none where
there are no rows.
Rules: 1. Nothing is done for each record in Python: records are read and made into columns by numpy. 2. A last block
that is cut off was never confirmed to a client, and is left out. Anything else that is not whole is damage: what
comes before it is written, and the spool file stays, for the caller to set aside. 3. The file appears whole, and is
on disk, before the spool file goes. 4. Rows are numbered without a gap in an incarnation, from file to file: so a
spool file whose end is missing shows in the next one, and each file says which rows it has (`footer.py`).
Not here: when (`writer.py`), the spool's layout (`audit/spool.py`), what the columns have
(`rows.py`).
"""

from __future__ import annotations

import errno
import json
import struct
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from amqpd.audit.files.columns import SCHEMA, TEXTS
from amqpd.audit.files.damage import GivenUp, Reached, SpoolDamaged
from amqpd.audit.files.edges import Edges
from amqpd.audit.files.footer import FileRows, Range, named
from amqpd.audit.files.rows import LAYOUT, BlockRecords, rows_of, table_of
from amqpd.audit.spool import BLOCK, BLOCK_MAGIC, BLOCK_MAGIC_1, HEAD
from amqpd.storage.files import sync_directory, sync_file

# Records that become columns at once: some 10 MB while it lasts.
PART_RECORDS_MAX = 65_536
# These go up by little from row to row.
_DIFFERENCES = ("number", "first", "publication", "confirm_tag", "time")
_PARQUET: dict[str, Any] = {
    "use_dictionary": list(TEXTS),
    "column_encoding": dict.fromkeys(_DIFFERENCES, "DELTA_BINARY_PACKED"),
    "write_page_checksum": True,
}
_MAGIC = struct.pack("<I", BLOCK_MAGIC)


def convert(
    spool: Path,
    events: Path,
    reached: Reached | None = None,
    edges: Edges | None = None,
    unwanted: Callable[[], bool] = lambda: False,
) -> Path | None:
    """Write the spool file's events below `events`, and remove it; the file written, if there was something.
    `unwanted` is asked for each block, some hundred times a second. Raises OSError, SpoolDamaged, GivenUp."""
    node, incarnation, number = named(spool.stem)
    key = node, incarnation
    reached = reached or Reached()
    if edges is not None:
        # Before there is a file that it does not know of.
        edges.begin(node)
    end = reached.rows.get(key, 0 if number == 1 else None)
    rows = FileRows(node, incarnation, number)
    written, damage = _write(spool, events, rows, reached, end, unwanted)
    if written is not None:
        end = rows.last
        if edges is not None:
            edges.grown(rows)
    if end is not None:
        reached.rows[key] = end
    if damage is not None:
        reached.torn.add(key)
        damage.written, damage.end = written, end
        raise damage
    reached.torn.discard(key)
    spool.unlink()
    return written


def _write(
    spool: Path, events: Path, rows: FileRows, reached: Reached, end: int | None, unwanted: Callable[[], bool]
) -> tuple[Path | None, SpoolDamaged | None]:
    """The file, if there is something for one, and what ended it too early. `rows` is told what is in it, `reached`
    what is missing before it."""
    written: Path | None = None
    writer: pq.ParquetWriter | None = None
    temporary = events / f".{spool.stem}.parquet.tmp"
    names: list[dict[str, Any]] = [{}]
    damage: SpoolDamaged | None = None
    try:
        for part in _parts(spool, names, end, unwanted):
            table = table_of(part, names, rows.node, rows.incarnation)
            _go_on_unless(unwanted)
            if writer is None:
                begun = datetime.fromtimestamp(table["time"][0].as_py().timestamp(), UTC)
                folder = events / f"date={begun:%Y-%m-%d}" / f"hour={begun:%H}"
                folder.mkdir(parents=True, exist_ok=True)
                written = folder / f"{spool.stem}.parquet"
                writer = pq.ParquetWriter(temporary, SCHEMA, compression="zstd", **_PARQUET)
                torn = (rows.node, rows.incarnation) in reached.torn
                rows.declared, missing = _absent(part, end, torn)
            writer.write_table(table)
            times = pc.min_max(table["time"].cast(pa.int64()))
            rows.add(part.first, part.end, (times["min"].as_py(), times["max"].as_py()), table.num_rows)
    except SpoolDamaged as error:
        damage = error
    except GivenUp:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        if writer is not None:
            try:
                # None: the first part could not be written.
                if rows.rows:
                    writer.add_key_value_metadata(rows.footer())
            finally:
                writer.close()
    if written is not None:
        _rename_durably(temporary, written)
        reached.missing = missing or reached.missing
    return written, damage


def _absent(part: BlockRecords, end: int | None, torn: bool) -> tuple[list[Range], Range | None]:
    """What the broker knows that it did not record between row `end` and the file's first part, and what of it is
    missing though the broker wrote it. `torn`: the spool file before was damaged."""
    full = [act for act in part.acts if act["event"] == "gap" and act.get("reason") == "disk_full"]
    details = [json.loads(act.get("detail") or "{}") for act in full]
    dropped = [(each["rows_from"], each["rows_to"]) for each in details if "rows_from" in each]
    dropped = [each for each in dropped if each[1] < part.first]
    if end is None or end + 1 == part.first:
        return ([] if end is not None else dropped), None
    absent = end + 1, part.first - 1
    if torn or (full and not dropped):
        return [absent], None
    if not dropped:
        return [absent], absent
    first, last = dropped[0]
    if first <= absent[0]:
        return [absent], None
    missing = absent[0], first - 1
    return [missing, (first, last)], missing


def check_spool(spool: Path) -> None:
    """Read the spool file as `convert` does, and change nothing. Raises OSError, SpoolDamaged, and whatever octets
    that are no names and no acts lead to (ValueError, KeyError, TypeError, AssertionError)."""
    for _ in _parts(spool, [{}]):
        pass


def damage_of_events(path: Path, *, whole: bool) -> str:
    """What is wrong with a file of the log; empty: nothing. `whole`: each page's checksum, too."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            if whole:
                for part in range(file.num_row_groups):
                    file.read_row_group(part)
    except (OSError, ValueError, TypeError, pa.ArrowException) as error:
        return " ".join(str(error).split())[:200]
    return ""


def _rename_durably(temporary: Path, written: Path) -> None:
    sync_file(temporary)
    temporary.rename(written)
    for folder in (written.parent, written.parent.parent):
        sync_directory(folder)


def _blocks(spool: Path) -> Iterator[tuple[memoryview, bytes, bytes, int]]:
    """(records, names, acts, rows before)"""
    data = memoryview(_read(spool))
    at = 0
    while at + BLOCK.size <= len(data):
        magic, records, names, acts, before, _ = BLOCK.unpack_from(data, at)
        begin, end = at + BLOCK.size, at + BLOCK.size + records + names + acts
        known = magic in (BLOCK_MAGIC, BLOCK_MAGIC_1)
        if known and end > len(data) and not _whole_block_in(data[at + 1 :]):
            return
        if not known or not _whole(data, at):
            raise SpoolDamaged(f"from byte {at} of {len(data)} on it is not what was written")
        split = begin + records
        yield data[begin:split], bytes(data[split : split + names]), bytes(data[split + names : end]), before
        at = end


def _whole(data: memoryview, at: int) -> bool:
    """There is a block, and its checksum fits."""
    magic, records, names, acts, _, checksum = BLOCK.unpack_from(data, at)
    begin, end = at + BLOCK.size, at + BLOCK.size + records + names + acts
    over = crc32(data[at : at + HEAD.size]) if magic == BLOCK_MAGIC else 0
    return bool(end <= len(data) and crc32(data[begin:end], over) == checksum)


def _read(spool: Path) -> bytes:
    try:
        return spool.read_bytes()
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise
        raise SpoolDamaged(f"it cannot be read: {error.strerror}") from error


def _whole_block_in(data: memoryview) -> bool:
    """Only then is a block that reaches beyond the end not a last one that was cut off."""
    searched = bytes(data)
    at = searched.find(_MAGIC)
    while 0 <= at <= len(searched) - BLOCK.size:
        if _whole(data, at):
            return True
        at = searched.find(_MAGIC, at + 1)
    return False


def _go_on_unless(unwanted: Callable[[], bool]) -> None:
    if unwanted():
        raise GivenUp


def _parts(
    spool: Path,
    names: list[dict[str, Any]],
    rows_before: int | None = None,
    unwanted: Callable[[], bool] = lambda: False,
) -> Iterator[BlockRecords]:
    """Raises SpoolDamaged behind the last one that can be told; GivenUp."""
    part, ids = BlockRecords(), [0]
    damage: SpoolDamaged | None = None
    reached = rows_before
    first_block = True
    try:
        for raw, said, acted, before in _blocks(spool):
            _go_on_unless(unwanted)
            records = np.frombuffer(raw, LAYOUT)
            acts = [_texts(json.loads(line)) for line in acted.decode().split("\n")] if acted else []
            if reached is not None and before != reached and (before < reached or not first_block):
                raise SpoolDamaged(f"row {before + 1} follows row {reached}")
            for line in said.decode().split("\n") if said else ():
                number, columns = json.loads(line)
                assert number == len(names)
                names.append(_texts(columns) if "\\ud" in line else columns)
                if "message_id" in columns:
                    ids.append(number)
            rows = int(rows_of(records).sum())
            part.first = part.first or before + 1
            part.acts += acts
            part.records.append(records)
            part.numbers.append(_free_numbers(before, rows, [act["number"] for act in acts]))
            part.size += len(records) + len(acts)
            part.end = reached = before + rows + len(acts)
            first_block = False
            if part.size >= PART_RECORDS_MAX:
                yield part
                # Messages' own ids are referred to in their own block only, and there may be one for each message.
                for number in ids:
                    names[number] = {}
                part, ids = BlockRecords(), [0]
    except SpoolDamaged as error:
        damage = error
    if part.size:
        yield part
    if damage is not None:
        raise damage


def _texts(columns: dict[str, Any]) -> dict[str, Any]:
    """Names of AMQP are octets. What is not UTF-8 in them came as surrogates, which are not text for Parquet."""
    return {
        name: value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
        for name, value in columns.items()
    }


def _free_numbers(before: int, rows: int, taken: list[int]) -> np.ndarray[Any, Any]:
    """The next numbers after `before`, without those that acts have."""
    numbers = np.arange(before + 1, before + 1 + int(rows) + len(taken), dtype=np.int64)
    return np.setdiff1d(numbers, np.array(taken, np.int64), assume_unique=True) if taken else numbers
