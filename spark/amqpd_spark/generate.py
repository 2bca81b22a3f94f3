"""An audit log of any size, made up: for measuring the jobs, and for seeing that they find what is wrong.

What comes in: how many events, over how long; which faults. What goes out: a folder as a broker's `audit/events`, and
the names of the planted faults.
Rules: 1. The same arguments make the same rows. 2. A folder that is there is never written to. 3. All rows of
messages are made by Spark, without a shuffle.
Not here: the traffic (`traffic/`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from amqpd_spark.door import Command, Refused
from amqpd_spark.footers import GENERATE
from amqpd_spark.options import DAYS_MAX, ENGINE, Moment, Options
from amqpd_spark.output import absent
from amqpd_spark.schema import marked
from amqpd_spark.traffic.acts import acts, figures, ghost
from amqpd_spark.traffic.cycle import HOT, QUEUES_MAX, Cycle, Plan, cycle
from amqpd_spark.traffic.rows import ENDED, rows

PLANTS = ("lost", "duplicate", "ghost", "late", "twice")
LATE_STRETCHES = 50
TWICE_STRETCHES = 500


@dataclass(frozen=True)
class Target:
    """A stretch that a fault is planted in."""

    stretch: int
    name: str


def write(spark: SparkSession, plan: Plan, folder: str, plants: frozenset[str] = frozenset()) -> list[str]:
    """What was planted, a sentence each. Raises Refused when the folder is there."""
    pattern = cycle(plan)
    lost, twice = _targets(plan, pattern)
    made = rows(
        spark,
        plan,
        pattern,
        lost.stretch if "lost" in plants else None,
        twice.stretch if "duplicate" in plants else None,
    )
    said = [f"lost: {lost.name}"] if "lost" in plants else []
    said += [f"duplicate: {twice.name}"] if "duplicate" in plants else []
    is_late = (F.col("step") == ENDED) & (F.col("stretch") < LATE_STRETCHES)
    absent(spark, folder)
    _write(made.where(~is_late) if "late" in plants else made, folder, "errorifexists")
    others = acts(spark, plan, pattern)
    if "ghost" in plants:
        row, name = ghost(spark, plan, pattern)
        others = others.unionByName(row)
        said.append(f"ghost: {name}")
    _write(others.unionByName(figures(spark, plan, pattern)).coalesce(1), folder, "append")
    if "late" in plants:
        _write(made.where(is_late).coalesce(1), folder, "append", hours_late=2)
        said.append(f"late: the ends of the first {LATE_STRETCHES} stretches, in the folder of two hours later")
    if "twice" in plants:
        _write(made.where(F.col("stretch") < TWICE_STRETCHES).coalesce(1), folder, "append")
        said.append(f"twice: all events of the first {TWICE_STRETCHES} stretches")
    return said


def _targets(plan: Plan, pattern: Cycle) -> tuple[Target, Target]:
    """Single messages, if there are any, that are confirmed, persistent and acked once, in the first incarnation."""
    sound = [row for row in pattern.places if row["fate"] == "acked" and row["persistent"] and row["queue"].confirms]
    if len(sound) < 2:
        raise Refused("that is too little traffic to plant faults in: give more --events")
    found = sorted(sound, key=lambda row: (row["many"], row["place"]))[:2]
    return _target(found[0]), _target(found[1])


def _target(row: dict[str, object]) -> Target:
    queue, place, many = row["queue"], row["place"], row["many"]
    name = f"{queue.vhost} {queue.name} (id {queue.queue_id}, epoch 1) {row['first_at']}"  # type: ignore[attr-defined]
    return Target(int(str(place)), name + (f" (+{many})" if many != 1 else ""))


def _write(made: DataFrame, folder: str, mode: str, hours_late: int = 0) -> None:
    shown = F.col("time") + F.expr(f"interval {hours_late} hours")
    placed = made.drop("stretch", "step").withColumns({"date": F.to_date(shown), "hour": F.date_format(shown, "HH")})
    sorted_rows = placed.sortWithinPartitions("date", "hour", "number")
    marked(sorted_rows, GENERATE).write.mode(mode).partitionBy("date", "hour").parquet(folder)


def _plants(ctx: click.Context, param: click.Parameter, value: str) -> frozenset[str]:
    named = frozenset(part.strip() for part in value.split(",") if part.strip())
    if unknown := sorted(named - set(PLANTS)):
        raise click.BadParameter(f"'{unknown[0]}' is none of {', '.join(PLANTS)}")
    return named


def _figure(ctx: click.Context, param: click.Parameter, value: float) -> float:
    if math.isnan(value):
        raise click.BadParameter("nan is no length of time")
    return value


@click.command("generate", cls=Command)
@click.option("--output", required=True, metavar="DIR", help="The log: becomes the --input of the other jobs.")
@click.option("--events", type=click.IntRange(min=100), default=1_000_000, show_default=True, help="Of messages.")
@click.option("--queues", type=click.IntRange(1, QUEUES_MAX), default=50, show_default=True, help="The first is hot.")
@click.option("--days", type=click.FloatRange(0, DAYS_MAX), default=0.0, callback=_figure, help="Length of the log.")
@click.option(
    "--hours",
    type=click.FloatRange(0, DAYS_MAX * 24),
    default=0.0,
    callback=_figure,
    help="Added to the days. [24 without either]",
)
@click.option(
    "--incarnations", type=click.IntRange(1, 1000), default=2, show_default=True, help="All but the last are killed."
)
@click.option("--stretch", type=click.FloatRange(1, 1000), default=10.0, show_default=True, help="Messages in a row.")
@click.option("--hot", type=click.FloatRange(0, 1), default=HOT, show_default=True, help="Share of the first queue.")
@click.option("--seed", type=int, default=1, show_default=True, help="Another one makes another log.")
@click.option("--start", type=Moment(), default=datetime(2026, 11, 22, tzinfo=UTC), help="First event. [2026-11-22]")
@click.option("--plant", default="", callback=_plants, metavar="FAULTS", help=f"Some of {', '.join(PLANTS)}.")
def command(
    output: str,
    days: float,
    hours: float,
    plant: frozenset[str],
    master: str | None,
    memory: str | None,
    conf: tuple[tuple[str, str], ...],
    **given: object,
) -> None:
    """Make an audit log of any size, with faults planted in it.

    \b
    amqpd-spark generate --output /tmp/log --events 10000000 --plant lost,duplicate,ghost
    amqpd-spark conservation --input /tmp/log --output /tmp/tables

    The events are those of messages: each is published, routed, confirmed, delivered and acked, most of the time.
    """
    spark = Options("generate", (), output, master, memory, conf).session()
    plan = Plan(hours=days * 24 + hours or 24.0, **given)  # type: ignore[arg-type]
    said = write(spark, plan, output, plant)
    click.echo(
        f"{plan.per_incarnation * plan.incarnations:,} stretches in {plan.incarnations} incarnations: {output}"
    )
    for sentence in said:
        click.echo(f"planted {sentence}")


for _each in ENGINE:
    command = _each(command)
