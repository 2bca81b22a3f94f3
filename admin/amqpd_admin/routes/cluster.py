"""The cluster: its nodes, its sources, what is not well, in words. Our own; RabbitMQ has no such route.

What comes in: a request. What goes out: the same as `amqpd cluster status` and `amqpd quorum status` say.
Rules: 1. It is what this node has heard; how far copies are it says of the sources that it is the leader of. 2.
Nothing is changed here.
Not here: what the sentences are (`amqpd/cluster/overview.py`), moves (`amqpd quorum`).
"""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from amqpd.management.pacing import each
from amqpd_admin.answers import reply
from amqpd_admin.guarded import api_router
from amqpd_admin.login import Monitor
from amqpd_admin.pieces import reply_with
from amqpd_admin.walks import declared

router = api_router("cluster", "/amqpd/cluster")


@router.get("")
async def look(request: Request, who: Monitor) -> Response:
    """`clustered`; and in a cluster `node` (this one), `says` (sentences), `members`, `sources` (those of which the
    same is to be said are one row), `statistics` (of this node)."""
    if who.parts.cluster is None:
        return reply({"clustered": False})
    queues, copies = await declared(who.parts.on.node.topology, request.app.state.settings.cluster_copies)
    view = who.parts.cluster()
    found = await each(view.source_statuses(copies), lambda status: status)
    return await reply_with({"clustered": True, **view.rows(found, queues)})
