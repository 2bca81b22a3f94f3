"""A binding in RabbitMQ's fields.

Source: https://www.rabbitmq.com/docs/http-api-reference, /api/bindings.
"""

from __future__ import annotations

from typing import Any

from amqpd.management.bindings import BindingRow

Row = dict[str, Any]
FIELDS = ("source", "vhost", "destination", "destination_type", "routing_key", "arguments", "properties_key")


def of_binding(row: BindingRow) -> Row:
    given: Row = {**row}
    return {name: given[name] for name in FIELDS}


def of_default(vhost: str, queue: str) -> Row:
    """That of every queue to the default exchange, by its name."""
    return {
        "source": "",
        "vhost": vhost,
        "destination": queue,
        "destination_type": "queue",
        "routing_key": queue,
        "arguments": {},
        "properties_key": queue,
    }
