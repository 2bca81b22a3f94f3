"""`amqpd quorum grow`, `shrink`, `transfer`, `rebalance` and `cancel`.

What comes in: which sources, which node. What goes out: desired sets in the store; sentences, while the leaders carry
them out.
Rules: 1. Everything is checked before anything is asked for. 2. What is asked for already counts as if it were so:
two commands one after the other amount to both.
Not here: what a change amounts to (`cluster/moves.py`), how it is followed (`cluster/set_requests.py`), carrying it
out (`cluster/set_changes.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import click
import trio

from amqpd.cluster.moves import Aim, grown, rebalanced, shrunk
from amqpd.cluster.overview import ranges
from amqpd.cluster.roster import Roster
from amqpd.cluster.set_requests import aim_text, as_it_is
from amqpd.commands.cluster_store import (
    OpenedClusterStore,
    in_store,
    member_named,
    progress,
    queues_of,
    source_of,
    sources_named,
    which_sources,
)
from amqpd.commands.options import together
from amqpd.config import Settings
from amqpd.vocabulary.escapes import escaped

SLACK_PERCENT = 10


waiting_options = together(
    click.option("--no-wait", is_flag=True, help="Return when everything has been asked for, not when it is done."),
    click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(0, min_open=True),
        metavar="SECONDS",
        help="Wait no longer than this: exit code 1, and what was asked for goes on.",
    ),
)


@click.command()
@click.argument("node")
@which_sources
@waiting_options
@click.pass_obj
def grow(settings: Settings, /, node: str, no_wait: bool, timeout_s: float | None, **which: Any) -> None:
    """Keep a copy on NODE, too.

    With --all these are the sources that have fewer copies than they should (cluster_copies, or what a queue asks
    for): those that were made when there were fewer nodes. With --queue or --source it is the one that is named,
    however many copies it has; an even number survives no more losses than one less.

    \b
    Examples:
      amqpd quorum grow d --all
      amqpd quorum grow d --queue orders --vhost shop
    """

    async def act(opened: OpenedClusterStore) -> None:
        roster = opened.roster
        name = _linked(roster, member_named(roster, node))
        named = await sources_named(opened, **which)
        before = {each: as_it_is(roster, each) for each in named or sorted(roster.records)}
        if named is None:
            copies = (await queues_of(opened, settings.cluster_copies)).copies
            before = {
                each: aim
                for each, aim in before.items()
                if name not in aim.members and len(aim.members) < min(copies[each], len(roster.known))
            }
        aims = {each: grown(each, aim, name) for each, aim in before.items()}
        for each, aim in aims.items():
            if len(aim.members) % 2 == 0:
                count = len(aim.members)
                progress(f"source {each}: {count} copies survive the loss of {count // 2 - 1}, as {count - 1} do")
        await ask(opened, aims, no_wait, timeout_s, "every source has its copies already")

    in_store(settings, act)


@click.command()
@click.argument("node")
@which_sources
@waiting_options
@click.pass_obj
def shrink(settings: Settings, /, node: str, no_wait: bool, timeout_s: float | None, **which: Any) -> None:
    """Keep no copy on NODE any more, and put none in its place.

    A leader on it moves first. It waits while those that are left are no majority with everything. To replace a
    node by others use amqpd cluster forget, or grow before this.

    \b
    Examples:
      amqpd quorum shrink d --queue orders
      amqpd quorum shrink d --all
    """

    async def act(opened: OpenedClusterStore) -> None:
        roster = opened.roster
        name = member_named(roster, node, lives=False)
        named = await sources_named(opened, **which)
        before = {each: as_it_is(roster, each) for each in named or sorted(roster.records)}
        if named is None:
            before = {each: aim for each, aim in before.items() if name in aim.members}
        aims = {each: shrunk(each, aim, name, roster.usable) for each, aim in before.items()}
        copies = (await queues_of(opened, settings.cluster_copies)).copies
        for each, aim in aims.items():
            if len(aim.members) < copies[each]:
                progress(f"source {each}: will have {len(aim.members)} copies and should have {copies[each]}")
        await ask(opened, aims, no_wait, timeout_s, f"{name} has no copy of any source")

    in_store(settings, act)


@click.command()
@click.argument("queue")
@click.argument("node")
@click.option("--vhost", default="/", show_default=True, help="The queue's virtual host.")
@waiting_options
@click.pass_obj
def transfer(settings: Settings, queue: str, node: str, vhost: str, no_wait: bool, timeout_s: float | None) -> None:
    """Make NODE the leader of QUEUE, and of all queues of its source.

    NODE has to be one of those that keep the source; grow the source to it first if it is not. Clients are told to
    connect again, and what was delivered and not acknowledged is delivered again at NODE.

    \b
    Examples:
      amqpd quorum transfer orders b
      amqpd quorum transfer orders b --vhost shop --timeout 30
    """

    async def act(opened: OpenedClusterStore) -> None:
        name = _linked(opened.roster, member_named(opened.roster, node))
        source = await source_of(opened, vhost, queue)
        if source not in opened.roster.records:
            raise click.ClickException(f"source {source} of queue '{queue}' is not there yet: try again")
        aim = as_it_is(opened.roster, source)
        if name not in aim.members:
            raise click.ClickException(
                f"{name} keeps no copy of queue '{queue}', these do: {', '.join(aim.members)}; "
                f"grow it first: amqpd quorum grow {name} --source {source}"
            )
        others = (await queues_of(opened, settings.cluster_copies)).count[source] - 1
        if others > 0:
            progress(f"{others} other queue{'s' * (others > 1)} of source {source} move{'s' * (others == 1)} with it")
        aims = {source: aim._replace(leader=name)} if aim.leader != name else {}
        await ask(opened, aims, no_wait, timeout_s, f"{name} is the leader of queue '{queue}' already")

    in_store(settings, act)


@click.command(short_help="Move as little as makes all nodes have their share.")
@click.option("--dry-run", is_flag=True, help="Print what would be moved, and move nothing.")
@click.option("--leaders", "leaders_only", is_flag=True, help="Only leaders: no copy is made anywhere.")
@click.option(
    "--slack",
    type=click.IntRange(0, 100),
    default=SLACK_PERCENT,
    show_default=True,
    metavar="PERCENT",
    help="A node may have this much more than its share: less is more even, and moves more.",
)
@waiting_options
@click.pass_obj
def rebalance(
    settings: Settings, dry_run: bool, leaders_only: bool, slack: int, no_wait: bool, timeout_s: float | None
) -> None:
    """Move copies and leaders so that no node has more than its share, and as few of them as that takes.

    After nodes came, or were away: a node that comes back is the leader of nothing. Copies stay in different racks
    and zones (cluster_label). The plan is printed first. Sources count, whatever their queues have to do.

    \b
    Examples:
      amqpd quorum rebalance --dry-run
      amqpd quorum rebalance --leaders
    """

    async def act(opened: OpenedClusterStore) -> None:
        roster = opened.roster
        aims = rebalanced(
            roster.records, roster.desired_sets, roster.usable, Fraction(slack, 100), leaders_only=leaders_only
        )
        usable = roster.usable
        leaderless = sorted(each for each, record in roster.records.items() if record.leader.forwarder not in usable)
        if leaderless:
            progress(f"left out, as their leaders do not live, or are isolated: {ranges(leaderless)}")
        for isolated in sorted(roster.linkage.isolated):
            progress(f"left out, without links: {roster.linkage.why(isolated)}")
        for each, aim in aims.items():
            click.echo(escaped(f"source {each}: {_change(as_it_is(roster, each), aim)}"))
        if dry_run:
            all_of_them = len(roster.records)
            sources = "1 source" if all_of_them == 1 else f"{all_of_them} sources"
            click.echo(f"{len(aims)} of {sources} would change; nothing was asked for")
            return
        await ask(opened, aims, no_wait, timeout_s, "all nodes have their share: nothing moves")

    in_store(settings, act)


@click.command()
@which_sources
@click.pass_obj
def cancel(settings: Settings, /, **which: Any) -> None:
    """Take back what was asked for and is not done yet.

    Steps that were taken stay: a source that has got a fourth copy in the place of another one may keep all four.

    \b
    Examples:
      amqpd quorum cancel --source 7
      amqpd quorum cancel --all
    """

    async def act(opened: OpenedClusterStore) -> None:
        named = await sources_named(opened, **which)
        count = 0
        for each in named or sorted(opened.roster.desired_sets):
            count += await opened.set_requests.cancel(each)
        click.echo(f"{count} taken back" if count else "nothing was asked for, or it is done")

    in_store(settings, act)


def _linked(roster: Roster, name: str) -> str:
    """Raises ClickException for a node that nothing can be sent to."""
    linkage = roster.linkage
    if name in linkage.isolated:
        raise click.ClickException(f"{name} is isolated: {linkage.why(name)}; {linkage.way_out(name)}")
    return name


def _change(before: Aim, after: Aim) -> str:
    came = sorted(set(after.members) - set(before.members))
    left = sorted(set(before.members) - set(after.members))
    copies = [f"copy from {', '.join(left)} to {', '.join(came)}"] if came or left else []
    return ", ".join(
        [*copies, *([f"leader from {before.leader} to {after.leader}"] * (before.leader != after.leader))]
    )


async def ask(
    opened: OpenedClusterStore, aims: Mapping[int, Aim], no_wait: bool, timeout_s: float | None, otherwise: str
) -> None:
    """`otherwise`: what is said when there is nothing to do. Raises ClickException."""
    if not aims:
        click.echo(escaped(otherwise))
        return
    if no_wait:
        for each, aim in sorted(aims.items()):
            await opened.set_requests.put(each, aim)
            progress(f"source {each}: to be on {aim_text(aim)}")
        click.echo(f"{len(aims)} asked for: amqpd quorum status says how far it is")
        return
    with trio.move_on_after(timeout_s if timeout_s is not None else float("inf")) as waiting:
        await opened.set_requests.carry_out(aims)
    if waiting.cancelled_caught:
        raise click.ClickException(
            f"not done within {timeout_s:g} seconds; what was asked for goes on, and what was not is not: "
            "see `amqpd quorum status`"
        )
    click.echo(f"done: {len(aims)} source{'s' * (len(aims) != 1)} changed")
