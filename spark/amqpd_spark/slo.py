"""The job `slo`: latencies, rates, and objectives on them.

What comes in: arguments. What goes out: the tables of `slo_tables.py`, a summary, an exit code.
Rules: the file of objectives is read before Spark starts; the summary is of the tables as they were written.
Not here: the tables (`slo_tables.py`), the stream (`slo_stream.py`).
"""

from __future__ import annotations

from typing import Any

import click
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from amqpd_spark import objectives, slo_stream, slo_sums, slo_tables, streaming
from amqpd_spark.objectives import Objective, WrongObjectives
from amqpd_spark.options import Options, job_command, number

SHOWN_MAX = 20
"""rows of a kind in the summary; the tables have all"""


@job_command("slo")
@click.option("--objectives", "file", metavar="FILE", help="Objectives in TOML; examples/slo.toml is commented.")
@click.option("--fail", is_flag=True, help="Exit with 1 when an objective is missed.")
@streaming.stream_options
@number(
    "--lateness",
    1,
    slo_stream.LATENESS_S,
    "SECONDS",
    "With --stream: how long a message is waited for that nothing is heard of.",
)
def command(options: Options, file: str | None, fail: bool, lateness: int, **given: Any) -> int:
    """Latencies, rates and errors, and objectives on them.

    How long messages took from publish to confirm, from publish to delivery and from delivery to acknowledgement, as
    percentiles by minute and queue; what happened in each minute; and with objectives, how much of each error budget
    is left and when it burnt too fast.

    \b
        amqpd-spark slo --input /var/lib/amqpd/audit/events --output /srv/slo \\
            --objectives examples/slo.toml --fail

    As a stream it takes files as they come; killed and started again with the same output, it goes on where it was
    and counts each event once.

    \b
        amqpd-spark slo --stream --input /var/lib/amqpd/audit/events --output /srv/slo
    """
    settings = streaming.settings(options, given)
    wanted = read_objectives(file)
    spark = options.session(lasting=settings is not None)
    options.ready(spark)
    if settings is None:
        log = options.log(spark, holes=False)
        found = slo_sums.measured(log.rows, log.inventory)
        slo_tables.write(slo_tables.tables(found, wanted, options.until), options)
    elif not streaming.until_stopped(slo_stream.Stream(options, wanted, lateness).run, spark, settings):
        click.echo("no events yet")
        return 0
    missed = show(spark, options, bool(wanted))
    return 1 if fail and missed else 0


def read_objectives(file: str | None) -> list[Objective]:
    if file is None:
        return []
    try:
        return objectives.read(file)
    except WrongObjectives as error:
        raise click.UsageError(str(error)) from error


def show(spark: SparkSession, options: Options, with_objectives: bool) -> bool:
    """Prints what was found; whether an objective is missed."""
    totals = spark.read.parquet(options.table("latency_total")).where(F.col("scope") == "vhost")
    found = totals.orderBy("node", "vhost", "measure").limit(SHOWN_MAX).collect()
    several = len({row["node"] for row in found}) > 1
    width = 30 if several else 11
    lines = [f"{'latency, ms':<{width + 19}}{'count':>12}"]
    lines[0] += "".join(f"{name:>15}" for name in ("p50", "p99", "p99.9", "max"))
    for row in found:
        where = f"{row['vhost'] or '?'} at {row['node'] or '?'}" if several else row["vhost"] or "?"
        figures = "".join(f"{row[name]:15,.3f}" for name in ("p50_ms", "p99_ms", "p999_ms", "max_ms"))
        lines.append(f"{where:<{width}.{width}}{row['measure']:<19}{row['count']:>12,}{figures}")
    missed = False
    if with_objectives:
        rows = spark.read.parquet(options.table("objectives")).orderBy("met", "objective").collect()
        missed = any(row["met"] is False for row in rows)
        lines += ["", *(_of_status(row) for row in rows)]
        lines += _of_breaches(spark, options)
    lines += ["", f"tables in {options.output}"]
    click.echo("\n".join(lines))
    return missed


def _of_status(row: Any) -> str:
    if row["met"] is None:
        return f"no data {row['objective']}: no messages within {row['window']}"
    return (
        f"{'met' if row['met'] else 'MISSED':<8}{row['objective']}: {row['share']:.4%} of {row['good'] + row['bad']} "
        f"good, target {row['target']:.4%} over {row['window']}; {row['budget_left']:.1%} of the error budget left"
    )


def _of_breaches(spark: SparkSession, options: Options) -> list[str]:
    found = spark.read.parquet(options.table("breaches")).orderBy("from", "objective")
    shown = found.withColumns({name: F.date_format(name, "yyyy-MM-dd HH:mm") for name in ("from", "until")})
    return [
        f"{row['alert']} burn of {row['objective']} from {row['from']} to {row['until']}: "
        f"up to {row['peak']:.1f} times what the budget allows, {row['bad']} bad messages"
        for row in shown.limit(SHOWN_MAX).collect()
    ]
