"""What all jobs take on their command line.

What comes in: click's arguments. What goes out: `Options`, and a session.
Rules: what is wrong is one sentence, before Spark is started, or before it reads a row.
Not here: the jobs; how they end (`door.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from typing import Any

import click
from pyspark.sql import DataFrame, SparkSession

from amqpd_spark import door, events, inventory
from amqpd_spark.door import Refused
from amqpd_spark.footers import Footers
from amqpd_spark.inventory import Inventory
from amqpd_spark.java import NoJava, require_java
from amqpd_spark.output import apart, writable
from amqpd_spark.session import start
from amqpd_spark.small import is_small
from amqpd_spark.stretches.scan import Rows

YEARS = range(1970, 9000)
"""of times that are given; those beside them overflow somewhere"""
NUMBER_MAX = 10_000_000
"""of an option that says nothing else; seconds: four months"""
DAYS_MAX = 36_500


class Moment(click.ParamType[datetime]):
    """A date or a time, UTC unless it says otherwise."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"'{value}' is no time: write it as 2026-11-22 or 2026-11-22T05:30", param, ctx)
        if moment.year not in YEARS:
            self.fail(f"'{value}' is no time that a log has: give a year from {YEARS[0]} to {YEARS[-1]}", param, ctx)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def number(name: str, least: int, default: int, unit: str, help: str, most: int = NUMBER_MAX) -> Callable[[Any], Any]:
    """An option that takes a whole number."""
    kind = click.IntRange(least, most)
    return click.option(name, type=kind, default=default, show_default=True, metavar=unit, help=help)


@dataclass(frozen=True)
class Log:
    """The audit log: its rows as Spark reads them, the same as columns, and what its files say before that."""

    events: DataFrame
    inventory: Inventory
    rows: Rows


@dataclass(frozen=True)
class Options:
    """`inputs` (patterns, too), `output`: folders, or addresses that Spark knows (hdfs://, s3a://). `conf`: settings
    of Spark."""

    job: str
    inputs: tuple[str, ...]
    output: str
    master: str | None = None
    memory: str | None = None
    conf: tuple[tuple[str, str], ...] = ()
    since: datetime | None = None
    until: datetime | None = None

    def session(self, lasting: bool = False) -> SparkSession:
        """`lasting`: for a stream, whose log is small only at first. Raises Refused without a Java that fits."""
        try:
            require_java()
        except NoJava as error:
            raise Refused(str(error)) from error
        brief = not lasting and is_small(self.inputs)
        return start(self.job, self.master, self.memory, self.conf, brief)

    def folders(self, spark: SparkSession) -> list[str]:
        """Of the log, each once. Raises Refused."""
        footers = Footers(spark)
        return list(dict.fromkeys(folder for given in self.inputs for folder in footers.folders(given)))

    def log(self, spark: SparkSession, unique: bool = False, holes: bool = True) -> Log:
        """Says what was passed over. `holes`: and what is missing is asked for. Raises Refused."""
        folders = self.folders(spark)
        if self.output:
            apart(folders, self.output)
        found = inventory.take(spark, folders, self.since, self.until, holes)
        for sentence in inventory.remarks(found):
            click.echo(f"amqpd-spark: {sentence}", err=True)
        # What was not looked at is not read either.
        whole = not found.foreign and self.since is None and self.until is None
        if whole:
            rows = reduce(DataFrame.unionByName, (events.read(spark, folder) for folder in folders))
        else:
            rows = events.of_files(spark, [file.path for file in found.files], self.since, self.until)
        files = [(file.path, file.size) for file in found.files]
        return Log(events.once(rows) if unique else rows, found, Rows(rows, files, self.since, self.until))

    def events(self, spark: SparkSession, unique: bool = False) -> DataFrame:
        """The rows alone."""
        return self.log(spark, unique, holes=False).events

    def ready(self, spark: SparkSession, *tables: str) -> None:
        """The output can be written, and no table's name is taken by something else. Raises Refused."""
        writable(spark, self.output, tables)

    def table(self, name: str) -> str:
        """Where the job's table of this name is."""
        return f"{self.output.rstrip('/')}/{name}"


def job_command(name: str) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a function a command: its first argument is the `Options`, further ones are its own click options. What it
    returns is the exit code (None: 0); how else it may end, `door.py` says."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        def call(input: tuple[str, ...], output: str, **given: Any) -> int:
            shared = {key: given.pop(key) for key in GIVEN}
            apart(input, output)
            return int(function(Options(name, input, output, **shared), **given) or door.DONE)

        call.__doc__ = function.__doc__
        call.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
        command: Any = call
        for option in reversed((INPUT, _OUTPUT, *ENGINE, *PERIOD)):
            command = option(command)
        return click.command(name, cls=door.Command)(command)

    return decorate


def _settings(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    for each in value:
        if not re.fullmatch(r"spark\.[^=\s]+=.*", each, re.DOTALL):
            raise click.BadParameter(f"'{each}' is no setting of Spark: write it as spark.executor.memory=4g")
    return tuple((key, text) for key, _, text in (each.partition("=") for each in value))


GIVEN = ("master", "memory", "conf", "since", "until")
"""of `Options`, by name"""
INPUT = click.option(
    "--input",
    required=True,
    multiple=True,
    metavar="DIR",
    help="The audit log: a broker's audit/events. Several, or a pattern, are one log.",
)
_OUTPUT = click.option("--output", required=True, metavar="DIR", help="Where the job's tables go.")
ENGINE = (
    click.option("--master", metavar="URL", help="Where Spark runs: local[2], spark://..., yarn. [this machine]"),
    click.option("--memory", metavar="SIZE", help="Memory of the driver, with a local master of all: 3g."),
    click.option("--conf", multiple=True, callback=_settings, metavar="KEY=VALUE", help="A setting of Spark's."),
)
"""Spark: where, and how"""
PERIOD = (
    click.option("--since", type=Moment(), help="Only events from this time on (UTC)."),
    click.option("--until", type=Moment(), help="Only events before this time (UTC)."),
)
