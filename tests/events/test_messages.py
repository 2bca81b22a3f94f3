"""An event on the wire: types as the plugin writes them, bounds, no passwords."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import decode

from amqpd.events.messages import ARGUMENTS_BYTES_MAX, HEADER_BYTES_MAX, event_message, terms
from amqpd.message.propertylist import HEADERS, PropertyList
from amqpd.wire.fieldtypes import SignedInt


def headers(facts: dict[str, Any]) -> dict[str, Any]:
    run = event_message("queue.created", facts, 1_700_000_000_123)
    read: dict[str, Any] = decode.field_table(PropertyList(run.properties).fields[HEADERS])[1]
    assert read.pop("timestamp_in_ms") == 1_700_000_000_123
    return read


def letter(value: Any) -> bytes:
    """The type of the value's field on the wire."""
    table = PropertyList(event_message("x", {"n": value}, 0).properties).fields[HEADERS]
    return table[6:7]


@pytest.mark.parametrize(
    ("value", "type_"),
    [(True, b"t"), ("text", b"S"), (5, b"l"), (SignedInt(5), b"l"), (1.5, b"f"), ({"a": 1}, b"F"), ([1], b"A")],
)
def test_values_have_the_plugins_types(value: Any, type_: bytes) -> None:
    assert letter(value) == type_


def test_what_json_can_say_is_written() -> None:
    value = {"t": True, "l": [1, "a", {"n": None}], "empty": {}, "large": 1 << 70, "vast": 1e300}
    assert headers({"value": value}) == {
        "value": {"t": True, "l": [1, "a", {"n": "null"}], "empty": [], "large": str(1 << 70), "vast": "1e+300"}
    }


def test_a_fact_that_is_not_known_is_left_out() -> None:
    assert headers({"arguments": None, "name": "q"}) == {"name": "q"}


def test_a_header_that_is_too_large_is_left_out_and_the_others_stay() -> None:
    assert headers({"value": "x" * HEADER_BYTES_MAX, "name": "q"}) == {"name": "q"}
    deep: Any = 1
    for _ in range(100):
        deep = [deep]
    assert headers({"value": deep, "name": "q"}) == {"name": "q"}
    assert headers({"value": {"k" * 300: 1}, "name": "q"}) == {"name": "q"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("amqp://user:pass@host", "amqp://user:***@host"),
        ("amqps://u:p%40ss@h/v,amqp://w:q@h2", "amqps://u:***@h2"),
        ("amqp://u:p/w@host", "amqp://u:***@host"),
        ("amqp://u:pa ss\n:x@host", "amqp://u:***@host"),
        ("amqp://u:p@ss@host", "amqp://u:***@host"),
        ("amqp://u:p//w@host", "amqp://u:***@host"),
        ("amqp://a/b:pw@host", "amqp://a/b:***@host"),
        ("amqp://a@b:pw@host", "amqp://a@b:***@host"),
        ("amqp://:pw@host", "amqp://:***@host"),
        ("amqp://host,amqp://u:pw@h2", "amqp://host,amqp:***@h2"),
        ("u:p@host", "u:p@host"),
        ("amqp://host:5672/v", "amqp://host:5672/v"),
        ("amqp://user@host", "amqp://user@host"),
    ],
)
def test_passwords_in_uris_are_masked(text: str, shown: str) -> None:
    assert headers({"value": {"uri": text, "uris": [text]}}) == {"value": {"uri": shown, "uris": [shown]}}


def test_arguments_are_erlang_terms_in_their_order() -> None:
    assert terms({"x-max-length": SignedInt(5), "x-mode": "lazy", "t": {"k": True}, "l": ["a"]}) == [
        '{<<"x-max-length">>,signedint,5}',
        '{<<"x-mode">>,longstr,<<"lazy">>}',
        '{<<"t">>,table,[{<<"k">>,bool,true}]}',
        '{<<"l">>,array,[{longstr,<<"a">>}]}',
    ]


def test_arguments_that_are_large_or_nested_deeply_are_not_looked_at() -> None:
    assert terms({"x": "y" * ARGUMENTS_BYTES_MAX}) is None
    deep: Any = 1
    for _ in range(40):
        deep = [deep]
    assert terms({"x": deep}) is None
