"""Every message accounted for: what came in went out once, or is still there.

What comes in: the audit log. What goes out: `books`, a row for each virtual host, queue and window of time, whose
columns add up; `findings`, a row for what must not be, and for what cannot be known; `flow`; exit code 1 for faults.
Rules: 1. A message counts in the window in which it entered. 2. What cannot be known is said, and not called a fault.
Not here: how each message's fate is found (`books/`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import click
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from amqpd_spark.books import findings, ledger
from amqpd_spark.books.digest import digest
from amqpd_spark.books.findings import DOUBTS, FAULTS, FINDINGS, IN_ORDER, LOG_FAULTS
from amqpd_spark.books.ledger import ENTRIES, FATES
from amqpd_spark.books.lookup import Lookup
from amqpd_spark.books.moments import moment_of
from amqpd_spark.books.outcome import outcome
from amqpd_spark.books.places import placed
from amqpd_spark.books.queues import SMALL, Slot, anchors, moments, of_slots, slots, tables
from amqpd_spark.books.spans import doubtful, holes, lacking
from amqpd_spark.books.summary import summary
from amqpd_spark.books.suspects import resolved
from amqpd_spark.given import empty, of_rows
from amqpd_spark.inventory import Hole, Inventory
from amqpd_spark.options import Options, job_command
from amqpd_spark.over_time import FLOW, flow
from amqpd_spark.session import expect, kept
from amqpd_spark.stretches.scan import Rows
from amqpd_spark.tabular import Table, brought, counted_by, first_of, frame, over, sums_of, united, with_date, write
from amqpd_spark.windows import AUTO, asked, fitting, marked, seconds

SHOWN_MAX = 20
"""findings of a kind, printed"""
NOTHING_KNOWN = Inventory([])


@dataclass(frozen=True)
class Account:
    """`books`, `flow` and `findings` as docs/audit/conservation.md has them; `before`: messages of before the log."""

    books: Table
    flow: Table
    findings: Table
    before: int


def account(
    rows: Rows,
    window: str = "1 hour",
    cut: bool = False,
    sampled: bool = False,
    inventory: Inventory = NOTHING_KNOWN,
) -> Account:
    """`cut`: the log was read from some time on. `sampled`: numbers are left out of it on purpose."""
    seen = digest(rows, publications=not (sampled or cut))
    heads = anchors(seen)
    lost = inventory.lost
    of_queues = slots(seen, heads)
    at = moments(seen, heads, lost)
    parts = rows.tasks(inventory)
    everything = outcome(rows, parts, seconds(window) * 1_000_000, Lookup(of_queues, at), cut)
    if isinstance(everything, DataFrame):
        # What is left of the rows after their one shuffle is less by far.
        expect(rows.spark, parts)
    sums = summary(everything)
    lacks = [] if sampled else lacking(of_queues, heads, sums.entered)
    told = [*findings.of_gaps(seen), *findings.of_log(inventory), *findings.of_unrecorded(sums, of_queues)]
    if not (sampled or cut):
        told += findings.of_untold(seen, lost)
    found = pa.Table.from_pylist(told, empty(FINDINGS).schema)
    counted, faults = [_named(everything, of_queues)], [found]
    if sums.suspects or lacks:
        # Sums do not say what became of these: for that more of the log is needed.
        expect(rows.spark, parts)
        known, log = tables(rows.spark, of_queues, at), placed(rows.events)
        if sums.suspects:
            suspects = resolved(log, known, frame(rows.spark, everything), sums.absent)
            counted.append(suspects.select(*ledger.COLUMNS))
            faults.append(findings.of_messages(suspects))
        if lacks:
            gone = holes(log, lacks, heads)
            if lost:
                excused, silent = doubtful(log, known, gone)
                gone = gone.join(excused, ["node", "queue_id", "epoch", "low"], "left_anti")
                counted.append(_silent(silent, known.slots, lost, window))
            faults.append(findings.of_holes(gone))
    in_tasks = isinstance(everything, DataFrame)
    # Each queue's sums to one task.
    in_all = kept(united(counted, rows.spark).repartition(parts, *ledger.QUEUE)) if in_tasks else brought(counted)
    books, moved = (with_date(over(in_all, *of)) for of in ((ledger.booked, ledger.BOOKS), (flow, FLOW)))
    if in_tasks:
        return Account(kept(books), kept(moved), kept(united(faults, rows.spark)), sums.before)
    return Account(books, moved, brought(faults), sums.before)


def _named(everything: Table, known: Sequence[Slot]) -> Table:
    """Sums of messages that are not suspect, with their queues' names."""
    names = of_slots(known).select(["slot", *ledger.QUEUE])
    if isinstance(everything, DataFrame):
        there = frame(everything.sparkSession, names)
        there = F.broadcast(there) if len(known) <= SMALL else there
        return everything.where(F.col("suspect").isNull()).join(there, "slot").select(*ledger.COLUMNS)
    certain = everything.filter(pc.is_null(everything.column("suspect")))
    certain = certain.select(["slot", *(name for name in ledger.COLUMNS if name not in ledger.QUEUE)])
    return certain.join(names, "slot", join_type="inner", use_threads=False).select(list(ledger.COLUMNS))


def _silent(silent: DataFrame, known: DataFrame, lost: Sequence[Hole], window: str) -> DataFrame:
    """Rows of the books of numbers that were given out in a hole of the log, and of which it has no word: in the
    window in which the hole begins, as near as its neighbours say."""
    begin = min((hole.after_us or hole.before_us or 0) for hole in lost)
    holes = [(hole.incarnation, hole.first, hole.after_us or hole.before_us or begin) for hole in lost]
    at = of_rows(silent.sparkSession, holes, "incarnation int, number bigint, us bigint")
    times = at.select(
        moment_of(F.col("incarnation"), F.col("number")).alias("at"), F.timestamp_micros("us").alias("time")
    )
    # Two nodes may have lost the same rows of the same incarnation.
    times = F.broadcast(times.groupBy("at").agg(F.min("time").alias("time")))
    placed = silent.join(times, "at", "left").join(known.select("slot", "node", "vhost", "queue"), "slot")
    time = F.coalesce("time", F.timestamp_micros(F.lit(begin)))
    return placed.withColumn("time", time).select(
        *ledger.QUEUE,
        *(F.unix_micros(F.window("time", window)["start"]).alias("window"), F.lit("uncertain").alias("fate")),
        *(F.lit(False).alias("found"), F.lit(True).alias("unseen")),
        (F.col("high") - F.col("low") + 1).alias("messages"),
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
    spark = options.session(light=True, perhaps=True)
    options.ready(spark, "books", "flow", "findings")
    log = options.log(spark)
    window = fitting(window, log.inventory, log.rows, options.since, options.until)
    found = account(log.rows, window, options.since is not None, sampled, log.inventory)
    for name, made in (("books", found.books), ("flow", found.flow)):
        write(marked(made if options.alone else frame(spark, made), window), options.folder(name), "date")
    # All of it: else a kind of which there is none any more would stay.
    faults = found.findings if options.alone else frame(spark, found.findings)
    write(faults, options.folder("findings"), "kind", whole=True)
    counts = _print(found)
    click.echo(f"\nTables: {', '.join(map(options.table, ('books', 'flow', 'findings')))} (windows of {window})")
    for sentence in _unknown(log.inventory):
        click.echo(sentence)
    bad = (*FAULTS, *LOG_FAULTS, *DOUBTS) if strict else (*FAULTS, *LOG_FAULTS)
    return int(any(counts.get(kind) for kind in bad))


def _print(found: Account) -> dict[str, int]:
    """How many findings of each kind."""
    totals = sums_of(found.books, (*ENTRIES, *FATES))
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
    counts = counted_by(found.findings, "kind")
    for kind in (*LOG_FAULTS, *FAULTS, *DOUBTS):
        if kind in counts:
            click.echo(f"\n{kind}: {counts[kind]:,}")
            for row in first_of(found.findings, "kind", kind, IN_ORDER, SHOWN_MAX):
                click.echo("  " + _line(row))
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
    "transient": "transient, ended with the broker's incarnation",
    "unconfirmed": "ended with the broker's incarnation before anybody was told that they are safe",
    "standing": "still there",
    "uncertain": "unknown: the log has a gap or a hole there",
    "missing": "MISSING",
}


def _line(row: dict[str, object]) -> str:
    if row["queue"] is None:
        where = f"{row['node']} incarnation {row['incarnation']}"
        if row["count"] is not None:
            where += f" (+{row['count']})"
    else:
        where = f"{row['vhost']} {row['queue']} (id {row['queue_id']}, epoch {row['epoch']}) {row['first']}"
        if row["count"] != 1:
            where += f" (+{row['count']})"
    told = [f"publication {row['publication']}"] if row["publication"] else []
    told += [f"message id {row['message_id']}"] if row["message_id"] else []
    return ": ".join([where, ", ".join([*told, str(row["detail"])])])
