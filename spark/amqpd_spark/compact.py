"""Small files into large ones: the same events, each once, in an order that readers can skip by.

What comes in: the audit log. What goes out: a folder laid out as the log is, with its hours written whole.
Rules: 1. An hour is written from all of its events, wherever their files are, so a late file is in it the next time.
2. Which events are in which file follows from the events alone: again makes the same files. 3. What is read is never
written.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import click
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from amqpd_spark import events as log
from amqpd_spark.options import Options, job_command
from amqpd_spark.output import apart
from amqpd_spark.schema import EVENTS

ROWS_PER_FILE = 5_000_000
"""some 128 MB"""
HOUR = ("date", "hour")


def compact(events: DataFrame, folder: str, rows_per_file: int = ROWS_PER_FILE) -> tuple[int, int, int]:
    """Write the hours that `events` are of, whole. How many hours, events, files."""
    placed = events.withColumns({"date": F.to_date("time"), "hour": F.date_format("time", "HH")})
    sizes = placed.groupBy(*HOUR).agg(F.countDistinct(*log.IDENTITY).alias("rows"))
    hours = sizes.withColumn("files", F.ceil(F.col("rows") / rows_per_file)).localCheckpoint()
    count, rows, files = hours.agg(F.count("*"), F.sum("rows"), F.sum("files")).collect()[0]
    if not count:
        return 0, 0, 0
    # By the event's identity, for an hour's busiest queue may be most of it. The same event twice meets itself.
    part = F.pmod(F.xxhash64(*log.IDENTITY), F.col("files"))
    parts = placed.join(F.broadcast(hours.drop("rows")), list(HOUR)).withColumn("part", part)
    once = parts.repartition(files, *HOUR, "part").dropDuplicates([*HOUR, "part", *log.IDENTITY])
    # Numbers last, so that the order of what is equal else is the same again.
    ordered = once.sortWithinPartitions(*HOUR, "vhost", "queue", "time", *log.IDENTITY)
    writer = ordered.select(*EVENTS.fieldNames(), *HOUR).write.mode("overwrite")
    # Said here too: with the other mode, one hour would replace all that is there.
    writer.option("partitionOverwriteMode", "dynamic").partitionBy(*HOUR).parquet(folder)
    return count, rows, files


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
    apart(options.input, options.output, both=True)
    spark = options.session()
    options.ready(spark)
    hours, rows, files = compact(whole_hours(options).events(spark), options.output, rows_per_file)
    click.echo(f"{hours:,} hours, {rows:,} rows, about {files:,} files: {options.output}")
