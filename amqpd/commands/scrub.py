"""`amqpd scrub`: how far the check of everything that is stored has come in a running broker; a pass now.

What comes in: the data directory, whether a pass is to begin. What goes out: the scrub's facts; exit code 1 when a
pass that was asked for has ended and damage is known.
Rules: the broker reads; this asks it, and waits.
Not here: reading (`amqpd/journal/sqlite/scrubbing.py`), when and how fast (`amqpd/scrub.py`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

import click

from amqpd.commands.options import broker_option
from amqpd.commands.running import ask
from amqpd.management.control.socket import Place
from amqpd.vocabulary.escapes import escaped, readable_json

LOOK_S = 0.5


@click.command()
@click.option(
    "--now", is_flag=True, help="Begin a pass at the greatest rate (scrub_bytes_per_s_max), and wait for it."
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object, for programs.")
@broker_option
@click.pass_context
def scrub(context: click.Context, now: bool, as_json: bool, broker: Place) -> None:
    """Show how far the running broker is with checking what it has stored, and what it has found damaged.

    The broker does that by itself, slowly (scrub_interval_s). With --now it begins at once, as fast as
    scrub_bytes_per_s_max allows; the command ends with exit code 1 if damage is known then. Ended with Ctrl-C,
    the broker goes on.

    \b
    Examples:
      amqpd scrub
      amqpd scrub --now
      amqpd scrub --json
    """
    facts = ask(broker, "scrub", {"now": now})
    before = facts["pass"]
    while now and (facts["pass"] == before or facts["progress"] < 1):
        time.sleep(LOOK_S)
        facts = ask(broker, "scrub", {})
        if sys.stderr.isatty():
            click.echo(f"\r{facts['progress']:4.0%}", nl=False, err=True)
    if now and sys.stderr.isatty():
        click.echo(err=True)
    if as_json:
        click.echo(readable_json(facts, 2))
    else:
        for line in lines(facts):
            click.echo(escaped(line))
    if now and (facts["damaged_rows_found"] or facts["damaged_records_found"]):
        context.exit(1)


def lines(facts: Mapping[str, Any]) -> list[str]:
    """The scrub's facts as lines for people."""
    if not facts["pass"]:
        found = ["no pass has begun"]
    else:
        state = "ended" if facts["progress"] == 1 else f"{facts['progress']:.0%}"
        begun = f"pass {facts['pass']}, begun {facts['started']}"
        found = [f"{begun}: {state}, {facts['rows']:,} rows, {facts['bytes']:,} bytes"]
    expected_s = facts["expected_s"]
    found.append(
        "off (scrub_interval_s = 0)" if expected_s is None else f"damage is found within {_time(expected_s)}"
    )
    found.append(
        f"found since the start: {facts['damaged_rows_found']} damaged rows of messages, "
        f"{facts['damaged_records_found']} other damaged records"
    )
    return found + [f"  {reason}" for reason in facts["damage"]]


def summary(facts: Mapping[str, Any]) -> str:
    """In one line, for `amqpd status`."""
    return "; ".join(lines(facts)[: -len(facts["damage"]) or None])


def _time(seconds: float) -> str:
    """As in "27 min"."""
    for size, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
