"""The keys of policy definitions: what their values may be, how a policy's and an operator's combine, and which queue
types leave a policy alone because of them.

What comes in: definitions as JSON values. What goes out: nothing when they are valid, `PolicyInvalid` with RabbitMQ's
words when not; merged definitions.
Rules: 1. A key that RabbitMQ's users have in their definition files is taken, also where it means nothing here
(mirroring, federation, placement); one that would have to do something and does not is refused. 2. `unroutable` is
ours: `drop`, `nack` or the name of an exchange, for what an exchange has no queue for.
Not here: which policy applies to what (`policies.py`), how arguments and policies combine
(`amqpd/queues/settings.py`).

Facts from rabbit_policies.erl, rabbit_policy.erl, rabbit_classic_queue.erl, rabbit_quorum_queue.erl.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from amqpd.vocabulary.audit_levels import WORDS, is_level

Check = Callable[[Any], bool]
Definition = Mapping[str, Any]

ALTERNATE_EXCHANGE = "alternate-exchange"
UNROUTABLE = "unroutable"


class PolicyInvalid(ValueError):
    """A policy is wrong; the text says why, in RabbitMQ's words where it has some."""


def check_definition(definition: Any, operator: bool = False) -> None:
    """Raises PolicyInvalid, also when an operator policy has what only a policy may have."""
    if not isinstance(definition, Mapping):
        raise PolicyInvalid(f"definition must be a dictionary: {erlang_term(definition)}")
    if not definition:
        raise PolicyInvalid("no policy provided")
    allowed = _OPERATOR_KEYS if operator else _KEYS.keys()
    unknown = {key: value for key, value in definition.items() if key not in allowed}
    if unknown:
        raise PolicyInvalid(f"{erlang_term(unknown)} are not recognised policy settings")
    check_values(definition)
    if len(definition.keys() & _FEDERATION_KEYS) > 1:
        raise PolicyInvalid(
            "cannot specify federation-upstream, federation-upstream-set or federation-upstream-pattern together"
        )


def known_keys() -> list[str]:
    """All that a policy may have."""
    return list(_KEYS)


def check_values(definition: Definition) -> None:
    """Of the keys that are known here; a neighbouring version may have others. Raises PolicyInvalid."""
    for key, value in definition.items():
        if key in _KEYS and not _KEYS[key][0](value):
            raise PolicyInvalid(f"{erlang_term(value)} is not a valid {_KEYS[key][1]}")


def merge(policy: Definition, operator_policy: Definition) -> Definition:
    """Both apply: of a limit the tighter one, of everything else the operator's."""
    merged = dict(policy)
    for key, value in operator_policy.items():
        merged[key] = merge_value(key, policy[key], value) if key in policy else value
    return merged


def merge_value(key: str, policy: Any, operator_policy: Any) -> Any:
    """One key that both have (rabbit_policies.erl, `merge_policy_value`)."""
    if key == "delivery-limit":
        # A negative one is no limit.
        unlimited = policy < 0 or operator_policy < 0
        return max(policy, operator_policy) if unlimited else min(policy, operator_policy)
    if key in _TIGHTER_IS_LESS:
        return min(policy, operator_policy)
    if key == "target-group-size":
        return max(policy, operator_policy)
    return operator_policy


def applies_to_type(definition: Definition, queue_type: str) -> bool:
    """A policy with a key that the queue's type does not know leaves such queues alone altogether, and the next one
    gets its turn (rabbit_queue_type.erl, `is_policy_applicable`)."""
    return not (definition.keys() & _UNSUPPORTED.get(queue_type, frozenset()))


def erlang_term(value: Any) -> str:
    """A JSON value as RabbitMQ's texts print it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return f'<<"{value}">>'
    if isinstance(value, Mapping):
        return "[" + ",".join(f'{{<<"{key}">>,{erlang_term(inner)}}}' for key, inner in value.items()) + "]"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(erlang_term, value)) + "]"
    return str(value)


def _at_least(minimum: int, maximum: float = math.inf) -> Check:
    return lambda value: _is_integer(value) and minimum <= value <= maximum


def _one_of(*values: Any) -> Check:
    return lambda value: any(value == each and type(value) is type(each) for each in values)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_age(value: Any) -> bool:
    """As in "7D" (rabbit_amqqueue.erl, `check_max_age`)."""
    return isinstance(value, str) and re.fullmatch("0*[1-9][0-9]*[YMDhms]", value) is not None


# key: (check, what the text calls it: "... is not a valid X")
_KEYS: dict[str, tuple[Check, str]] = {
    "expires": (_at_least(1), "queue expiry"),
    "message-ttl": (_at_least(0), "message TTL"),
    "max-length": (_at_least(0), "maximum length"),
    "max-length-bytes": (_at_least(0), "maximum length in bytes"),
    "overflow": (_one_of("drop-head", "reject-publish", "reject-publish-dlx"), "overflow value"),
    "dead-letter-exchange": (_is_text, "dead letter exchange name"),
    "dead-letter-routing-key": (_is_text, "dead letter routing key"),
    "dead-letter-strategy": (_one_of("at-most-once", "at-least-once"), "dead letter strategy"),
    "delivery-limit": (_is_integer, "delivery limit"),
    "consumer-timeout": (_at_least(0), "consumer timeout"),
    ALTERNATE_EXCHANGE: (_is_text, "alternate exchange name"),
    UNROUTABLE: (_is_name, "way with unroutable messages: drop, nack or the name of an exchange"),
    "audit": (is_level, f"audit level: {WORDS}"),
    # What follows is taken and changes nothing.
    "queue-mode": (_one_of("default", "lazy"), "queue-mode value"),
    "queue-version": (_one_of(1, 2), "queue-version value"),
    "max-in-memory-length": (_at_least(0), "maximum memory in bytes"),
    "max-in-memory-bytes": (_at_least(0), "maximum memory in bytes"),
    "consumer-disconnected-timeout": (_at_least(0), "consumer disconnected timeout"),
    "max-age": (_is_age, "max age"),
    "stream-max-segment-size-bytes": (_at_least(0, 3_000_000_000), "segment size"),
    "stream-filter-size-bytes": (_at_least(16, 255), "filter size. Valid range is 16-255"),
    "queue-leader-locator": (
        _one_of("client-local", "balanced", "random", "least-leaders"),
        "queue leader locator value",
    ),
    "queue-master-locator": (_is_text, "master locator"),
    "initial-cluster-size": (_at_least(0), "cluster size"),
    "target-group-size": (_at_least(1), "qq target count value"),
    "member-placement-tag": (_is_name, "member-placement-tag value. Must be a non-empty string"),
    # Mirrored queues of RabbitMQ before 4.0: `ha-params` is a number, or a list of nodes.
    "ha-mode": (_one_of("all", "exactly", "nodes"), "ha-mode value"),
    "ha-params": (lambda _: True, "ha-params value"),
    "ha-sync-mode": (_one_of("manual", "automatic"), "ha-sync-mode value"),
    "ha-sync-batch-size": (_at_least(1), "ha-sync-batch-size value"),
    "ha-promote-on-shutdown": (_one_of("always", "when-synced"), "ha-promote-on-shutdown value"),
    "ha-promote-on-failure": (_one_of("always", "when-synced"), "ha-promote-on-failure value"),
    # Plugins': federation and sharding.
    "federation-upstream": (_is_text, "federation upstream name"),
    "federation-upstream-set": (_is_text, "federation upstream set name"),
    "federation-upstream-pattern": (_is_text, "federation upstream pattern"),
    "shards-per-node": (_at_least(0), "number of shards"),
    "routing-key": (_is_text, "routing key"),
}
_FEDERATION_KEYS = {"federation-upstream", "federation-upstream-set", "federation-upstream-pattern"}
_TIGHTER_IS_LESS = frozenset(
    {"expires", "message-ttl", "max-length", "max-length-bytes", "max-in-memory-length", "max-in-memory-bytes"}
)
_MIRRORING = frozenset(
    {"ha-mode", "ha-params", "ha-sync-mode", "ha-promote-on-shutdown", "ha-promote-on-failure"}  # not the batch size
)
# Overflow, versions and placement are the operator's word; of the limits the tighter one counts.
_OPERATOR_KEYS = (
    _TIGHTER_IS_LESS
    | _MIRRORING
    | {
        "delivery-limit",
        "overflow",
        "queue-version",
        "queue-master-locator",
        "target-group-size",
        "member-placement-tag",
    }
)
_STREAM_ONLY = frozenset({"max-age", "stream-max-segment-size-bytes", "initial-cluster-size"})
_UNSUPPORTED = {
    "classic": _STREAM_ONLY
    | {
        "delivery-limit",
        "dead-letter-strategy",
        "max-in-memory-length",
        "max-in-memory-bytes",
        "target-group-size",
    },
    "quorum": _STREAM_ONLY | _MIRRORING | {"queue-mode", "queue-master-locator"},
    "stream": _MIRRORING
    | {
        "expires",
        "message-ttl",
        "dead-letter-exchange",
        "dead-letter-routing-key",
        "max-length",
        "max-in-memory-length",
        "max-in-memory-bytes",
        "overflow",
        "queue-mode",
        "delivery-limit",
        "queue-master-locator",
        "dead-letter-strategy",
        "target-group-size",
    },
}
