"""The exchange types of RabbitMQ's plugins. The texts are what RabbitMQ 3.10.8 answered with them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp.exceptions import AMQPPreconditionFailed

from amqpd.exchanges import EXCHANGE_TYPES, Matcher, Message, Reads, check_exchange, new_matcher
from amqpd.message.propertylist import APP_ID, MESSAGE_ID, TIMESTAMP, PropertyList
from amqpd.topology.state import Topology
from amqpd.vocabulary.records import BindingRecord, DestinationType, ExchangeRecord, QueueRecord
from amqpd.wire.fieldtypes import Byte, SignedInt, UnsignedInt
from tests.topology.samples import reads_more, routed, routed_message
from tests.topology.test_state import exchange, queue, to_exchange, to_queue, topology_of


def record(type_name: str, **arguments: Any) -> ExchangeRecord:
    return ExchangeRecord("/", "x", type_name, arguments={k.replace("_", "-"): v for k, v in arguments.items()})


def binding(destination: str, key: str = "", kind: DestinationType = "queue", more: str = "") -> BindingRecord:
    return BindingRecord("/", "x", destination, kind, key, arguments_key=more)


def bound(type_name: str, *bindings: BindingRecord, **arguments: Any) -> Matcher:
    matcher = new_matcher(record(type_name, **arguments))
    for each in bindings:
        matcher.add(each)
    return matcher


def refusal(checked: ExchangeRecord) -> str:
    with pytest.raises(AMQPPreconditionFailed) as refused:
        check_exchange(checked)
    return str(refused.value)


# -- x-consistent-hash

HASH = "x-consistent-hash"
WEIGHTED = [binding("q1", "1"), binding("q2", "2"), binding("other", "1", "exchange")]


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("0", "The binding key must be greater than 0"),
        ("-1", "The binding key must be greater than 0"),
        ("abc", 'The binding key must be an integer: <<"abc">>'),
        ("", "The binding key must be an integer: <<>>"),
        ("1.5", 'The binding key must be an integer: <<"1.5">>'),
        (" 1", 'The binding key must be an integer: <<" 1">>'),
        ("1\n", 'The binding key must be an integer: <<"1\\n">>'),
        ("\u00e9", 'The binding key must be an integer: <<"\u00e9">>'),
        ("\u0661", 'The binding key must be an integer: <<"\u0661">>'),
    ],
)
def test_a_weight_is_a_positive_integer(key: str, text: str) -> None:
    with pytest.raises(AMQPPreconditionFailed) as refused:
        bound(HASH).validate(binding("q", key))
    assert str(refused.value) == text


@pytest.mark.parametrize("key", ["1", "10000", "+2", "007"])
def test_these_are_weights(key: str) -> None:
    bound(HASH).validate(binding("q", key))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"hash_header": "a", "hash_property": "message_id"}, "hash-header and hash-property are mutually exclusive"),
        ({"hash_property": "app_id"}, "Unsupported property: app_id"),
        ({"hash_property": "Message_Id"}, "Unsupported property: Message_Id"),
        (
            {"hash_header": SignedInt(3)},
            "invalid type 'signedint' for arg 'hash-header' in exchange 'x' in vhost '/'",
        ),
        ({"hash_property": None}, "invalid type 'void' for arg 'hash-property' in exchange 'x' in vhost '/'"),
    ],
)
def test_arguments_of_a_hash_exchange_are_checked(arguments: dict[str, Any], text: str) -> None:
    assert refusal(record(HASH, **arguments)) == text
    new_matcher(record(HASH, **arguments)).add(binding("q", "not a weight"))  # what is stored is taken all the same


def test_one_key_goes_to_one_destination_and_keys_are_spread() -> None:
    matcher = bound(HASH, *WEIGHTED)
    found = Counter(tuple(matcher.match(f"key {i}")) for i in range(4000))
    assert set(found) == {(("queue", "q1"),), (("queue", "q2"),), (("exchange", "other"),)}
    assert 0.4 < found[("queue", "q2"),] / 4000 < 0.6
    assert [matcher.match("k") for _ in range(3)] == [matcher.match("k")] * 3


def test_only_the_key_of_the_publish_counts_not_those_of_cc() -> None:
    matcher = bound(HASH, *WEIGHTED)
    assert all(matcher.match_message(Message((f"{i}", "cc"))) == matcher.match(f"{i}") for i in range(50))


@given(st.dictionaries(st.text(max_size=3), st.one_of(st.integers(), st.text(max_size=5), st.none(), st.booleans())))
def test_by_header_the_routing_key_does_not_matter(headers: dict[str, Any]) -> None:
    matcher = bound(HASH, *WEIGHTED, hash_header="id")
    assert matcher.reads == Reads.HEADERS
    assert matcher.match("a", headers) == matcher.match("b", {"id": headers["id"]} if "id" in headers else {})
    assert len(matcher.match("a", headers)) == 1


def test_headers_are_told_apart_and_without_one_all_go_one_way() -> None:
    matcher = bound(HASH, *WEIGHTED, hash_header="id")
    assert len({tuple(matcher.match("", {"id": i})) for i in range(100)}) == 3
    assert len({tuple(matcher.match(f"{i}", {"other": i})) for i in range(100)}) == 1
    assert matcher.match("", None) == matcher.match("", {})
    deep: list[Any] = []
    for _ in range(100):
        deep = [deep]
    assert matcher.match("", {"id": deep}) == matcher.match("", {})


def with_property(flag: int, value: bytes) -> Message:
    properties = PropertyList(b"\0\0")
    properties.fields[flag] = value
    properties.set_text(APP_ID, "app")
    return Message(("key",), None, properties.raw())


@pytest.mark.parametrize(("name", "flag"), [("message_id", MESSAGE_ID), ("timestamp", TIMESTAMP)])
def test_by_property(name: str, flag: int) -> None:
    matcher = bound(HASH, *WEIGHTED, hash_property=name)
    assert matcher.reads == Reads.PROPERTIES
    spread = {
        tuple(matcher.match_message(with_property(flag, b"\7" + b"%07d" % i if flag == MESSAGE_ID else b"%08d" % i)))
        for i in range(100)
    }
    assert len(spread) == 3
    assert matcher.match_message(Message(("a",))) == matcher.match_message(Message(("b",)))


def test_a_destination_with_several_weights_has_the_largest() -> None:
    once = bound(HASH, binding("a", "1"), binding("b", "5"))
    several = bound(HASH, binding("b", "5"), binding("b", "3"), binding("a", "1"), binding("b", "5", more="x"))
    keys = [f"{i}" for i in range(300)]
    assert [once.match(key) for key in keys] == [several.match(key) for key in keys]
    several.remove(binding("b", "5"))
    assert [once.match(key) for key in keys] == [several.match(key) for key in keys]
    several.remove(binding("b", "5", more="x"))
    assert [once.match(key) for key in keys] != [several.match(key) for key in keys]
    several.remove(binding("b", "3"))
    assert {tuple(several.match(key)) for key in keys} == {(("queue", "a"),)}
    with pytest.raises(KeyError):
        several.remove(binding("b", "3"))


def test_through_exchanges_the_hash_is_asked_with_the_same_message() -> None:
    _, vhost = topology_of(
        exchange("in", "fanout"),
        exchange("x", HASH),
        queue("q1"),
        queue("q2"),
        to_exchange("in", "x", ""),
        to_queue("x", "q1", "1"),
        to_queue("x", "q2", "1"),
    )
    routes = Counter(routed(vhost, "in", f"{i}") for i in range(200))
    assert set(routes) == {("q1",), ("q2",)}
    assert not reads_more(vhost, "in")


# -- x-random


def test_random_draws_one_for_each_message_and_none_more_often() -> None:
    matcher = bound("x-random", binding("a"), binding("b", "1"), binding("b", "2"), binding("c", "", "exchange"))
    drawn = [matcher.match_message(Message(("",), chance=lambda i=i: i / 300)) for i in range(300)]  # type: ignore[misc]
    assert Counter(found for (found,) in drawn) == {("queue", "a"): 100, ("queue", "b"): 100, ("exchange", "c"): 100}


def test_random_asks_for_no_chance_when_there_is_no_choice() -> None:
    def never() -> float:
        raise AssertionError

    assert bound("x-random").match_message(Message(("",), chance=never)) == ()
    assert tuple(bound("x-random", binding("a")).match_message(Message(("",), chance=never))) == (("queue", "a"),)


def test_what_may_reach_a_random_exchange_is_drawn_anew() -> None:
    _, vhost = topology_of(
        exchange("in", "direct", alternate="r"),
        exchange("r", "x-random"),
        exchange("plain"),
        to_exchange("in", "plain"),
    )
    assert vhost.reads("in") == Reads.ROUTING_KEY | Reads.CHANCE
    assert reads_more(vhost, "in")
    assert not reads_more(vhost, "plain")


# -- x-local-random


def test_local_random_draws_one_of_the_queues_that_are_served_and_none_more_often() -> None:
    matcher = bound("x-local-random", *(binding(name, "") for name in "abcd"))
    drawn = Counter(
        found
        for i in range(400)
        for found in matcher.match_message(
            Message(("any key",), chance=lambda i=i: i / 400, serves=lambda vhost, name: name != "c")  # type: ignore[misc]
        )
    )
    # What was drawn for c is drawn again, with the same number here: it is from the middle, and so is b's.
    assert set(drawn) == {("queue", "a"), ("queue", "b"), ("queue", "d")}
    assert sum(drawn.values()) == 400
    assert min(drawn.values()) >= 100


def test_local_random_without_a_queue_that_is_served_goes_nowhere() -> None:
    def never() -> float:
        raise AssertionError

    matcher = bound("x-local-random", binding("a", ""))
    assert tuple(matcher.match_message(Message(("",), chance=never))) == (("queue", "a"),)
    assert not matcher.match_message(Message(("",), chance=never, serves=lambda vhost, name: False))
    assert not bound("x-local-random").match_message(Message(("",), chance=never))


@pytest.mark.parametrize(
    ("key", "destination", "told"),
    [
        ("k", queue("q"), "Non empty binding 'k' key not permitted"),
        ("", None, "Destination not found"),
        (
            "",
            QueueRecord("/", "q", 1, arguments={"x-queue-type": "quorum"}),
            "Queue type rabbit_quorum_queue not valid for this exchange type",
        ),
    ],
)
def test_local_random_takes_classic_queues_with_an_empty_key(
    key: str, destination: QueueRecord | None, told: str
) -> None:
    with pytest.raises(AMQPPreconditionFailed) as refused:
        bound("x-local-random").validate(binding("q", key), destination)
    assert str(refused.value) == told
    bound("x-local-random").validate(binding("q", ""), queue("q"))


# -- x-modulus-hash


def test_modulus_hash_gives_the_same_answers_in_whatever_order_they_were_bound() -> None:
    bindings = [binding(f"q{i}") for i in range(5)]
    one, other = bound("x-modulus-hash", *bindings), bound("x-modulus-hash", *reversed(bindings))
    found = [tuple(one.match(f"{i}")) for i in range(500)]
    assert found == [tuple(other.match(f"{i}")) for i in range(500)]
    assert min(Counter(found).values()) > 60
    one.remove(binding("q3"))
    assert {tuple(one.match(f"{i}")) for i in range(500)} == {(("queue", f"q{i}"),) for i in (0, 1, 2, 4)}


def test_modulus_hash_takes_all_keys_together() -> None:
    matcher = bound("x-modulus-hash", *[binding(f"q{i}") for i in range(50)])
    assert len({tuple(matcher.match_message(Message(("k", f"{i}")))) for i in range(100)}) > 10
    assert all(len(matcher.match_message(Message(("k", f"{i}")))) == 1 for i in range(20))


# -- x-recent-history

HISTORY = "x-recent-history"


@pytest.mark.parametrize(
    ("length", "shown"),
    [(0, "0"), (-1, "-1"), ("5", '<<"5">>'), (True, "true"), (None, "undefined"), (UnsignedInt(5), "5")],
)
def test_the_length_of_a_history_is_a_positive_integer(length: Any, shown: str) -> None:
    text = f"Invalid argument {shown}, 'x-recent-history-length' must be a positive integer"
    assert refusal(record(HISTORY, x_recent_history_length=length)) == text


@pytest.mark.parametrize("length", [1, SignedInt(5), Byte(5), 2**40])
def test_these_are_lengths(length: int) -> None:
    check_exchange(record(HISTORY, x_recent_history_length=length))


def test_a_history_exchange_is_a_fanout_that_says_that_it_keeps() -> None:
    matcher = bound(HISTORY, binding("a", "k"), binding("b"), x_recent_history_length=3)
    for headers, kept in (
        (None, {"x": 3}),
        ({"x-recent-history-no-store": False}, {"x": 3}),
        ({"x-recent-history-no-store": "true"}, {"x": 3}),
        ({"x-recent-history-no-store": True}, {}),
    ):
        message = Message(("any", "cc"), headers)
        assert tuple(matcher.match_message(message)) == (("queue", "a"), ("queue", "b"))
        assert message.kept_by == kept
    message = Message(("",))
    bound(HISTORY).match_message(message)
    assert message.kept_by == {"x": 20}


# -- x-delayed-message

DELAYED = "x-delayed-message"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "Invalid argument, 'x-delayed-type' must be an existing exchange type"),
        ({"x_delayed_type": 5}, "Invalid argument, 'x-delayed-type' must be an existing exchange type"),
        ({"x_delayed_type": DELAYED}, "Invalid argument, 'x-delayed-message' can't be used for 'x-delayed-type'"),
        ({"x_delayed_type": "bogus"}, "unknown exchange type 'bogus'"),
        ({"x_delayed_type": HASH, "hash_property": "app_id"}, "Unsupported property: app_id"),
        (
            {"x_delayed_type": HISTORY, "x_recent_history_length": 0},
            "Invalid argument 0, 'x-recent-history-length' must be a positive integer",
        ),
    ],
)
def test_a_delayed_exchange_needs_another_type_to_route_as(arguments: dict[str, Any], text: str) -> None:
    assert refusal(record(DELAYED, **arguments)) == text


@pytest.mark.parametrize("name", sorted(EXCHANGE_TYPES.keys() - {DELAYED}))
def test_a_delayed_exchange_is_what_it_routes_as(name: str) -> None:
    plain, delayed = bound(name), bound(DELAYED, x_delayed_type=name)
    assert delayed.reads == plain.reads
    for matcher in (plain, delayed):
        matcher.add(binding("q1", "1"))
        matcher.add(binding("q2", "2"))
        matcher.remove(binding("q1", "1"))
    for key in ("1", "2", "3"):
        assert tuple(delayed.match(key)) == tuple(plain.match(key))
        assert tuple(delayed.match_message(Message((key, "2")))) == tuple(plain.match_message(Message((key, "2"))))


def test_a_delayed_exchange_checks_bindings_as_its_type() -> None:
    with pytest.raises(AMQPPreconditionFailed, match="must be an integer"):
        bound(DELAYED, x_delayed_type=HASH).validate(binding("q", "k"))


def test_a_stored_delayed_exchange_of_an_unknown_type_is_refused_as_a_whole() -> None:
    topology = Topology()
    from_the_future = ExchangeRecord("/", "x", DELAYED, arguments={"x-delayed-type": "x-new"})
    with pytest.raises(AMQPPreconditionFailed, match="unknown exchange type 'x-new'"):
        new_matcher(from_the_future)
    before = topology.version
    _, vhost = topology_of(exchange("y"))
    assert (topology.version, set(vhost.exchanges)) == (before, {"y"})


# -- several routing keys


def test_all_routing_keys_of_a_message_count_together() -> None:
    direct = bound("direct", binding("a", "1"), binding("b", "2"), binding("a", "2"), binding("c", "3"))
    assert tuple(direct.match_message(Message(("1", "2")))) == (("queue", "a"), ("queue", "b"))
    topic = bound("topic", binding("a", "x.#"), binding("b", "*.y"))
    assert set(topic.match_message(Message(("z", "x.y", "x")))) == {("queue", "a"), ("queue", "b")}


def test_the_default_exchange_goes_to_the_queues_of_all_keys() -> None:
    _, vhost = topology_of(queue("a"), queue("b"))
    assert routed_message(vhost, "", Message(("a", "missing", "b", "a"))) == ("a", "b")
