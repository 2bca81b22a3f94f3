"""A message that died in a queue, as it is published again: RabbitMQ's headers of its deaths, its new address.

What comes in: a run, where and why its messages died. What goes out: the run to publish, and the deaths.
Rules: 1. One entry in `x-death` for each queue and reason, the newest first: the count rises, everything else stays
what it was the first time. 2. Deaths count only if a broker wrote them: what a client publishes under these names is
replaced. 3. The expiration goes into the entry, or the message would expire again.
Not here: where it is routed to (`amqpd/dead_lettering.py`), when a message dies (`queue.py`).

Source: https://www.rabbitmq.com/docs/dlx; RabbitMQ 4, deps/rabbit/src/mc_amqpl.erl and rabbit_dead_letter.erl.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from amqpd.fieldwriter import Encoded
from amqpd.kernel import Run
from amqpd.properties import Properties
from amqpd.propertylist import EXPIRATION, edited
from amqpd.queues.settings import QueueSettings
from amqpd.rewriting import mark_of, readdressed, run_names

REJECTED, EXPIRED, MAXLEN, DELIVERY_LIMIT = "rejected", "expired", "maxlen", "delivery_limit"

# In the reserved field of a publish: its x-death was written by a broker.
DEAD_LETTER = 1


class DeadLetter(NamedTuple):
    """`routing_keys` are those to route by: the address, and CC's if it still has any. `deaths` are (queue, reason),
    newest first."""

    run: Run
    routing_keys: list[str]
    deaths: list[tuple[str, str]]


def dead_letter(
    run: Run, properties: Properties, queue: str, reason: str, settings: QueueSettings, now_ms: int
) -> DeadLetter:
    """All messages of the run, dead in `queue`, whose settings name a dead letter exchange."""
    headers = properties.headers or {}
    exchange, routing_key = run_names(run)
    keys = [routing_key, *_carbon_copies(headers)]
    known = headers.get("x-death") if mark_of(run) == DEAD_LETTER else None
    deaths: list[dict[str, Any]] = [dict(death) for death in known] if isinstance(known, Sequence) else []
    entry = next((death for death in deaths if death["queue"] == queue and death["reason"] == reason), None)
    if entry is not None:
        deaths.remove(entry)
        entry["count"] = entry["count"] + 1
    else:
        # RabbitMQ 4 writes the fields in this order.
        entry = {} if properties.expiration is None else {"original-expiration": properties.expiration}
        entry |= {
            "count": 1,
            "reason": reason,
            "queue": queue,
            "time": Encoded(b"T" + (now_ms // 1000).to_bytes(8, "big")),
            "exchange": exchange,
            "routing-keys": keys,
        }
    deaths.insert(0, entry)
    first = {} if known is not None else _death("first", queue, reason, exchange)
    new_headers = {"x-death": deaths, **first, **_death("last", queue, reason, exchange)}
    without: tuple[str, ...] = ()
    if settings.dead_letter_routing_key is not None:
        keys = [settings.dead_letter_routing_key]
        without = ("CC",)
    raw = edited(run.properties, new_headers, without, (EXPIRATION,))
    letter = readdressed(run, settings.dead_letter_exchange or "", keys[0], raw, DEAD_LETTER)
    return DeadLetter(letter, keys, [(death["queue"], death["reason"]) for death in deaths])


def is_cycle(queue: str, deaths: list[tuple[str, str]]) -> bool:
    """The message has died in this queue before, and came back without anybody having rejected it on the way: it
    would go on for ever."""
    for index, (name, _) in enumerate(deaths):
        if name == queue:
            return all(reason != REJECTED for _, reason in deaths[: index + 1])
    return False


def _death(which: str, queue: str, reason: str, exchange: str) -> dict[str, str]:
    return {f"x-{which}-death-reason": reason, f"x-{which}-death-queue": queue, f"x-{which}-death-exchange": exchange}


def _carbon_copies(headers: Mapping[str, Any]) -> list[str]:
    copies = headers.get("CC")
    return [key for key in copies if isinstance(key, str)] if isinstance(copies, list) else []
