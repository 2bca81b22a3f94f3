"""Clients of the whole cluster as an operator at any node sees them: connections, channels, consumers; closed.

What comes in: filters; which connections to close, and who asks for it; which nodes there are (`leaders.py`). What
goes out: rows, each with its `node`; how many were closed, and which nodes did not answer.
Rules: 1. A node that does not answer is named, with the reason: its clients are neither listed nor closed. 2. One
connection is looked for here, then at all others at once: ids are unique in the cluster. 3. Rows come in pages, the
broker going on in between.
Not here: what a row says (`figures/inventory.py`), how one node closes (`management/connections.py`), fields for HTTP
(`admin/amqpd_admin/rows/connections.py`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import trio

from amqpd.management import connections
from amqpd.management.across_nodes.leaders import Leaders
from amqpd.management.connections import CloseRequest
from amqpd.management.errors import ManagementError, NotFound, Unavailable
from amqpd.management.figures import inventory
from amqpd.management.operators import Operator
from amqpd.management.pacing import WalkPace, each
from amqpd.management.running import Running

Row = dict[str, Any]

ROWS_AT_ONCE = 100


class Clients:
    """The lists of clients of the whole cluster for one request. `missing` is complete when a list has ended."""

    def __init__(self, on: Running, leaders: Leaders) -> None:
        self._on = on
        self._leaders = leaders
        self.missing: dict[str, str] = {}
        """nodes of which nothing, or not all, is in the list, and what is known of them"""

    def connections(self, filters: Mapping[str, Any]) -> AsyncGenerator[list[Row], None]:
        """`vhost` and `user` are filters. `connected_at` is a moment in ISO 8601, in UTC."""
        return self._listed("connections", connections.listed(self._on, filters), filters, _connection)

    def channels(self, filters: Mapping[str, Any]) -> AsyncGenerator[list[Row], None]:
        """`vhost` and `user` are filters."""
        return self._listed("channels", inventory.channels(self._on.node, filters), filters, dict)

    def consumers(self, filters: Mapping[str, Any]) -> AsyncGenerator[list[Row], None]:
        """`vhost`, `user` and `queue` are filters."""
        of_queue = {name: filters.get(name) for name in ("vhost", "queue")}
        more = {} if None in of_queue.values() else of_queue
        here = inventory.consumers(self._on.node, filters)
        return self._listed("consumers", here, filters, _consumer, **more)

    async def _listed(
        self,
        of: str,
        here: Iterable[Row],
        filters: Mapping[str, Any],
        read: Callable[[Row], Row],
        **more: str | None,
    ) -> AsyncGenerator[list[Row], None]:
        pace, some, name = WalkPace(), list[Row](), self._on.node.identity.name
        for row in here:
            await pace.step()
            some.append({"node": name, **row})
            if len(some) == ROWS_AT_ONCE:
                yield some
                some = []
        yield some
        if not self._leaders.clustered:
            return
        found = await self._leaders.rows(of, user=filters.get("user"), **more)
        self.missing |= {peer: self._leaders.why_silent(peer) for peer in sorted(found.missing)}
        wanted = {name: filters.get(name) for name in ("user", "vhost", "queue")}

        def row_of(at: tuple[str, Row]) -> Row | None:
            node, row = at
            if any(value not in (None, row.get(name)) for name, value in wanted.items()):
                return None
            return {"node": node, **read(row)}

        yield await each(found, row_of)


@dataclass
class Closed:
    """The result of a request to close connections in the whole cluster."""

    count: int = 0
    missing: dict[str, str] = field(default_factory=dict)
    """nodes that did not do it, or did not say so, and why"""


async def close(on: Running, leaders: Leaders, by: Operator, request: CloseRequest) -> Closed:
    """Closes the connections at all nodes. Raises NotFound, BadArgument; Unavailable when the connection `which` may
    be one of a node that does not answer."""
    which = request.which
    try:
        here = await connections.close(on, by, request)
    except NotFound:
        if not leaders.others():
            raise
        here = 0
    if here and which is not None:
        return Closed(here)
    done, told = Closed(here), {"by": by.user, "reason": request.reason or connections.DEFAULT_REASON}
    if which is not None:
        await _at_others(leaders, done, "close", {"name": which, **told})
        _found(which, done)
    else:
        await _at_others(leaders, done, "close_many", {"user": request.user, "vhost": request.vhost, **told})
    return done


async def _at_others(leaders: Leaders, done: Closed, of: str, question: Mapping[str, str | None]) -> None:
    async def ask(peer: str) -> None:
        try:
            told = await leaders.act(peer, of, **question)
            done.count += int(told.get("closed", 0))  # behind the wait: others count meanwhile
        except NotFound:
            return
        except Unavailable:
            done.missing[peer] = leaders.why_silent(peer)
        except ManagementError as error:
            done.missing[peer] = str(error)

    async with trio.open_nursery() as nursery:
        for name in leaders.others():
            nursery.start_soon(ask, name)


def _found(which: str, done: Closed) -> None:
    """Raises NotFound, Unavailable."""
    if done.count:
        done.missing.clear()  # it is closed, whatever these have
        return
    if done.missing:
        names = "; ".join(f"node {name}, which {why}" for name, why in sorted(done.missing.items()))
        raise Unavailable(f"no node that answers has a connection '{which}', and these do not answer: {names}")
    raise connections.not_found(which)


def _connection(row: Row) -> Row:
    """Of another node's row what would have been too long is left out."""
    row = {"client_properties": {}, **row}
    began_s = row.pop("connected_at_ms") / 1000
    return {**row, "connected_at": connections.moment(began_s)}


def _consumer(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != "single"}
