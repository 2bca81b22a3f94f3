"""Queues of the whole cluster as an operator at any node sees them and acts on them: listed, explained, purged.

What comes in: names, filters; which nodes lead (`leaders.py`). What goes out: rows with the leaders' figures; what
the leaders say; what was done.
Rules: 1. A figure is its leader's, or None: a leader that does not answer leaves no 0 behind. 2. What only a leader
can do is done there, with the permissions of who asks. 3. Rows come in pages, the broker going on in between.
Not here: what is done to a queue of this node (`management/queues.py`), fields for HTTP
(`admin/amqpd_admin/rows/queues.py`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from functools import partial
from typing import Any

from amqpd.management import queues
from amqpd.management.across_nodes.leaders import Leaders
from amqpd.management.across_nodes.queue_figures import KNOWN, facts_of
from amqpd.management.operators import Operator
from amqpd.management.pacing import WalkPace, each
from amqpd.management.running import Running
from amqpd.management.why.queues import explained
from amqpd.queues.port import QueuePort

Row = dict[str, Any]

ROWS_AT_ONCE = 100
"""Their leaders are asked for in one question."""


async def listed(on: Running, leaders: Leaders, filters: Mapping[str, Any]) -> AsyncGenerator[list[Row], None]:
    """`vhost` and `name` are filters."""
    pace, some = WalkPace(), list[QueuePort]()
    for port in on.node.ports.ports():
        await pace.step()
        record = port.record
        if filters.get("vhost") not in (None, record.vhost) or filters.get("name") not in (None, record.name):
            continue
        some.append(port)
        if len(some) == ROWS_AT_ONCE:
            yield await _rows(on, leaders, some)
            some = []
    if some:
        yield await _rows(on, leaders, some)


async def _rows(on: Running, leaders: Leaders, some: list[QueuePort]) -> list[Row]:
    await leaders.ask(some)
    return await each(some, partial(row_of, on, leaders))


def row_of(on: Running, leaders: Leaders, port: QueuePort) -> Row | None:
    """None for one that is gone. The leaders were asked for it. If its source begins here, it is made now: a row says
    what is in it."""
    found = on.node.ports.get((port.record.vhost, port.record.name))
    if found is None or found.is_deleted:
        return None
    figures, about = leaders.figures(found), {"leader": "", **leaders.about(found)}
    facts = {**facts_of(on.node, found, figures), **about}
    if not found.is_remote or figures is not None:
        return facts
    known = {*KNOWN, *about}
    facts = {name: value if name in known else None for name, value in facts.items()}
    return {**facts, "state": leaders.silence(found)}


async def why(on: Running, leaders: Leaders, vhost: str, name: str, *, names_consumers: bool) -> list[str]:
    """In words, as its leader says it. `names_consumers`: as in `explained`. Raises NotFound, Unavailable."""
    queue = on.queue(vhost, name)
    leader = leaders.another(queue)
    if leader is None:
        return await explained(on, vhost, name, names_consumers=names_consumers)
    found = await leaders.act(
        leader, "why", vhost=vhost, name=name, names_consumers="yes" if names_consumers else "no"
    )
    return [str(each) for each in found.get("why", [])]


async def purge(on: Running, leaders: Leaders, by: Operator, vhost: str, name: str) -> int:
    """How many ready messages are gone. Raises NotFound, NotPermitted, Conflict, Unavailable."""
    queue = on.node.ports.get((vhost, name))
    leader = None if queue is None else leaders.another(queue)
    if leader is None:
        return await queues.purge(on, by, vhost, name)
    found = await leaders.act(leader, "purge", vhost=vhost, name=name, by=by.user)
    return int(found.get("messages", 0))


async def delete_on_conditions(
    on: Running, leaders: Leaders, by: Operator, vhost: str, name: str, *, if_unused: bool, if_empty: bool
) -> int | None:
    """As `delete`, for a queue of any type: its leader looks at the conditions when it asks the store to delete the
    queue. Raises NotFound, NotPermitted, Conflict, Unavailable."""
    queue = on.queue(vhost, name)
    leader = leaders.another(queue)
    if leader is not None:
        asked = {"if_unused": "yes" if if_unused else "no", "if_empty": "yes" if if_empty else "no"}
        found = await leaders.act(leader, "delete", vhost=vhost, name=name, by=by.user, **asked)
        return int(found.get("messages", 0))
    return await queues.delete(on, by, vhost, name, if_unused=if_unused, if_empty=if_empty, any_type=True)


async def delete(
    on: Running, leaders: Leaders, by: Operator, vhost: str, name: str, *, if_unused: bool, if_empty: bool
) -> int | None:
    """How many ready messages went with it, as its leader said before. None: that does not answer. Raises NotFound,
    NotPermitted, Conflict, Unavailable."""
    conditions = {"if_unused": if_unused, "if_empty": if_empty}
    queue = on.node.ports.get((vhost, name))
    if queue is None or not queue.is_remote:
        return await queues.delete(on, by, vhost, name, **conditions)
    if (if_unused or if_empty) and not queue.quorum:
        return await delete_on_conditions(on, leaders, by, vhost, name, **conditions)
    await leaders.ask([queue])
    figures = leaders.figures(queue)
    told = None if figures is None else int(figures.get("messages_ready", 0))
    await queues.delete(on, by, vhost, name, **conditions)
    return told
