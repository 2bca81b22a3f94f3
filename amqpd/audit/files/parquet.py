"""A spool file, turned into a file of the log.

What comes in: a spool file, whole or cut off by a kill. What goes out: a Parquet file with its rows, or none where
there are no rows.
Rules: 1. Nothing is done for each record in Python: records are read and made into columns by numpy. 2. A last block
that is cut off was never confirmed to a client, and is left out. Anything else that is not whole is damage: what
comes before it is written, and the spool file stays, for the caller to set aside. 3. The file appears whole, and is
on disk, before the spool file goes. 4. Rows are numbered without a gap in a life, from file to file: so a spool file
whose end is missing shows in the next one.
Not here: when (`writer.py`), the spool's layout (`audit/spool.py`), the columns (`columns.py`).
"""

from __future__ import annotations

import errno
import json
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from amqpd.audit.files.columns import FORMAT, NUMBERS, SCHEMA, TEXTS
from amqpd.audit.files.damage import Reached, SpoolDamaged
from amqpd.audit.kinds import (
    ANCHOR_GAP,
    ANCHOR_RECOVERED,
    NAMES,
    PERSISTENT,
    REDELIVERED,
    ROUTED,
    STANDING,
    WITH_ACKED,
    WITH_PUBLISHED,
)
from amqpd.audit.spool import BLOCK, BLOCK_MAGIC, BLOCK_MAGIC_1, HEAD, RECORD

_LAYOUT = np.dtype(
    [
        *(("time", "<u8"), ("first", "<u8"), ("publication", "<u8"), ("confirm_tag", "<u8"), ("count", "<u4")),
        *(("body_bytes", "<u4"), ("name", "<u4"), ("queue", "<u4"), ("text", "<u4"), ("kind", "u1")),
        *(("flags", "u1"), ("channel", "<u2")),
    ]
)
assert _LAYOUT.itemsize == RECORD.size
# Records that become columns at once: some 10 MB while it lasts.
PART_RECORDS_MAX = 65_536
_EVENT_KINDS = max(NAMES) + 1
_PARQUET: dict[str, Any] = {"use_dictionary": list(TEXTS), "write_page_checksum": True}
_MAGIC = struct.pack("<I", BLOCK_MAGIC)


@dataclass
class _Part:
    """Records of some blocks, the numbers of their rows, acts among them, and all names said so far in the file."""

    records: list[np.ndarray[Any, Any]] = field(default_factory=list)
    numbers: list[np.ndarray[Any, Any]] = field(default_factory=list)
    acts: list[dict[str, Any]] = field(default_factory=list)
    size: int = 0
    end: int = 0
    """number of the last row"""
    missing: int = 0
    """rows between the file before and the first one of this"""


def convert(spool: Path, events: Path, reached: Reached | None = None) -> Path | None:
    """Write the spool file's events below `events`, and remove it; the file written, if there was something. Raises
    OSError, SpoolDamaged."""
    node, number, _ = spool.stem.rsplit("-", 2)
    life = int(number)
    reached = reached or Reached()
    written: Path | None = None
    writer: pq.ParquetWriter | None = None
    temporary = events / f".{spool.stem}.parquet.tmp"
    names: list[dict[str, Any]] = [{}]
    damage: SpoolDamaged | None = None
    end, missing = reached.rows.get((node, life)), 0
    try:
        for part in _parts(spool, names, end):
            table = _table(part, names, node, life)
            if writer is None:
                begun = datetime.fromtimestamp(table["time"][0].as_py().timestamp(), UTC)
                folder = events / f"date={begun:%Y-%m-%d}" / f"hour={begun:%H}"
                folder.mkdir(parents=True, exist_ok=True)
                written = folder / f"{spool.stem}.parquet"
                writer = pq.ParquetWriter(temporary, SCHEMA, compression="zstd", **_PARQUET)
            writer.write_table(table)
            end = part.end
            missing += part.missing
    except SpoolDamaged as error:
        damage = error
    finally:
        if writer is not None:
            writer.close()
    if written is not None:
        _settle(temporary, written)
    reached.missing += missing
    if damage is not None:
        # It has no end that the next file could be compared with.
        reached.rows.pop((node, life), None)
        damage.written = written
        raise damage
    if end is not None:
        reached.rows[node, life] = end
    spool.unlink()
    return written


def look(spool: Path) -> None:
    """Read the spool file as `convert` does, and change nothing. Raises OSError, SpoolDamaged, and whatever octets
    that are no names and no acts lead to (ValueError, KeyError, TypeError, AssertionError)."""
    for _ in _parts(spool, [{}]):
        pass


def look_at_events(path: Path, *, whole: bool) -> str:
    """What is wrong with a file of the log; empty: nothing. `whole`: each page's checksum, too."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            if whole:
                for part in range(file.num_row_groups):
                    file.read_row_group(part)
    except (OSError, ValueError, TypeError, pa.ArrowException) as error:
        return " ".join(str(error).split())[:200]
    return ""


def _settle(temporary: Path, written: Path) -> None:
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.rename(written)
    for folder in (written.parent, written.parent.parent):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


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


def _parts(spool: Path, names: list[dict[str, Any]], rows_before: int | None = None) -> Iterator[_Part]:
    """Raises SpoolDamaged behind the last one that can be told."""
    part, ids = _Part(), [0]
    damage: SpoolDamaged | None = None
    reached = rows_before
    first_block = True
    try:
        for raw, said, acted, before in _blocks(spool):
            records = np.frombuffer(raw, _LAYOUT)
            acts = [_texts(json.loads(line)) for line in acted.decode().split("\n")] if acted else []
            if reached is not None and before != reached:
                if before < reached or not first_block:
                    raise SpoolDamaged(f"row {before + 1} follows row {reached}")
                if not any(act["event"] == "gap" for act in acts):
                    part.missing = before - reached
            for line in said.decode().split("\n") if said else ():
                number, columns = json.loads(line)
                assert number == len(names)
                names.append(_texts(columns) if "\\ud" in line else columns)
                if "message_id" in columns:
                    ids.append(number)
            rows = int(_rows_of(records).sum())
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
                part, ids = _Part(), [0]
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


def _rows_of(records: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    two = (records["kind"] == ROUTED) & (records["flags"] & WITH_PUBLISHED > 0)
    two |= records["flags"] & WITH_ACKED > 0
    return np.where(two, 2, 1)


def _free_numbers(before: int, rows: int, taken: list[int]) -> np.ndarray[Any, Any]:
    """The next numbers after `before`, without those that acts have."""
    numbers = np.arange(before + 1, before + 1 + int(rows) + len(taken), dtype=np.int64)
    return np.setdiff1d(numbers, np.array(taken, np.int64), assume_unique=True) if taken else numbers


def _table(part: _Part, names: list[dict[str, Any]], node: str, life: int) -> pa.Table:
    records = np.concatenate(part.records)
    numbers = np.concatenate(part.numbers)
    rows = _rows_of(records)
    source = np.repeat(np.arange(len(records)), rows)
    second = np.zeros(len(source), bool)
    second[1:] = source[1:] == source[:-1]
    columns = _columns(records[source], second, rows[source] == 2, names)
    columns |= {"number": pa.array(numbers), "life": pa.array(np.full(len(source), life, np.int32))}
    columns["node"] = _constant(node, len(source))
    table = pa.table([_typed(columns[name.name], name) for name in SCHEMA], schema=SCHEMA)
    if part.acts:
        table = pa.concat_tables([table, _acts(part.acts, node, life)]).unify_dictionaries()
        table = table.sort_by("number")
    return table.replace_schema_metadata({"amqpd.audit.format": FORMAT})


def _columns(
    rows: np.ndarray[Any, Any],
    second: np.ndarray[Any, Any],
    double: np.ndarray[Any, Any],
    names: list[dict[str, Any]],
) -> dict[str, Any]:
    """One for each row; `double` rows are made of one record, and `second` is the second of them."""
    kind = rows["kind"].astype(np.int32)
    routed = kind == ROUTED
    # `published` goes before `routed`, `acked` behind `delivered`.
    published = double & routed & ~second
    acked = double & ~routed & second
    anchor = (kind >= ANCHOR_RECOVERED) & (kind <= ANCHOR_GAP)
    events = np.array([NAMES.get(each, ("", None))[0] for each in range(_EVENT_KINDS)])
    event_names, event_of = np.unique(np.append(events, ["published", "acked"]), return_inverse=True)
    event = event_of[kind].astype(np.int32)
    event[published] = event_of[-2]
    event[acked] = event_of[-1]
    in_queue = ~published
    looked_up = _Names(names)
    columns: dict[str, Any] = {
        "event": pa.DictionaryArray.from_arrays(pa.array(event), pa.array(event_names.tolist())),
        "time": pa.array(rows["time"].astype(np.int64)).cast(pa.timestamp("us", tz="UTC")),
        "queue_id": pa.array(np.where(in_queue, looked_up.number("queue_id", rows["queue"]), 0)),
        "epoch": pa.array(np.where(in_queue, looked_up.number("epoch", rows["queue"]), 0).astype(np.int32)),
        **{
            name: pa.array(np.where(in_queue, looked_up.number(name, rows["queue"]), 0).astype(np.int32))
            for name in ("source", "source_epoch")
        },
        "first": pa.array(np.where(in_queue, rows["first"], 0).astype(np.int64)),
        "count": pa.array(rows["count"].astype(np.int64)),
        "publication": pa.array(np.where(acked, 0, rows["publication"]).astype(np.int64)),
        "confirm_tag": pa.array(rows["confirm_tag"].astype(np.int64)),
        "body_bytes": pa.array(rows["body_bytes"].astype(np.int64)),
        "channel": pa.array(np.where(acked, 0, rows["channel"]).astype(np.int32)),
        "persistent": pa.array((rows["flags"] & PERSISTENT > 0) & (routed | (kind == STANDING)) & in_queue),
        "redelivered": pa.array((rows["flags"] & REDELIVERED > 0) & ~routed & ~acked),
        "auto": pa.array(acked),
    }
    named = np.where(acked, 0, rows["name"])
    of_queue = np.where(in_queue, rows["queue"], 0)
    # Both know the virtual host; of a publication only the publisher does.
    columns["vhost"] = looked_up.text("vhost", np.where(of_queue > 0, of_queue, named))
    columns["queue"] = looked_up.text("queue", of_queue)
    for name in ("exchange", "routing_key", "user", "connection", "consumer"):
        columns[name] = looked_up.text(name, named)
    reasons = [NAMES.get(each, ("", None))[1] for each in range(_EVENT_KINDS)]
    columns["reason"] = looked_up.text("reason", named, reasons, np.where(published | acked | routed, 0, kind))
    texts = np.where(anchor | (kind == STANDING), 0, rows["text"])
    columns["message_id"] = looked_up.text("message_id", texts)
    columns["correlation_id"] = looked_up.text("correlation_id", texts)
    follow = np.unique(np.where(anchor, rows["text"], 0))
    details = np.searchsorted(follow, np.where(anchor, rows["text"], 0)).astype(np.int32)
    columns["detail"] = pa.DictionaryArray.from_arrays(
        pa.array(details, mask=~anchor), pa.array([str(each) for each in follow.tolist()])
    )
    nothing = pa.array(np.zeros(len(rows), np.int32), mask=np.ones(len(rows), bool))
    for name in ("address", "object"):
        columns[name] = pa.DictionaryArray.from_arrays(nothing, pa.array([""]))
    return columns


class _Names:
    """Columns of what records refer to by a number; 0 refers to nothing."""

    def __init__(self, names: list[dict[str, Any]]) -> None:
        self._names = names

    def number(self, column: str, of: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        used, inverse = np.unique(of, return_inverse=True)
        values = np.array([self._names[each].get(column) or 0 for each in used.tolist()], np.int64)
        return values[inverse]

    def text(
        self,
        column: str,
        of: np.ndarray[Any, Any],
        others: list[str | None] | None = None,
        other: np.ndarray[Any, Any] | None = None,
    ) -> pa.DictionaryArray:
        """Of each name its text; where it has none, of `others` the one with the number in `other`."""
        used, inverse = np.unique(of, return_inverse=True)
        texts: dict[str | None, int] = {}
        index_of = np.array(
            [texts.setdefault(self._names[each].get(column), len(texts)) for each in used.tolist()], np.int32
        )
        indices = index_of[inverse]
        if others is not None and other is not None:
            of_other = np.array([texts.setdefault(text, len(texts)) for text in others], np.int32)
            none = texts[None]
            indices = np.where(indices == none, of_other[other], indices).astype(np.int32)
        missing = texts.pop(None, None)
        values = list(texts)
        if missing is not None:
            absent = indices == missing
            indices = np.where(indices > missing, indices - 1, indices).astype(np.int32)
            indices[absent] = 0
            return pa.DictionaryArray.from_arrays(pa.array(indices, mask=absent), pa.array(values, pa.string()))
        return pa.DictionaryArray.from_arrays(pa.array(indices), pa.array(values, pa.string()))


def _constant(text: str, count: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([text]))


def _acts(acts: list[dict[str, Any]], node: str, life: int) -> pa.Table:
    columns = []
    for column in SCHEMA:
        name = column.name
        default: Any = 0 if name in NUMBERS else False if pa.types.is_boolean(column.type) else None
        default = {"node": node, "life": life, "count": 1}.get(name, default)
        plain = column.type.value_type if name in TEXTS else column.type
        values = [act.get(name, default) for act in acts]
        if name == "time":
            columns.append(pa.array(values, pa.int64()).cast(column.type))
        else:
            columns.append(_typed(pa.array(values, plain), column))
    return pa.table(columns, schema=SCHEMA)


def _typed(array: Any, column: pa.Field) -> Any:
    if array.type == column.type:
        return array
    return (
        array.dictionary_encode()
        if column.name in TEXTS and not pa.types.is_dictionary(array.type)
        else array.cast(column.type)
    )
