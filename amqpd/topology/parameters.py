"""Runtime parameters: which components there are, what their values may be.

What comes in: parameter records. What goes out: nothing when they may be stored, `ParameterInvalid` when not; what an
exchange is to do with a message that no queue takes.
Rules: 1. A component that nothing looks at is refused, as in RabbitMQ: also those of its plugins that do not run here
(shovels, federation), since a message that waits for a shovel would wait for ever. 2. Policies are no parameters.
Not here: limits (`amqpd/topology/limit_keys.py`), policies (`policies.py`).

Source: rabbit_runtime_parameters.erl; https://www.rabbitmq.com/docs/parameters.
"""

from __future__ import annotations

from amqpd.topology.limit_keys import LIMITS, VHOST_LIMITS, LimitInvalid, check_limits
from amqpd.topology.policy_keys import UNROUTABLE, erlang_term
from amqpd.topology.state import VhostTopology
from amqpd.vocabulary.records import ParameterRecord

DEFAULT = "default"
"""the name of the parameter of the component `unroutable`"""
NOT_RUN = {
    "federation-upstream": "amqpd runs no federation",
    "federation-upstream-set": "amqpd runs no federation",
    "shovel": "amqpd runs no shovels",
}
"""components of RabbitMQ's plugins, and why they are refused"""
POLICY_COMPONENTS = ("policy", "operator_policy")


class ParameterInvalid(ValueError):
    """A runtime parameter is wrong; the text says why, in RabbitMQ's words where it has some."""


def check_parameter(record: ParameterRecord) -> None:
    """Raises ParameterInvalid. Global ones are free: the operator knows what they are for."""
    if not record.vhost:
        return
    component, value = record.component, record.value
    if component in POLICY_COMPONENTS:
        raise ParameterInvalid("policies may not be set using this method")
    if component == VHOST_LIMITS:
        if record.name != LIMITS:
            raise ParameterInvalid(f"the one parameter of the component {component} is named {LIMITS}")
        try:
            check_limits("vhost", value)
        except LimitInvalid as error:
            raise ParameterInvalid(str(error)) from error
    elif component == UNROUTABLE:
        if record.name != DEFAULT:
            raise ParameterInvalid(f"the one parameter of the component {component} is named {DEFAULT}")
        if not isinstance(value, str) or not value:
            raise ParameterInvalid(f"{erlang_term(value)} is not drop, nack or the name of an exchange")
    else:
        why = f": {NOT_RUN[component]}" if component in NOT_RUN else ""
        raise ParameterInvalid(f"component {component} not found{why}")


def unroutable(vhost: VhostTopology, exchange: str) -> str | None:
    """`drop`, `nack`, or the name of an exchange: what to do with a message that was published to `exchange` and that
    no queue takes, alternates included. By policy, or else by the virtual host's default; None: it is not
    configured."""
    by_policy = vhost.policy_of("exchange", exchange).get(UNROUTABLE)
    if isinstance(by_policy, str):
        return by_policy
    default = vhost.parameters.get((UNROUTABLE, DEFAULT))
    return default.value if default is not None and isinstance(default.value, str) else None
