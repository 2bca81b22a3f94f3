"""The canonical text of arguments: two bindings are one exactly when it is equal."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from amqpd.wire.values import NESTING_MAX, NestedTooDeep, arguments_key, canonical

DIFFERENT: list[dict[str, Any]] = [
    {},
    {"a": 1},
    {"a": 1.0},
    {"a": True},
    {"a": "1"},
    {"a": b"\xff"},
    {"a": bytearray(b"1")},
    {"a": None},
    {"a": []},
    {"a": {}},
    {"a": [1]},
    {"a": {"a": 1}},
    {"a": [["a", 1]]},
    {"a": datetime(2024, 5, 1, tzinfo=UTC)},
    {"a": int(datetime(2024, 5, 1, tzinfo=UTC).timestamp())},
    {"a": Decimal("1.0")},
    {"a": Decimal("1.00")},
    {"a": 1, "b": 2},
    {"b": 1, "a": 2},
    {"ä": 1},
]


def test_different_tables_have_different_keys() -> None:
    assert len({arguments_key(table) for table in DIFFERENT}) == len(DIFFERENT)


def test_the_order_of_a_table_does_not_matter() -> None:
    assert arguments_key({"a": {"x": 1, "y": 2}, "b": 2}) == arguments_key({"b": 2, "a": {"y": 2, "x": 1}})


def test_the_key_of_no_arguments_is_empty_and_every_key_is_ascii() -> None:
    assert arguments_key({}) == ""
    assert arguments_key({"ä": "ö"}).isascii()


def test_nesting_is_bounded() -> None:
    deep: Any = 1
    for _ in range(NESTING_MAX):
        deep = [deep]
    canonical(deep)
    with pytest.raises(NestedTooDeep):
        canonical([deep])


def test_what_no_field_can_hold_is_an_error() -> None:
    with pytest.raises(TypeError, match="object"):
        canonical(object())
