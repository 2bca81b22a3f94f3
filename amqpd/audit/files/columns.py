"""The columns of the log's Parquet files.

What comes in: nothing. What goes out: `SCHEMA` for pyarrow, the format's version.
Rules: as in docs/audit.md, in the same order; within a format columns are only added, at the end.
Not here: filling them (`parquet.py`).
"""

from __future__ import annotations

import pyarrow as pa

FORMAT = "1"

_TEXT = pa.dictionary(pa.int32(), pa.string())

SCHEMA = pa.schema(
    [
        ("event", _TEXT),
        ("time", pa.timestamp("us", tz="UTC")),
        ("node", _TEXT),
        ("incarnation", pa.int32()),
        ("number", pa.int64()),
        ("vhost", _TEXT),
        ("queue", _TEXT),
        ("queue_id", pa.int64()),
        ("epoch", pa.int32()),
        ("first", pa.int64()),
        ("count", pa.int64()),
        ("publication", pa.int64()),
        ("confirm_tag", pa.int64()),
        ("exchange", _TEXT),
        ("routing_key", _TEXT),
        ("user", _TEXT),
        ("connection", _TEXT),
        ("channel", pa.int32()),
        ("consumer", _TEXT),
        ("reason", _TEXT),
        ("persistent", pa.bool_()),
        ("redelivered", pa.bool_()),
        ("auto", pa.bool_()),
        ("body_bytes", pa.int64()),
        ("message_id", _TEXT),
        ("correlation_id", _TEXT),
        ("address", _TEXT),
        ("object", _TEXT),
        ("detail", _TEXT),
        ("source", pa.int32()),
        ("source_epoch", pa.int32()),
    ],
    metadata={"amqpd.audit.format": FORMAT},
)
TEXTS = tuple(field.name for field in SCHEMA if field.type == _TEXT)
NUMBERS = tuple(field.name for field in SCHEMA if pa.types.is_integer(field.type))
