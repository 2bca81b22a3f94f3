"""Small files into large ones: the same events, each once, in an order that readers can skip by.

What comes in: the audit log. What goes out: a folder laid out as the log is, with its hours written whole; and what
`compacted.py` says of it, so that rows which are lost before or afterwards are missed.
Rules: 1. An hour is written from all of its events, wherever their files are, so a late file is in it the next time.
2. Which events are in which file follows from the events alone: again makes the same files. 3. What is read is never
written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from amqpd_spark import compacted
from amqpd_spark.events import IDENTITY
from amqpd_spark.footers import COMPACT, Footers
from amqpd_spark.options import Log, Options, job_command
from amqpd_spark.output import apart
from amqpd_spark.schema import EVENTS, marked

ROWS_PER_FILE = 5_000_000
"""some 128 MB"""
HOUR = ("date", "hour")


@dataclass(frozen=True)
class Written:
    """The counts of what `compact` wrote. `hours`: folders, as "date=2026-11-22/hour=05"."""

    hours: list[str]
    rows: int
    files: int


def compact(events: DataFrame, folder: str, rows_per_file: int = ROWS_PER_FILE) -> Written:
    """Write the hours that `events` are of, whole."""
    placed = events.withColumns({"date": F.to_date("time"), "hour": F.date_format("time", "HH")})
    sizes = placed.groupBy(*HOUR).agg(F.countDistinct(*IDENTITY).alias("rows"))
    hours = sizes.withColumn("files", F.ceil(F.col("rows") / rows_per_file)).localCheckpoint()
    names = [f"date={row['date']}/hour={row['hour']}" for row in hours.select(*HOUR).collect()]
    rows, files = hours.agg(F.sum("rows"), F.sum("files")).collect()[0]
    if not names:
        return Written([], 0, 0)
    # By the event's identity, for an hour's busiest queue may be most of it. The same event twice meets itself.
    part = F.pmod(F.xxhash64(*IDENTITY), F.col("files"))
    parts = placed.join(F.broadcast(hours.drop("rows")), list(HOUR)).withColumn("part", part)
    once = parts.repartition(files, *HOUR, "part").dropDuplicates([*HOUR, "part", *IDENTITY])
    # Numbers last, so that the order of what is equal else is the same again.
    ordered = once.sortWithinPartitions(*HOUR, "vhost", "queue", "time", *IDENTITY)
    writer = marked(ordered.select(*EVENTS.fieldNames(), *HOUR), COMPACT).write.mode("overwrite")
    # Said here too: with the other mode, one hour would replace all that is there.
    writer.option("partitionOverwriteMode", "dynamic").partitionBy(*HOUR).parquet(folder)
    return Written(sorted(names), rows, files)


def write_reach(spark: SparkSession, log: Log, written: Written, options: Options) -> None:
    """Write beside the files which rows they have, and how far they reach."""
    footers = Footers(spark)
    compacted.write_row_counts(footers, options.output, written.hours, log.inventory.removed_rows)
    begun, ended = options.since is None, options.until is None
    reached: dict[str, compacted.Reached] = {}
    if not (begun and ended) and log.inventory.reach:
        of_incarnations = log.events.groupBy("node", "incarnation").agg(F.min("number"), F.max("number"))
        for node, incarnation, first, last in of_incarnations.collect():
            reached.setdefault(node, {})[incarnation] = first, last
    compacted.write_edges(footers, options.output, log.inventory.reach, reached, begun, ended)


def whole_hours(options: Options) -> Options:
    """From the begin of the hour of `since` to the end of that of `until`: half an hour would replace a whole one."""
    until = options.until
    if until is not None and until != _hour(until):
        until = _hour(until) + timedelta(hours=1)
    return replace(options, since=options.since and _hour(options.since), until=until)


def _hour(time: datetime) -> datetime:
    return time.replace(minute=0, second=0, microsecond=0)


@job_command("compact")
@click.option("--rows-per-file", type=click.IntRange(min=1), default=ROWS_PER_FILE, show_default=True, help="About.")
def command(options: Options, rows_per_file: int) -> None:
    """Write the log again in few large files, sorted by queue and time, each event once.

    \b
    amqpd-spark compact --input /var/lib/amqpd/audit/events --output /srv/audit/events
    amqpd-spark compact --input ... --output ... --since 2026-11-22T04:00 --until 2026-11-22T06:00

    Hours of which the input has events are written whole; others stay. So run it again for an hour when late files
    came; to run it for one that nothing happened to changes nothing.
    """
    apart(options.inputs, options.output, both=True)
    spark = options.session()
    apart(options.folders(spark), options.output, both=True)
    options.ready(spark)
    options = whole_hours(options)
    log = options.log(spark)
    written = compact(log.events, options.output, rows_per_file)
    write_reach(spark, log, written, options)
    hours = len(written.hours)
    click.echo(f"{hours:,} hours, {written.rows:,} rows, about {written.files:,} files: {options.output}")
    if lost := log.inventory.lost:
        click.echo(
            f"{len(lost):,} ranges of rows are in no file of the input: `amqpd-spark conservation` names them."
        )
