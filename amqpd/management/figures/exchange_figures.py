"""What passes an exchange and what waits there, of this node.

What comes in: the node, an exchange's name. What goes out: plain values, or nothing where nothing was published.
Rules: 1. Pure, and nothing is walked that grows with the messages. 2. Figures of several nodes may be added up, name
by name; `messages_delayed` of all is unknown (None) when it is at one of them.
Not here: counting (`publishing/routes.py`, `queues/delayed.py`), sums over nodes (`admin/`).

Source for names: https://www.rabbitmq.com/docs/http-api-reference, /api/exchanges; `messages_delayed`: the plugin
rabbitmq_delayed_message_exchange.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from amqpd.exchanges.delayed_message import DELAYED_MESSAGE
from amqpd.node.node import Node

PASSED = ("publish_in", "publish_out")
DELAYED = "messages_delayed"

Row = dict[str, Any]


def figures_of_exchange(node: Node, vhost: str, name: str) -> Row:
    """`publish_in`, `publish_out` and their rates, where something was published; `messages_delayed` of an exchange
    that is made for delayed messages."""
    row: Row = {}
    passed = node.routes.traffic.known(vhost, name)
    if passed is not None and passed.publish_in:
        row = {
            "publish_in": passed.publish_in,
            "publish_out": passed.publish_out,
            "publish_in_rate": round(passed.rate_in, 1),
            "publish_out_rate": round(passed.rate_out, 1),
        }
    contents = node.topology.vhosts.get(vhost)
    if contents is None or name not in contents.exchanges or contents.exchanges[name].record.type != DELAYED_MESSAGE:
        return row
    store = node.delayed.get(vhost)
    alike = (each for each in contents.exchanges.values() if each.record.type == DELAYED_MESSAGE)
    alone = len(list(islice(alike, 2))) == 1
    return row | {DELAYED: 0 if store is None else store.waiting_for(name, alone)}


def added(one: Row, other: Row) -> Row:
    """The figures of two nodes together."""
    found = {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other} if name != DELAYED}
    if DELAYED in one or DELAYED in other:
        delayed = one.get(DELAYED, 0), other.get(DELAYED, 0)
        found[DELAYED] = None if None in delayed else sum(delayed)
    return found
