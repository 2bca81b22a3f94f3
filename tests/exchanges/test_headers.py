"""The headers matcher: RabbitMQ's rules, and its index against a plain loop over all bindings."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp.exceptions import AMQPPreconditionFailed

from amqpd.exchanges import Matcher, new_matcher
from amqpd.exchanges.headers import _Want
from amqpd.vocabulary.records import BindingRecord, ExchangeRecord
from amqpd.wire.fieldtypes import SignedInt
from amqpd.wire.values import arguments_key


def binding(name: str, arguments: Mapping[str, Any]) -> BindingRecord:
    return BindingRecord("/", "x", name, "queue", "", arguments=arguments, arguments_key=arguments_key(arguments))


def empty() -> Matcher:
    return new_matcher(ExchangeRecord("/", "x", "headers"))


def matches(arguments: Mapping[str, Any], headers: Mapping[str, Any] | None) -> bool:
    matcher = empty()
    matcher.add(binding("q", arguments))
    return ("queue", "q") in matcher.match("ignored", headers)


@pytest.mark.parametrize("mode", [{}, {"x-match": "all"}, {"x-match": "all-with-x"}])
def test_all_needs_every_argument(mode: dict[str, Any]) -> None:
    wanted = {**mode, "a": 1, "b": "two"}
    assert matches(wanted, {"a": 1, "b": "two"})
    assert matches(wanted, {"a": 1, "b": "two", "c": 3})
    assert not matches(wanted, {"a": 1})
    assert not matches(wanted, {"a": 1, "b": "three"})
    assert not matches(wanted, {})
    assert not matches(wanted, None)


@pytest.mark.parametrize("mode", ["any", "any-with-x"])
def test_any_needs_one_argument(mode: str) -> None:
    wanted = {"x-match": mode, "a": 1, "b": "two"}
    assert matches(wanted, {"a": 1})
    assert matches(wanted, {"a": 0, "b": "two"})
    assert not matches(wanted, {"a": 2, "b": "three"})
    assert not matches(wanted, None)


def test_all_of_nothing_matches_everything_and_any_of_nothing_nothing() -> None:
    for headers in (None, {}, {"a": 1}):
        assert matches({}, headers)
        assert matches({"x-match": "all", "x-ignored": 1}, headers)
        assert not matches({"x-match": "any"}, headers)
        assert not matches({"x-match": "any", "x-ignored": 1}, headers)
    assert not matches({"x-match": "any", "x-ignored": 1}, {"x-ignored": 1})


def test_arguments_that_begin_with_x_count_only_with_x() -> None:
    assert matches({"x-match": "all", "a": 1, "x-b": 2}, {"a": 1})
    assert not matches({"x-match": "all-with-x", "a": 1, "x-b": 2}, {"a": 1})
    assert matches({"x-match": "all-with-x", "a": 1, "x-b": 2}, {"a": 1, "x-b": 2})
    assert matches({"x-match": "any-with-x", "x-b": 2}, {"x-b": 2})
    assert not matches({"x-match": "any-with-x"}, {"x-match": "any-with-x"}), "x-match itself never counts"
    assert matches({"a": 1, "X-b": 2}, {"a": 1, "X-b": 2})
    assert not matches({"a": 1, "X-b": 2}, {"a": 1}), "the prefix is lower case"


def test_a_void_argument_asks_for_presence() -> None:
    assert matches({"a": None}, {"a": 1})
    assert matches({"a": None}, {"a": None})
    assert matches({"x-match": "any", "a": None, "b": 1}, {"a": [1]})
    assert not matches({"a": None}, {"b": 1})
    assert not matches({"a": 1}, {"a": None})


NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("wanted", "header", "equal"),
    [
        (1, 1, True),
        (1, 2**40, False),
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        (True, True, True),
        (1, "1", False),
        ("a", "A", False),
        ("a", bytearray(b"a"), True),
        (b"\xff", bytearray(b"\xff"), True),
        (b"\xff", b"\xff", True),
        (1.5, 1.5, True),
        (Decimal("1.50"), Decimal("1.50"), True),
        (Decimal("1.50"), Decimal("1.5"), False),
        (Decimal(1), 1, False),
        (NOON, NOON, True),
        (NOON, int(NOON.timestamp()), True),
        (["a", 1], ["a", 1], True),
        (["a", 1], ["a", True], False),
        (["a", 1], [1, "a"], False),
        ({"a": 1, "b": [2]}, {"b": [2], "a": 1}, True),
        ({"a": 1}, {"a": 1.0}, False),
    ],
)
def test_values_are_compared_as_rabbitmq_compares_them(wanted: Any, header: Any, equal: bool) -> None:
    assert matches({"h": wanted}, {"h": header}) is equal
    assert matches({"h": header}, {"h": wanted}) is equal
    assert matches({"x-match": "any", "h": wanted}, {"h": header}) is equal


def test_values_nested_too_deep_equal_nothing_and_break_nothing() -> None:
    deep: Any = 1
    for _ in range(900):
        deep = [deep]
    matcher = empty()
    wanted = BindingRecord("/", "x", "q", "queue", "", arguments={"a": deep}, arguments_key="deep")
    matcher.add(wanted)
    matcher.add(binding("present", {"a": None}))
    assert tuple(matcher.match("", {"a": deep})) == (("queue", "present"),)
    matcher.remove(wanted)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("bogus", 'Invalid x-match field value <<"bogus">>; expected all, any, all-with-x, or any-with-x'),
        ("", "Invalid x-match field value <<>>; expected all, any, all-with-x, or any-with-x"),
        ('a"b\\', r'Invalid x-match field value <<"a\"b\\">>; expected all, any, all-with-x, or any-with-x'),
        ("a\x01", "Invalid x-match field value <<97,1>>; expected all, any, all-with-x, or any-with-x"),
        (bytearray(b"ab"), 'Invalid x-match field type binary (value <<"ab">>); expected longstr'),
        ("ALL", 'Invalid x-match field value <<"ALL">>; expected all, any, all-with-x, or any-with-x'),
        (b"\xff\x01", "Invalid x-match field value <<255,1>>; expected all, any, all-with-x, or any-with-x"),
        (SignedInt(1), "Invalid x-match field type signedint (value 1); expected longstr"),
        (["a"], 'Invalid x-match field type array (value [{longstr,<<"a">>}]); expected longstr'),
        ({"k": 1.5}, 'Invalid x-match field type table (value [{<<"k">>,double,1.5}]); expected longstr'),
        (2**40, "Invalid x-match field type long (value 1099511627776); expected longstr"),
        (True, "Invalid x-match field type bool (value true); expected longstr"),
        (None, "Invalid x-match field type void (value undefined); expected longstr"),
    ],
)
def test_a_wrong_x_match_is_refused_in_rabbitmqs_words(value: Any, text: str) -> None:
    """The texts are what RabbitMQ 3.10.8 answered to the same bindings."""
    with pytest.raises(AMQPPreconditionFailed) as refused:
        empty().validate(binding("q", {"x-match": value}))
    assert str(refused.value) == text


@pytest.mark.parametrize("value", ["all", "any", "all-with-x", "any-with-x"])
def test_a_right_x_match_is_taken(value: str) -> None:
    empty().validate(binding("q", {"x-match": value, "a": 1}))
    empty().validate(binding("q", {"a": 1}))


def test_a_stored_binding_with_a_wrong_x_match_counts_as_all() -> None:
    assert matches({"x-match": "bogus", "a": 1}, {"a": 1})
    assert not matches({"x-match": "bogus", "a": 1}, {"b": 1})


def test_bindings_that_share_a_header_and_differ_in_another_are_not_all_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    matcher = empty()
    for number in range(1000):
        matcher.add(binding(str(number), {"kind": "order", "customer": number}))
    checked = []
    is_met = _Want.is_met

    def counted(want: _Want, headers: Mapping[str, Any]) -> bool:
        checked.append(want)
        return is_met(want, headers)

    monkeypatch.setattr(_Want, "is_met", counted)
    assert tuple(matcher.match("", {"kind": "order", "customer": 77})) == (("queue", "77"),)
    assert len(checked) <= 2


# -- the index against the definition

names = st.sampled_from(["a", "b", "x-c", "d"])
values = st.sampled_from([None, 0, 1, True, "s", 1.0, [1]])
tables = st.dictionaries(names, values, max_size=4)
modes = st.sampled_from(
    [{}, {"x-match": "all"}, {"x-match": "any"}, {"x-match": "all-with-x"}, {"x-match": "any-with-x"}]
)
requests = st.builds(lambda mode, table: {**mode, **table}, modes, tables)


def same(one: Any, other: Any) -> bool:
    """A boolean is no number; numbers are equal whatever their type."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def defined(arguments: Mapping[str, Any], headers: Mapping[str, Any]) -> bool:
    mode = arguments.get("x-match", "all")
    agreements = [
        name in headers and (value is None or same(value, headers[name]))
        for name, value in arguments.items()
        if name != "x-match" and (mode.endswith("-with-x") or not name.startswith("x-"))
    ]
    return any(agreements) if mode.startswith("any") else all(agreements)


@given(st.lists(requests, max_size=10), st.sets(st.integers(0, 9)), st.lists(tables, min_size=1, max_size=5))
def test_the_index_finds_what_a_loop_over_all_bindings_finds(
    wanted: list[dict[str, Any]], removed: set[int], messages: list[dict[str, Any]]
) -> None:
    matcher = empty()
    bindings = [binding(str(number), arguments) for number, arguments in enumerate(wanted)]
    for one in bindings:
        matcher.add(one)
    for number in removed:
        if number < len(bindings):
            matcher.remove(bindings[number])
    left = [one for number, one in enumerate(bindings) if number not in removed]
    for headers in messages:
        expected = {("queue", one.destination) for one in left if defined(one.arguments, headers)}
        found = matcher.match("", headers)
        assert set(found) == expected
        assert len(found) == len(expected)
