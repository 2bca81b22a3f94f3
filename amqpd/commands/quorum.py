"""`amqpd quorum`: where quorum queues and their copies are, and how up to date these are.

What comes in: settings, which say where the cluster meets; a queue or a source. What goes out: rows and sentences.
Rules: 1. The store is asked, and no broker has to run. How far copies are only the leader of a source knows: the node
that this command finds running says it of its own. 2. Nothing is changed here.
Not here: commands that change something (`quorum_changes.py`, `quorum_force.py`), the sentences
(`cluster/source_status.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from amqpd.cluster.overview import alike_rows
from amqpd.cluster.source_status import SourceStatus, source_status
from amqpd.commands.cluster_store import OpenedClusterStore, in_store, queues_of, source_of
from amqpd.commands.options import data_dir_option
from amqpd.commands.quorum_changes import cancel, grow, rebalance, shrink, transfer
from amqpd.commands.quorum_force import force
from amqpd.commands.tables import show
from amqpd.config import Settings
from amqpd.management.control import socket as control
from amqpd.management.errors import ManagementError
from amqpd.vocabulary.escapes import escaped, readable_json

COLUMNS = ("source", "queues", "leader", "copies", "state")
ANSWER_TIMEOUT_S = 10.0


@click.group()
def quorum() -> None:
    """See and change where quorum queues are kept, and which node serves them.

    Every quorum queue belongs to a source, one of 256 numbered logs. A source is kept on a set of nodes, mostly
    three; one of them is its leader, which clients of its queues connect to. What these commands change is changed
    for all queues of a source.

    Changes are asked for in the etcd of the setting cluster_store, and carried out by the leaders one step at a
    time: a new copy has everything before an old one goes, and nothing that was confirmed is lost. So a command
    may be ended with Ctrl-C: what it has asked for goes on. amqpd quorum status says what is under way, and
    amqpd quorum cancel takes it back.

    \b
    Examples:
      amqpd quorum status
      amqpd quorum status orders
      amqpd quorum transfer orders b               queue orders is served by node b
      amqpd quorum rebalance --dry-run             what would move so that all nodes have equally much
      amqpd quorum grow d --source 7               node d keeps source 7, too
    """


@quorum.command(short_help="Show where queues and their copies are, and what is not well.")
@click.argument("queue", required=False)
@click.option("--vhost", default="/", show_default=True, help="The queue's virtual host.")
@click.option("--source", type=click.IntRange(1), metavar="N", help="Only this source.")
@click.option("--problems", is_flag=True, help="Only what is not well. Exit code 1 if there is any.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array of objects, for programs.")
@data_dir_option
@click.pass_obj
def status(
    settings: Settings,
    queue: str | None,
    vhost: str,
    source: int | None,
    problems: bool,
    as_json: bool,
    data_dir: Path,
) -> None:
    """Show where queues are and how up to date their copies are: all, or the one of QUEUE.

    A source is well when its leader lives, all of its copies do, and there are as many as cluster_copies says, or
    x-quorum-initial-group-size of its queues.
    How far copies are only the leader knows: the broker that runs on this data directory says it of the sources
    that it is the leader of. Run the command on the other nodes for theirs.

    \b
    Examples:
      amqpd quorum status
      amqpd quorum status orders --vhost shop
      amqpd quorum status --problems || echo "look at the cluster"
    """
    at, facts = _facts(data_dir)

    async def look(opened: OpenedClusterStore) -> tuple[list[SourceStatus], Mapping[int, int]]:
        number = await source_of(opened, vhost, queue) if queue is not None else source
        records = opened.roster.records
        if number is not None and number not in records:
            raise click.ClickException(f"there is no source {number}")
        numbers = [number] if number is not None else sorted(records)
        queues = await queues_of(opened, settings.cluster_copies)
        found = [source_status(each, opened.roster, facts, queues.copies[each]) for each in numbers]
        return found, queues.count

    found, queues = in_store(settings, look)
    if problems:
        found = [each for each in found if not each.is_well]
    if as_json:
        click.echo(readable_json([_row(each, queues) for each in found], 2))
    elif queue is not None and found:
        others = queues[found[0].source] - 1
        beside = f", with {others} other queue{'s' * (others != 1)}" if others else ", alone"
        click.echo(escaped(f"queue {queue} is in source {found[0].source}{beside}: {found[0].sentence}"))
    elif found:
        show([_line(row) for row in alike_rows(found, queues)], COLUMNS, False)
    elif not problems:
        click.echo("there are no quorum queues yet")
    elsewhere = sorted({each.leader for each in found if each.up_to_date is None and each.leader})
    if elsewhere and not as_json:
        where = f"this is {at}" if at is not None else "no node of the cluster runs on this data directory"
        click.echo(f"\nhow far copies are the leader knows, and {where}: ask on {', '.join(elsewhere)}")
    if problems and found:
        raise SystemExit(1)


def _facts(data_dir: Path) -> tuple[str | None, dict[int, dict[str, Any]]]:
    """Of the broker that runs here: its name, and what it knows as a leader; None if none does, or it is in no
    cluster."""
    try:
        found = control.call(data_dir, "quorum facts", {}, ANSWER_TIMEOUT_S)
    except ManagementError:
        return None, {}
    if found is None:
        return None, {}
    return found["node"], {row["source"]: row for row in found["sources"]}


def _line(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "source": row["numbers"],
        "queues": row["queues"],
        "leader": row["leader"] or "none",
        "copies": " ".join(row["members"]),
        "state": row["says"],
    }


def _row(each: SourceStatus, queues: Mapping[int, int]) -> dict[str, Any]:
    return {
        "source": each.source,
        "queues": queues.get(each.source, 0),
        "leader": each.leader,
        "members": list(each.members),
        "living": list(each.living),
        "majority": each.has_majority,
        "under_replicated": each.under_replicated,
        "up_to_date": each.up_to_date,
        "well": each.is_well,
        "desired_set": each.desired_set,
        "desired_set_waits": each.desired_set_waits,
        "says": each.sentence,
    }


for command in (grow, shrink, transfer, rebalance, cancel, force):
    quorum.add_command(command)
