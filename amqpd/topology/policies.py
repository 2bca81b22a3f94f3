"""Which policy applies to a queue or an exchange, and what the two kinds of policies amount to together.

What comes in: policy records; the name of a queue or an exchange. What goes out: `EffectivePolicy`.
Rules: 1. At most one policy and one operator policy apply to a thing: of those that match, the one of the highest
priority; of equal ones the first by name (RabbitMQ leaves it open). 2. A pattern is searched for anywhere in the
name, and the empty one is found everywhere. 3. A pattern that does not compile matches nothing (`check_policy`
refuses it before it is stored). 4. What was found is remembered until a policy changes, or the thing goes.
Not here: what the keys mean and how they combine (`policy_keys.py`), what a queue makes of its policy and its
arguments (`amqpd/queues/settings.py`).

Source: rabbit_policy.erl; https://www.rabbitmq.com/docs/policies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from amqpd.topology.expressions import Expression, PatternError, compile_expression
from amqpd.topology.policy_keys import PolicyInvalid, applies_to_type, check_definition, erlang_term, merge
from amqpd.vocabulary.records import Change, Key, PolicyRecord, Put

Kind = Literal["queue", "exchange"]

APPLY_TO = ("queues", "classic_queues", "quorum_queues", "streams", "exchanges", "all")
# RabbitMQ's bound (rabbit_re.erl).
PATTERN_BYTES_MAX = 1024

_OF_TYPE = {"classic": "classic_queues", "quorum": "quorum_queues", "stream": "streams"}


@dataclass(frozen=True, slots=True)
class EffectivePolicy:
    """What applies: the names, for people, and both definitions as one."""

    name: str | None = None
    operator_name: str | None = None
    definition: Mapping[str, Any] = field(default_factory=dict)

    def get(self, key: str) -> Any:
        """The value of a definition key, or None."""
        return self.definition.get(key)


NO_POLICY = EffectivePolicy()


def effective_policy(
    policies: Iterable[PolicyRecord],
    operator_policies: Iterable[PolicyRecord],
    kind: Kind,
    vhost: str,
    name: str,
    queue_type: str = "classic",
) -> EffectivePolicy:
    """For one thing, from any policies, also of other virtual hosts. `queue_type` counts for queues only."""
    here = _Ordered(record for record in policies if record.vhost == vhost)
    operators_here = _Ordered(record for record in operator_policies if record.vhost == vhost)
    return _together(here.first(kind, name, queue_type), operators_here.first(kind, name, queue_type))


def check_policy(record: PolicyRecord) -> None:
    """Raises PolicyInvalid with RabbitMQ's words for what is wrong with a policy that is to be stored."""
    if len(record.pattern.encode("utf-8", "surrogateescape")) > PATTERN_BYTES_MAX:
        raise PolicyInvalid(f"pattern must not exceed {PATTERN_BYTES_MAX} bytes")
    try:
        compile_expression(record.pattern)
    except PatternError as error:
        raise PolicyInvalid(f"pattern should be regular expression but is invalid: {error}") from error
    if record.apply_to not in APPLY_TO:
        listed = ", ".join(f"'{each}'" for each in APPLY_TO[:-1])
        raise PolicyInvalid(f"apply-to '{record.apply_to}' unrecognised; should be one of: {listed}, or 'all'")
    if not isinstance(record.priority, int) or isinstance(record.priority, bool):
        raise PolicyInvalid(f"priority should be a number, actually was {erlang_term(record.priority)}")
    check_definition(record.definition, record.operator)


def policies_changed(changes: Iterable[Change]) -> set[str]:
    """The virtual hosts whose queues and exchanges may have another policy after these changes were applied."""
    keys = (change.record.key if isinstance(change, Put) else change.key for change in changes)
    return {key[1] for key in keys if key[0] in ("policy", "operator-policy")}


class VhostPolicies:
    """The policies of one virtual host. Changed by `Topology.apply` only."""

    def __init__(self) -> None:
        self.policies: dict[str, PolicyRecord] = {}
        self.operator_policies: dict[str, PolicyRecord] = {}
        self._ordered = _Ordered(())
        self._operators_ordered = _Ordered(())
        self._known: dict[tuple[Kind, str], tuple[str, EffectivePolicy]] = {}
        """kind and name: queue type, what applies"""
        self._merged: dict[tuple[str | None, str | None], EffectivePolicy] = {}
        """by the names of both policies: thousands of queues share a handful of these"""

    def records(self) -> list[PolicyRecord]:
        return [*self.policies.values(), *self.operator_policies.values()]

    def of(self, kind: Kind, name: str, queue_type: str, remember: bool) -> EffectivePolicy:
        """What applies to the thing. `remember` it if the thing exists, and `forget` it when it goes."""
        if not self.policies and not self.operator_policies:
            return NO_POLICY
        known = self._known.get((kind, name))
        if known is not None and known[0] == queue_type:
            return known[1]
        policy = self._ordered.first(kind, name, queue_type)
        operator_policy = self._operators_ordered.first(kind, name, queue_type)
        names = (_name_of(policy), _name_of(operator_policy))
        found = self._merged.get(names)
        if found is None:
            found = self._merged[names] = _together(policy, operator_policy)
        if remember:
            self._known[kind, name] = (queue_type, found)
        return found

    def forget(self, kind: Kind, name: str) -> None:
        self._known.pop((kind, name), None)

    def put(self, record: PolicyRecord) -> bool:
        """Whether that was news."""
        held = self.operator_policies if record.operator else self.policies
        if held.get(record.name) == record:
            return False
        held[record.name] = record
        self._changed()
        return True

    def delete(self, key: Key) -> bool:
        """Whether it was there."""
        held = self.operator_policies if key[0] == "operator-policy" else self.policies
        if held.pop(key[2], None) is None:
            return False
        self._changed()
        return True

    def _changed(self) -> None:
        self._ordered = _Ordered(self.policies.values())
        self._operators_ordered = _Ordered(self.operator_policies.values())
        self._known.clear()
        self._merged.clear()


class _Ordered:
    """Policies of one kind in one virtual host, those that go first first."""

    def __init__(self, records: Iterable[PolicyRecord]) -> None:
        ordered = sorted(records, key=lambda record: (-record.priority, record.name))
        self._searches = [(record, pattern.is_in) for record in ordered if (pattern := _compiled(record))]

    def first(self, kind: Kind, name: str, queue_type: str) -> PolicyRecord | None:
        names = ("all", "exchanges") if kind == "exchange" else ("all", "queues", _OF_TYPE.get(queue_type, "queues"))
        for record, is_in in self._searches:
            if record.apply_to not in names or not is_in(name):
                continue
            if kind == "exchange" or applies_to_type(record.definition, queue_type):
                return record
        return None


def _compiled(record: PolicyRecord) -> Expression | None:
    try:
        return compile_expression(record.pattern)
    except PatternError:
        return None


def _together(policy: PolicyRecord | None, operator_policy: PolicyRecord | None) -> EffectivePolicy:
    if policy is None and operator_policy is None:
        return NO_POLICY
    definition = policy.definition if policy is not None else {}
    operators = operator_policy.definition if operator_policy is not None else {}
    return EffectivePolicy(_name_of(policy), _name_of(operator_policy), merge(definition, operators))


def _name_of(policy: PolicyRecord | None) -> str | None:
    return None if policy is None else policy.name
