"""The columns of the audit log, as `docs/audit.md` documents them.

What comes in: nothing. What goes out: `EVENTS`, the names of events in groups.
Rules: a column or an event is added here and in the document in one change; none changes its meaning.
Not here: reading (`events.py`), the broker's side (`amqpd/audit/files/columns.py`; a test holds the two together).
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

FORMAT = "1"
"""value of `amqpd.audit.format` in the files' metadata"""

_TEXT, _LONG, _INT, _FLAG = StringType(), LongType(), IntegerType(), BooleanType()

COLUMNS: dict[str, DataType] = {
    "event": _TEXT,
    "time": TimestampType(),
    "node": _TEXT,
    "incarnation": _INT,
    "number": _LONG,
    "vhost": _TEXT,
    "queue": _TEXT,
    "queue_id": _LONG,
    "epoch": _INT,
    "first": _LONG,
    "count": _LONG,
    "publication": _LONG,
    "confirm_tag": _LONG,
    "exchange": _TEXT,
    "routing_key": _TEXT,
    "user": _TEXT,
    "connection": _TEXT,
    "channel": _INT,
    "consumer": _TEXT,
    "reason": _TEXT,
    "persistent": _FLAG,
    "redelivered": _FLAG,
    "auto": _FLAG,
    "body_bytes": _LONG,
    "message_id": _TEXT,
    "correlation_id": _TEXT,
    "address": _TEXT,
    "object": _TEXT,
    "detail": _TEXT,
    "source": _INT,
    "source_epoch": _INT,
}

FORMAT_KEY, MADE_BY_KEY = "amqpd.audit.format", "amqpd.audit.made_by"
"""in the files' metadata; what Spark writes has them in that of the column `event`"""

EVENTS = StructType([StructField(name, kind) for name, kind in COLUMNS.items()])

# The ends: each message in a queue has one of them, or stands there still.
ENDS = ("acked", "expired", "dropped", "rejected", "dead_lettered", "purged", "moved", "released")
OF_QUEUES = ("routed", "delivered", "requeued", *ENDS)
PUBLISHED = ("published", "returned", "unroutable", "routed")
"""events that have the properties and the confirm tag of what was published"""
OF_PUBLICATIONS = ("published", "returned", "unroutable", "confirmed", "refused")
ACTS = (
    *("connection_opened", "connection_closed", "login_failed", "permission_refused"),
    *("queue_declared", "queue_deleted", "queue_purged", "exchange_declared", "exchange_deleted", "bound", "unbound"),
    *("vhost_put", "vhost_deleted", "user_put", "user_deleted", "permission_put", "permission_deleted"),
    *("policy_put", "policy_deleted", "parameter_put", "parameter_deleted"),
    *("orphan_adopted", "orphan_exported", "orphan_deleted", "http_request"),
)

STRETCH_MAX = 65_536
"""messages in one row, at most"""


def marked(rows: DataFrame, made_by: str) -> DataFrame:
    """So that the footers of the files which Spark writes of them say the format, and which job it was."""
    return rows.withColumn(
        "event", F.col("event").alias("event", metadata={FORMAT_KEY: FORMAT, MADE_BY_KEY: made_by})
    )
