"""Everything that is known of one queue, as plain values: what the command line shows, and an HTTP API would.

What comes in: a queue, the time, the policy that applies to it. What goes out: a dictionary that JSON can hold.
Rules: 1. Pure; nothing is walked that grows with the messages. 2. Names are those of RabbitMQ's HTTP API where it has
one for the same thing; its `..._details.rate` are messages a second over the last 5 to 10 seconds. 3. `totals` has
our own counters.
Not here: counting (`queues/facts.py`), who consumes (`inventory.py`), messages (`queues/contents.py`).

Source for names: https://www.rabbitmq.com/docs/http-api-reference, /api/queues/{vhost}/{name}.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from amqpd.management.figures.conditions import conditions
from amqpd.node.quarantine import damage_facts
from amqpd.node.totals import TAKEN
from amqpd.queues.contents import head_timestamp
from amqpd.queues.facts import TIME_IN_QUEUE_MS, TOTALS, taken
from amqpd.queues.leader import LeaderQueue
from amqpd.queues.port import QueuePort, Statistics
from amqpd.queues.settings import QueueSettings
from amqpd.session.consumers import Consumer
from amqpd.topology.policies import NO_POLICY, EffectivePolicy
from amqpd.wire.json_values import to_json

STATS = (
    ("publish", "accepted"),
    ("deliver_get", "delivered"),
    ("redeliver", "redelivered"),
    ("ack", "acked_by_clients"),
    ("deliver_no_ack", "auto_acked"),
    ("get_no_ack", "got_auto_acked"),
    ("get_empty", "got_nothing"),
)
"""those that are one of our counters"""


def queue_facts(queue: QueuePort, now_ms: int, policy: EffectivePolicy = NO_POLICY) -> dict[str, Any]:
    """Times in the unit of their name, sizes in bytes; None where there is nothing to say."""
    record, said, damage = queue.record, queue.statistics(now_ms), damage_facts(queue)
    utilisation = round(said.utilisation, 3)
    return {
        "vhost": record.vhost,
        "name": record.name,
        "type": said.settings.type,
        "state": _state(queue, damage),
        "attention": conditions(queue, now_ms),
        "out_of_service": queue.crash_reason,
        "fenced": damage,
        "durable": record.durable,
        "auto_delete": record.auto_delete,
        "exclusive": record.exclusive,
        "arguments": to_json(record.arguments),
        "policy": policy.name,
        "operator_policy": policy.operator_name,
        "effective_policy_definition": to_json(policy.definition),
        "settings": _settings(said.settings),
        "messages": said.ready + said.unacked,
        "messages_details": {"rate": growth_of(said.rates)},
        "messages_ready": said.ready,
        "messages_unacknowledged": said.unacked,
        "messages_dlx": said.dying,
        "message_bytes": said.ready_bytes + said.unacked_bytes,
        "message_bytes_ready": said.ready_bytes,
        "message_bytes_unacknowledged": said.unacked_bytes,
        "memory": said.memory_bytes,
        "oldest_message_age_s": None if said.oldest_ms is None else max(0, now_ms - said.oldest_ms) / 1000,
        "head_message_timestamp": head_timestamp(queue) if isinstance(queue, LeaderQueue) else None,
        "consumers": said.consumers,
        "consumer_capacity": utilisation,
        "consumer_utilisation": utilisation,
        "single_active_consumer_tag": said.active.tag if isinstance(said.active, Consumer) else None,
        "message_stats": _stats(said),
        "totals": {name: said.totals[name] for name in TOTALS},
        "time_in_queue_ms": dict(zip([*map(str, TIME_IN_QUEUE_MS), "more"], said.time_in_queue, strict=True)),
    }


def growth_of(rates: dict[str, float]) -> float:
    """How fast its messages become more."""
    return round(rates["accepted"] - rates["left"], 1)


def state_of(queue: QueuePort) -> str:
    """The word for a queue's state, as in `queue_facts`."""
    return _state(queue, damage_facts(queue))


def _state(queue: QueuePort, damage: dict[str, Any] | None) -> str:
    """RabbitMQ's words, except `fenced` (`amqpd/node/quarantine.py`) and `remote` (`amqpd/node/sources.py`). Why it
    crashed: `amqpd/node/quarantine.py`."""
    if queue.crash_reason is not None:
        return "crashed"
    if queue.is_remote:
        return "remote"
    return "fenced" if damage and damage["blocked"] else "running"


def _settings(settings: QueueSettings) -> dict[str, Any]:
    """Those in force: what the arguments and both policies together ask for."""
    given = ((each.name, getattr(settings, each.name)) for each in fields(settings))
    return {name: value for name, value in given if value not in (None, False)}


def _stats(said: Statistics) -> dict[str, Any]:
    found: dict[str, Any] = {}
    # What was there at the start was published before.
    totals = (said.totals["accepted"] - said.totals["recovered"], *taken(said.totals.__getitem__))
    rates = (said.rates["accepted"], *taken(said.rates.__getitem__))
    for name, total, rate in zip(("publish", *TAKEN), totals, rates, strict=True):
        found[name] = total
        found[name + "_details"] = {"rate": round(rate, 1)}
    return found
