"""Runtime parameters: which components there are, what their values may be.

What comes in: parameter records. What goes out: nothing when they may be stored, `ParameterInvalid` when not; what an
exchange is to do with a message that no queue takes.
Rules: 1. A component that nothing looks at is refused, as in RabbitMQ. 2. What RabbitMQ's plugins keep in parameters
(federation, shovels) is kept for definition files, and does nothing here. 3. Policies are no parameters.
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
KEPT_FOR_OTHERS = ("federation-upstream", "federation-upstream-set", "shovel")
POLICY_COMPONENTS = ("policy", "operator_policy")


class ParameterInvalid(ValueError):
    """The text says what is wrong, in RabbitMQ's words where it has some."""


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
    elif component not in KEPT_FOR_OTHERS:
        raise ParameterInvalid(f"component {component} not found")


def unroutable(vhost: VhostTopology, exchange: str) -> str | None:
    """`drop`, `nack`, or the name of an exchange: what to do with a message that was published to `exchange` and that
    no queue takes, alternates included. By policy, or else by the virtual host's default; None: it is not
    configured."""
    by_policy = vhost.policy_of("exchange", exchange).get(UNROUTABLE)
    if isinstance(by_policy, str):
        return by_policy
    default = vhost.parameters.get((UNROUTABLE, DEFAULT))
    return default.value if default is not None and isinstance(default.value, str) else None
