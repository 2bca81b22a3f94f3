"""`amqpd alarm`: make publishers wait, and see why they do.

What comes in: names of alarms. What goes out: alarms of the operator's own, set and cleared; a list of all.
Rules: an operator's alarm stands beside those of the broker: clearing it clears no other, and it is not kept over a
restart.
Not here: when the broker sets alarms by itself (`amqpd/process/alarms.py`).
"""

from __future__ import annotations

import click

from amqpd.commands.options import broker_option, json_option
from amqpd.commands.running import ask, ask_rows
from amqpd.commands.tables import show
from amqpd.management.control.socket import Place


@click.group()
def alarm() -> None:
    """Make publishers wait, and see why they do.

    While an alarm is on, the broker reads nothing more from connections that publish, and tells them so
    (connection.blocked); consumers go on. memory and disk are set by the broker itself when they are short;
    you may set them too, or one with a name of your own. What you set stays until you clear it or the broker
    ends.

    \b
    Examples, let the queues drain before a move:
      amqpd alarm set maintenance
      amqpd queue list
      amqpd alarm clear maintenance
    """


@alarm.command("set")
@click.argument("name")
@broker_option
def set_alarm(name: str, broker: Place) -> None:
    """Set the alarm NAME: memory, disk, or one of your own.

    \b
    Example:
      amqpd alarm set maintenance
    """
    new = ask(broker, "alarm set", {"name": name})["new"]
    click.echo(f"the alarm {name} is on: publishers wait" if new else f"the alarm {name} was set already")


@alarm.command()
@click.argument("name")
@broker_option
def clear(name: str, broker: Place) -> None:
    """Clear the alarm NAME that an operator has set; what nobody set is no error. It stays on while the broker
    itself says so.

    \b
    Example:
      amqpd alarm clear maintenance
    """
    answer = ask(broker, "alarm clear", {"name": name})
    still_on = answer["still_on"]
    click.echo(
        (f"the operator's alarm {name} is cleared" if answer["was_set"] else f"no operator has set the alarm {name}")
        + (f"; it stays on because of {' and '.join(still_on)}" if still_on else "")
    )


@alarm.command("list")
@json_option
@broker_option
def list_alarms(as_json: bool, broker: Place) -> None:
    """List the alarms that are on: who says so (watch: the broker's look at memory and disk; journal: a commit that
    found no space; operator), and since when.

    \b
    Example:
      amqpd alarm list --json
    """
    show(ask_rows(broker, "alarm list", {}, ("name", "source")), ("name", "source", "since"), as_json)
