"""Plans: what goes along with what, and that the planned changes leave nothing behind."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp.exceptions import AMQPPreconditionFailed

from amqpd.topology.plans import (
    create_vhost,
    delete_user,
    delete_vhost,
    new_binding,
    remove,
)
from amqpd.topology.state import Topology
from amqpd.vocabulary.records import (
    Arguments,
    BindingRecord,
    Change,
    Delete,
    DestinationType,
    ExchangeRecord,
    Key,
    ParameterRecord,
    PermissionRecord,
    PolicyRecord,
    Put,
    QueueRecord,
    TopicPermissionRecord,
    UserRecord,
    VhostRecord,
)
from tests.topology.samples import routed, topology_of


def exchange(name: str, *, auto_delete: bool = False, durable: bool = True, type_name: str = "direct") -> Any:
    return ExchangeRecord("/", name, type_name, durable=durable, auto_delete=auto_delete)


def queue(name: str, *, durable: bool = True) -> QueueRecord:
    return QueueRecord("/", name, 1, durable=durable)


def bound(source: str, destination: str, kind: DestinationType = "queue", key: str = "") -> BindingRecord:
    return BindingRecord("/", source, destination, kind, key)


def deleted(changes: list[Change]) -> set[Key]:
    keys = [change.key for change in changes if isinstance(change, Delete)]
    assert len(keys) == len(changes) == len(set(keys)), "deletions only, and each once"
    return set(keys)


# -- virtual hosts and users


def test_a_new_vhost_has_the_predeclared_exchanges() -> None:
    topology = Topology()
    changes = create_vhost("v", "what it is for")
    assert changes[0] == Put(VhostRecord("v", "what it is for"), create=True)
    topology.apply(changes)
    exchanges = topology.vhosts["v"].exchanges
    assert {(x.record.name, x.record.type, x.record.internal) for x in exchanges.values()} == {
        ("amq.direct", "direct", False),
        ("amq.fanout", "fanout", False),
        ("amq.topic", "topic", False),
        ("amq.headers", "headers", False),
        ("amq.match", "headers", False),
        ("amq.rabbitmq.trace", "topic", True),
    }
    assert all(x.record.durable and not x.record.auto_delete for x in exchanges.values())


def test_a_deleted_vhost_leaves_nothing_of_its_own_and_everything_else() -> None:
    topology = Topology()
    for name in ("v", "other"):
        topology.apply(create_vhost(name))
        topology.apply(
            Put(record)
            for record in (
                QueueRecord(name, "q", 1),
                BindingRecord(name, "amq.topic", "q", "queue", "#"),
                BindingRecord(name, "left over", "q", "queue", "#"),
                PermissionRecord("u", name, ".*", ".*", ".*"),
                TopicPermissionRecord("u", name, "amq.topic"),
                PolicyRecord(name, "p", "", "all", {"expires": 1}),
                PolicyRecord(name, "p", "", "all", {"expires": 1}, operator=True),
                ParameterRecord(name, "vhost-limits", "limits", {"max-queues": 1}),
            )
        )
    topology.apply(delete_vhost(topology, "v"))
    assert list(topology.vhosts) == list(topology.vhost_records) == ["other"]
    assert list(topology.permissions) == list(topology.topic_permissions) == [("other", "u")]
    assert routed(topology.vhosts["other"], "amq.topic", "x") == ("q",)
    topology.apply([Put(VhostRecord("v"))])
    again = topology.vhosts["v"]
    assert (again.exchanges, again.queues, list(again.bindings())) == ({}, {}, [])
    assert (again.policies.records(), again.parameters) == ([], {})


def test_a_deleted_user_loses_its_permissions_everywhere() -> None:
    topology = Topology()
    for name in ("u", "other"):
        topology.apply([Put(UserRecord(name))])
        for vhost in ("v", "w"):
            topology.apply(
                [
                    Put(PermissionRecord(name, vhost)),
                    Put(TopicPermissionRecord(name, vhost, "x")),
                    Put(TopicPermissionRecord(name, vhost, "y")),
                ]
            )
    topology.apply(delete_user(topology, "u"))
    assert list(topology.users) == ["other"]
    assert set(topology.permissions) == set(topology.topic_permissions) == {("v", "other"), ("w", "other")}


def test_removing_what_is_absent_gives_no_changes() -> None:
    topology, vhost = topology_of()
    assert delete_vhost(topology, "none") == []
    assert delete_user(topology, "none") == []
    assert remove(vhost, [queue("none")]) == []
    assert remove(vhost, [exchange("none")]) == []
    assert remove(vhost, [bound("a", "q")]) == []


# -- queues, exchanges, bindings


def test_a_queue_goes_with_the_bindings_to_it() -> None:
    _, vhost = topology_of(
        exchange("a"), queue("q"), queue("r"), bound("a", "q"), bound("a", "q", key="2"), bound("a", "r")
    )
    assert deleted(remove(vhost, [queue("q")])) == {
        queue("q").key,
        bound("a", "q").key,
        bound("a", "q", key="2").key,
    }


def test_an_auto_delete_exchange_goes_with_its_last_binding_only() -> None:
    topology, vhost = topology_of(
        exchange("a", auto_delete=True), queue("q"), queue("r"), bound("a", "q"), bound("a", "r")
    )
    first = remove(vhost, [queue("q")])
    assert exchange("a").key not in deleted(first)
    topology.apply(first)
    assert deleted(remove(vhost, [queue("r")])) == {queue("r").key, bound("a", "r").key, exchange("a").key}


def test_an_auto_delete_exchange_that_was_never_a_source_stays() -> None:
    _, vhost = topology_of(exchange("a"), exchange("b", auto_delete=True), bound("a", "b", "exchange"))
    assert deleted(remove(vhost, [bound("a", "b", "exchange")])) == {bound("a", "b", "exchange").key}
    assert deleted(remove(vhost, [exchange("a")])) == {exchange("a").key, bound("a", "b", "exchange").key}


def test_auto_delete_goes_up_through_exchanges() -> None:
    _, vhost = topology_of(
        exchange("kept"),
        exchange("top", auto_delete=True),
        exchange("middle", auto_delete=True),
        queue("q"),
        bound("kept", "top", "exchange"),
        bound("top", "middle", "exchange"),
        bound("middle", "q"),
    )
    assert deleted(remove(vhost, [queue("q")])) == {
        queue("q").key,
        bound("middle", "q").key,
        exchange("middle").key,
        bound("top", "middle", "exchange").key,
        exchange("top").key,
        bound("kept", "top", "exchange").key,
    }


def test_auto_delete_ends_in_cycles() -> None:
    _, vhost = topology_of(
        exchange("a", auto_delete=True),
        exchange("b", auto_delete=True),
        bound("a", "b", "exchange"),
        bound("b", "a", "exchange"),
        bound("a", "a", "exchange"),
    )
    everything = {
        exchange("a").key,
        exchange("b").key,
        bound("a", "b", "exchange").key,
        bound("b", "a", "exchange").key,
        bound("a", "a", "exchange").key,
    }
    assert deleted(remove(vhost, [exchange("a")])) == everything
    assert deleted(remove(vhost, [exchange("b")])) == everything - {
        exchange("a").key,
        bound("a", "a", "exchange").key,
    }


def test_auto_delete_goes_through_long_chains() -> None:
    names = [f"x{number}" for number in range(3000)]
    _, vhost = topology_of(
        *(exchange(name, auto_delete=True) for name in names),
        *(bound(one, other, "exchange") for one, other in itertools.pairwise(names)),
        queue("q"),
        bound(names[-1], "q"),
    )
    assert len(deleted(remove(vhost, [queue("q")]))) == 3000 + 2999 + 2


def test_an_exchange_goes_with_the_bindings_at_both_ends() -> None:
    _, vhost = topology_of(
        exchange("up", auto_delete=True),
        exchange("a"),
        exchange("down"),
        queue("q"),
        bound("up", "a", "exchange"),
        bound("a", "down", "exchange"),
        bound("a", "q"),
        bound("down", "q"),
    )
    assert deleted(remove(vhost, [exchange("a")])) == {
        exchange("a").key,
        bound("up", "a", "exchange").key,
        bound("a", "down", "exchange").key,
        bound("a", "q").key,
        exchange("up").key,
    }


def test_unbinding_the_last_takes_the_auto_delete_source() -> None:
    _, vhost = topology_of(exchange("a", auto_delete=True), queue("q"), bound("a", "q"))
    assert deleted(remove(vhost, [bound("a", "q")])) == {bound("a", "q").key, exchange("a").key}
    assert remove(vhost, [bound("a", "q", key="other")]) == []


def test_bindings_left_behind_go_with_the_name_of_their_end() -> None:
    _, vhost = topology_of(exchange("a"), bound("a", "gone"))
    assert deleted(remove(vhost, [queue("gone")])) == {bound("a", "gone").key}


def test_what_is_removed_together_takes_along_what_only_all_of_it_held() -> None:
    _, vhost = topology_of(
        exchange("a", auto_delete=True),
        queue("q"),
        queue("r"),
        bound("a", "q"),
        bound("a", "r"),
        bound("a", "r", key="2"),
    )
    plan = remove(vhost, [queue("q"), bound("a", "r"), queue("r"), queue("q"), bound("a", "r", key="2")])
    assert deleted(plan) == {change.key for change in remove(vhost, [exchange("a")])} | {
        queue("q").key,
        queue("r").key,
    }


def test_a_queue_that_took_the_place_of_another_is_not_meant() -> None:
    _, vhost = topology_of(exchange("a"), queue("q"), bound("a", "q"))
    assert remove(vhost, [QueueRecord("/", "q", 2)]) == []


names = st.sampled_from("abcd")


@given(
    st.lists(st.tuples(names, st.booleans()), min_size=1, max_size=4, unique_by=lambda pair: pair[0]),
    st.lists(st.tuples(names, st.sampled_from("qr")), max_size=5),
    st.lists(st.tuples(names, names), max_size=6),
    st.sampled_from(["q", "r", "a", "b"]),
)
def test_a_removal_leaves_no_binding_without_ends(
    exchanges: list[tuple[str, bool]],
    to_queues: list[tuple[str, str]],
    to_exchanges: list[tuple[str, str]],
    victim: str,
) -> None:
    present = {name for name, _ in exchanges}
    bindings = [bound(one, other) for one, other in to_queues if one in present]
    bindings += [bound(one, other, "exchange") for one, other in to_exchanges if {one, other} <= present]
    topology, vhost = topology_of(
        *(exchange(name, auto_delete=auto_delete) for name, auto_delete in exchanges),
        queue("q"),
        queue("r"),
        *bindings,
    )
    sources_before = {binding.source for binding in bindings}
    plan = remove(vhost, [queue(victim) if victim in "qr" else exchange(victim)])
    deleted(plan)
    topology.apply(plan)
    assert victim not in vhost.queues
    assert victim not in vhost.exchanges
    for binding in vhost.bindings():
        assert binding.source in vhost.exchanges
        ends = vhost.queues if binding.destination_type == "queue" else vhost.exchanges
        assert binding.destination in ends
    sources_left = {binding.source for binding in vhost.bindings()}
    for name, auto_delete in exchanges:
        was_let_go = auto_delete and name in sources_before and name not in sources_left
        assert (name in vhost.exchanges) == (name != victim and not was_let_go)


# -- new bindings


def wanted(
    source: str, destination: str, kind: DestinationType, key: str, arguments: Arguments | None = None
) -> BindingRecord:
    return BindingRecord("/", source, destination, kind, key, arguments=arguments or {})


@pytest.mark.parametrize("exchange_durable", [True, False])
@pytest.mark.parametrize("queue_durable", [True, False])
def test_a_binding_is_durable_when_both_ends_are(exchange_durable: bool, queue_durable: bool) -> None:
    _, vhost = topology_of(exchange("a", durable=exchange_durable), exchange("b"), queue("q", durable=queue_durable))
    assert new_binding(vhost, wanted("a", "q", "queue", "k")).durable is (exchange_durable and queue_durable)
    assert new_binding(vhost, wanted("a", "b", "exchange", "k")).durable is exchange_durable


def test_a_binding_without_arguments_is_the_plain_record() -> None:
    _, vhost = topology_of(exchange("a"), queue("q"))
    assert new_binding(vhost, wanted("a", "q", "queue", "k")) == bound("a", "q", key="k")
    assert new_binding(vhost, wanted("a", "q", "queue", "k", {})) == bound("a", "q", key="k")


def test_equal_arguments_are_one_binding_and_others_another() -> None:
    topology, vhost = topology_of(exchange("a", type_name="headers"), queue("q"))
    for arguments in ({"x": 1, "y": "2"}, {"y": "2", "x": 1}, {"x": 1.0, "y": "2"}):
        topology.apply([Put(new_binding(vhost, wanted("a", "q", "queue", "", arguments)))])
    assert len(vhost.bindings_from("a")) == 2


def test_a_binding_that_its_exchange_cannot_take_is_refused() -> None:
    _, vhost = topology_of(exchange("h", type_name="headers"), exchange("a"), queue("q"))
    with pytest.raises(AMQPPreconditionFailed, match="Invalid x-match field value"):
        new_binding(vhost, wanted("h", "q", "queue", "", {"x-match": "some"}))
    new_binding(vhost, wanted("a", "q", "queue", "", {"x-match": "some"}))
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    with pytest.raises(AMQPPreconditionFailed, match="nested deeper"):
        new_binding(vhost, wanted("a", "q", "queue", "", {"deep": deep}))
