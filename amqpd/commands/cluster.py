"""`amqpd cluster`: the nodes of a cluster, which of them is the leader of what, and the end of one.

What comes in: settings, which say where the cluster meets. What goes out: members and sources, as the store has them;
a node that is not known any more, or may come back after all.
Rules: 1. The store is asked, and no broker: it works wherever the store is reached, also when all brokers are gone.
2. A node is forgotten when no source is kept on it, and never before.
Not here: what is in the rows (`cluster/overview.py`), who takes its place (`cluster/moves.py`).
"""

from __future__ import annotations

import math
import time
from typing import Any

import click
import trio

from amqpd.cluster.forgetting import forget as forget_member
from amqpd.cluster.forgetting import readmit as readmit_member
from amqpd.cluster.moves import Aim, without
from amqpd.cluster.overview import leader_rows, member_rows, problems, sentences, source_rows, unreadable_rows
from amqpd.cluster.roster import Roster
from amqpd.cluster.set_requests import aim_text
from amqpd.cluster.source_status import source_status
from amqpd.commands.cluster_store import (
    OpenedClusterStore,
    Queues,
    in_store,
    member_named,
    node_named,
    progress,
    queues_of,
    unreadable_topology,
)
from amqpd.commands.quorum_changes import ask, waiting_options
from amqpd.commands.tables import show
from amqpd.config import Settings
from amqpd.vocabulary.endpoint import Endpoint
from amqpd.vocabulary.escapes import escaped, readable_json

MEMBERS = ("name", "state", "incarnation", "version", "label", "region", "address", "leaders", "copies")
LEADERS = ("leader", "sources", "numbers")


@click.group()
def cluster() -> None:
    """Look at the nodes of a cluster, and take one out of it for good.

    They meet in the etcd of the setting cluster_store, which is asked; no broker has to run.

    \b
    Examples:
      amqpd cluster status
      amqpd cluster forget c
    """


@cluster.command()
@click.option("--problems", "only_problems", is_flag=True, help="Only what is not well. Exit code 1 if there is any.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object, for programs.")
@click.pass_obj
def status(settings: Settings, only_problems: bool, as_json: bool) -> None:
    """Show members and leaders, and say what is not well.

    A member that is gone has not renewed its lease; what it is the leader of waits for another leader, and its
    classic queues wait for it. One that is
    isolated lives, and has no link to a majority of the nodes: they refuse it, or do not reach it, and nothing is
    placed on it. Copies are those that count: a disk that was emptied, or is older than it was, has none until it has
    caught up.

    Exit code 0: it was shown, whatever it says; with --problems, all is well. 1: with --problems, something is not
    (a node is gone or isolated, a source lacks a leader or copies, a record cannot be read); or the store does not
    answer.

    \b
    Examples:
      amqpd cluster status
      amqpd cluster status --problems || echo "look at the cluster"
      amqpd --config /etc/amqpd/amqpd.toml cluster status --json
    """
    roster, queues, unreadable = in_store(settings, lambda opened: _read(opened, settings.cluster_copies))
    source_statuses = [source_status(source, roster, {}, queues.copies[source]) for source in sorted(roster.records)]
    how: dict[str, Any] = {"now_ms": time.time_ns() // 1_000_000, "classic": queues.classic}
    wrong = [*problems(roster, source_statuses, **how), *(f"{each}." for each in unreadable)]
    if only_problems and not as_json:
        for sentence in wrong:
            click.echo(escaped(sentence))
    elif as_json:
        members, sources = member_rows(roster), source_rows(roster)
        damage = [row["says"] for row in unreadable_rows(roster)] + unreadable
        found = {"revision": roster.revision, "members": members, "sources": sources, "unreadable": damage}
        click.echo(readable_json({**found, "problems": wrong}, 2))
    else:
        _show(roster, [*sentences(roster, source_statuses, **how), *(f"{each}." for each in unreadable)])
    if only_problems and wrong:
        raise SystemExit(1)


def _show(roster: Roster, said: list[str]) -> None:
    show([_shown(row) for row in member_rows(roster)], MEMBERS, False)
    click.echo()
    show(leader_rows(roster), LEADERS, False)
    click.echo()
    for sentence in said:
        click.echo(escaped(sentence))


@cluster.command()
@click.argument("node")
@click.option("--dry-run", is_flag=True, help="Print which node would take its place where, and change nothing.")
@waiting_options
@click.pass_obj
def forget(settings: Settings, node: str, dry_run: bool, no_wait: bool, timeout_s: float | None) -> None:
    """Take NODE out of the cluster for good: other nodes take its place, then its name is forgotten.

    Each source that is kept on it gets another node that lives, by failure domains and load, and its leaders move.
    That can be done while NODE still runs, which is safest: nothing is kept on fewer nodes meanwhile. When nothing
    is kept on it any more the command waits until its process has ended, so stop it then. Ended with Ctrl-C or by
    --timeout, the same command goes on from where it was.

    Its classic queues go to nodes that live, without their messages, which are on its disk.

    A name that was forgotten may be given to a new machine, with an empty data directory. The old one does not start
    any more, should it be switched on again, until `amqpd cluster readmit`. Without this, a node that is away is
    waited for, for ever, and sources are kept on fewer nodes.

    \b
    Examples:
      amqpd cluster forget c --dry-run
      amqpd cluster forget c
      amqpd cluster forget c --timeout 3600
    """

    async def act(opened: OpenedClusterStore) -> None:
        name = member_named(opened.roster, node, lives=False)
        if classic := (await queues_of(opened, settings.cluster_copies)).classic[name]:
            queues = "1 classic queue" if classic == 1 else f"{classic:,} classic queues"
            click.echo(escaped(f"{queues} of {name}: to nodes that live, without messages, which only {name} has"))
        aims = _without(opened, name)
        for source, aim in aims.items():
            click.echo(escaped(f"source {source}: to be on {aim_text(aim)}"))
        if dry_run:
            sources = "1 source" if len(aims) == 1 else f"{len(aims)} sources"
            click.echo(f"{name} would be taken out of {sources}; nothing was asked for")
        elif no_wait:
            await ask(opened, aims, no_wait, timeout_s, f"nothing is kept on {name}")
        else:
            with trio.move_on_after(timeout_s if timeout_s is not None else math.inf) as waiting:
                await _forget(opened, name)
            if waiting.cancelled_caught:
                raise click.ClickException(
                    f"{name} is not forgotten within {timeout_s:g} seconds: run this again, it goes on from there"
                )

    in_store(settings, act)


@cluster.command()
@click.argument("node")
@click.pass_obj
def readmit(settings: Settings, node: str) -> None:
    """Let NODE start again as it is, after it was forgotten.

    A node that was forgotten keeps its data directory, and refuses to start. After this it does, and is in the
    cluster as a node that has no copies: `amqpd quorum grow` gives it some. Its classic queues have gone to other
    nodes; what it has of them is parked (`amqpd orphans list`).

    \b
    Examples:
      amqpd cluster readmit c
    """

    async def act(opened: OpenedClusterStore) -> None:
        name = node_named(opened.roster.forgotten, node, f"no node {node} was forgotten")
        await readmit_member(opened.store, name)
        click.echo(escaped(f"{name} may start again"))

    in_store(settings, act)


def _without(opened: OpenedClusterStore, node: str) -> dict[int, Aim]:
    return without(node, opened.roster.records, opened.roster.desired_sets, opened.roster.usable)


async def _forget(opened: OpenedClusterStore, node: str) -> None:
    """Raises as `SetRequests.carry_out`, and MemberKept."""
    set_requests, said_so = opened.set_requests, False
    while True:
        aims = _without(opened, node)
        if aims:
            await set_requests.carry_out(aims)
        elif _kept(opened.roster, node):
            # Somebody has asked for that already.
            await set_requests.until(lambda now: not _kept(now, node) or bool(_without(opened, node)))
        elif node in opened.roster.members:
            if not said_so:
                progress(f"nothing is kept on {node} any more: end its process now; waiting until it has")
            said_so = True
            # A queue that is declared meanwhile may be kept on it.
            await set_requests.until(lambda now: node not in now.members or _kept(now, node))
        else:
            break
    await forget_member(opened.store, node)
    click.echo(escaped(f"{node} is forgotten"))


def _kept(roster: Roster, node: str) -> bool:
    return any(node in record.members for record in roster.records.values())


async def _read(opened: OpenedClusterStore, copies: int) -> tuple[Roster, Queues, list[str]]:
    return opened.roster, await queues_of(opened, copies), await unreadable_topology(opened)


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    plain = {name: "" if value is None else value for name, value in row.items()}
    address = str(Endpoint(row["host"], row["port"])) if row["lives"] else ""
    other = row["copies_of_another_disk"]
    copies = f"{row['copies']} ({other} of another disk)" if other else row["copies"]
    return {**plain, "state": _state(row), "incarnation": plain["incarnation"], "address": address, "copies": copies}


def _state(row: dict[str, Any]) -> str:
    if not row["lives"]:
        return "gone"
    return "isolated" if row["isolated"] else "lives"
