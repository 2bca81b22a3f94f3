"""What all jobs take on their command line.

What comes in: click's arguments. What goes out: `Options`, and a session.
Rules: what is wrong is one sentence, before Spark is started.
Not here: the jobs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click
from pyspark.sql import DataFrame, SparkSession

from amqpd_spark import events
from amqpd_spark.java import NoJava, require_java
from amqpd_spark.session import start


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
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def number(name: str, least: int, default: int, unit: str, help: str) -> Callable[[Any], Any]:
    """An option that takes a whole number."""
    return click.option(name, type=click.IntRange(least), default=default, show_default=True, metavar=unit, help=help)


@dataclass(frozen=True)
class Options:
    """`input`, `output`: folders, or addresses that Spark knows (hdfs://, s3a://)."""

    job: str
    input: str
    output: str
    master: str | None = None
    memory: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def session(self) -> SparkSession:
        """Raises click.ClickException without a Java that fits."""
        try:
            require_java()
        except NoJava as error:
            raise click.ClickException(str(error)) from error
        return start(self.job, self.master, self.memory)

    def events(self, spark: SparkSession, unique: bool = False) -> DataFrame:
        return events.read(spark, self.input, self.since, self.until, unique)

    def table(self, name: str) -> str:
        """Where the job's table of this name is."""
        return f"{self.output.rstrip('/')}/{name}"


def job_command(name: str) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a function a command: its first argument is the `Options`, further ones are its own click options. What it
    returns is the exit code (None: 0)."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        def call(input: str, output: str, **given: Any) -> None:
            shared = {key: given.pop(key) for key in ("master", "memory", "since", "until")}
            code = function(Options(name, input, output, **shared), **given)
            if code:
                raise SystemExit(code)

        call.__doc__ = function.__doc__
        call.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
        command: Any = call
        for option in reversed(_SHARED):
            command = option(command)
        return click.command(name)(command)

    return decorate


_SHARED = (
    click.option("--input", required=True, metavar="DIR", help="The audit log: a broker's audit/events."),
    click.option("--output", required=True, metavar="DIR", help="Where the job's tables go."),
    click.option("--master", metavar="URL", help="Where Spark runs: local[2], spark://..., yarn. [this machine]"),
    click.option("--memory", metavar="SIZE", help="Memory of the driver, with a local master of all: 3g."),
    click.option("--since", type=Moment(), help="Only events from this time on (UTC)."),
    click.option("--until", type=Moment(), help="Only events before this time (UTC)."),
)
