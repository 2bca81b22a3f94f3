"""The command `all`: every job that reads the log, one after the other in one Spark, and the page of their tables.

What comes in: a log, a folder. What goes out: a folder of tables for each job, `report.html`, one exit code.
Rules: 1. A job is called as on the command line, and says what it says there. 2. What one has found does not keep the
next from being run; what could not be done does. 3. No job leaves a setting or a table in memory to the next one.
Not here: the jobs.
"""

from __future__ import annotations

import importlib
import time

import click
from pyspark.sql import SparkSession

from amqpd_spark import door
from amqpd_spark.options import Options, job_command
from amqpd_spark.session import PLANNED

JOBS = ("conservation", "slo", "usage", "security")
PAGE = "report.html"


@job_command("all")
@click.option("--objectives", metavar="FILE", help="Objectives in TOML, of slo; examples/slo.toml is commented.")
@click.option("--title", default="Audit report", show_default=True, help="What stands above the page.")
def command(options: Options, objectives: str | None, title: str) -> int:
    """Every job on one log: conservation, slo, usage, security, and the page of it all.

    \b
    amqpd-spark all --input /var/lib/amqpd/audit/events --output /srv/audit --objectives examples/slo.toml

    The tables are in a folder for each job, the page is report.html beside them. Spark is started once, so together
    they take less time than one by one. Exit code 1 when one of them found what must not be.
    """
    # Here, and waited for: each job takes what it finds, and the first one's needs are not those of all.
    _ = options.session().sparkContext
    codes, steps = [], len(JOBS) + 1
    for number, name in enumerate(JOBS, 1):
        own = ["--objectives", objectives] if name == "slo" and objectives else []
        arguments = [*_log(options), "--output", options.table(name), *own]
        codes.append(_run(name, f"{number} of {steps}", arguments))
    if "://" in options.output:
        click.echo(f"no page: {options.output} is no folder of this machine (amqpd-spark report --help)")
    else:
        page = ["--input", options.output, "--output", options.table(PAGE), "--title", title, *_engine(options)]
        _run("report", f"{steps} of {steps}", page)
    return max(codes)


def _run(name: str, which: str, arguments: list[str]) -> int:
    click.echo(f"== {name} ({which})")
    begin = time.monotonic()
    job: click.Command = importlib.import_module(f"amqpd_spark.{name}").command
    code = job.main(arguments, prog_name=f"amqpd-spark {name}", standalone_mode=False)
    session = SparkSession.getActiveSession()
    if session is not None:
        session.catalog.clearCache()
        for key in PLANNED:
            session.conf.unset(key)
    click.echo(f"({time.monotonic() - begin:.0f} s)\n")
    return int(code or door.DONE)


def _log(options: Options) -> list[str]:
    """The log and the period, as arguments."""
    period = (("--since", options.since), ("--until", options.until))
    given = [part for name, at in period if at is not None for part in (name, at.isoformat())]
    return [*(part for folder in options.inputs for part in ("--input", folder)), *given, *_engine(options)]


def _engine(options: Options) -> list[str]:
    named = (("--master", options.master), ("--memory", options.memory))
    given = [part for name, value in named if value is not None for part in (name, value)]
    return [*given, *(part for key, value in options.conf for part in ("--conf", f"{key}={value}"))]
