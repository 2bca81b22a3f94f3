"""What all jobs take on their command line.

What comes in: click's arguments. What goes out: `Options`, and a session.
Rules: what is wrong is one sentence, before Spark is started, or before it reads a row.
Not here: the jobs; how they end (`door.py`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, reduce
from typing import Any

import click
from pyspark.sql import DataFrame, SparkSession

from amqpd_spark import class_archive, door, events, files, inventory
from amqpd_spark.door import Refused
from amqpd_spark.files import LOCAL
from amqpd_spark.footers import Footers
from amqpd_spark.inventory import Inventory
from amqpd_spark.java import NoJava, require_java
from amqpd_spark.output import apart, writable
from amqpd_spark.session import later, start
from amqpd_spark.small import HERE_ROWS, is_small
from amqpd_spark.stretches.scan import Rows

_QUICKER = "a job on a small log takes a third less time after `amqpd-spark prepare` (once; a minute, 180 MB)"
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
    """The audit log: its rows, and what its files say before that."""

    rows: Rows
    inventory: Inventory

    @property
    def events(self) -> DataFrame:
        """The rows as Spark reads them."""
        return self.rows.events


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

    @cached_property
    def brief(self) -> bool:
        """There is little to do, on this machine."""
        of_this_machine = all(self._address(given).startswith(LOCAL) for given in self.inputs)
        here = self.master is None or self.master.startswith("local")
        return here and of_this_machine and is_small(self.inputs)

    @cached_property
    def alone(self) -> bool:
        """The driver may do it all, without Spark, if nothing needs it: `brief`, and nobody has said anything of
        Spark."""
        of_spark = self.master or self.memory or self.conf
        return self.brief and not of_spark and self._address(self.output).startswith(LOCAL)

    def _address(self, given: str) -> str:
        return files.address(given, self.conf)

    def session(self, lasting: bool = False, light: bool = False, perhaps: bool = False) -> SparkSession:
        """`lasting`: for a stream, whose log is small only at first. `light`: the work is not Java's, whatever the
        log. `perhaps`: a small log may do without. Raises Refused without a Java that fits."""
        try:
            require_java()
        except NoJava as error:
            raise Refused(str(error)) from error
        if lasting or not self.brief:
            return start(self.job, self.master, self.memory, self.conf, light)

        def make() -> SparkSession:
            if sys.stderr.isatty() and not class_archive.used():
                click.echo(f"amqpd-spark: {_QUICKER}", err=True)
            return start(self.job, self.master, self.memory, self.conf, light, brief=True)

        # What the driver does itself is done meanwhile.
        return later(make, at_once=not (perhaps and self.alone))

    def folders(self, spark: SparkSession) -> list[str]:
        """Of the log, each once. Raises Refused."""
        footers = Footers(spark)
        # Without Java, which may still be starting.
        inputs = map(self._address, self.inputs) if self.brief else self.inputs
        return list(dict.fromkeys(folder for given in inputs for folder in footers.folders(given)))

    def log(self, spark: SparkSession, holes: bool = True) -> Log:
        """Says what was passed over. `holes`: and what is missing is asked for. Raises Refused."""
        folders = self.folders(spark)
        if self.output:
            apart(folders, self.output)
        found = inventory.take(spark, folders, self.since, self.until, holes)
        for sentence in inventory.remarks(found):
            click.echo(f"amqpd-spark: {sentence}", err=True)
        # What was not looked at is not read either.
        whole = not found.foreign and self.since is None and self.until is None

        def rows() -> DataFrame:
            if whole:
                return reduce(DataFrame.unionByName, (events.read(spark, folder) for folder in folders))
            return events.of_files(spark, [file.path for file in found.files], self.since, self.until)

        paths = [(file.path, file.size) for file in found.files]
        here = self.brief and found.rows <= HERE_ROWS
        return Log(Rows(spark, rows, paths, self.since, self.until, here), found)

    def events(self, spark: SparkSession, unique: bool = False) -> DataFrame:
        """The rows alone; `unique`: each once."""
        rows = self.log(spark, holes=False).events
        return events.once(rows) if unique else rows

    def ready(self, spark: SparkSession, *tables: str) -> None:
        """The output can be written, and no table's name is taken by something else. Raises Refused."""
        writable(spark, self._address(self.output) if self.brief else self.output, tables)

    def table(self, name: str) -> str:
        """Where the job's table of this name is."""
        return f"{self.output.rstrip('/')}/{name}"

    def folder(self, name: str) -> str:
        """The same, with a scheme where it can only be of this machine."""
        return f"{self._address(self.output).rstrip('/')}/{name}"


def job_command(name: str) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a function a command: its first argument is the `Options`, further ones are its own click options. What it
    returns is the exit code (None: 0); how else it may end, `door.py` says."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        def call(input: tuple[str, ...], output: str, **given: Any) -> int:
            shared = {key: given.pop(key) for key in GIVEN}
            if not (output and all(input)):
                raise Refused(f"--{'input' if output else 'output'} is empty: give a folder")
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
