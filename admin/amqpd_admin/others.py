"""What the other nodes of the cluster have, for what a user may see.

What comes in: who asks; which rows, which virtual hosts; acts at all nodes. What goes out: rows, and sums over all
nodes; which nodes are missing.
Rules: 1. This node looks at each row, whether the user may see it. 2. Queues are counted once: all nodes know all of
them. 3. Without other nodes nothing is asked.
Not here: the questions (`amqpd/management/across_nodes/rows.py`), what leaders say of queues
(`amqpd/management/across_nodes/leaders.py`), fields (`rows/`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

import trio

from amqpd.management.across_nodes.rows import GatheredRows
from amqpd.management.errors import ManagementError, of_kind
from amqpd.management.figures import totals
from amqpd.management.pacing import WalkPace, each
from amqpd_admin.login import Who

Counts = Counter[str]


class Told(NamedTuple):
    """One row of another node, with that node's name."""

    node: str
    row: dict[str, Any]


def names(who: Who) -> list[str]:
    """Of all other nodes of the cluster."""
    return [] if who.parts.cluster is None else who.parts.cluster().others()


async def ask(who: Who, of: str, **more: str | None) -> GatheredRows:
    """Rows of all other nodes."""
    return GatheredRows() if who.parts.peers is None else await who.parts.peers.rows(of, **more)


async def ask_of_clients(who: Who, of: str, **more: str | None) -> GatheredRows:
    """The same of connections, channels, consumers: of a user who does not monitor, its own."""
    return await ask(who, of, user=None if who.monitors else who.user, **more)


async def act(who: Who, of: str, **more: str) -> None:
    """At all other nodes that live. Raises the ManagementError that names those that did not do it."""
    errors: list[ManagementError] = []

    async def act_at(peer: str) -> None:
        if who.parts.peers is not None:
            try:
                await who.parts.peers.act(peer, of, by=who.user, **more)
            except ManagementError as error:
                errors.append(error)

    async with trio.open_nursery() as nursery:
        for name in names(who):
            if who.parts.cluster is not None and who.parts.cluster().lives(name):
                nursery.start_soon(act_at, name)
    if errors:
        raise of_kind(errors[0].kind, "; ".join(sorted(map(str, errors))))


def seen(found: GatheredRows, who: Who, wanted: Callable[[dict[str, Any]], bool]) -> Iterator[Told | None]:
    """Rows with a `user`, of those that the user may see."""
    for node, row in found:
        yield Told(node, row) if wanted(row) and who.sees_connection(row["user"]) else None


async def listed(who: Who, of: str, wanted: Callable[[dict[str, Any]], bool], **more: str | None) -> list[Told]:
    """The same, asked for."""
    return await each(seen(await ask_of_clients(who, of, **more), who, wanted), lambda told: told)


def missing(who: Who, *found: GatheredRows) -> list[str]:
    """Nodes that are members and did not answer: one that is gone has nothing that could be missing."""
    if who.parts.cluster is None:
        return []
    view = who.parts.cluster()
    return sorted({name for each in found for name in each.missing if view.lives(name)})


async def sums_of_queues(who: Who, vhosts: Collection[str]) -> tuple[dict[str, Counts], GatheredRows]:
    """By virtual host."""
    told, here = await ask(who, "totals"), await who.parts.facts.sums.by_vhost()
    pace, counts = WalkPace(), dict[str, Counts]()
    for name in vhosts:
        await pace.step()
        counts[name] = Counter(here.get(name))
    for _, row in told:
        found = counts.get(row["vhost"])
        if found is not None:
            found.update({name: count for name, count in row.items() if name not in ("vhost", "queues")})
    return counts, told


async def sums_of_clients(who: Who) -> tuple[Counts, GatheredRows]:
    """Connections and channels; of a user who does not monitor its own, and its consumers, too."""
    user = None if who.monitors else who.user
    told = await ask(who, "clients", user=user)
    counts = await totals.of_clients(who.parts.on.node, user)
    for _, row in told:
        counts.update(row)
    return counts, told
