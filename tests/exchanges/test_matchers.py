"""Direct, fanout and topic matchers, and the registry of types."""

from __future__ import annotations

import pytest
from pamqp.exceptions import AMQPPreconditionFailed

from amqpd.exchanges import EXCHANGE_TYPES, Matcher, Message, Reads, new_matcher
from amqpd.vocabulary.records import BindingRecord, DestinationType, ExchangeRecord


def matcher(type_name: str) -> Matcher:
    return new_matcher(ExchangeRecord("/", "x", type_name))


def binding(
    destination: str, key: str = "", kind: DestinationType = "queue", arguments_key: str = ""
) -> BindingRecord:
    return BindingRecord("/", "x", destination, kind, key, arguments_key=arguments_key)


def test_the_types_are_those_of_the_specification_and_of_rabbitmqs_plugins() -> None:
    assert sorted(EXCHANGE_TYPES) == [
        "direct",
        "fanout",
        "headers",
        "topic",
        "x-consistent-hash",
        "x-delayed-message",
        "x-local-random",
        "x-modulus-hash",
        "x-random",
        "x-recent-history",
    ]
    for name in EXCHANGE_TYPES.keys() - {"x-delayed-message"}:
        assert tuple(matcher(name).match("key", None)) == ()
        assert tuple(matcher(name).match_message(Message(("key", "other")))) == ()


@pytest.mark.parametrize("name", ["x-nonsense", "", "Direct", "amq.direct"])
def test_an_unknown_type_is_refused_with_its_name(name: str) -> None:
    with pytest.raises(AMQPPreconditionFailed) as refused:
        matcher(name)
    assert str(refused.value) == f"unknown exchange type '{name}'"


def test_what_each_type_reads_of_a_message() -> None:
    reads = {name: matcher(name).reads for name in EXCHANGE_TYPES.keys() - {"x-delayed-message"}}
    assert reads == {
        "direct": Reads.ROUTING_KEY,
        "fanout": Reads.NOTHING,
        "headers": Reads.HEADERS,
        "topic": Reads.ROUTING_KEY,
        "x-consistent-hash": Reads.ROUTING_KEY,
        "x-local-random": Reads.CHANCE,
        "x-modulus-hash": Reads.ROUTING_KEY,
        "x-random": Reads.CHANCE,
        "x-recent-history": Reads.HEADERS | Reads.KEEPS,
    }


def test_direct_goes_where_the_key_is_equal() -> None:
    direct = matcher("direct")
    direct.add(binding("q1", "a"))
    direct.add(binding("q2", "a"))
    direct.add(binding("q1", "b"))
    direct.add(binding("other", "a", "exchange"))
    direct.add(binding("wild", "#"))
    assert tuple(direct.match("a")) == (("queue", "q1"), ("queue", "q2"), ("exchange", "other"))
    assert tuple(direct.match("b")) == (("queue", "q1"),)
    assert tuple(direct.match("A")) == ()
    direct.remove(binding("q1", "a"))
    assert tuple(direct.match("a")) == (("queue", "q2"), ("exchange", "other"))
    assert tuple(direct.match("b")) == (("queue", "q1"),)


def test_fanout_goes_everywhere_once() -> None:
    fanout = matcher("fanout")
    fanout.add(binding("q1", "a"))
    fanout.add(binding("q1", "b"))
    fanout.add(binding("q2"))
    assert tuple(fanout.match("whatever", {"a": 1})) == (("queue", "q1"), ("queue", "q2"))
    fanout.remove(binding("q1", "a"))
    assert tuple(fanout.match("")) == (("queue", "q1"), ("queue", "q2"))
    fanout.remove(binding("q1", "b"))
    assert tuple(fanout.match("")) == (("queue", "q2"),)


def test_topic_goes_where_the_pattern_matches() -> None:
    topic = matcher("topic")
    topic.add(binding("q1", "stock.#"))
    topic.add(binding("q1", "#.nyse"))
    topic.add(binding("q2", "*.usd.*"))
    assert set(topic.match("stock.usd.nyse")) == {("queue", "q1"), ("queue", "q2")}
    assert tuple(topic.match("")) == ()
    topic.remove(binding("q1", "stock.#"))
    assert set(topic.match("stock.usd.nyse")) == {("queue", "q1"), ("queue", "q2")}
    assert tuple(topic.match("stock")) == ()


@pytest.mark.parametrize("type_name", ["direct", "fanout", "topic", "headers"])
def test_bindings_that_differ_in_arguments_only_are_two(type_name: str) -> None:
    one = matcher(type_name)
    one.add(binding("q", "k", arguments_key="1"))
    one.add(binding("q", "k", arguments_key="2"))
    one.remove(binding("q", "k", arguments_key="1"))
    assert tuple(one.match("k")) == (("queue", "q"),)
    one.remove(binding("q", "k", arguments_key="2"))
    assert tuple(one.match("k")) == ()


@pytest.mark.parametrize("type_name", ["direct", "fanout", "topic", "headers"])
def test_removing_what_is_not_bound_is_an_error(type_name: str) -> None:
    one = matcher(type_name)
    one.add(binding("q", "k"))
    with pytest.raises(KeyError):
        one.remove(binding("other", "k"))
    assert tuple(one.match("k")) == (("queue", "q"),)


@pytest.mark.parametrize("type_name", ["direct", "fanout", "topic", "headers"])
def test_a_result_does_not_change_under_its_holder(type_name: str) -> None:
    one = matcher(type_name)
    one.add(binding("q1", "k"))
    held = one.match("k")
    one.add(binding("q2", "k"))
    assert tuple(held) == (("queue", "q1"),)
    assert len(one.match("k")) == 2
