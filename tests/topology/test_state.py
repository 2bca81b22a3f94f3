"""The topology value: changes in any order, and routes through it."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp.exceptions import AMQPPreconditionFailed

from amqpd.topology.state import Topology
from amqpd.vocabulary.records import (
    Change,
    Delete,
    ParameterRecord,
    PermissionRecord,
    PolicyRecord,
    Put,
    QueueRecord,
    TopicPermissionRecord,
    UserRecord,
    VhostRecord,
)
from tests.topology.samples import (
    alternate_policy,
    exchange,
    queue,
    reads_more,
    routed,
    to_exchange,
    to_queue,
    topology_of,
)

# -- routes


def test_the_default_exchange_is_the_queue_of_that_name() -> None:
    topology, vhost = topology_of(queue("q"))
    assert routed(vhost, "", "q") == ("q",)
    assert routed(vhost, "", "other") == ()
    topology.apply([Delete(queue("q").key)])
    assert routed(vhost, "", "q") == ()


def test_a_missing_exchange_routes_nowhere() -> None:
    _, vhost = topology_of(queue("q"))
    assert routed(vhost, "missing", "q") == ()


def test_a_queue_is_reached_once_by_all_ways() -> None:
    _, vhost = topology_of(
        exchange("top", "fanout"),
        exchange("left"),
        exchange("right", "topic"),
        queue("q"),
        queue("r"),
        to_queue("top", "q"),
        to_exchange("top", "left"),
        to_exchange("top", "right"),
        to_queue("left", "q"),
        to_queue("right", "q", "#"),
        to_queue("right", "r", "*"),
    )
    assert routed(vhost, "top", "k") == ("q", "r")


def test_cycles_of_exchanges_end() -> None:
    _, vhost = topology_of(
        exchange("a", "fanout"),
        exchange("b", "fanout"),
        exchange("c", "fanout"),
        queue("q"),
        to_exchange("a", "a"),
        to_exchange("a", "b"),
        to_exchange("b", "c"),
        to_exchange("c", "a"),
        to_queue("c", "q"),
    )
    for name in "abc":
        assert routed(vhost, name, "") == ("q",)


def test_each_exchange_on_the_way_matches_the_message_anew() -> None:
    _, vhost = topology_of(
        exchange("a", "topic"),
        exchange("b"),
        queue("q"),
        to_exchange("a", "b", "k.#"),
        to_queue("b", "q", "k.1"),
    )
    assert routed(vhost, "a", "k.1") == ("q",)
    assert routed(vhost, "a", "k.2") == ()


def test_headers_reach_a_headers_exchange_behind_another() -> None:
    _, vhost = topology_of(
        exchange("a", "fanout"),
        exchange("h", "headers"),
        queue("q"),
        to_exchange("a", "h"),
        to_queue("h", "q", arguments={"colour": "red"}),
    )
    assert routed(vhost, "a", "", {"colour": "red"}) == ("q",)
    assert routed(vhost, "a", "", {"colour": "blue"}) == ()
    assert routed(vhost, "a", "") == ()


# -- alternate exchanges


def test_the_alternate_takes_what_matches_nothing() -> None:
    _, vhost = topology_of(
        exchange("a", alternate="rest"),
        exchange("rest", "fanout"),
        queue("q"),
        queue("unrouted"),
        to_queue("a", "q"),
        to_queue("rest", "unrouted"),
    )
    assert routed(vhost, "a", "k") == ("q",)
    assert routed(vhost, "a", "other") == ("unrouted",)


def test_the_alternate_is_asked_for_every_exchange_passed() -> None:
    """`a` matches `b`, so a's alternate is out; `b` matches nothing, so b's is taken."""
    _, vhost = topology_of(
        exchange("a", "fanout", alternate="rest of a"),
        exchange("b", alternate="rest of b"),
        exchange("rest of a", "fanout"),
        exchange("rest of b", "fanout"),
        queue("qa"),
        queue("qb"),
        queue("q"),
        to_queue("a", "q"),
        to_exchange("a", "b"),
        to_queue("rest of a", "qa"),
        to_queue("rest of b", "qb"),
    )
    assert routed(vhost, "a", "none") == ("q", "qb")


def test_an_exchange_already_passed_still_counts_as_a_match() -> None:
    """`b` matches `a`, which was passed before: nothing new, but not nothing (rabbit_exchange.erl)."""
    _, vhost = topology_of(
        exchange("a", "fanout"),
        exchange("b", "fanout", alternate="rest"),
        exchange("rest", "fanout"),
        queue("unrouted"),
        to_exchange("a", "b"),
        to_exchange("b", "a"),
        to_queue("rest", "unrouted"),
    )
    assert routed(vhost, "a", "") == ()


def test_alternates_in_a_cycle_end() -> None:
    _, vhost = topology_of(exchange("a", alternate="b"), exchange("b", alternate="a"))
    assert routed(vhost, "a", "k") == ()


def test_an_exchange_may_be_its_own_alternate() -> None:
    _, vhost = topology_of(exchange("a", alternate="a"))
    assert routed(vhost, "a", "k") == ()


@pytest.mark.parametrize("alternate", ["missing", 7, None])
def test_an_alternate_that_is_not_there_is_skipped(alternate: Any) -> None:
    _, vhost = topology_of(exchange("a", alternate=alternate))
    assert routed(vhost, "a", "k") == ()
    assert not reads_more(vhost, "a")


def test_the_default_exchange_is_nobodys_alternate() -> None:
    """As in RabbitMQ 3.10.8: its bindings are implicit, and are looked up for a publish to it only."""
    _, vhost = topology_of(exchange("a", alternate=""), queue("k"))
    assert routed(vhost, "a", "k") == ()


def test_a_binding_to_what_is_gone_is_no_match() -> None:
    topology, vhost = topology_of(
        exchange("a", alternate="rest"),
        exchange("rest", "fanout"),
        queue("q"),
        queue("unrouted"),
        to_queue("a", "q"),
        to_queue("rest", "unrouted"),
    )
    topology.apply([Delete(queue("q").key)])
    assert routed(vhost, "a", "k") == ("unrouted",)


# -- whether headers matter


def test_routes_on_headers_looks_through_bindings_and_alternates() -> None:
    topology, vhost = topology_of(
        exchange("direct"),
        exchange("to headers", "fanout"),
        exchange("by alternate", "topic", alternate="to headers"),
        exchange("h", "headers"),
        exchange("loop", "fanout"),
        to_exchange("to headers", "h"),
        to_exchange("loop", "loop"),
        to_exchange("h", "direct"),
    )
    answers = {name: reads_more(vhost, name) for name in [*vhost.exchanges, "", "missing"]}
    assert answers == {
        "direct": False,
        "to headers": True,
        "by alternate": True,
        "h": True,
        "loop": False,
        "": False,
        "missing": False,
    }
    topology.apply([Delete(to_exchange("to headers", "h").key)])
    assert not reads_more(vhost, "by alternate")
    topology.apply([Put(to_exchange("loop", "h", "1")), Put(to_exchange("loop", "h", "2"))])
    topology.apply([Delete(to_exchange("loop", "h", "1").key)])
    assert reads_more(vhost, "loop")


# -- changes


def test_a_binding_may_come_before_its_ends_and_stay_after_them() -> None:
    topology, vhost = topology_of(to_queue("a", "q"), to_exchange("a", "b"), to_queue("b", "r"))
    assert routed(vhost, "a", "k") == ()
    topology.apply([Put(queue("q")), Put(queue("r")), Put(exchange("b")), Put(exchange("a"))])
    assert routed(vhost, "a", "k") == ("q", "r")
    topology.apply([Delete(exchange("a").key), Delete(queue("q").key)])
    assert routed(vhost, "a", "k") == ()
    topology.apply([Put(exchange("a"))])
    assert routed(vhost, "a", "k") == ("r",)


def test_an_exchange_put_again_keeps_its_bindings() -> None:
    topology, vhost = topology_of(exchange("a"), queue("q"), to_queue("a", "q", "k.*"))
    topology.apply([Put(exchange("a", alternate="other"))])
    assert vhost.exchanges["a"].alternate == "other"
    assert routed(vhost, "a", "k.*") == ("q",)
    topology.apply([Put(exchange("a", "topic"))])
    assert routed(vhost, "a", "k.1") == ("q",)
    topology.apply([Delete(to_queue("a", "q", "k.*").key)])
    assert routed(vhost, "a", "k.1") == ()


def test_a_binding_put_again_is_one_binding() -> None:
    topology, vhost = topology_of(exchange("a"), queue("q"), to_queue("a", "q"), to_queue("a", "q"))
    assert len(vhost.bindings_from("a")) == 1
    topology.apply([Delete(to_queue("a", "q").key)])
    assert routed(vhost, "a", "k") == ()
    assert list(vhost.bindings_from("a")) == list(vhost.bindings_to("queue", "q")) == []


def test_bindings_are_found_from_both_ends_and_by_name() -> None:
    with_arguments = to_queue("a", "q", arguments={"x": 1})
    _, vhost = topology_of(
        exchange("a"), exchange("b"), queue("q"), to_queue("a", "q"), with_arguments, to_exchange("a", "b")
    )
    assert {binding.key for binding in vhost.bindings_from("a")} == {
        to_queue("a", "q").key,
        with_arguments.key,
        to_exchange("a", "b").key,
    }
    assert len(vhost.bindings_to("queue", "q")) == 2
    assert list(vhost.bindings_to("exchange", "b")) == [to_exchange("a", "b")]
    assert list(vhost.bindings_to("queue", "b")) == []
    found = vhost.find_binding("a", "queue", "q", "k", with_arguments.arguments_key)
    assert found == with_arguments
    assert vhost.find_binding("a", "queue", "q", "other") is None
    assert vhost.find_binding("none", "queue", "q", "k") is None


def test_deleting_what_is_absent_is_no_error() -> None:
    topology, vhost = topology_of()
    before = vhost.version
    topology.apply(
        [
            Delete(("exchange", "/", "a")),
            Delete(("queue", "no vhost", "q")),
            Delete(to_queue("a", "q").key),
            Delete(("vhost", "none")),
            Delete(("user", "none")),
            Delete(("permission", "/", "none")),
            Delete(("topic-permission", "/", "none", "x")),
            Delete(("policy", "/", "none")),
            Delete(("operator-policy", "no vhost", "none")),
            Delete(("parameter", "/", "vhost-limits", "limits")),
            Delete(("parameter", "", "", "none")),
        ]
    )
    assert vhost.version == before
    assert list(topology.vhosts) == ["/"]


def test_a_key_of_nothing_known_is_an_error() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        Topology().apply([Delete(("nonsense", "x"))])


def test_an_unknown_exchange_type_is_refused_before_anything_changes() -> None:
    topology, vhost = topology_of()
    before = (topology.version, vhost.version)
    with pytest.raises(AMQPPreconditionFailed, match="unknown exchange type 'x-new'"):
        topology.apply([Put(queue("q")), Put(exchange("a", "x-new"))])
    assert (topology.version, vhost.version) == before
    assert vhost.queues == {}


def test_users_and_permissions() -> None:
    topology = Topology()
    user = UserRecord("u", "hash", ("administrator",))
    permission = PermissionRecord("u", "/", ".*", ".*", ".*")
    on_topic = TopicPermissionRecord("u", "/", "amq.topic", "^a", "^b")
    topology.apply([Put(user), Put(permission), Put(on_topic)])
    assert topology.users == {"u": user}
    assert topology.permissions == {("/", "u"): permission}
    assert topology.topic_permissions == {("/", "u"): {"amq.topic": on_topic}}
    topology.apply([Delete(user.key), Delete(permission.key), Delete(on_topic.key)])
    assert (topology.users, topology.permissions, topology.topic_permissions) == ({}, {}, {})


def test_parameters_are_of_a_vhost_or_global() -> None:
    topology, vhost = topology_of()
    here, everywhere = ParameterRecord("/", "c", "n", [1]), ParameterRecord("", "", "n", "v")
    topology.apply([Put(here), Put(everywhere)])
    assert vhost.parameters == {("c", "n"): here}
    assert topology.global_parameters == {("", "n"): everywhere}
    topology.apply([Delete(here.key), Delete(everywhere.key)])
    assert (vhost.parameters, topology.global_parameters) == ({}, {})


def test_what_is_about_a_vhost_that_is_gone_is_left_over() -> None:
    topology = Topology()
    policy = PolicyRecord("gone", "p", "", "all", {"expires": 1})
    parameter = ParameterRecord("gone", "vhost-limits", "limits", {})
    topology.apply([Put(policy), Put(parameter)])
    assert topology.leftovers("gone", "node") == [parameter, policy]
    topology.apply([Delete(policy.key)])
    assert topology.leftovers("gone", "node") == [parameter]
    topology.apply([Delete(parameter.key)])
    assert topology.leftovers("gone", "node") == []


# -- versions


def test_the_version_of_the_topology_moves_with_every_batch() -> None:
    topology = Topology()
    topology.apply([Put(VhostRecord("/"))])
    topology.apply([])
    assert topology.version == 2


@pytest.mark.parametrize(
    "change",
    [
        Put(queue("new")),
        Put(queue("q", 2)),
        Delete(queue("q").key),
        Put(exchange("new")),
        Put(exchange("a", alternate="b")),
        Delete(exchange("a").key),
        Put(to_queue("a", "q", "other")),
        Delete(to_queue("a", "q").key),
        Put(alternate_policy("p", "a", "b")),
    ],
)
def test_the_version_of_a_vhost_moves_with_its_routing(change: Change) -> None:
    topology, vhost = topology_of(exchange("a"), queue("q"), to_queue("a", "q"))
    before = vhost.version
    topology.apply([change])
    assert vhost.version != before


@pytest.mark.parametrize(
    "change",
    [
        Put(queue("q")),
        Put(exchange("a")),
        Put(to_queue("a", "q")),
        Delete(queue("absent").key),
        Put(UserRecord("u")),
        Put(PermissionRecord("u", "/")),
        Put(VhostRecord("/", "described")),
        Put(VhostRecord("other")),
        Put(QueueRecord("other", "q", 3)),
        Put(alternate_policy("p", "no such name", "b")),
        Put(PolicyRecord("/", "p", "", "all", {"max-length": 1})),
        Put(ParameterRecord("/", "vhost-limits", "limits", {"max-queues": 1})),
    ],
)
def test_the_version_of_a_vhost_stays_with_everything_else(change: Change) -> None:
    topology, vhost = topology_of(exchange("a"), queue("q"), to_queue("a", "q"))
    before = vhost.version
    topology.apply([change])
    assert vhost.version == before


def test_a_vhost_made_again_never_has_an_old_version() -> None:
    topology, vhost = topology_of(queue("q"))
    seen = {vhost.version}
    for _ in range(3):
        topology.apply([Delete(queue("q").key), Delete(("vhost", "/"))])
        assert topology.vhosts == {}
        topology.apply([Put(VhostRecord("/"))])
        assert topology.vhosts["/"].version not in seen
        seen.add(topology.vhosts["/"].version)
        topology.apply([Put(queue("q"))])
        assert topology.vhosts["/"].version not in seen
        seen.add(topology.vhosts["/"].version)


def test_contents_may_come_before_their_vhost_and_stay_after_it() -> None:
    topology = Topology()
    topology.apply([Put(exchange("a")), Put(queue("q")), Put(to_queue("a", "q"))])
    assert topology.vhosts == {}
    topology.apply([Put(VhostRecord("/"))])
    assert routed(topology.vhosts["/"], "a", "k") == ("q",)
    topology.apply([Delete(("vhost", "/"))])
    assert topology.vhosts == topology.vhost_records == {}
    topology.apply([Delete(queue("q").key), Put(VhostRecord("/"))])
    assert routed(topology.vhosts["/"], "a", "k") == ()
    assert list(topology.vhosts["/"].exchanges) == ["a"]


# -- size


class CountedDict(dict[Any, Any]):
    """Counts the entries that are handed out by iteration."""

    walked = 0

    def __iter__(self) -> Any:
        for item in super().__iter__():
            CountedDict.walked += 1
            yield item

    def values(self) -> Any:
        return [self[key] for key in self]

    def items(self) -> Any:
        return [(key, self[key]) for key in self]


def test_deleting_a_queue_with_its_bindings_looks_at_no_other_bindings() -> None:
    queues = [queue(f"q{number}", number) for number in range(1000)]
    bindings = [to_queue("a", f"q{number % 1000}", f"k{number}") for number in range(5000)]
    topology, vhost = topology_of(exchange("a", "topic"), *queues, *bindings)
    assert len(vhost.bindings_from("a")) == 5000
    vhost._from["a"] = CountedDict(vhost._from["a"])
    vhost.queues = CountedDict(vhost.queues)
    CountedDict.walked = 0
    gone = list(vhost.bindings_to("queue", "q7"))
    assert len(gone) == 5
    topology.apply([*(Delete(binding.key) for binding in gone), Delete(queue("q7").key)])
    assert CountedDict.walked == 0
    assert (len(vhost.queues), len(vhost.bindings_from("a"))) == (999, 4995)
    assert routed(vhost, "a", "k8") == ("q8",)
    assert routed(vhost, "a", "k7") == ()
