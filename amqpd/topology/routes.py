"""The walk of a message from exchange to exchange.

What comes in: the contents of a virtual host, an exchange to begin with, a message. What goes out: names of queues;
or what of a message could make a difference.
Rules: 1. Each exchange is taken once, so cycles end. 2. Of every exchange on the way that matches nothing, the
alternate is taken (rabbit_exchange.erl, `process_alternate`), if it exists.
Not here: what one exchange matches (`amqpd/exchanges/`), what exists (`state.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amqpd.exchanges import Message, Reads

if TYPE_CHECKING:
    from amqpd.topology.state import VhostTopology


def route(vhost: VhostTopology, exchange_name: str, message: Message) -> tuple[str, ...]:
    """The names of the queues that the message goes to, each once, all of them existing.

    The default exchange has no alternate and is nobody's: as an alternate '' is a missing exchange, also in RabbitMQ
    (seen with 3.10.8)."""
    if exchange_name == "":
        return tuple(key for key in dict.fromkeys(message.routing_keys) if key in vhost.queues)
    reached: dict[str, None] = {}
    walked = [exchange_name]
    seen = {exchange_name}
    for name in walked:
        exchange = vhost.exchanges.get(name)
        if exchange is None:
            continue
        matched = False
        for destination_type, destination in exchange.matcher.match_message(message):
            if destination_type == "queue":
                if destination in vhost.queues:
                    matched = True
                    reached[destination] = None
            elif destination in vhost.exchanges:
                matched = True
                if destination not in seen:
                    seen.add(destination)
                    walked.append(destination)
        alternate = exchange.alternate
        if not matched and alternate is not None and alternate not in seen:
            seen.add(alternate)
            walked.append(alternate)
    return tuple(reached)


def reached_reads(vhost: VhostTopology, exchange_name: str) -> Reads:
    """What of a message the exchanges look at that it may come to. Those reached by alternates count, used or not."""
    reads = Reads.NOTHING if exchange_name else Reads.ROUTING_KEY
    walked = [exchange_name]
    seen = {exchange_name}
    for name in walked:
        exchange = vhost.exchanges.get(name)
        if exchange is None:
            continue
        reads |= exchange.matcher.reads
        following = list(vhost.next_exchanges(name))
        if exchange.alternate is not None:
            following.append(exchange.alternate)
        for other in following:
            if other not in seen:
                seen.add(other)
                walked.append(other)
    return reads
