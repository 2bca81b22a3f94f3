"""A moment: where an event is in the order of its broker's events, and which event, in one long.

What comes in: incarnation, number, event. What goes out: a column that min and max understand, and its parts.
Rules: 16 bits of incarnation, 43 of number, 4 of event: 65,535 starts of a broker, and 8 * 10^12 events in one
incarnation.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from amqpd_spark.schema import ENDS

KINDS = ("", "routed", "delivered", "requeued", *ENDS, "standing")
"""of events, in the order of their four bits"""
INCARNATION_SHIFT = 47
NUMBER_SHIFT = 4
NUMBER_MAX = (1 << (INCARNATION_SHIFT - NUMBER_SHIFT)) - 1
LAST_KIND = (1 << NUMBER_SHIFT) - 1
NONE = -1
"""no moment"""
_KIND_MASK = LAST_KIND


def moment() -> Column:
    """Of a row of the log."""
    kind = F.coalesce(F.array_position(F.array(*map(F.lit, KINDS)), F.col("event")) - 1, F.lit(0))
    kind = F.when(kind < 0, F.lit(0)).otherwise(kind)
    return _packed(F.col("incarnation"), F.col("number")) + kind.cast("long")


def moment_of(incarnation: Column, number: Column) -> Column:
    """The least of a row; `LAST_KIND` more is the greatest."""
    return _packed(incarnation, number)


def incarnation_of(packed: Column) -> Column:
    return F.shiftright(packed, INCARNATION_SHIFT).cast("int")


def number_of(packed: Column) -> Column:
    return F.shiftright(packed, NUMBER_SHIFT).bitwiseAND(F.lit(NUMBER_MAX))


def event_of(packed: Column) -> Column:
    """null for null."""
    return F.get(F.array(*map(F.lit, KINDS)), packed.bitwiseAND(F.lit(_KIND_MASK)).cast("int"))


def _packed(incarnation: Column, number: Column) -> Column:
    return F.shiftleft(incarnation.cast("long"), INCARNATION_SHIFT) + F.shiftleft(number, NUMBER_SHIFT)
