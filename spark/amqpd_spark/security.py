"""The job `security`: what acts say about who tries what.

What comes in: events that are acts. What goes out: the tables of `docs/audit/security.md`, a summary, an exit code.
Rules: 1. Acts are few against messages, so they are taken unique; still none is collected, and a table holds a row
for each (user, address) or finding. 2. A finding is something to look at, with a sentence; what is `high` is worth
waking somebody.
Not here: the rules of findings (`findings.py`), the stream (`security_stream.py`).
"""

from __future__ import annotations

from typing import Any

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from amqpd_spark import security_stream, streaming
from amqpd_spark.findings import SEVERITIES, Limits, acts, tables
from amqpd_spark.options import DAYS_MAX, Options, job_command, number

SHOWN_MAX = 20
"""findings in the summary; the table has all"""


@job_command("security")
@number("--burst", 2, Limits.burst, "N", "This many failed log-ins are a burst.")
@number("--within", 1, Limits.within_s, "SECONDS", "... within this time, from one address or of one user.")
@number(
    "--learn", 0, Limits.learn_days, "DAYS", "From the log's beginning: whose addresses are taken as known.", DAYS_MAX
)
@click.option("--fail", is_flag=True, help="Exit with 1 when there is a finding of severity high.")
@streaming.stream_options
def command(options: Options, burst: int, within: int, learn: int, fail: bool, **given: Any) -> int:
    """Failed log-ins, refused permissions, new addresses, privileges.

    Says who failed to log in and from where, whether that came in bursts and whether one ended with a success; what
    was refused; which users came from an address that is new to them; and who changed privileges.

    \b
        amqpd-spark security --input /var/lib/amqpd/audit/events --output /srv/security --burst 20 --fail

    As a stream (--stream) it takes files as they come, and says high findings at once.
    """
    settings = streaming.settings(options, given)
    limits = Limits(burst, within, learn)
    spark = options.session(lasting=settings is not None)
    options.ready(spark)
    if settings is None:
        write(tables(acts(options.events(spark, unique=True)), limits), options)
    elif not streaming.until_stopped(security_stream.Stream(options, limits, write).run, spark, settings):
        click.echo("no events yet")
        return 0
    high = show(spark, options)
    return 1 if fail and high else 0


def write(made: dict[str, DataFrame], options: Options) -> None:
    for name, table in made.items():
        table.coalesce(1).write.mode("overwrite").parquet(options.table(name))


def show(spark: SparkSession, options: Options) -> bool:
    """Prints what was found; whether any of it is high."""
    found = spark.read.parquet(options.table("findings"))
    counts = {row["severity"]: row["count"] for row in found.groupBy("severity").count().collect()}
    order = F.array_position(F.array(*(F.lit(name) for name in SEVERITIES)), F.col("severity"))
    worst = found.orderBy(order, F.col("time").desc(), "sentence").limit(SHOWN_MAX)
    lines = ["findings: " + ", ".join(f"{counts.get(name, 0)} {name}" for name in SEVERITIES)]
    shown = worst.select("severity", "sentence", F.date_format("time", "yyyy-MM-dd HH:mm:ss").alias("at")).collect()
    lines += [f"{row['severity']:<8}{row['at']}  {row['sentence']}" for row in shown]
    click.echo("\n".join([*lines, "", f"tables in {options.output}"]))
    return "high" in counts
