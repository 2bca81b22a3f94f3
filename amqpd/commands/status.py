"""`amqpd status`: a running broker at a glance.

What comes in: nothing. What goes out: what needs attention; sums, and a line for each virtual host.
Rules: asks the running broker, which asks the others (`management/attention/gathering.py`).
Not here: lists of what there is (`queues.py`, `connections.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import click

from amqpd.commands.options import broker_option
from amqpd.commands.queue_picture import counted
from amqpd.commands.running import ask, ask_rows
from amqpd.commands.scrub import summary as scrubbed
from amqpd.commands.tables import show
from amqpd.management.control.socket import Place
from amqpd.vocabulary.escapes import escaped, readable_json

COLUMNS = (
    "vhost",
    "connections",
    "queues",
    "messages_ready",
    "messages_unacknowledged",
    "messages_delayed",
    "delayed_next_s",
    "unroutable",
)

CLUSTER = (
    *("sources_led", "sources_copied", "sources_under_replicated", "sources_without_majority", "sources_cut_off"),
    *("take_overs_total", "hand_overs_total", "leader_leases_lost_total"),
)
"""of the cluster, for people; the rest is in the JSON"""


TIMEOUT_S = 5.0
"""Somebody looks whether it lives: an answer that takes longer is one, too."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object, for programs.")
@broker_option
def status(as_json: bool, broker: Place) -> None:
    """Show what a running broker has: connections, queues, messages, what is delayed, what reached no queue.

    What needs attention comes first, of all nodes of a cluster: alarms, queues in which messages wait and nobody
    consumes or acknowledges, full queues, dead letters, messages that reach no queue, blocked connections.
    Delayed messages wait in the broker until their time; delayed_next_s says in how many seconds the first of
    them is due. Unroutable ones were returned, dropped, nacked or rerouted. With --json a node of a cluster says how
    far each peer is behind, and counts take-overs, votes and what was sent again.

    \b
    Examples:
      amqpd status
      amqpd status --json
    """
    sums = ask(broker, "status", {}, TIMEOUT_S)
    rows = ask_rows(broker, "vhost status", {}, ("vhost",), TIMEOUT_S)
    if as_json:
        click.echo(readable_json({**sums, "vhosts": rows}, 2))
        return
    for line in attention(sums.pop("needs_attention", [])):
        click.echo(line)
    click.echo()
    sums.pop("alarms_of_nodes", None)  # they are among what needs attention
    width = max(map(len, sums))
    if sums.get("cluster"):
        sums["cluster"] = {name: sums["cluster"][name] for name in CLUSTER}
    for name, value in sums.items():
        click.echo(f"{name:{width}}  {escaped(scrubbed(value) if name == 'scrub' else _said(value))}")
    click.echo()
    show([{**row, **_short(row)} for row in rows], COLUMNS, False)


def attention(needs: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each thing that needs attention, with since when by the clock of who reads."""
    if not needs:
        return ["Nothing needs attention."]
    return [
        "Needs attention:",
        *(f"  {'!' if each['severity'] == 'bad' else '-'} {need_sentence(each)}" for each in needs),
    ]


def need_sentence(need: Mapping[str, Any]) -> str:
    """One sentence, safe for a terminal."""
    since_ms = need.get("since_ms")
    since = "" if since_ms is None else f" (since {datetime.fromtimestamp(since_ms / 1000).astimezone():%F %T %Z})"
    text = escaped(str(need["says"]))
    return f"{text[:1].upper()}{text[1:]}{since}."


def _short(row: dict[str, Any]) -> dict[str, Any]:
    next_s = row["delayed_next_s"]
    return {"delayed_next_s": "" if next_s is None else next_s, "unroutable": counted(row["unroutable"])}


def _named(entry: Any) -> str:
    """An alarm, or a queue that is out of service or fenced."""
    return entry if isinstance(entry, str) else f"{entry['name']} in {entry['vhost']} ({entry['reason']})"


def _said(value: Any) -> str:
    if isinstance(value, dict):
        return counted(value) or "none"
    if isinstance(value, list):
        return ", ".join(map(_named, value)) or "none"
    if value is None:
        return "none"
    return value if isinstance(value, str) else f"{value:,}"
