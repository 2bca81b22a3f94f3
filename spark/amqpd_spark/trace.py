"""`amqpd-spark trace`: one message's whole history, for a person.

What comes in: the audit log, and one way to name a message. What goes out: a timeline for each message that is
meant, with everything that came of it and that it came from; the table `trace` if there is an `--output`.
Rules: 1. Several messages may match (an application may use an identifier twice); each has its own timeline. 2. What
was left out because of a bound is said.
Not here: finding what belongs together (`hops.py`).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

import click
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from amqpd_spark.door import Command, Refused
from amqpd_spark.hops import KINDS, TOLD, Incarnations, Name, follow, matching, name_of
from amqpd_spark.options import ENGINE, GIVEN, INPUT, PERIOD, Options
from amqpd_spark.output import apart
from amqpd_spark.schema import ENDS, OF_QUEUES, PUBLISHED

HOPS, MESSAGES = 100, 10_000
# What a person scrolls through; the table has the rest.
INCARNATIONS_SHOWN, EVENTS_SHOWN = 20, 200

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OF_MESSAGES = (*OF_QUEUES, "standing")
_TEXTS = ("event", "node", "vhost", "queue", "exchange", "routing_key", "user", "connection", "consumer", "reason")
_IDS = ("message_id", "correlation_id")
_INTS, _FLAGS = ("incarnation", "epoch", "channel"), ("persistent", "redelivered")
SCHEMA = pa.schema(
    [
        ("message", pa.int32()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("relative_ms", pa.float64()),
        *((name, pa.string()) for name in (*_TEXTS, "place", *_IDS)),
        *((name, pa.int32()) for name in _INTS),
        *((name, pa.int64()) for name in ("number", "queue_id", "seq", "publication", "confirm_tag", "body_bytes")),
        *((name, pa.bool_()) for name in _FLAGS),
    ]
)


def names(events: DataFrame, by: str, value: str, limit: int = MESSAGES) -> list[Name]:
    """What is meant: `by` is an option's name with _. Raises click.BadParameter when the value is not in its form."""
    if by in _IDS:
        about = F.col("event").isin(*PUBLISHED, *_OF_MESSAGES) & (F.col(by) == value)
        return [name for row in matching(events, about, limit) for name in _all_of(row)][:limit]
    parts = value.split(":") if by != "confirm" else value.rsplit("/", 2)
    numbers = parts[1:] if by == "confirm" else parts
    expected = {"publication": 2, "confirm": 3, "queue_message": 3}[by]
    if len(parts) != expected or not all(part.isdecimal() for part in numbers):
        raise click.BadParameter(f"'{value}' is not in the form that --help shows", param_hint=_option(by))
    given = [int(part) for part in numbers]
    if by == "publication":
        return _numbered(events, F.col("incarnation") == given[0], given[1], "publication", limit)
    if by == "queue_message":
        return _numbered(
            events, (F.col("queue_id") == given[0]) & (F.col("epoch") == given[1]), given[2], "message", limit
        )
    # A connection's name may come again, so more than one publication may have had that tag.
    same = (F.col("connection") == parts[0]) & (F.col("channel") == given[0]) & (F.col("publication") > 0)
    told = F.col("event").isin(*PUBLISHED, *TOLD)
    rows = matching(events, same & told & _holds("confirm_tag", 1, given[1]), limit)
    return [name_of("publication", row, given[1] - row["confirm_tag"]) for row in rows]


def _option(by: str) -> str:
    return "--" + by.replace("_", "-")


def _holds(column: str, lowest: int, number: int) -> Column:
    start = F.col(column)
    return (start >= lowest) & (start <= number) & (start + F.col("count") > number)


def _numbered(events: DataFrame, same: Column, number: int, kind: str, limit: int) -> list[Name]:
    known = F.col("event").isin(*KINDS[kind].events)
    start, lowest = KINDS[kind].number, KINDS[kind].lowest
    rows = matching(events, known & same & _holds(start, lowest, number), limit)
    return [name_of(kind, row, number - row[start]) for row in rows]


def _all_of(row: Row) -> list[Name]:
    kind = "message" if row["event"] in _OF_MESSAGES else "publication"
    return [name_of(kind, row, offset) for offset in range(row["count"])]


def table(incarnations: Incarnations) -> list[dict[str, Any]]:
    """A row for each event of each message, of the columns of SCHEMA; `message` counts from 1."""
    rows = []
    for incarnation, entries in groupby(incarnations.entries, key=lambda entry: entry[0]):
        begin = None
        for _, row, offset in entries:
            begin = row["us"] if begin is None else begin
            known: dict[str, Any] = {name: row[name] for name in (*_TEXTS, *_IDS, *_INTS, *_FLAGS)}
            known |= {name: row[name] for name in ("number", "queue_id", "body_bytes", "place")}
            known |= {"message": incarnation + 1, "time": _EPOCH + timedelta(microseconds=row["us"])}
            known["relative_ms"] = (row["us"] - begin) / 1000
            known["seq"] = row["first"] + offset if row["event"] in _OF_MESSAGES else None
            for name in ("publication", "confirm_tag"):
                known[name] = row[name] + offset if row[name] else 0
            rows.append(known)
    return rows


def told(rows: list[dict[str, Any]]) -> list[str]:
    """The timelines, line by line."""
    lines = []
    count = rows[-1]["message"]
    for number, group in groupby(rows, key=lambda row: row["message"]):
        incarnation = list(group)
        if number > INCARNATIONS_SHOWN:
            lines += ["", f"{count - INCARNATIONS_SHOWN:,} more messages are not shown"]
            break
        lines += ["", f"Message {number} of {count}: {_title(incarnation)}", f"Now: {_fate(incarnation)}", ""]
        lines += [_line(row) for row in incarnation[:EVENTS_SHOWN]]
        if len(incarnation) > EVENTS_SHOWN:
            lines.append(f"  {len(incarnation) - EVENTS_SHOWN:,} more events are not shown")
    return lines[1:]


def _title(incarnation: list[dict[str, Any]]) -> str:
    for row in incarnation:
        if row["event"] in PUBLISHED:
            identifier = f"{row['message_id']}, " if row["message_id"] else ""
            return f"{identifier}{row['body_bytes']:,} bytes, {row['time']:%Y-%m-%d}, virtual host {row['vhost']}"
    return f"{incarnation[0]['time']:%Y-%m-%d}, its publish is not in the log"


def _fate(incarnation: list[dict[str, Any]]) -> str:
    """Where each of its copies is, or how it ended; those that went on elsewhere have another copy there."""
    fates: dict[tuple[Any, ...], str] = {}
    for row in incarnation:
        if row["seq"] is not None:
            key = row["place"], row["queue_id"], row["epoch"], row["seq"]
            ended = row["event"] in ENDS
            if ended or key not in fates:
                reason = f" ({row['reason']})" if ended and row["reason"] else ""
                fates[key] = f"{row['event'].replace('_', '-')} in {row['queue']}{reason}" if ended else ""
                fates[key] = fates[key] or f"no end in {row['queue']}"
    if not fates:
        return "in no queue"
    counted: dict[str, int] = {}
    for fate in fates.values():
        counted[fate] = counted.get(fate, 0) + 1
    return "; ".join(f"{fate}, {count} times" if count > 1 else fate for fate, count in counted.items())


def _line(row: dict[str, Any]) -> str:
    if row["seq"] is not None:
        where = f"{row['queue']} {row['queue_id']}:{row['epoch']}:{row['seq']}"
    else:
        where = f"exchange {row['exchange'] or '(default)'}" if row["event"] in PUBLISHED else ""
        where += f", key {row['routing_key']}" if row["routing_key"] else ""
    who = [row["consumer"] and f"to {row['consumer']}", row["seq"] is None and row["user"], row["connection"]]
    notes = [row["reason"], row["redelivered"] and "redelivered"]
    if row["seq"] is None and row["confirm_tag"]:
        notes.append(f"confirm tag {row['confirm_tag']}")
    if row["publication"]:
        notes.append(f"publication {row['incarnation']}:{row['publication']}")
    who_text, note_text = (", ".join(str(each) for each in part if each) for part in (who, notes))
    moment = f"{row['time']:%H:%M:%S.%f} {row['relative_ms']:>+14,.3f} ms"
    return f"  {moment}  {row['event']:<14}{where:<34}  {who_text:<30}  {note_text}".rstrip()


def run(events: DataFrame, by: str, value: str, hops: int = HOPS, messages: int = MESSAGES) -> Incarnations:
    """The incarnations of what is meant; none: no entries."""
    found = names(events, by, value, messages + 1)
    if not found:
        return Incarnations()
    incarnations = follow(events, found, hops, messages)
    if len(found) > messages:
        incarnations.cut = f"at {messages:,} messages"
    return incarnations


def write(spark: SparkSession, rows: list[dict[str, Any]], address: str) -> None:
    columns = pa.Table.from_pylist(rows, schema=SCHEMA)
    spark.createDataFrame(columns).coalesce(1).write.mode("overwrite").parquet(address)


@click.command("trace", cls=Command)
@INPUT
@click.option("--output", metavar="DIR", help="Where the table `trace` goes; without it nothing is written.")
@click.option("--message-id", metavar="ID", help="The property message_id.")
@click.option("--correlation-id", metavar="ID", help="The property correlation_id.")
@click.option("--publication", metavar="INCARNATION:N", help="Publication N of a broker's incarnation.")
@click.option("--confirm", metavar="CONNECTION/CHANNEL/TAG", help="What a publisher got this confirm for.")
@click.option("--queue-message", metavar="QUEUE_ID:EPOCH:NUMBER", help="A message in a queue.")
@click.option("--hops", type=click.IntRange(1), default=HOPS, show_default=True, help="Follow no further than this.")
@click.option(
    "--messages",
    type=click.IntRange(1, 100_000),
    default=MESSAGES,
    show_default=True,
    help="No more publications and messages than this.",
)
def command(input: tuple[str, ...], output: str | None, hops: int, messages: int, **given: Any) -> None:
    """One message's whole history: who published it, each queue it was in, each delivery, how it ended, across
    dead-letter hops both ways. Exit code 2: nothing matches.

    Example: a customer asks what became of order 4711.

    \b
      amqpd-spark trace --input /var/lib/amqpd/audit/events --message-id order-4711
    """
    shared = {key: given.pop(key) for key in GIVEN}
    asked = [(by, value) for by, value in given.items() if value is not None]
    if len(asked) != 1:
        raise click.UsageError(f"give exactly one of {', '.join(_option(by) for by in given)}")
    options = Options("trace", input, output or "", **shared)
    spark = options.session()
    if output:
        apart(input, output)
        options.ready(spark, "trace")
    by, value = asked[0]
    incarnations = run(options.events(spark), by, value, hops, messages)
    if not incarnations.entries:
        raise Refused(f"Nothing in the log has {_option(by)[2:].replace('-', ' ')} {value} ({_period(options)}).")
    rows = table(incarnations)
    click.echo("\n".join(told(rows)))
    if incarnations.cut:
        click.echo(f"\nCut {incarnations.cut}: there may be more; --hops and --messages raise the bounds.")
    if output:
        write(spark, rows, options.table("trace"))
        click.echo(f"\nThe table is {options.table('trace')}")


for _each in (*ENGINE, *PERIOD):
    command = _each(command)


def _period(options: Options) -> str:
    if options.since is None and options.until is None:
        return "searched: the whole log"
    ends = [f"{moment:%Y-%m-%d %H:%M} UTC" if moment else "" for moment in (options.since, options.until)]
    return "searched: " + " ".join(f"{word} {end}" for word, end in zip(("from", "until"), ends, strict=True) if end)
