"""`amqpd quorum`: where quorum queues and their copies are, how up to date these are, and what goes on when most are
gone for good.

What comes in: settings, which say where the cluster meets; a queue or a source. What goes out: rows and sentences;
with `force --yes`, records in which the survivors alone keep a source that has no majority.
Rules: 1. The store is asked, and no broker has to run. How far copies are only the leader of a source knows: the node
that this command finds running says it of its own. 2. Nothing is forced without --yes, and nothing of a source with a
majority. 3. Survivors are nodes that live, on the disk that the record names: another disk may lack what it
acknowledged.
Not here: commands that change sets (`quorum_changes.py`), the sentences (`cluster/source_status.py`), how a survivor
takes over (`replication/take_over.py`), what it logs then.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import trio

from amqpd.cluster.linkage import WELL
from amqpd.cluster.overview import alike_rows
from amqpd.cluster.roster import Roster
from amqpd.cluster.source_status import SourceStatus, source_status
from amqpd.commands.cluster_store import OpenedClusterStore, in_store, progress, queues_of, source_of
from amqpd.commands.options import data_dir_option
from amqpd.commands.quorum_changes import cancel, grow, rebalance, shrink, transfer
from amqpd.commands.tables import show
from amqpd.config import Settings
from amqpd.management.control import socket as control
from amqpd.management.errors import ManagementError
from amqpd.replication.set_change import forced
from amqpd.vocabulary.escapes import escaped, escaped_lines, readable_json

COLUMNS = ("source", "queues", "leader", "copies", "state")
ANSWER_TIMEOUT_S = 10.0
SERVED_S = 60.0
"""for the survivors to take over: some lease times, and their logs are read"""

Positions = dict[int, dict[str, Any]]


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
    here = _known_here(data_dir)
    at, facts = (None, {}) if here is None else (here["node"], {row["source"]: row for row in here["sources"]})

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


def _known_here(data_dir: Path) -> dict[str, Any] | None:
    """Of the broker that runs here: its name, what it knows as a leader, and of its copies; None if none does, or it
    is in no cluster."""
    try:
        return control.call(data_dir, "quorum facts", {}, ANSWER_TIMEOUT_S)
    except ManagementError:
        return None


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


@quorum.command(short_help="Give up copies that are gone for good, when they were most.")
@click.argument("queue", required=False)
@click.option("--vhost", default="/", show_default=True, help="The queue's virtual host.")
@click.option("--all-without-majority", "everything", is_flag=True, help="All sources that have no majority.")
@click.option("--yes", is_flag=True, help="Do it: messages that were confirmed may be lost.")
@data_dir_option
@click.pass_obj
def force(settings: Settings, queue: str | None, vhost: str, everything: bool, yes: bool, data_dir: Path) -> None:
    """Let what is left of a source go on, when most of its copies are gone for good.

    A source without a majority of its copies confirms nothing and delivers nothing, since those that are left may
    lack what the others confirmed. When these come back it goes on, and nothing is lost: so force it only if their
    disks are lost. Then the nodes that are left have the queue as they know it. A node that is back later counts
    for nothing there.

    Be sure that the lost nodes do not run, cut off from etcd only: a majority of them would go on confirming to its
    clients, and all of that would be lost.

    Without --yes it prints what may be lost, and does nothing. Afterwards give the sources new copies: amqpd
    quorum grow.

    \b
    Examples:
      amqpd quorum force orders
      amqpd quorum force --all-without-majority --yes
    """
    if (queue is not None) == everything:
        raise click.UsageError("say which: a QUEUE, or --all-without-majority")
    here = _known_here(data_dir)
    at, positions = None if here is None else here["node"], _positions(here)

    async def act(opened: OpenedClusterStore) -> None:
        roster = opened.roster
        numbers = sorted(roster.records) if queue is None else [await source_of(opened, vhost, queue)]
        if missing := [each for each in numbers if each not in roster.records]:
            raise click.ClickException(f"there is no source {missing[0]}")
        stopped = [each for each in (_of(number, roster) for number in numbers) if not each.has_majority]
        if not stopped:
            named = "every source" if queue is None else f"source {numbers[0]}"
            raise click.ClickException(
                f"nothing is to be forced: {named} has a majority of its copies{_links(roster)}"
            )
        able = [each for each in stopped if each.living]
        for each in stopped:
            click.echo(escaped_lines(_report(each, roster, at, positions)))
        if not able:
            raise click.ClickException("no node that has a copy lives: start one of them first")
        if not yes:
            lost = sorted({name for each in able for name in each.members if name not in each.living})
            raise click.ClickException(
                f"nothing was done: be sure that {', '.join(lost)} do not run, then --yes lets {_count(able)} go on "
                "with what is left"
            )
        for each in able:
            await opened.set_requests.force(forced(roster.records[each.source], each.living))
            progress(f"source {each.source}: {', '.join(each.living)} may go on alone")
        await opened.set_requests.look()
        with trio.move_on_after(SERVED_S) as waiting:
            await opened.set_requests.until(
                lambda now: all(now.records[each.source].leader.forwarder for each in able)
            )
        if waiting.cancelled_caught:
            raise click.ClickException(
                f"{_count(able)} may go on, and not all of them have a leader after {SERVED_S:g} seconds: "
                "`amqpd quorum status` says what they wait for"
            )
        click.echo(f"{_count(able)} went on; the logs of their nodes (majority_given_up) say from where")
        click.echo("now give them copies: amqpd quorum grow NODE --all")

    in_store(settings, act)


def _of(source: int, roster: Roster) -> SourceStatus:
    """A node that lives has what it confirmed, whether it has links or not: it is not lost."""
    return source_status(source, roster, {}, 1, WELL)


def _links(roster: Roster) -> str:
    """A source may stop for nodes that live without links: they have what they confirmed, and are not lost."""
    isolated = sorted(roster.linkage.isolated)
    names = ", ".join(isolated)
    return f" on nodes that live; these have no links ({names}): `amqpd cluster status` says why" if names else ""


def _count(found: list[SourceStatus]) -> str:
    return f"{len(found)} source{'s' * (len(found) != 1)}"


def _report(each: SourceStatus, roster: Roster, at: str | None, positions: Positions) -> str:
    record = roster.records[each.source]
    lost = [name for name in each.members if name not in each.living]
    lines = [
        f"source {each.source}: {each.sentence}",
        f"  lost: {', '.join(lost)}; left: {', '.join(each.living) or 'none'}; last leader: "
        f"{record.leader.forwarder or 'none'}, epoch {record.leader.epoch}",
    ]
    here = positions.get(each.source, {})
    if at in each.living and at == record.leader.forwarder and here.get("served_epoch") == record.leader.epoch:
        lines.append(f"  its leader {at} is left, and has all that it confirmed: nothing is lost")
    elif at in each.living and here:
        (epoch, index), (_, committed) = here["last"], here["committed"]
        lines.append(
            f"  the copy of {at} ends at entry {index} of epoch {epoch} (known to be committed: {committed}): "
            "what was confirmed after that may be lost"
        )
    elif each.living:
        lines.append(f"  where the copies end, their nodes know: run this on {', '.join(each.living)} to see it")
    return "\n".join(lines)


def _positions(here: dict[str, Any] | None) -> Positions:
    """Of the copies of the broker that runs here, if one does."""
    if here is None:
        return {}
    served = {row["source"]: row["epoch"] for row in here["sources"] if row["serving"]}
    return {row["source"]: {**row, "served_epoch": served.get(row["source"])} for row in here["copies"]}


for command in (grow, shrink, transfer, rebalance, cancel):
    quorum.add_command(command)
