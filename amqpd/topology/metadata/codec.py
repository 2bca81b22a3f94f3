"""Records as the metadata store's keys and values, and back.

What comes in: records and keys of records. What goes out: key strings and JSON text.
Rules: 1. `decode_record(encode_key(r.key), encode_record(r)) == r`, for any names and any field table (but
a tuple in a table comes back as a list). 2. Keys are ASCII: every part of a key is percent-encoded and ends
at a slash, so they sort alike everywhere, and all of a kind in one virtual host stand together. 3. A
field table's value that JSON lacks is an object with one member, whose name begins with a dollar sign. 4.
What was not written by this format is damage, and raises.
Not here: keys that are no records ("system/...", `sync.py`), what the records mean (`vocabulary/records.py`).
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from sys import intern
from typing import Any
from urllib.parse import quote, unquote

from pamqp.exceptions import AMQPPreconditionFailed

from amqpd.topology.metadata.store import StoreDamaged, unreadable_because
from amqpd.topology.policies import PRIORITY_MAX
from amqpd.vocabulary.records import (
    BindingRecord,
    ExchangeRecord,
    Key,
    ParameterRecord,
    PermissionRecord,
    PolicyRecord,
    QueueRecord,
    Record,
    TopicPermissionRecord,
    UserRecord,
    VhostRecord,
)
from amqpd.wire.fieldtypes import BY_LETTER, Number

PREFIX = "topology/"
# Deeper tables than anybody writes by hand, and far from where Python's own recursion ends.
TABLE_DEPTH_MAX = 100
# Remembered parts of keys: a declaration writes its own three times. Names have at most 255 bytes, and what is longer
# is not remembered.
QUOTED_MAX, QUOTED_CHARS_MAX = 1_000, 256
# Tables of arguments that records share: a hundred thousand queues may have the same ones, some 400 bytes each.
SHARED_TABLES_MAX, SHARED_ENTRIES_MAX = 1_000, 8
_PLAIN_TYPES = frozenset({str, int, bool})
# Texts that many records have.
_SHARED = frozenset({"vhost", "node"})
# Written and read by the hundred thousand; their numbers come from the broker itself.
_FREQUENT = (ExchangeRecord, QueueRecord, BindingRecord)
# Names of fields, and types of their values, that were checked.
SHAPES_MAX = 1_000
_readers: dict[tuple[Any, ...], list[tuple[str, Callable[[Any], Any]]]] = {}
_tables: dict[tuple[tuple[str, type, Any], ...], dict[str, Any]] = {}
# What `quote` leaves as it is; it takes five times as long to see that.
_PLAIN = re.compile(r"[A-Za-z0-9_.~-]*\Z")

# Sources of a cluster are numbered from 1; 0 is a node's own.
SOURCE_MAX = 256
# A number of a queue that fits into a column of SQLite's type INTEGER.
QUEUE_ID_MAX = (1 << 63) - 1
# What a sentence quotes of a value that cannot be read, which may be long.
QUOTED_VALUE_MAX = 80
# In the order in which they are loaded: what others depend on goes first. Each with the number of parts of its key,
# the kind included.
_KINDS: tuple[tuple[str, type[Record], int], ...] = (
    ("vhost", VhostRecord, 2),
    ("user", UserRecord, 2),
    ("permission", PermissionRecord, 3),
    ("topic-permission", TopicPermissionRecord, 4),
    ("parameter", ParameterRecord, 4),
    ("policy", PolicyRecord, 3),
    ("operator-policy", PolicyRecord, 3),
    ("exchange", ExchangeRecord, 3),
    ("queue", QueueRecord, 3),
    ("binding", BindingRecord, 7),
)
RECORDS = {kind: record_type for kind, record_type, _ in _KINDS}
_PARTS = {kind: parts for kind, _, parts in _KINDS}
# By the annotations in `vocabulary/records.py`, which are text there.
_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "bool": (bool,),
    "int": (int,),
    "str | None": (str, type(None)),
    "tuple[str, ...]": (list,),
    "Arguments": (dict,),
    "JsonValue": (),
    "DestinationType": (str,),
}
# Never in a sentence.
_SECRET = frozenset({"password_hash"})
# Left out when they say nothing: the version before they came can read a record without them.
_OPTIONAL = {"source": 0, "node": ""}
_FIELDS = {
    record_type: {field.name: _TYPES[str(field.type)] for field in fields(record_type)}
    for record_type in RECORDS.values()
}
_REQUIRED = {
    record_type: {field.name for field in fields(record_type) if field.default is field.default_factory is MISSING}
    for record_type in RECORDS.values()
}


def encode_key(key: Key) -> str:
    """`("queue", "/", "a b")` -> `topology/queue/%2F/a%20b/`."""
    return PREFIX + "".join([_quoted(part) if len(part) <= QUOTED_CHARS_MAX else _quote(part) for part in key])


def _quote(part: str) -> str:
    if _PLAIN.match(part):
        return part + "/"
    return quote(part, safe="", errors="surrogatepass") + "/"


_quoted = lru_cache(maxsize=QUOTED_MAX)(_quote)


def decode_key(text: str) -> Key:
    """The parts of a store's key. Raises StoreDamaged."""
    if text.startswith(PREFIX) and text.endswith("/"):
        parts = text.removeprefix(PREFIX).removesuffix("/").split("/")
        if len(parts) == _PARTS.get(parts[0]):
            return tuple([unquote(part, errors="surrogatepass") if "%" in part else part for part in parts])
    raise StoreDamaged(f"the metadata has a key that is not a record's: {text!r}")


def encode_record(record: Record) -> str:
    """Raises AMQPPreconditionFailed when its arguments are nested too deep, or when it could not be read again,
    TypeError when they hold something that AMQP has no field type for."""
    values: dict[str, Any] = {}
    for name, types in _FIELDS[type(record)].items():
        value = getattr(record, name)
        if name in _OPTIONAL and value == _OPTIONAL[name]:
            continue
        values[name] = _plain_table(value, 1) if types == (dict,) else value if types else _plain(value, 1)
    text = json.dumps(values, separators=(",", ":"))
    if not isinstance(record, _FREQUENT):
        # One record that the next start cannot read would keep the node from starting, for good.
        try:
            decode_record(encode_key(record.key), text)
        except StoreDamaged as error:
            raise AMQPPreconditionFailed(f"it could not be read again: {error}") from error
    return text


def decode_record(key: str, text: str) -> Record:
    """The record of a key and a value of the store. Raises StoreDamaged."""
    record_type = RECORDS[kind_of(key)]
    try:
        values: dict[str, Any] = json.loads(text)
        if not isinstance(values, dict):
            raise ValueError("it is no JSON object")
        if record_type is QueueRecord:
            # Before 0.2 an exclusive queue named its node's id here; it goes with that node's lease.
            values.pop("owner_node", None)
        # Which fields are of the right types, and what is made of them, is the same for very many records.
        shape = (record_type, *values, *map(type, values.values()))
        readers = _readers.get(shape)
        if readers is None:
            readers = _checked(record_type, values)
            if len(_readers) < SHAPES_MAX:
                _readers[shape] = readers
        for name, read in readers:
            values[name] = read(values[name])
        record = record_type(**values)
        if encode_key(record.key) != key:
            raise ValueError("it belongs to another key")
        _require_possible(record)
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError) as error:
        said = unreadable_because(error)
        said = said if len(said) <= QUOTED_VALUE_MAX else f"{said[:QUOTED_VALUE_MAX]}..."
        raise StoreDamaged(f"the metadata's record {key} cannot be read ({said})") from error
    return record


def is_source(value: object) -> bool:
    """A node's own, or one of a cluster."""
    return type(value) is int and 0 <= value <= SOURCE_MAX


def _require_possible(record: Record) -> None:
    """Numbers and words that no record has raise ValueError: the journal and the matchers would meet them."""
    if isinstance(record, QueueRecord):
        if not 0 <= record.id <= QUEUE_ID_MAX:
            raise ValueError(f"id is {record.id}")
        if not is_source(record.source):
            raise ValueError(f"source is {record.source}")
    elif isinstance(record, BindingRecord) and record.destination_type not in ("queue", "exchange"):
        raise ValueError(f"destination_type is {record.destination_type!r}")


def kind_of(key: str) -> str:
    """Of a record's key, the first part. Raises StoreDamaged."""
    kind = key.removeprefix(PREFIX).partition("/")[0]
    return kind if key.startswith(PREFIX) and kind in RECORDS else decode_key(key)[0]


def _checked(record_type: type[Record], values: dict[str, Any]) -> list[tuple[str, Callable[[Any], Any]]]:
    """The fields that have to be read, and how. Raises ValueError when one is not of its type."""
    types = _FIELDS[record_type]
    if unknown := values.keys() - types.keys():
        raise ValueError(f"unknown fields {sorted(unknown)}")
    if missing := _REQUIRED[record_type] - values.keys():
        raise ValueError(f"it has no {', '.join(map(repr, sorted(missing)))}")
    readers: list[tuple[str, Callable[[Any], Any]]] = []
    for name, value in values.items():
        if not types[name]:
            readers.append((name, _value))
            continue
        if not isinstance(value, types[name]) or (type(value) is bool) != (bool in types[name]):
            raise ValueError(f"{name} is of another type" if name in _SECRET else f"{name} is {value!r}")
        if types[name] == (list,):
            readers.append((name, tuple))
        elif types[name] == (dict,):
            readers.append((name, _arguments))
        elif name in _SHARED and value is not None:
            readers.append((name, intern))
        elif name == "priority":
            readers.append((name, _priority))
    return readers


def _priority(number: int) -> int:
    """Versions before there was a bound stored any."""
    return max(-PRIORITY_MAX, min(number, PRIORITY_MAX))


def _plain_table(table: Mapping[str, Any], depth: int) -> dict[str, Any]:
    """A table as JSON's values, without the wrapper that it needs where it is itself a value."""
    if depth > TABLE_DEPTH_MAX:
        raise AMQPPreconditionFailed(f"arguments are nested deeper than {TABLE_DEPTH_MAX} levels")
    return {name: _plain(value, depth + 1) for name, value in table.items()}


def _plain(value: Any, depth: int) -> Any:
    if isinstance(value, Number):
        return {f"${value.letter.decode()}": repr(value)}
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": repr(value)}
    if isinstance(value, bytearray):
        return {"$bytearray": base64.b64encode(value).decode()}
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, datetime):
        return {"$datetime": value.isoformat()}
    if isinstance(value, Decimal):
        return {"$decimal": str(value)}
    if isinstance(value, Mapping):
        table = _plain_table(value, depth)
        return {"$table": table} if any(name.startswith("$") for name in table) else table
    if isinstance(value, list | tuple):
        if depth > TABLE_DEPTH_MAX:
            raise AMQPPreconditionFailed(f"arguments are nested deeper than {TABLE_DEPTH_MAX} levels")
        return [_plain(item, depth + 1) for item in value]
    raise TypeError(f"a field table cannot hold {type(value).__name__}")


def _table(plain: dict[str, Any]) -> dict[str, Any]:
    return {name: _value(value) for name, value in plain.items()}


def _arguments(table: dict[str, Any]) -> dict[str, Any]:
    """One table for all records with equal ones, as far as they are plain: nobody changes what a record has."""
    if len(table) > SHARED_ENTRIES_MAX or not _PLAIN_TYPES.issuperset(map(type, table.values())):
        return _table(table)
    # 1 and true are equal, and are not the same.
    key = tuple([(name, type(value), value) for name, value in table.items()])
    found = _tables.get(key)
    if found is None:
        if len(_tables) >= SHARED_TABLES_MAX:
            _tables.clear()
        found = _tables[key] = table
    return found


def _value(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_value(item) for item in plain]
    if not isinstance(plain, dict):
        return plain
    wrapper = next(iter(plain), "")
    if not wrapper.startswith("$"):
        return _table(plain)
    (inner,) = plain.values()
    match wrapper:
        case "$table":
            return _table(inner)
        case "$float":
            return float(inner)
        case "$bytes":
            return base64.b64decode(inner, validate=True)
        case "$bytearray":
            return bytearray(base64.b64decode(inner, validate=True))
        case "$datetime":
            return datetime.fromisoformat(inner)
        case "$decimal":
            return Decimal(inner)
    number = BY_LETTER.get(wrapper[1:])
    if number is None:
        raise ValueError(f"unknown type {wrapper}")
    return number(inner)
