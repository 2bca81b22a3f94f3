"""A binding in RabbitMQ's fields.

What comes in: bindings as they were when a walk came by. What goes out: rows of those that are still there.

Source: https://www.rabbitmq.com/docs/http-api-reference, /api/bindings.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from amqpd.management.bindings import binding_row, escaped, named_by, unescaped
from amqpd.vocabulary.records import BindingRecord
from amqpd_admin.lists import Listing
from amqpd_admin.login import Who

Row = dict[str, Any]
FIELDS = ("source", "vhost", "destination", "destination_type", "routing_key", "arguments", "properties_key")


class Default(NamedTuple):
    """The binding of a queue to the default exchange, by the queue's name."""

    vhost: str
    queue: str


Binding = BindingRecord | Default


def listing(who: Who, found: Iterable[Binding | None]) -> Listing[Binding]:
    return Listing(found, lambda each: {"vhost": each.vhost}, lambda each: row_of(who, each), text_of)


def row_of(who: Who, binding: Binding) -> Row | None:
    """None for one that is gone."""
    vhost = who.parts.on.node.topology.vhosts.get(binding.vhost)
    if vhost is None:
        return None
    if isinstance(binding, Default):
        return _of_default(binding) if binding.queue in vhost.queues else None
    ends = (binding.source, binding.destination_type, binding.destination)
    held = vhost.find_binding(*ends, binding.routing_key, binding.arguments_key)
    return None if held is None else of_binding(held)


def names(binding: Binding, key: str) -> bool:
    """`key`: a `properties_key`, as it is decoded from a path."""
    return binding.queue == unescaped(key) if isinstance(binding, Default) else named_by(binding, key)


def of_binding(record: BindingRecord) -> Row:
    given: Row = {**binding_row(record)}
    return {name: given[name] for name in FIELDS}


def _of_default(binding: Default) -> Row:
    return {
        "source": "",
        "vhost": binding.vhost,
        "destination": binding.queue,
        "destination_type": "queue",
        "routing_key": binding.queue,
        "arguments": {},
        "properties_key": escaped(binding.queue),
    }


def text_of(binding: Binding) -> str:
    """What a list is searched in: both ends, the routing key."""
    if isinstance(binding, Default):
        return binding.queue
    return f"{binding.source} {binding.destination} {binding.routing_key}"
