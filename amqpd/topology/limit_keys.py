"""The limits that virtual hosts and users have: their names, what they may be, what they are.

What comes in: limits as they are stored: of a user on its record, of a virtual host in its parameter `limits` of the
component `vhost-limits`. What goes out: numbers, or None where there is no limit.
Rules: 1. Names and places are RabbitMQ's, so definition files keep them; `publish-...` are ours. 2. Of a count, 0
allows none and a negative number is no limit. A rate of 0 would stop a publisher for ever without telling it, so a
rate is at least 1, or -1: none.
Not here: what happens at a limit (`flow/client_counters.py`, `flow/quotas.py`), the limits of the node
(`amqpd/config.py`).

Source: rabbit_vhost_limit.erl, rabbit_auth_backend_internal.erl; https://www.rabbitmq.com/docs/user-limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from amqpd.topology.policy_keys import erlang_term

if TYPE_CHECKING:
    from amqpd.topology.state import Topology

Owner = Literal["vhost", "user"]

VHOST_LIMITS, LIMITS = "vhost-limits", "limits"
"""component and name of the parameter"""

MAX_CONNECTIONS, MAX_CHANNELS, MAX_QUEUES = "max-connections", "max-channels", "max-queues"
PUBLISH_RATE, PUBLISH_RATE_BURST = "publish-rate", "publish-rate-burst"
"""messages a second; messages at once"""
PUBLISH_BYTES, PUBLISH_BYTES_BURST = "publish-bytes", "publish-bytes-burst"
"""bytes a second, with frames and properties; bytes at once"""

QUOTAS = (PUBLISH_RATE, PUBLISH_RATE_BURST, PUBLISH_BYTES, PUBLISH_BYTES_BURST)
KEYS: Mapping[Owner, tuple[str, ...]] = {
    "vhost": (MAX_CONNECTIONS, MAX_QUEUES, *QUOTAS),
    "user": (MAX_CONNECTIONS, MAX_CHANNELS, *QUOTAS),
}
# Beyond what a machine could do; an exact number all the same.
LIMIT_MAX = 2**53


class LimitInvalid(ValueError):
    """A limit is wrong; the text says why, in RabbitMQ's words where it has some."""


def check_limits(owner: Owner, limits: Any) -> None:
    """Raises LimitInvalid for limits that cannot be stored."""
    place = "limits" if owner == "vhost" else "user-limits"
    if not isinstance(limits, Mapping):
        raise LimitInvalid(f"{place} not a list {erlang_term(limits)}")
    unknown = {key: value for key, value in limits.items() if key not in KEYS[owner]}
    if unknown:
        raise LimitInvalid(f"Unrecognised terms {erlang_term(unknown)} in {place}")
    for key, value in limits.items():
        if not isinstance(value, int) or isinstance(value, bool):
            raise LimitInvalid(f"{key} should be a number, actually was {erlang_term(value)}")
        if value > LIMIT_MAX:
            raise LimitInvalid(f"{key} is more than {LIMIT_MAX}")
        if key in QUOTAS and value == 0:
            raise LimitInvalid(f"{key} should be at least 1, or -1 for no limit; publishers would wait for ever")


def limits_of(topology: Topology, owner: Owner, name: str) -> Mapping[str, Any]:
    """All limits of a virtual host or a user; empty when there are none, or no such thing."""
    if owner == "user":
        user = topology.users.get(name)
        return {} if user is None else user.limits
    vhost = topology.vhosts.get(name)
    parameter = None if vhost is None else vhost.parameters.get((VHOST_LIMITS, LIMITS))
    value = None if parameter is None else parameter.value
    return value if isinstance(value, Mapping) else {}


def limit_of(topology: Topology, owner: Owner, name: str, key: str) -> int | None:
    """One limit; None: none. What is not a number counts as none, as in RabbitMQ."""
    value = limits_of(topology, owner, name).get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
