"""Commands that make and delete queues, exchanges and bindings, and those that ask or act on queues of any node.

What comes in: a command's arguments as JSON; which nodes lead. What goes out: what the use cases return.
Rules: as in `commands.py`.
Not here: what is checked and done (`management/queues.py` and its like, `management/across_nodes/`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial
from typing import Any

from amqpd.management import bindings, exchanges, queues
from amqpd.management.across_nodes import led_queues, many_queues
from amqpd.management.across_nodes.leaders import Leaders
from amqpd.management.control.answers import Handler, Stream, caller
from amqpd.management.control.arguments import Arguments, flag, optional, required, table, vhost_of
from amqpd.management.errors import BadArgument
from amqpd.management.messages import publishing
from amqpd.management.running import Running
from amqpd.vocabulary.records import DestinationType

Rows = list[dict[str, Any]]


def handlers(on: Running) -> Mapping[str, Handler]:
    """Of what any node can do."""

    async def declare_queue(arguments: Arguments) -> dict[str, Any]:
        new = await queues.declare(
            on,
            caller(),
            vhost_of(arguments),
            required(arguments, "name"),
            durable=flag(arguments, "durable", True),
            auto_delete=flag(arguments, "auto_delete"),
            arguments=table(arguments, "arguments"),
        )
        return {"new": new}

    async def declare_exchange(arguments: Arguments) -> dict[str, Any]:
        new = await exchanges.declare(
            on,
            caller(),
            vhost_of(arguments),
            required(arguments, "name"),
            optional(arguments, "type") or "direct",
            durable=flag(arguments, "durable", True),
            auto_delete=flag(arguments, "auto_delete"),
            internal=flag(arguments, "internal"),
            arguments=table(arguments, "arguments"),
        )
        return {"new": new}

    async def delete_exchange(arguments: Arguments) -> dict[str, Any]:
        vhost, name = vhost_of(arguments), required(arguments, "name")
        await exchanges.delete(on, caller(), vhost, name, if_unused=flag(arguments, "if_unused"))
        return {}

    async def declare_binding(arguments: Arguments) -> dict[str, Any]:
        ends = required(arguments, "source"), required(arguments, "destination"), _kind(arguments)
        key = optional(arguments, "routing_key") or ""
        made = await bindings.bind(on, caller(), vhost_of(arguments), *ends, key, table(arguments, "arguments"))
        return dict(made)

    async def delete_binding(arguments: Arguments) -> dict[str, Any]:
        ends = required(arguments, "source"), required(arguments, "destination"), _kind(arguments)
        key = optional(arguments, "routing_key") or ""
        await bindings.unbind_exactly(on, caller(), vhost_of(arguments), *ends, key, table(arguments, "arguments"))
        return {}

    async def publish(arguments: Arguments) -> dict[str, Any]:
        encoding = optional(arguments, "payload_encoding") or "string"
        body = publishing.body_of(required(arguments, "payload"), encoding)
        where = vhost_of(arguments), required(arguments, "exchange"), required(arguments, "routing_key")
        return {"routed": await publishing.publish(on, caller(), *where, body, table(arguments, "properties"))}

    return {
        "queue declare": declare_queue,
        "exchange declare": declare_exchange,
        "exchange delete": delete_exchange,
        "binding declare": declare_binding,
        "binding delete": delete_binding,
        "message publish": publish,
    }


def led_handlers(on: Running, leaders: Callable[[], Leaders]) -> Mapping[str, Handler]:
    """Of what a queue's leader knows and does. `leaders`: of this moment."""

    async def why(arguments: Arguments) -> dict[str, Any]:
        vhost, name = vhost_of(arguments), required(arguments, "name")
        return {"why": await led_queues.why(on, leaders(), vhost, name, names_consumers=True)}

    async def delete(arguments: Arguments) -> dict[str, Any]:
        where = on, leaders(), caller(), vhost_of(arguments), required(arguments, "name")
        unused, empty = flag(arguments, "if_unused"), flag(arguments, "if_empty")
        return {"messages": await led_queues.delete(*where, if_unused=unused, if_empty=empty)}

    async def purge(arguments: Arguments) -> dict[str, Any]:
        where = on, leaders(), caller(), vhost_of(arguments), required(arguments, "name")
        return {"messages": await led_queues.purge(*where)}

    return {"queue why": why, "queue delete": delete, "queue purge": purge}


def led_streams(on: Running, leaders: Callable[[], Leaders]) -> Mapping[str, Stream]:
    """Lists of queues of all nodes; many queues at once."""

    def many(act: many_queues.Act, arguments: Arguments) -> AsyncGenerator[Rows, None]:
        meant, dry_run = many_queues.Meant.of(arguments), not flag(arguments, "yes")
        return many_queues.carry_out(on, leaders(), caller(), act, meant, dry_run=dry_run)

    return {
        "queue list": lambda arguments: led_queues.listed(on, leaders(), arguments),
        "queues purge": partial(many, "purge"),
        "queues delete": partial(many, "delete"),
    }


def _kind(arguments: Arguments) -> DestinationType:
    kind = optional(arguments, "destination_type") or "queue"
    if kind not in ("queue", "exchange"):
        raise BadArgument("destination_type is queue or exchange")
    return kind  # type: ignore[return-value]
