"""Whether a user may do something: asked as AMQP asks, without doing it. Our own; RabbitMQ has no such route.

What comes in: a user, a virtual host, what it would do to which queue, exchange or routing key. What goes out:
`allowed`, and the refusal that its client would get.
Rules: the answer is that of the broker's own check, so patterns mean here what they mean there.
Not here: the patterns (`routes/permissions.py`), the check (`amqpd/security/access.py`).
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query
from pamqp.exceptions import AMQPAccessRefused
from starlette.responses import Response

from amqpd.management.errors import NotFound
from amqpd_admin.answers import reply
from amqpd_admin.guarded import api_router
from amqpd_admin.login import Administrator
from amqpd_admin.paths import Name

router = api_router("permissions", "/amqpd/access")

NAME_LENGTH_MAX = 255
"""of names and routing keys in AMQP (0-9-1, section 4.2.5.3: a short string)"""
Text = Annotated[str, Query(max_length=NAME_LENGTH_MAX)]


@router.get("/{vhost}/{user}")
async def ask(
    vhost: Name,
    user: Name,
    who: Administrator,
    permission: Literal["configure", "write", "read"],
    kind: Literal["queue", "exchange"],
    name: Text = "",
    routing_key: Text | None = None,
) -> Response:
    """`name` is that of the queue or the exchange; empty, the default exchange's. A `routing_key` counts for a topic
    exchange, to write or to read."""
    topology, access = who.parts.on.node.topology, who.parts.access
    if vhost not in topology.vhosts or user not in topology.users:
        raise NotFound("Object Not Found")
    if not access.may_enter(user, vhost):
        return reply({"allowed": False, "reason": f"user '{user}' has no permissions in vhost '{vhost}'"})
    found = topology.vhosts[vhost].exchanges.get(name) if kind == "exchange" else None
    try:
        access.require(user, vhost, permission, kind, name)
        is_topic = found is not None and found.record.type == "topic"
        if is_topic and permission != "configure" and routing_key is not None:
            access.require_topic(user, vhost, permission, name, routing_key, {})
    except AMQPAccessRefused as error:
        return reply({"allowed": False, "reason": str(error.args[0])})
    return reply({"allowed": True, "reason": ""})
