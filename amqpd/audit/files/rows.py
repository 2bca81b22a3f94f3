"""Records of the spool as rows of the log: what each column has, made by numpy.

What comes in: records, names that they refer to, acts. What goes out: tables of pyarrow.
Rules: 1. Nothing is done for each record in Python. 2. What does not apply is null, 0 or false (docs/audit.md).
Not here: reading spool files, writing files of the log (`parquet.py`), the columns' types (`columns.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from amqpd.audit.files.columns import FORMAT, NUMBERS, SCHEMA, TEXTS
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
from amqpd.audit.spool import RECORD

LAYOUT = np.dtype(
    [
        *(("time", "<u8"), ("first", "<u8"), ("publication", "<u8"), ("confirm_tag", "<u8"), ("count", "<u4")),
        *(("body_bytes", "<u4"), ("name", "<u4"), ("queue", "<u4"), ("text", "<u4"), ("kind", "u1")),
        *(("flags", "u1"), ("channel", "<u2")),
    ]
)
assert LAYOUT.itemsize == RECORD.size
_EVENT_KINDS = max(NAMES) + 1


@dataclass
class BlockRecords:
    """Records of some blocks, the numbers of their rows, acts among them, and all names said so far in the file."""

    records: list[np.ndarray[Any, Any]] = field(default_factory=list)
    numbers: list[np.ndarray[Any, Any]] = field(default_factory=list)
    acts: list[dict[str, Any]] = field(default_factory=list)
    size: int = 0
    first: int = 0
    """number of the first row"""
    end: int = 0
    """number of the last one"""


def rows_of(records: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """How many rows each record makes."""
    two = (records["kind"] == ROUTED) & (records["flags"] & WITH_PUBLISHED > 0)
    two |= records["flags"] & WITH_ACKED > 0
    return np.where(two, 2, 1)


def table_of(part: BlockRecords, names: list[dict[str, Any]], node: str, incarnation: int) -> pa.Table:
    records = np.concatenate(part.records)
    numbers = np.concatenate(part.numbers)
    rows = rows_of(records)
    source = np.repeat(np.arange(len(records)), rows)
    second = np.zeros(len(source), bool)
    second[1:] = source[1:] == source[:-1]
    columns = _columns(records[source], second, rows[source] == 2, names)
    columns |= {"number": pa.array(numbers), "incarnation": pa.array(np.full(len(source), incarnation, np.int32))}
    columns["node"] = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(source), np.int32)), pa.array([node]))
    table = pa.table([_typed(columns[name.name], name) for name in SCHEMA], schema=SCHEMA)
    if part.acts:
        table = pa.concat_tables([table, _acts(part.acts, node, incarnation)]).unify_dictionaries()
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
        "body_bytes": pa.array(np.where(acked, 0, rows["body_bytes"]).astype(np.int64)),
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


def _acts(acts: list[dict[str, Any]], node: str, incarnation: int) -> pa.Table:
    columns = []
    for column in SCHEMA:
        name = column.name
        default: Any = 0 if name in NUMBERS else False if pa.types.is_boolean(column.type) else None
        default = {"node": node, "incarnation": incarnation, "count": 1}.get(name, default)
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
