"""Alarms of all nodes, and the end of those that an operator has set. Our own; RabbitMQ has no such routes.

What comes in: a node and an alarm's name. What goes out: rows; whether an operator had set it, and who still says so.
Rules: 1. Every user of the API sees which alarms are on, as by RabbitMQ's health checks; their figures and how many
connections are blocked are for who monitors. 2. An administrator ends what an operator has set, at any node.
Not here: where alarms come from (`amqpd/management/attention/alarms.py`), setting one (`routes/control.py`).
"""

from __future__ import annotations

from starlette.responses import Response

from amqpd.management.attention import alarms
from amqpd_admin.answers import reply
from amqpd_admin.guarded import api_router
from amqpd_admin.lists import Row
from amqpd_admin.login import Administrator, Asking, Who
from amqpd_admin.paths import Name

router = api_router("alarms", "/amqpd/alarms")

FIGURES = ("says", "blocked")


async def rows_for(who: Who) -> list[Row]:
    """Of all nodes that answer, as far as the user may see them."""
    found = [dict(each) for each in await alarms.in_cluster(who.parts)]
    if who.monitors:
        return found
    return [{name: value for name, value in row.items() if name not in FIGURES} for row in found]


@router.get("")
async def list_all(who: Asking) -> Response:
    """`node`, `name`, `source`, `since` (UTC) and `since_ms`, `clearable`: an operator has set it; for who monitors
    `says` (why) and `blocked` (connections of that node)."""
    return reply(await rows_for(who))


@router.delete("/{node}/{name}")
async def clear(node: Name, name: Name, who: Administrator) -> Response:
    """Ends what an operator has set at that node. `was_set`; `still_on`: the sources that still say so."""
    return reply(dict(await alarms.clear(who.parts, who.operator, node, name)))
