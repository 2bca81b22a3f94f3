"""The length of a row of the books: what is asked for, or what fits the log.

What comes in: an option's value, the inventory of the log. What goes out: a length of time as Spark writes it
("15 minutes"), and the same beside a table's column `window`, so that who reads the table need not guess.
Rules: 1. AUTO costs no look at the rows where footers or the names of folders say the times. 2. What is given is
taken as it is.
Not here: what is counted in a window (`books/`, `over_time.py`).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

import click
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from amqpd_spark.footers import File, named
from amqpd_spark.inventory import Inventory
from amqpd_spark.stretches.scan import Rows
from amqpd_spark.tabular import Table, with_metadata

AUTO = "auto"
MINUTES_UP_TO_S, HOURS_UP_TO_S = 6 * 3600, 14 * 86400
"""of data; what is longer has days"""
LENGTH_KEY = "amqpd.window"
"""in the metadata of the column"""
_FORM = re.compile(r"([1-9]\d*) (minute|hour|day)s?")
_SECONDS = {"minute": 60, "hour": 3600, "day": 86400}


def asked(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """The option's value, if it is one."""
    if value != AUTO and _FORM.fullmatch(value) is None:
        raise click.BadParameter(
            f"'{value}' is no length of time: write it as '15 minutes', '1 hour', '1 day' or 'auto'"
        )
    return value


def fitting(
    asked: str, inventory: Inventory, rows: Rows, since: datetime | None = None, until: datetime | None = None
) -> str:
    """`asked`, or for AUTO what fits the time between the first event and the last. `rows`: of since to until."""
    if asked != AUTO:
        return asked
    length = _length_s(inventory, rows, since, until)
    return "1 minute" if length <= MINUTES_UP_TO_S else "1 hour" if length <= HOURS_UP_TO_S else "1 day"


def marked(table: Table, length: str) -> Table:
    """The table, whose column `window` says how long it is."""
    return with_metadata(table, "window", {LENGTH_KEY: length})


def seconds(length: str) -> int:
    """Of a window's length."""
    found = _FORM.fullmatch(length)
    if found is None:
        raise ValueError(f"{length!r} is no length of a window")
    return int(found[1]) * _SECONDS[found[2]]


def length_s(table: DataFrame) -> int | None:
    """Seconds of a table's windows. None: an earlier version wrote it."""
    length = str(table.schema["window"].metadata.get(LENGTH_KEY, ""))
    return seconds(length) if _FORM.fullmatch(length) else None


def _length_s(inventory: Inventory, rows: Rows, since: datetime | None, until: datetime | None) -> float:
    known = [ends for file in inventory.files if (ends := _ends_us(file)) is not None]
    if len(known) < len(inventory.files):
        row = rows.events.agg(*(F.unix_micros(end("time")) for end in (F.min, F.max))).collect()[0]
        known = [(row[0], row[1])] if row[0] is not None else []
    if not known:
        return 0.0
    begin, end = min(low for low, _ in known) / 1e6, max(high for _, high in known) / 1e6
    # One more file on each side of the period was looked at.
    begin = begin if since is None else max(begin, since.timestamp())
    end = end if until is None else min(end, until.timestamp())
    return end - begin


def _ends_us(file: File) -> tuple[int, int] | None:
    """As the footer says, or else within an hour, as the folder's name says. None: neither does."""
    if file.from_us is not None and file.to_us is not None:
        return file.from_us, file.to_us
    hour = named(file.path)[3]
    if not hour:
        return None
    begin = round(datetime.strptime(hour, "%Y-%m-%d %H").replace(tzinfo=UTC).timestamp() * 1e6)
    return begin, begin
