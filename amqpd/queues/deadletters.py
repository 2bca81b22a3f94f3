"""A message that died in a queue, as it is published again: RabbitMQ's headers of its deaths, its new address.

What comes in: a run, where and why its messages died. What goes out: the run to publish, and the deaths.
Rules: 1. One entry in `x-death` for each queue and reason, the newest first: the count rises, everything else stays
what it was the first time. 2. Deaths count only if a broker wrote them: what a client publishes under these names is
replaced. RabbitMQ until 4.0 counted on from what a client published again, and so does a broker that says that it is
such a one (the setting `server_version`). 3. The expiration goes into the entry, or the message would expire again.
Not here: where it is routed to (`amqpd/publishing/dead_lettering.py`), when a message dies (`queue.py`).

Source: https://www.rabbitmq.com/docs/dlx; RabbitMQ 4, deps/rabbit/src/mc_amqpl.erl and rabbit_dead_letter.erl.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from amqpd.audit import kinds
from amqpd.kernel import Run
from amqpd.message.properties import Properties
from amqpd.message.propertylist import EXPIRATION, edited
from amqpd.message.rewriting import mark_of, readdressed, run_names
from amqpd.queues.settings import QueueSettings
from amqpd.wire.fieldwriter import Encoded

REJECTED, EXPIRED, MAXLEN, DELIVERY_LIMIT = "rejected", "expired", "maxlen", "delivery_limit"
# What the audit log calls it, without a dead letter exchange and with one.
ALONE = {
    EXPIRED: kinds.EXPIRED,
    REJECTED: kinds.REJECTED,
    DELIVERY_LIMIT: kinds.OVER_DELIVERY_LIMIT,
    MAXLEN: kinds.DROPPED,
}
DEAD = {
    EXPIRED: kinds.DEAD_EXPIRED,
    REJECTED: kinds.DEAD_REJECTED,
    DELIVERY_LIMIT: kinds.DEAD_DELIVERY_LIMIT,
    MAXLEN: kinds.DEAD_DROPPED,
}

# In the reserved field of a publish: its x-death was written by a broker.
DEAD_LETTER = 1


# A header frame holds all of it, and no client takes one larger than it said, 128 kB mostly; and each queue that a
# message dies in reads and writes it. RabbitMQ has no bound, and its clients break off.
DEATHS_BYTES_MAX = 64 * 1024
# Of the routing keys that a message with CC died with.
KEYS_BYTES_MAX = 4 * 1024
# What an entry takes beside its texts, and a routing key beside its dead letters.
DEATH_BYTES, KEY_BYTES = 96, 5
# A count that a client wrote and that has no next one in 64 bits begins again.
COUNT_MAX = (1 << 63) - 1
# What a broker writes into an entry.
_FIELDS: dict[str, type] = {
    **dict.fromkeys(("original-expiration", "reason", "queue", "exchange"), str),
    "count": int,
    "time": datetime,
    "routing-keys": list,
}


class DeadLetter(NamedTuple):
    """A run of dead letters, ready to be published. `routing_keys` are those to route by: the address, and CC's if
    it still has any. `deaths` are (queue, reason), newest first."""

    run: Run
    routing_keys: list[str]
    deaths: list[tuple[str, str]]


def dead_letter_of(
    run: Run,
    properties: Properties,
    queue: str,
    reason: str,
    settings: QueueSettings,
    now_ms: int,
    published_deaths: bool = False,
) -> DeadLetter | None:
    """All messages of the run, dead in `queue`, whose settings name a dead letter exchange. None when what is to be
    said of their deaths has no space any more: they have died in hundreds of queues. `published_deaths`: those that
    a client published count."""
    headers = properties.headers or {}
    exchange, routing_key = run_names(run)
    keys = [routing_key, *_carbon_copies(headers)]
    ours = mark_of(run) == DEAD_LETTER
    known = headers.get("x-death") if ours or published_deaths else None
    deaths: list[dict[str, Any]] = []
    if isinstance(known, list):
        deaths = [dict(death) for death in known] if ours else _published(known)
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
            "routing-keys": _as_many_as_fit(keys),
        }
    deaths.insert(0, entry)
    if not _shortened(deaths):
        return None
    first = {} if known is not None else _death("first", queue, reason, exchange)
    new_headers = {"x-death": deaths, **first, **_death("last", queue, reason, exchange)}
    without: tuple[str, ...] = ()
    if settings.dead_letter_routing_key is not None:
        keys = [settings.dead_letter_routing_key]
        without = ("CC",)
    raw = edited(run.properties, new_headers, without, (EXPIRATION,))
    dead_letter = readdressed(run, settings.dead_letter_exchange or "", keys[0], raw, DEAD_LETTER)
    return DeadLetter(dead_letter, keys, [(death["queue"], death["reason"]) for death in deaths])


def is_dead_letter(run: Run) -> bool:
    """Its deaths were written by a broker. (The mark alone may be a client's that takes the field for its own.)"""
    return mark_of(run) == DEAD_LETTER and b"x-death" in run.properties


def deaths_of(properties: Properties) -> list[tuple[str, str]]:
    """(queue, reason) of a dead letter's deaths, the newest first."""
    known = (properties.headers or {}).get("x-death")
    return [(death["queue"], death["reason"]) for death in known] if isinstance(known, list) else []


def _published(known: list[Any]) -> list[dict[str, Any]]:
    """The entries of an x-death that a client wrote, who may have written anything: the first one of each queue and
    reason, and of it what a broker writes. Others may be added: they take no more than half of what there is space
    for. Early versions of RabbitMQ wrote an entry for each death and no count: then their number is the count."""
    deaths: dict[tuple[str, str], dict[str, Any]] = {}
    uncounted: set[tuple[str, str]] = set()
    nbytes = 0
    for each in known:
        if not isinstance(each, Mapping):
            continue
        entry = {name: each[name] for name, kind in _FIELDS.items() if isinstance(each.get(name), kind)}
        keys, count = entry.get("routing-keys"), entry.get("count")
        if "queue" not in entry or "reason" not in entry:
            continue
        if keys is not None:
            entry["routing-keys"] = _as_many_as_fit([key for key in keys if isinstance(key, str)])
        where_and_why = entry["queue"], entry["reason"]
        if where_and_why not in deaths and (count is None or isinstance(count, bool) or not 0 < count < COUNT_MAX):
            uncounted.add(where_and_why)
        nbytes += _size(entry)
        if nbytes > DEATHS_BYTES_MAX // 2:
            break
        first = deaths.setdefault(where_and_why, entry)
        if where_and_why in uncounted:
            first["count"] = 1 if first is entry else first["count"] + 1
    return list(deaths.values())


def _as_many_as_fit(keys: list[str]) -> list[str]:
    """The first one, and others up to KEYS_BYTES_MAX."""
    if len(keys) <= 1:
        return keys
    nbytes = 0
    for at, key in enumerate(keys):
        nbytes += KEY_BYTES + len(key)
        if nbytes > KEYS_BYTES_MAX and at:
            return keys[:at]
    return keys


def _shortened(deaths: list[dict[str, Any]]) -> bool:
    """Whether the deaths fit: if not, those before the last one keep only the first of their routing keys."""
    nbytes = sum(map(_size, deaths))
    if nbytes <= DEATHS_BYTES_MAX:
        return True
    for death in deaths[1:]:
        keys = death.get("routing-keys")
        if isinstance(keys, list):
            death["routing-keys"] = keys[:1]
    return sum(map(_size, deaths)) <= DEATHS_BYTES_MAX


def _size(death: dict[str, Any]) -> int:
    keys = death.get("routing-keys")
    texts = sum(KEY_BYTES + len(key) for key in keys if isinstance(key, str)) if isinstance(keys, list) else 0
    return DEATH_BYTES + texts + sum(len(value) for value in death.values() if isinstance(value, str))


def cycle_of(deaths: list[tuple[str, str]]) -> set[str]:
    """The queues in which the message has died before, and came back without anybody having rejected it on the way:
    it would go on for ever."""
    found: set[str] = set()
    for queue, reason in deaths:
        if reason == REJECTED:
            break
        found.add(queue)
    return found


def _death(which: str, queue: str, reason: str, exchange: str) -> dict[str, str]:
    return {f"x-{which}-death-reason": reason, f"x-{which}-death-queue": queue, f"x-{which}-death-exchange": exchange}


def _carbon_copies(headers: Mapping[str, Any]) -> list[str]:
    copies = headers.get("CC")
    return [key for key in copies if isinstance(key, str)] if isinstance(copies, list) else []
