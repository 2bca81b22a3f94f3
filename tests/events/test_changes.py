"""Which events a change of the topology is, with RabbitMQ's facts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from amqpd.events import changes
from amqpd.topology import plans
from amqpd.topology.state import Topology
from amqpd.vocabulary.records import (
    BindingRecord,
    Delete,
    ExchangeRecord,
    ParameterRecord,
    PermissionRecord,
    PolicyRecord,
    Put,
    QueueRecord,
    Record,
    TopicPermissionRecord,
    UserRecord,
    VhostRecord,
)

NODE = "amqpd@test"
USER = UserRecord("ann", "hash", ("management",), limits={"max-channels": 7})
POLICY = PolicyRecord("/", "p", "^q", "queues", {"max-length": 50}, 2)
LIMITS = ParameterRecord("/", "vhost-limits", "limits", {"max-queues": 7})
GLOBAL = ParameterRecord("", "", "labels", {"site": "north"})
POLICY_FACTS = {"pattern": "^q", "definition": {"max-length": 50}, "priority": 2, "apply-to": "queues"}
QUORUM = QueueRecord("/", "qq", 2, arguments={"x-queue-type": "quorum"})


@pytest.fixture
def topology() -> Topology:
    topology = Topology()
    topology.apply(plans.create_vhost("/"))
    return topology


def put(topology: Topology, record: Record, before: Record | None = None) -> list[tuple[str, dict[str, Any]]]:
    return list(changes.put(record, before, NODE, topology))


@pytest.mark.parametrize(
    ("record", "before", "events"),
    [
        (PermissionRecord("ann", "/", "c", "w", "r"), None, ["permission.created"]),
        (PermissionRecord("ann", "/", "c", "w", "r"), PermissionRecord("ann", "/"), ["permission.created"]),
        (TopicPermissionRecord("ann", "/", "x", "w", "r"), None, ["topic.permission.created"]),
        (POLICY, None, ["policy.set"]),
        (replace(POLICY, operator=True), None, ["parameter.set", "policy.set"]),
        (LIMITS, None, ["parameter.set", "vhost.limits.set"]),
        (GLOBAL, None, ["parameter.set"]),
        (UserRecord("ann"), None, ["user.created"]),
        (USER, None, ["user.created", "user.tags.set", "user.limits.set"]),
        (replace(USER, password_hash="new"), USER, ["user.password.changed"]),
        (replace(USER, password_hash=""), USER, ["user.password.cleared"]),
        (replace(USER, tags=()), USER, ["user.tags.set"]),
        (replace(USER, limits={}), USER, ["user.limits.cleared"]),
        (replace(USER, limits={"max-channels": 8}), USER, ["user.limits.set"]),
        (replace(QUORUM, source=3), QUORUM, []),
        (replace(QUORUM, id=3), QUORUM, ["queue.created"]),
        (VhostRecord("v"), None, ["vhost.created"]),
        (VhostRecord("v", "other"), VhostRecord("v"), ["vhost.updated"]),
    ],
)
def test_what_is_put_is_these_events(
    topology: Topology, record: Record, before: Record | None, events: list[str]
) -> None:
    assert [event for event, _ in put(topology, record, before)] == events
    assert put(topology, record, record) == []


def test_facts_of_a_policy(topology: Topology) -> None:
    assert put(topology, POLICY) == [("policy.set", {"name": "p", "vhost": "/", **POLICY_FACTS})]
    (key, facts), _ = put(topology, replace(POLICY, operator=True))
    assert (key, facts) == (
        "parameter.set",
        {"component": "operator_policy", "name": "p", "vhost": "/", "value": POLICY_FACTS},
    )


def test_limits_of_a_virtual_host_are_headers_and_global_parameters_have_no_virtual_host(topology: Topology) -> None:
    assert put(topology, LIMITS)[1] == ("vhost.limits.set", {"name": "limits", "max-queues": 7})
    assert put(topology, GLOBAL) == [
        ("parameter.set", {"component": "global", "name": "labels", "value": {"site": "north"}})
    ]


def test_limits_of_a_user_are_headers(topology: Topology) -> None:
    assert put(topology, replace(USER, tags=()), replace(USER, tags=(), limits={})) == [
        ("user.limits.set", {"name": "limits", "username": "ann", "max-channels": 7})
    ]


def test_a_quorum_queue_has_no_owner(topology: Topology) -> None:
    ((_, facts),) = put(topology, QUORUM)
    assert facts["type"] == "rabbit_quorum_queue"
    assert "owner_pid" not in facts


def test_an_exchange_names_its_policy(topology: Topology) -> None:
    topology.apply([Put(PolicyRecord("/", "px", "^x", "exchanges", {"alternate-exchange": "amq.fanout"}))])
    ((_, facts),) = put(topology, ExchangeRecord("/", "x", "topic"))
    assert facts["policy"] == "px"


def test_no_event_of_a_user_has_its_hash(topology: Topology) -> None:
    events = put(topology, UserRecord("ann", "SECRET"), UserRecord("ann", "OLD-SECRET"))
    assert "SECRET" not in str(events)


GONE: list[tuple[Record, list[tuple[str, dict[str, Any]]]]] = [
    (QueueRecord("/", "q", 1), [("queue.deleted", {"name": "q", "vhost": "/"})]),
    (ExchangeRecord("/", "x", "topic"), [("exchange.deleted", {"name": "x", "vhost": "/"})]),
    (POLICY, [("policy.cleared", {"name": "p", "vhost": "/"})]),
    (
        replace(POLICY, operator=True),
        [
            ("parameter.cleared", {"component": "operator_policy", "name": "p", "vhost": "/"}),
            ("operator.policy.cleared", {"name": "p", "vhost": "/"}),
        ],
    ),
    (
        LIMITS,
        [
            ("parameter.cleared", {"component": "vhost-limits", "name": "limits", "vhost": "/"}),
            ("vhost.limits.cleared", {"name": "limits"}),
        ],
    ),
    (GLOBAL, [("parameter.cleared", {"component": "global", "name": "labels"})]),
    (USER, [("user.deleted", {"name": "ann"})]),
    (PermissionRecord("ann", "/"), [("permission.deleted", {"user": "ann", "vhost": "/"})]),
    (TopicPermissionRecord("ann", "/", "x"), [("topic.permission.deleted", {"user": "ann", "vhost": "/"})]),
    (VhostRecord("v"), [("vhost.deleted", {"name": "v"})]),
]


@pytest.mark.parametrize(("record", "events"), GONE)
def test_what_is_deleted_is_these_events(
    topology: Topology, record: Record, events: list[tuple[str, dict[str, Any]]]
) -> None:
    assert changes.record_of(topology, record.key) is None
    assert list(changes.deleted(record.key, None)) == []
    topology.apply([Put(record)])
    before = changes.record_of(topology, record.key)
    assert before == record
    topology.apply([Delete(record.key)])
    assert list(changes.deleted(record.key, before)) == events


def test_a_binding_is_found_with_its_arguments(topology: Topology) -> None:
    wanted = BindingRecord("/", "amq.direct", "amq.fanout", "exchange", "k", arguments={"b": 1, "a": "x"})
    binding = plans.new_binding(topology.vhosts["/"], wanted)
    topology.apply([Put(binding)])
    before = changes.record_of(topology, binding.key)
    assert isinstance(before, BindingRecord)
    ((key, facts),) = changes.deleted(binding.key, before)
    assert (key, facts["destination_kind"]) == ("binding.deleted", "exchange")
    assert facts["arguments"] == ['{<<"a">>,longstr,<<"x">>}', '{<<"b">>,long,1}']
