"""Every message accounted for: what came in went out once, or is still there.

What comes in: the audit log. What goes out: `books`, a row for each virtual host, queue and window of time, whose
columns add up; `findings`, a row for what must not be, and for what cannot be known; `flow`; exit code 1 for faults.
Rules: 1. A message counts in the window in which it entered. 2. What cannot be known is said, and not called a fault.
Not here: how each message's fate is found (`books/`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce

import click
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from amqpd_spark.books.digest import Digest, digest
from amqpd_spark.books.fates import ENDED
from amqpd_spark.books.lookup import Lookup
from amqpd_spark.books.moments import moment_of
from amqpd_spark.books.outcome import outcome
from amqpd_spark.books.places import placed
from amqpd_spark.books.queues import anchors, moments, slots, tables
from amqpd_spark.books.spans import doubtful, holes, lacking
from amqpd_spark.books.suspects import OF_ENTRY, resolved, said
from amqpd_spark.files import plain
from amqpd_spark.given import of_rows
from amqpd_spark.inventory import Hole, Inventory, Removed
from amqpd_spark.options import Options, job_command
from amqpd_spark.over_time import flow
from amqpd_spark.schema import ENDS
from amqpd_spark.session import expect, kept
from amqpd_spark.stretches.scan import Rows
from amqpd_spark.windows import AUTO, asked, fitting, marked, seconds

FATES = (*ENDS, "transient", "unconfirmed", "standing", "uncertain", "missing")
"""a message that was accepted, found in an anchor, or entered unseen, has one of them"""
FAULTS = ("missing", "returned_from_the_dead", "ended_twice", "ended_yet_standing", "never_routed", "hole")
LOG_FAULTS = ("log_hole", "rows_removed")
"""of the log, not of the broker"""
DOUBTS = ("unrecorded", "confirmed_unpublished", "gap")
SHOWN_MAX = 20
"""findings of a kind, printed"""

FINDING = {
    **dict.fromkeys(("kind", "node", "vhost", "queue"), "string"),
    "life": "int",
    "queue_id": "bigint",
    "epoch": "int",
    **dict.fromkeys(("first", "count", "publication", "confirm_tag"), "bigint"),
    **dict.fromkeys(("exchange", "routing_key", "user", "connection"), "string"),
    "channel": "int",
    **dict.fromkeys(("message_id", "correlation_id"), "string"),
    **dict.fromkeys(("entered", "last_seen"), "timestamp"),
    "detail": "string",
    **dict.fromkeys(("rows_from", "rows_to"), "bigint"),
}
ENTRIES = ("accepted", "found", "unseen")
NOTHING_KNOWN = Inventory([])
_ENTRY = ("window", "fate", "found", "unseen")
_PLACE = ("node", "vhost", "queue")
_NAMED = (*_PLACE, "queue_id", "epoch")
_NEVER_ROUTED = "never routed, between two that were"


@dataclass(frozen=True)
class Account:
    """`books`, `flow` and `findings` as docs/audit/conservation.md has them; `before`: messages of before the log."""

    books: DataFrame
    flow: DataFrame
    findings: DataFrame
    before: int


def account(
    rows: Rows,
    window: str = "1 hour",
    cut: bool = False,
    sampled: bool = False,
    inventory: Inventory = NOTHING_KNOWN,
) -> Account:
    """`cut`: the log was read from some time on. `sampled`: numbers are left out of it on purpose."""
    spark = rows.spark
    seen = digest(rows, publications=not (sampled or cut))
    heads = anchors(seen)
    lost = inventory.lost
    of_queues = slots(seen, heads)
    at = moments(seen, heads, lost)
    parts = rows.tasks(inventory)
    everything = outcome(rows, parts, seconds(window) * 1_000_000, Lookup(of_queues, at), cut)
    # What is left of the rows after their one shuffle is less by far.
    expect(spark, parts)
    known = tables(spark, of_queues, at)
    is_ended = F.coalesce(F.col("fate") == ENDED, F.lit(False))
    entered = everything.where(~is_ended)
    sums = _sums(entered)
    # "absent" ones are not settled yet, and have no fate: `resolved` gives it.
    suspects = resolved(placed(rows.events), known, entered, sums.absent) if sums.suspects else None
    counted = entered.where(F.col("suspect").isNull()).select("slot", *_ENTRY, "messages")
    counted = counted.join(known.slots.select("slot", *_PLACE), "slot")
    found = [of_rows(spark, [], ", ".join(f"{name} {kind}" for name, kind in FINDING.items()))]
    if seen.of("gap"):
        found.append(_gaps(spark, seen))
    if lost or inventory.removed_rows:
        found.append(_of_log(spark, inventory))
    if suspects is not None:
        counted = counted.unionByName(suspects.select("slot", *_ENTRY, "messages", *_PLACE))
        found.append(_of_messages(suspects))
    if sums.unrecorded:
        found.append(_unrecorded(entered, known.slots))
    if not sampled:
        lacks = lacking(of_queues, heads, sums.entered)
        gone = holes(placed(rows.events), lacks, heads) if lacks else None
        if gone is not None and lost:
            excused, silent = doubtful(placed(rows.events), known, gone)
            gone = gone.join(excused, ["node", "queue_id", "epoch", "low"], "left_anti")
            counted = counted.unionByName(_silent(silent, known.slots, lost, window))
        if gone is not None:
            found.append(_finding("hole", gone.select(*_NAMED, *_numbers()), F.lit(_NEVER_ROUTED)))
        if not cut and seen.untold:
            found.append(_untold(spark, seen, lost))
    findings = reduce(DataFrame.unionByName, found)
    books = kept(_books(counted))
    ended = everything.where(is_ended).join(known.slots.select("slot", *_PLACE), "slot")
    return Account(books, flow(books, ended), kept(findings), sums.before)


@dataclass(frozen=True)
class Sums:
    """Of all fates: `entered`, slot -> messages that the log saw enter; `before`: of before the log."""

    entered: dict[int, int]
    suspects: bool
    absent: bool
    unrecorded: bool
    before: int


def _sums(outcome: DataFrame) -> Sums:
    entered = ~F.col("found") & ~F.col("unseen")
    stranger = (F.col("fate") == "stranger") & F.col("suspect").isNull()

    def sum_of(condition: Column) -> Column:
        return F.sum(F.when(condition, F.col("messages")).otherwise(0))

    flags = F.col("suspect").isNotNull(), F.coalesce(F.col("suspect") == "absent", F.lit(False)), F.col("unrecorded")
    of_slot = sum_of(entered), F.max(entered), sum_of(stranger)
    rows = outcome.groupBy("slot").agg(*of_slot, *map(F.max, flags))
    told = rows.collect()
    suspect, absent, unrecorded = (any(row[place] for row in told) for place in (4, 5, 6))
    of = {row[0]: row[1] for row in told if row[2]}
    return Sums(of, suspect, absent, unrecorded, sum(row[3] for row in told))


def _untold(spark: SparkSession, seen: Digest, lost: Sequence[Hole]) -> DataFrame:
    # What is known of them may be in the hole.
    lives = {(hole.node, hole.life) for hole in lost}
    runs = [(node, life, low, high - low + 1) for node, life, low, high in seen.untold if (node, life) not in lives]
    made = of_rows(spark, runs, "node string, life int, publication bigint, count bigint")
    return _finding("confirmed_unpublished", made, F.lit("confirmed, and never published"))


def _books(counted: DataFrame) -> DataFrame:
    def sum_of(condition: Column) -> Column:
        return F.coalesce(F.sum(F.when(condition, F.col("messages"))), F.lit(0).cast("long"))

    rows = counted.where(F.col("fate") != "stranger").groupBy("node", "vhost", "queue", "window")
    sums = rows.agg(
        sum_of(~F.col("found") & ~F.col("unseen")).alias("accepted"),
        sum_of(F.col("found")).alias("found"),
        sum_of(F.col("unseen")).alias("unseen"),
        *(sum_of(F.col("fate") == fate).alias(fate) for fate in FATES),
    )
    return sums.withColumn("date", F.to_date("window"))


def _silent(silent: DataFrame, known: DataFrame, lost: Sequence[Hole], window: str) -> DataFrame:
    """Rows of the books of numbers that were given out in a hole of the log, and of which it has no word: in the
    window in which the hole begins, as near as its neighbours say."""
    begin = min((hole.after_us or hole.before_us or 0) for hole in lost)
    holes = [(hole.life, hole.first, hole.after_us or hole.before_us or begin) for hole in lost]
    at = of_rows(silent.sparkSession, holes, "life int, number bigint, us bigint")
    times = at.select(moment_of(F.col("life"), F.col("number")).alias("at"), F.timestamp_micros("us").alias("time"))
    # Two nodes may have lost the same rows of the same life.
    times = F.broadcast(times.groupBy("at").agg(F.min("time").alias("time")))
    placed = silent.join(times, "at", "left").join(known.select("slot", "node", "vhost", "queue"), "slot")
    time = F.coalesce("time", F.timestamp_micros(F.lit(begin)))
    return placed.withColumn("time", time).select(
        *("slot", F.window("time", window)["start"].alias("window"), F.lit("uncertain").alias("fate")),
        *(F.lit(False).alias("found"), F.lit(True).alias("unseen")),
        *((F.col("high") - F.col("low") + 1).alias("messages"), "node", "vhost", "queue"),
    )


def _of_log(spark: SparkSession, inventory: Inventory) -> DataFrame:
    """What is wrong with the log itself."""

    def row(kind: str, of: Hole | Removed, begin: int | None, end: int | None, told: str) -> tuple[object, ...]:
        return kind, of.node, of.life, of.first, of.last, begin, end, told

    rows = [
        row("log_hole", hole, hole.after_us, hole.before_us, _rows_of(hole) + _between(hole))
        for hole in inventory.lost
    ]
    rows += [
        row(
            "rows_removed", each, each.from_us, each.to_us, f"{each.gone:,} of {_rows_of(each)} of {plain(each.path)}"
        )
        for each in inventory.removed_rows
    ]
    columns = "kind string, node string, life int, rows_from bigint, rows_to bigint, begin bigint, end bigint"
    made = of_rows(spark, rows, f"{columns}, told string")
    times = {"entered": F.timestamp_micros("begin"), "last_seen": F.timestamp_micros("end")}
    return _finding(None, made.withColumns(times), F.col("told"))


def _rows_of(of: Hole | Removed) -> str:
    return f"rows {of.first:,} to {of.last:,}"


def _between(hole: Hole) -> str:
    ends = [
        f"{datetime.fromtimestamp(us / 1e6, UTC):%Y-%m-%d %H:%M:%S}" if us else ""
        for us in (hole.after_us, hole.before_us)
    ]
    period = {
        (True, True): f", between {ends[0]} and {ends[1]}",
        (True, False): f", after {ends[0]}",
        (False, True): f", before {ends[1]}",
        (False, False): "",
    }[bool(ends[0]), bool(ends[1])]
    return f"{period}: a file of the log is not there"


def _numbers() -> tuple[Column, Column]:
    return F.col("low").alias("first"), (F.col("high") - F.col("low") + 1).alias("count")


def _of_messages(suspects: DataFrame) -> DataFrame:
    detail = F.when(F.lit(False), F.lit(""))
    for kind in FAULTS[:-1]:
        detail = detail.when(F.col("kind") == kind, said(kind))
    rows = suspects.where(F.col("kind").isNotNull()).withColumn("sentence", detail)
    entry = [F.col(name) for name in OF_ENTRY if name != "time"]
    rows = rows.select(
        *(*_NAMED, "kind", "sentence", F.col("epoch").alias("life"), F.col("seq").alias("first")),
        *(F.lit(1).cast("long").alias("count"), *entry, F.col("time").alias("entered")),
        F.col("last_time").alias("last_seen"),
    )
    return _finding(None, rows, F.col("sentence"))


def _unrecorded(outcome: DataFrame, known: DataFrame) -> DataFrame:
    of_slot = outcome.where("unrecorded").groupBy("slot")
    sums = of_slot.agg(F.min("low").alias("first"), F.max("high").alias("high"), F.sum("messages").alias("count"))
    joined = sums.join(known.select("slot", *_NAMED), "slot")
    between = F.concat(F.lit("in an anchor, and never routed; numbers "), "first", F.lit(" to "), "high")
    return _finding("unrecorded", joined, between)


def _gaps(spark: SparkSession, seen: Digest) -> DataFrame:
    rows = [(row.node, row.life, row.us, row.reason, row.detail) for row in seen.of("gap")]
    gaps = of_rows(spark, rows, "node string, life int, us bigint, reason string, detail string")
    begin = F.to_timestamp(F.get_json_object("detail", "$.from"))
    told = F.concat_ws(" ", F.lit("not recorded:"), "reason", F.lit("from"), F.get_json_object("detail", "$.from"))
    end = F.timestamp_micros("us")
    made = gaps.select("node", "life", begin.alias("entered"), end.alias("last_seen"), told.alias("told"))
    return _finding("gap", made, F.col("told"))


def _finding(kind: str | None, rows: DataFrame, detail: Column) -> DataFrame:
    named = rows.withColumn("detail", detail)
    if kind is not None:
        named = named.withColumn("kind", F.lit(kind))
    return named.select(
        *(
            (F.col(name) if name in named.columns else F.lit(None)).cast(kind).alias(name)
            for name, kind in FINDING.items()
        )
    )


@job_command("conservation")
@click.option(
    "--window",
    default=AUTO,
    show_default=True,
    callback=asked,
    help="Length of a row of the books: '15 minutes', '1 hour'; auto: minutes, hours or days, as fits the log.",
)
@click.option("--sampled", is_flag=True, help="The log has a sample: numbers that are not in it are no holes.")
@click.option("--strict", is_flag=True, help="Exit 1 for what cannot be known, too: gaps, messages unrecorded.")
def command(options: Options, window: str, sampled: bool, strict: bool) -> int:
    """Account for every message: each that entered a queue ended once, or stands there still.

    \b
    amqpd-spark conservation --input /var/lib/amqpd/audit/events --output /srv/audit
    amqpd-spark conservation --input ... --output ... --since 2026-11-21 --window '15 minutes'

    Writes the tables `books` (a row for each queue and window; its columns add up), `flow` (what entered and ended in
    each window) and `findings`. Exit code 1 when a message is missing, ended twice, came back after its end or was
    never routed, numbers of a queue were never used, or a file of the log is not there.
    """
    spark = options.session(light=True)
    options.ready(spark, "books", "flow", "findings")
    log = options.log(spark)
    window = fitting(window, log.inventory, log.rows, options.since, options.until)
    found = account(log.rows, window, options.since is not None, sampled, log.inventory)
    for name, made in (("books", found.books), ("flow", found.flow)):
        marked(made, window).write.mode("overwrite").partitionBy("date").parquet(options.table(name))
    # All of it: with dynamic overwrite a kind of which there is none any more would stay.
    writer = found.findings.write.mode("overwrite").option("partitionOverwriteMode", "static")
    writer.partitionBy("kind").parquet(options.table("findings"))
    counts = _print(found)
    click.echo(f"\nTables: {', '.join(map(options.table, ('books', 'flow', 'findings')))} (windows of {window})")
    for sentence in _unknown(log.inventory):
        click.echo(sentence)
    bad = (*FAULTS, *LOG_FAULTS, *DOUBTS) if strict else (*FAULTS, *LOG_FAULTS)
    return int(any(counts.get(kind) for kind in bad))


def _print(found: Account) -> dict[str, int]:
    """How many findings of each kind."""
    sums = found.books.agg(*(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in (*ENTRIES, *FATES)))
    totals = sums.collect()[0]
    click.echo(f"{totals['accepted']:>16,}  messages accepted")
    if totals["found"]:
        click.echo(f"{totals['found']:>16,}  more were there already, as an anchor says")
    if totals["unseen"]:
        click.echo(f"{totals['unseen']:>16,}  more may have entered in a hole of the log")
    for fate in FATES:
        if totals[fate] or fate == "missing":
            click.echo(f"{totals[fate]:>16,}  {_WORDS.get(fate, fate)}")
    if found.before:
        click.echo(f"{found.before:>16,}  others ended that had entered before the log begins: not counted")
    counts = {row["kind"]: row["n"] for row in found.findings.groupBy("kind").agg(F.count("*").alias("n")).collect()}
    for kind in (*LOG_FAULTS, *FAULTS, *DOUBTS):
        if kind in counts:
            click.echo(f"\n{kind}: {counts[kind]:,}")
            rows = found.findings.where(F.col("kind") == kind).orderBy(*_NAMED, "first").limit(SHOWN_MAX)
            for row in rows.collect():
                click.echo("  " + _line(row.asDict()))
            if counts[kind] > SHOWN_MAX:
                click.echo(f"  ... {counts[kind] - SHOWN_MAX:,} more in the table")
    if "gap" in counts or "unrecorded" in counts:
        click.echo(
            "\nTHE LOG HAS GAPS: messages that were there before one, and not after, are `uncertain`, not missing."
        )
    if "log_hole" in counts:
        click.echo(
            "\nTHE LOG HAS HOLES: what may have happened in one is `uncertain`; put the file back and run this again."
        )
    if not (any(totals[name] for name in ENTRIES) or counts):
        click.echo("\nNo messages are in this log: audit.level says which are recorded.")
    elif not any(counts.get(kind) for kind in (*FAULTS, *LOG_FAULTS)):
        click.echo("\nNothing is missing, nothing ended twice.")
    return counts


def _unknown(inventory: Inventory) -> list[str]:
    """What could not be looked at in the files."""
    if inventory.unchecked:
        return [f"Of {inventory.unchecked:,} files no lost rows can be told: their numbers jump, as of `generate`."]
    if inventory.files and not inventory.edges:
        return ["Whether the oldest or the newest file was lost cannot be told: there is no _log file."]
    return []


_WORDS = {
    "dead_lettered": "dead-lettered",
    "released": "released from their delay",
    "transient": "transient, ended with the broker's life",
    "unconfirmed": "ended with the broker's life before anybody was told that they are safe",
    "standing": "still there",
    "uncertain": "unknown: the log has a gap or a hole there",
    "missing": "MISSING",
}


def _line(row: dict[str, object]) -> str:
    if row["queue"] is None:
        where = f"{row['node']} life {row['life']}"
        if row["count"] is not None:
            where += f" (+{row['count']})"
    else:
        where = f"{row['vhost']} {row['queue']} (id {row['queue_id']}, epoch {row['epoch']}) {row['first']}"
        if row["count"] != 1:
            where += f" (+{row['count']})"
    told = [f"publication {row['publication']}"] if row["publication"] else []
    told += [f"message id {row['message_id']}"] if row["message_id"] else []
    return ": ".join([where, ", ".join([*told, str(row["detail"])])])
