"""Which policy applies to a queue or an exchange, and what the two kinds of policies amount to together.

What comes in: policy records; the name of a queue or an exchange. What goes out: `EffectivePolicy`.
Rules: 1. At most one policy and one operator policy apply to a thing: of those that match, the one of the highest
priority; of equal ones the first by name (RabbitMQ leaves it open). 2. A pattern is searched for anywhere in the
name, and the empty one is found everywhere. 3. A pattern that does not compile matches nothing (`check_policy`
refuses it before it is stored). 4. What was found is remembered until a policy that applies, or would, changes, or
the thing goes. 5. A change costs one search for each thing that is remembered, however many policies there are:
controllers give each queue a policy of its own.
Not here: what the keys mean and how they combine (`policy_keys.py`), what a queue makes of its policy and its
arguments (`amqpd/queues/settings.py`).

Source: rabbit_policy.erl; https://www.rabbitmq.com/docs/policies.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Literal

from amqpd.topology.expressions import PatternError, compile_expression
from amqpd.topology.policy_keys import PolicyInvalid, applies_to_type, check_definition, erlang_term, merge
from amqpd.vocabulary.records import Change, Key, PolicyRecord, Put

Kind = Literal["queue", "exchange"]

APPLY_TO = ("queues", "classic_queues", "quorum_queues", "streams", "exchanges", "all")
# RabbitMQ's bound (rabbit_re.erl).
PATTERN_BYTES_MAX = 1024
# Of 64 bits, as an integer in a field table. RabbitMQ takes any.
PRIORITY_MAX = (1 << 63) - 1

_OF_TYPE = {"classic": "classic_queues", "quorum": "quorum_queues", "stream": "streams"}


@dataclass(frozen=True, slots=True)
class EffectivePolicy:
    """The policies that apply to a queue or an exchange: the names, for people, and both definitions as one."""

    name: str | None = None
    operator_name: str | None = None
    definition: Mapping[str, Any] = field(default_factory=dict)

    def get(self, key: str) -> Any:
        """The value of a definition key, or None."""
        return self.definition.get(key)


NO_POLICY = EffectivePolicy()


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
    if abs(record.priority) > PRIORITY_MAX:
        raise PolicyInvalid(f"priority should be between -{PRIORITY_MAX} and {PRIORITY_MAX}")
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
        self._known: dict[tuple[Kind, str], _Known] = {}
        """by kind and name"""
        self._merged: dict[str | None, dict[str | None, EffectivePolicy]] = {}
        """by the names of both policies: thousands of queues share a handful of these"""

    def records(self) -> list[PolicyRecord]:
        return [*self.policies.values(), *self.operator_policies.values()]

    def of(self, kind: Kind, name: str, queue_type: str, remember: bool) -> EffectivePolicy:
        """What applies to the thing. `remember` it if the thing exists, and `forget` it when it goes."""
        if not self.policies and not self.operator_policies:
            return NO_POLICY
        known = self._known.get((kind, name))
        if known is not None and known.queue_type == queue_type:
            return known.effective
        policy = self._ordered.first(kind, name, queue_type)
        operator_policy = self._operators_ordered.first(kind, name, queue_type)
        same_policy = self._merged.setdefault(_name_of(policy), {})
        found = same_policy.get(_name_of(operator_policy))
        if found is None:
            found = same_policy[_name_of(operator_policy)] = _together(policy, operator_policy)
        if remember:
            self._known[kind, name] = _Known(queue_type, policy, operator_policy, found)
        return found

    def contest(self, record: PolicyRecord) -> PolicyContest:
        """Between these and one that is not stored yet. One of the same name is the one that it would replace."""
        return PolicyContest(record, self._operators_ordered if record.operator else self._ordered)

    def forget(self, kind: Kind, name: str) -> None:
        self._known.pop((kind, name), None)

    def put(self, record: PolicyRecord) -> bool:
        """Whether that was news."""
        held = self.operator_policies if record.operator else self.policies
        before = held.get(record.name)
        if before == record:
            return False
        held[record.name] = record
        self._changed(record.operator, record.name, before, record)
        return True

    def delete(self, key: Key) -> bool:
        """Whether it was there."""
        operator = key[0] == "operator-policy"
        held = self.operator_policies if operator else self.policies
        before = held.pop(key[2], None)
        if before is None:
            return False
        self._changed(operator, key[2], before, None)
        return True

    def _changed(self, operator: bool, name: str, before: PolicyRecord | None, after: PolicyRecord | None) -> None:
        ordered = self._operators_ordered if operator else self._ordered
        if before is not None:
            ordered.remove(before)
        if after is not None:
            ordered.put(after)
        if operator:
            self._merged.clear()
        else:
            self._merged.pop(name, None)
        alone = _Ordered([] if after is None else [after])
        for (kind, thing), known in list(self._known.items()):
            applies = known.operator_policy if operator else known.policy
            if before is None or applies is not before:
                if after is None or (applies is not None and _rank(applies) < _rank(after)):
                    continue
                if alone.first(kind, thing, known.queue_type) is None:
                    continue
            del self._known[kind, thing]


@dataclass(frozen=True, slots=True)
class _Known:
    """The policies that were found for one queue or exchange, with what they amount to."""

    queue_type: str
    policy: PolicyRecord | None
    operator_policy: PolicyRecord | None
    effective: EffectivePolicy


class _Ordered:
    """Policies of one kind in one virtual host, those that go first first."""

    def __init__(self, records: Iterable[PolicyRecord]) -> None:
        self._searches: list[tuple[tuple[int, str], PolicyRecord, Callable[[str], bool]]] = []
        for record in records:
            self.put(record)

    def put(self, record: PolicyRecord) -> None:
        """One that is not among them."""
        try:
            pattern = compile_expression(record.pattern)
        except PatternError:
            return
        insort(self._searches, (_rank(record), record, pattern.is_in), key=itemgetter(0))

    def remove(self, record: PolicyRecord) -> None:
        at = bisect_left(self._searches, _rank(record), key=itemgetter(0))
        # One whose pattern does not compile is not there.
        if self._searches[at : at + 1] and self._searches[at][0] == _rank(record):
            del self._searches[at]

    def first(self, kind: Kind, name: str, queue_type: str, without: str | None = None) -> PolicyRecord | None:
        """`without`: the name of one that does not count."""
        names = ("all", "exchanges") if kind == "exchange" else ("all", "queues", _OF_TYPE.get(queue_type, "queues"))
        for _, record, is_in in self._searches:
            if record.apply_to not in names or not is_in(name) or record.name == without:
                continue
            if kind == "exchange" or applies_to_type(record.definition, queue_type):
                return record
        return None


class PolicyContest:
    """Contest between a policy that is not stored yet and the others of its virtual host."""

    def __init__(self, record: PolicyRecord, others: _Ordered) -> None:
        self._record = record
        self._alone = _Ordered([record])
        self._others = others

    def winner(self, kind: Kind, name: str, queue_type: str = "classic") -> PolicyRecord | None:
        """The policy that applies to the thing: the record, or one that goes before it. None: it does not match."""
        if self._alone.first(kind, name, queue_type) is None:
            return None
        other = self._others.first(kind, name, queue_type, without=self._record.name)
        return self._record if other is None or _rank(self._record) < _rank(other) else other


def _rank(record: PolicyRecord) -> tuple[int, str]:
    """Smaller for one that goes before."""
    return -record.priority, record.name


def _together(policy: PolicyRecord | None, operator_policy: PolicyRecord | None) -> EffectivePolicy:
    if policy is None and operator_policy is None:
        return NO_POLICY
    definition = policy.definition if policy is not None else {}
    operators = operator_policy.definition if operator_policy is not None else {}
    return EffectivePolicy(_name_of(policy), _name_of(operator_policy), merge(definition, operators))


def _name_of(policy: PolicyRecord | None) -> str | None:
    return None if policy is None else policy.name
