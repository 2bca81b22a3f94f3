"""`amqpd quorum force`: a majority is gone for good, and what is left goes on.

What comes in: sources that have no majority. What goes out: a report of what may be lost; with --yes, records in
which the survivors alone keep the source.
Rules: 1. Nothing is done without --yes, and nothing to a source with a majority. 2. Survivors are nodes that live, on
the disk that the record names: another disk may lack what it acknowledged.
Not here: how a survivor takes over (`replication/take_over.py`), what it logs then.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import trio

from amqpd.cluster.linkage import WELL
from amqpd.cluster.roster import Roster
from amqpd.cluster.source_status import SourceStatus, source_status
from amqpd.commands.cluster_store import OpenedClusterStore, in_store, progress, source_of
from amqpd.commands.options import data_dir_option
from amqpd.config import Settings
from amqpd.management.control import socket as control
from amqpd.management.errors import ManagementError
from amqpd.replication.set_change import forced
from amqpd.vocabulary.escapes import escaped_lines

SERVED_S = 60.0
"""for the survivors to take over: some lease times, and their logs are read"""
ANSWER_TIMEOUT_S = 10.0

Positions = dict[int, dict[str, Any]]


@click.command(short_help="Give up copies that are gone for good, when they were most.")
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
    at, positions = _positions(data_dir)

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


def _positions(data_dir: Path) -> tuple[str | None, Positions]:
    """Of the copies of the broker that runs here, if one does."""
    try:
        found = control.call(data_dir, "quorum facts", {}, ANSWER_TIMEOUT_S)
    except ManagementError:
        return None, {}
    if found is None:
        return None, {}
    served = {row["source"]: row["epoch"] for row in found["sources"] if row["serving"]}
    return found["node"], {
        row["source"]: {**row, "served_epoch": served.get(row["source"])} for row in found["copies"]
    }
