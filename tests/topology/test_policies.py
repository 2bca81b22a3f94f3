"""Which policy applies, what it amounts to, and which definitions are taken."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqpd.topology.expressions import Expression, compile_expression
from amqpd.topology.policies import (
    NO_POLICY,
    Kind,
    check_policy,
    policies_changed,
)
from amqpd.topology.policy_keys import PolicyInvalid, check_definition, erlang_term, merge_value
from amqpd.topology.state import Topology
from amqpd.vocabulary.records import Delete, ExchangeRecord, PolicyRecord, Put, QueueRecord, VhostRecord
from tests.topology.samples import effective_policy


def policy(name: str = "p", pattern: str = "", apply_to: str = "all", **more: Any) -> PolicyRecord:
    return PolicyRecord("/", name, pattern, apply_to, **{"definition": {"max-length": 10}, **more})


def named(*policies: PolicyRecord, kind: Kind = "queue", name: str = "q", queue_type: str = "classic") -> str | None:
    return effective_policy(policies, (), kind, name, queue_type).name


# -- which one


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("", {"", "orders", "my orders", "order"}),
        ("orders", {"orders", "my orders"}),
        ("^orders$", {"orders"}),
        ("^$", {""}),
        ("^(my )?order", {"orders", "my orders", "order"}),
        ("(?i)ORDERS", {"orders", "my orders"}),
        ("(", set()),
    ],
)
def test_a_pattern_is_searched_for_anywhere_in_the_name(pattern: str, names: set[str]) -> None:
    found = {name for name in ("", "orders", "my orders", "order") if named(policy(pattern=pattern), name=name)}
    assert found == names


@pytest.mark.parametrize(
    ("apply_to", "things"),
    [
        ("all", {"exchange", "classic", "quorum", "stream"}),
        ("queues", {"classic", "quorum", "stream"}),
        ("classic_queues", {"classic"}),
        ("quorum_queues", {"quorum"}),
        ("streams", {"stream"}),
        ("exchanges", {"exchange"}),
    ],
)
def test_apply_to_says_to_what_kind(apply_to: str, things: set[str]) -> None:
    one = policy(apply_to=apply_to, definition={"max-length-bytes": 1})
    found = {queue_type for queue_type in ("classic", "quorum", "stream") if named(one, queue_type=queue_type)}
    assert found | ({"exchange"} if named(one, kind="exchange") else set()) == things


def test_the_highest_priority_goes_first_and_of_equal_ones_the_first_name() -> None:
    low, high = policy("a", priority=-1), policy("z", priority=7)
    assert named(low, high) == named(high, low) == "z"
    assert named(low, policy("b", priority=-1)) == "a"
    assert named(policy("b", priority=-1), low) == "a"
    assert named(low, policy("z", pattern="other", priority=7)) == "a"


def test_a_policy_of_another_vhost_does_not_count() -> None:
    topology = Topology()
    topology.apply([Put(VhostRecord("/")), Put(PolicyRecord("other", "p", "", "all", {"max-length": 1}))])
    assert topology.policy_of("queue", "/", "q") == NO_POLICY


@pytest.mark.parametrize(
    ("definition", "types"),
    [
        ({"max-length": 1}, {"classic", "quorum"}),
        ({"max-length": 1, "delivery-limit": 3}, {"quorum"}),
        ({"dead-letter-strategy": "at-least-once"}, {"quorum"}),
        ({"queue-mode": "lazy"}, {"classic"}),
        ({"ha-mode": "all"}, {"classic"}),
        ({"ha-sync-batch-size": 1}, {"classic", "quorum", "stream"}),
        ({"max-age": "1D"}, {"stream"}),
        ({"queue-version": 2}, {"classic", "quorum", "stream"}),
    ],
)
def test_a_queue_whose_type_does_not_know_a_key_goes_to_the_next_policy(
    definition: dict[str, Any], types: set[str]
) -> None:
    first, next_one = policy("first", priority=1, definition=definition), policy(definition={"unroutable": "drop"})
    for queue_type in ("classic", "quorum", "stream"):
        expected = "first" if queue_type in types else "p"
        assert named(first, next_one, queue_type=queue_type) == expected
    assert named(first, next_one, kind="exchange") == "first"


# -- both together


def test_of_a_limit_the_tighter_one_counts() -> None:
    ours = policy("ours", definition={"max-length": 10, "expires": 5, "dead-letter-exchange": "d"})
    theirs = policy(
        "theirs", definition={"max-length": 20, "expires": 1, "overflow": "reject-publish"}, operator=True
    )
    both = effective_policy([ours], [theirs], "queue", "q")
    assert (both.name, both.operator_name) == ("ours", "theirs")
    assert both.definition == {
        "max-length": 10,
        "expires": 1,
        "dead-letter-exchange": "d",
        "overflow": "reject-publish",
    }
    assert both.get("message-ttl") is None


def test_an_operator_policy_applies_alone_too() -> None:
    theirs = policy("theirs", operator=True)
    assert effective_policy([], [theirs], "queue", "q").definition == {"max-length": 10}
    assert effective_policy([], [theirs], "queue", "q").name is None


@pytest.mark.parametrize(
    ("key", "policy_value", "operator_value", "merged"),
    [
        ("message-ttl", 5, 7, 5),
        ("max-length-bytes", 8, 7, 7),
        ("max-in-memory-length", 1, 2, 1),
        ("delivery-limit", 5, 7, 5),
        ("delivery-limit", -1, 7, 7),
        ("delivery-limit", 5, -1, 5),
        ("delivery-limit", -5, -1, -1),
        ("overflow", "drop-head", "reject-publish", "reject-publish"),
        ("overflow", "reject-publish", "drop-head", "drop-head"),
        ("queue-version", 2, 1, 1),
        ("target-group-size", 3, 5, 5),
    ],
)
def test_how_two_values_combine(key: str, policy_value: Any, operator_value: Any, merged: Any) -> None:
    assert merge_value(key, policy_value, operator_value) == merged


# -- what is taken


@pytest.mark.parametrize(
    ("definition", "operator", "words"),
    [
        ({}, False, "no policy provided"),
        ([], False, "definition must be a dictionary: []"),
        ({"max-lenght": 1}, False, '[{<<"max-lenght">>,1}] are not recognised policy settings'),
        ({"a": "b", "expires": 1, "c": [True]}, False, '[{<<"a">>,<<"b">>},{<<"c">>,[true]}] are not recognised'),
        ({"dead-letter-exchange": "d"}, True, "are not recognised policy settings"),
        ({"unroutable": "drop"}, True, "are not recognised policy settings"),
        ({"message-ttl": "5"}, False, '<<"5">> is not a valid message TTL'),
        ({"message-ttl": -1}, False, "-1 is not a valid message TTL"),
        ({"message-ttl": True}, False, "true is not a valid message TTL"),
        ({"expires": 0}, True, "0 is not a valid queue expiry"),
        ({"max-length": -1}, False, "-1 is not a valid maximum length"),
        ({"max-length-bytes": 1.5}, False, "1.5 is not a valid maximum length in bytes"),
        ({"overflow": "drop"}, False, '<<"drop">> is not a valid overflow value'),
        ({"dead-letter-exchange": 1}, False, "1 is not a valid dead letter exchange name"),
        ({"dead-letter-routing-key": None}, False, "null is not a valid dead letter routing key"),
        ({"dead-letter-strategy": "x"}, False, '<<"x">> is not a valid dead letter strategy'),
        ({"delivery-limit": "x"}, False, '<<"x">> is not a valid delivery limit'),
        ({"consumer-timeout": -1}, False, "-1 is not a valid consumer timeout"),
        ({"alternate-exchange": 1}, False, "1 is not a valid alternate exchange name"),
        ({"queue-version": True}, False, "true is not a valid queue-version value"),
        ({"max-age": "0D"}, False, '<<"0D">> is not a valid max age'),
        ({"max-age": "7d"}, False, '<<"7d">> is not a valid max age'),
        ({"stream-filter-size-bytes": 256}, False, "256 is not a valid filter size. Valid range is 16-255"),
        ({"unroutable": ""}, False, '<<"">> is not a valid way with unroutable messages'),
        ({"federation-upstream": "a", "federation-upstream-set": "b"}, False, "cannot specify federation-upstream"),
    ],
)
def test_what_is_wrong_is_said_in_rabbitmqs_words(definition: Any, operator: bool, words: str) -> None:
    with pytest.raises(PolicyInvalid) as raised:
        check_definition(definition, operator)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    "definition",
    [
        {"expires": 1, "message-ttl": 0, "max-length": 0, "max-length-bytes": 0, "overflow": "reject-publish-dlx"},
        {"dead-letter-exchange": "", "dead-letter-routing-key": "", "dead-letter-strategy": "at-least-once"},
        {"delivery-limit": -1, "consumer-timeout": 0},
        {"alternate-exchange": "x", "unroutable": "nack"},
        {"ha-mode": "exactly", "ha-params": 2, "ha-sync-mode": "automatic", "ha-sync-batch-size": 5},
        {"ha-mode": "nodes", "ha-params": ["a@b"], "queue-mode": "lazy", "queue-master-locator": "min-masters"},
        {"federation-upstream-set": "all"},
        {"max-age": "7D", "stream-max-segment-size-bytes": 500_000_000, "stream-filter-size-bytes": 16},
    ],
)
def test_what_rabbitmqs_users_have_is_taken(definition: dict[str, Any]) -> None:
    check_definition(definition)


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (policy(pattern="("), "pattern should be regular expression but is invalid"),
        (policy(pattern="x" * 1025), "pattern must not exceed 1024 bytes"),
        (policy(apply_to="queue"), "apply-to 'queue' unrecognised; should be one of: 'queues', 'classic_queues'"),
        (policy(definition={"no": 1}), "not recognised"),
        (policy(priority=1.5), "priority should be a number, actually was 1.5"),
        (policy(priority=1 << 63), "priority should be between -9223372036854775807 and 9223372036854775807"),
        (policy(priority=-(1 << 63)), "priority should be between"),
    ],
)
def test_a_policy_is_checked_whole(record: PolicyRecord, words: str) -> None:
    with pytest.raises(PolicyInvalid) as raised:
        check_policy(record)
    assert words in str(raised.value)


def test_values_are_shown_as_rabbitmq_shows_them() -> None:
    assert (
        erlang_term({"a": [1, 2.5, None, False, {"b": "c"}]}) == '[{<<"a">>,[1,2.5,null,false,[{<<"b">>,<<"c">>}]]}]'
    )


# -- in the topology, with what it remembers


def test_a_change_of_policies_is_seen_and_nothing_else_changes_the_answer() -> None:
    topology = Topology()
    topology.apply([Put(VhostRecord("/")), Put(QueueRecord("/", "q", 1))])
    assert topology.policy_of("queue", "/", "q") is NO_POLICY
    first = policy("first", priority=1)
    topology.apply([Put(first), Put(policy("second", apply_to="quorum_queues"))])
    assert topology.policy_of("queue", "/", "q").name == "first"
    assert topology.policy_of("queue", "/", "q") is topology.policy_of("queue", "/", "not declared yet")
    topology.apply([Put(policy("first", priority=1, definition={"delivery-limit": 1}))])
    assert topology.policy_of("queue", "/", "q") is NO_POLICY
    assert topology.policy_of("queue", "/", "q", "quorum").name == "first"
    topology.apply([Delete(first.key)])
    assert topology.policy_of("queue", "/", "q", "quorum").name == "second"
    assert topology.policy_of("queue", "/", "q", "classic") is NO_POLICY


def test_what_is_gone_is_not_remembered() -> None:
    topology = Topology()
    topology.apply([Put(VhostRecord("/")), Put(policy()), Put(QueueRecord("/", "q", 1))])
    topology.apply([Put(ExchangeRecord("/", "x", "direct"))])
    remembered = topology.vhosts["/"].policies._known
    for name in ("q", "never there"):
        topology.policy_of("queue", "/", name)
        topology.policy_of("exchange", "/", name)
    topology.policy_of("exchange", "/", "x")
    assert set(remembered) == {("queue", "q"), ("exchange", "x")}
    topology.apply([Delete(("queue", "/", "q")), Delete(("exchange", "/", "x"))])
    assert remembered == {}


def test_a_change_looks_at_no_other_policy_again(monkeypatch: pytest.MonkeyPatch) -> None:
    topology, queues = Topology(), [f"q{number}" for number in range(3)]
    topology.apply([Put(VhostRecord("/")), *(Put(QueueRecord("/", name, 1)) for name in queues)])
    topology.apply([Put(policy(f"p{number}", pattern=f"^q{number}$", priority=number)) for number in range(50)])
    found = [topology.policy_of("queue", "/", name) for name in queues]
    assert [each.name for each in found] == ["p0", "p1", "p2"]
    looked_at: list[str] = []

    def compiled(pattern: str) -> Expression:
        looked_at.append(pattern)
        return compile_expression(pattern)

    monkeypatch.setattr("amqpd.topology.policies.compile_expression", compiled)
    topology.apply([Put(policy("new", pattern="^q1$", priority=99))])
    assert set(looked_at) == {"^q1$"}
    again = [topology.policy_of("queue", "/", name) for name in queues]
    assert [each.name for each in again] == ["p0", "new", "p2"]
    assert (again[0], again[2]) == (found[0], found[2])
    topology.apply([Delete(policy("new").key)])
    assert set(looked_at) == {"^q1$"}
    assert topology.policy_of("queue", "/", "q1").name == "p1"


def test_the_vhosts_whose_policies_changed() -> None:
    changes = [
        Put(policy()),
        Delete(("operator-policy", "other", "p")),
        Put(QueueRecord("third", "q", 1)),
        Delete(("vhost", "fourth")),
    ]
    assert policies_changed(changes) == {"/", "other"}


POLICIES = st.builds(
    policy,
    st.sampled_from(["a", "b", "c", "d"]),
    st.sampled_from(["", "q", "^q$", "1", "("]),
    st.sampled_from(["all", "queues", "quorum_queues", "exchanges"]),
    definition=st.sampled_from([{"max-length": 1}, {"delivery-limit": 2}, {"max-length": 5, "expires": 5}]),
    priority=st.integers(-1, 1),
    operator=st.booleans(),
)


@given(st.lists(st.tuples(st.booleans(), POLICIES), max_size=12))
def test_what_is_remembered_is_what_would_be_found(steps: list[tuple[bool, PolicyRecord]]) -> None:
    topology = Topology()
    topology.apply([Put(VhostRecord("/")), Put(QueueRecord("/", "q", 1)), Put(ExchangeRecord("/", "q1", "direct"))])
    for put, record in steps:
        topology.apply([Put(record) if put else Delete(record.key)])
        held = topology.vhosts["/"].policies
        for kind, name, queue_type in (
            ("queue", "q", "classic"),
            ("queue", "q", "quorum"),
            ("queue", "q1", "classic"),
            ("exchange", "q", ""),
            ("exchange", "q1", ""),
        ):
            expected = effective_policy(
                held.policies.values(), held.operator_policies.values(), kind, name, queue_type
            )
            assert topology.policy_of(kind, "/", name, queue_type) == expected
