"""`amqpd-spark report`: a page for people from the other jobs' tables.

What comes in: the folder that the jobs conservation, slo, usage and security wrote theirs into, each in its own.
What goes out: one HTML file that needs nothing else, not even a network.
Rules: what tables are not there is said, with the command that makes them; the rest is told all the same.
Not here: what the sections say (`report_page/`).
"""

from __future__ import annotations

from collections import defaultdict
from importlib.resources import files
from pathlib import Path
from typing import Any

import click
import jinja2
from pyspark.sql import SparkSession

from amqpd_spark.door import Command, Refused
from amqpd_spark.options import ENGINE, Options
from amqpd_spark.output import there
from amqpd_spark.report_page import activity, words
from amqpd_spark.report_page.parts import BAD, GOOD, UNKNOWN, UNSURE, Section, Verdict
from amqpd_spark.report_page.sections import conservation
from amqpd_spark.report_page.tables import ROWS_MAX, Tables

_SECTIONS = (conservation, activity.objectives, activity.latency, activity.usage, activity.security)
_WORST_FIRST = (BAD, UNSURE, UNKNOWN, GOOD)


def page(spark: SparkSession, folder: str, title: str = "Audit report") -> tuple[str, list[Verdict]]:
    """The page, and what it says first: the verdict on missing messages, then the others, the worst first."""
    tables = Tables(spark, folder)
    sections = [make(tables) for make in _SECTIONS]
    for section in sections:
        mine = f"{section.command}/"
        section.notes += [f"{name} {why}." for name, why in tables.strange.items() if name.startswith(mine)]
    main, *others = [verdict for section in sections for verdict in section.verdicts]
    others.sort(key=lambda verdict: _WORST_FIRST.index(verdict.tone))
    period = [moment for section in sections for moment in section.period]
    text = _template().render(
        title=title,
        first=main,
        verdicts=others,
        period=words.period(min(period), max(period)) if period else "",
        sections=sections,
        known={section.name for section in sections if _has_tables(section, tables)},
        input=folder.rstrip("/"),
        read=tables.read,
        absent=_absent(tables),
        rows_max=ROWS_MAX,
        css=_beside("page.css").strip(),
    )
    return text, [main, *others]


def _has_tables(section: Section, tables: Tables) -> bool:
    return any(name.startswith(f"{section.command}/") for name in tables.read)


def _absent(tables: Tables) -> dict[str, list[str]]:
    """Job -> its tables that are not there."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in tables.absent:
        found[name.partition("/")[0]].append(name)
    return found


def _template() -> jinja2.Template:
    # What is in the tables, names of queues among it, was chosen by whoever could declare one.
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(_beside("page.html.j2"))


def _beside(name: str) -> str:
    """Of the page's own files, which may be in an archive that a cluster was given."""
    return files("amqpd_spark.report_page").joinpath(name).read_text(encoding="utf-8")


@click.command("report", cls=Command)
@click.option("--input", required=True, metavar="DIR", help="Where the other jobs' tables are: DIR/conservation ...")
@click.option("--output", required=True, metavar="FILE", type=click.Path(dir_okay=False), help="The page.")
@click.option("--title", default="Audit report", show_default=True, help="What stands above it.")
def command(input: str, output: str, title: str, **shared: Any) -> None:
    """A page with charts from the other jobs' tables: is a message missing, were the objectives met, who used the
    broker, who tried what they should not. One HTML file, for a browser or a printer.

    Example: each job writes its tables into one folder, and the page is made of them.

    \b
      amqpd-spark conservation --input /var/lib/amqpd/audit/events --output /srv/audit/conservation
      amqpd-spark report --input /srv/audit --output /srv/audit/report.html
    """
    options = Options("report", (input,), output, **shared)
    try:
        _try(Path(output))
        spark = options.session()
        there(spark, input)
        text, verdicts = page(spark, input, title)
        Path(output).write_text(text, encoding="utf-8")
    except OSError as error:
        raise Refused(f"{output} cannot be written: {error.strerror}") from error
    for verdict in verdicts:
        click.echo(verdict.sentence)
    click.echo(f"The page is {output}")


def _try(output: Path) -> None:
    """Before the work: raises OSError where the page could not be written."""
    fresh = not output.exists()
    output.open("a").close()
    if fresh:
        output.unlink()


for _each in ENGINE:
    command = _each(command)
