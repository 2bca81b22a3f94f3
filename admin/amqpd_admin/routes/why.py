"""Why things are as they are, in words. Our own; RabbitMQ has no such routes.

What comes in: a queue, a connection; or nothing, for alarms. What goes out: `why`, sentences of which the first
matters most.
Rules: a queue's are for who may enter its virtual host, a connection's for whose it is and who monitors, the alarms'
for who monitors. A consumer is named to who monitors only.
Not here: the sentences (`amqpd/management/why/`).
"""

from __future__ import annotations

import psutil
from starlette.responses import Response

from amqpd.management import alarms
from amqpd.management.across_nodes import led_queues
from amqpd.management.across_nodes.leaders import leaders_of
from amqpd.management.why import connections as why_connection
from amqpd_admin.answers import reply
from amqpd_admin.guarded import api_router
from amqpd_admin.login import Asking, Entering, Monitor
from amqpd_admin.paths import Name
from amqpd_admin.routes.connections import named_here

router = api_router("why", "/amqpd/why")


@router.get("/queues/{vhost}/{name}")
async def of_queue(vhost: Name, name: Name, who: Entering) -> Response:
    """Why messages wait in a queue, and what became of others."""
    parts, leaders = who.parts, leaders_of(who.parts)
    return reply({"why": await led_queues.why(parts.on, leaders, vhost, name, names_consumers=who.monitors)})


@router.get("/connections/{name}")
async def of_connection(name: Name, who: Asking) -> Response:
    """Why a connection's publishes wait, and its consumers."""
    return reply({"why": await why_connection.explained(who.parts.on, await named_here(who, name))})


@router.get("/alarms")
async def of_alarms(who: Monitor) -> Response:
    """Why alarms are on, and what ends them."""
    parts, resident_bytes = who.parts, psutil.Process().memory_info().rss
    return reply({"why": alarms.sentences(parts.on.node.alarms.by_source, parts.figures(), resident_bytes)})
