"""Rewritten runs: what was asked for is different, every other byte is as it came."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, decode, encode, frame, header

from amqpd.kernel import Run
from amqpd.kernel.rows import parse_row
from amqpd.message.properties import PropertiesReader
from amqpd.message.propertylist import EXPIRATION, FLAGS, HEADERS, PRIORITY, REPLY_TO, PropertyList, edited
from amqpd.message.rewriting import readdressed, with_headers, with_properties
from amqpd.wire.fieldtable import read_table, split_entries
from amqpd.wire.fieldwriter import Encoded, write_table, write_value
from tests.harness.harness import publish_bytes
from tests.wire.test_fieldtable import names, tables

short = st.text(max_size=20)
properties = st.fixed_dictionaries(
    {},
    optional={
        "content_type": short,
        "content_encoding": short,
        "headers": tables,
        "delivery_mode": st.sampled_from([1, 2]),
        "priority": st.integers(0, 255),
        "correlation_id": short,
        "reply_to": short,
        "expiration": short,
        "message_id": short,
        "timestamp": st.just(datetime(2020, 1, 1, tzinfo=UTC)),
        "message_type": short,
        "user_id": short,
        "app_id": short,
        "cluster_id": short,
    },
)


def raw_properties(values: dict[str, Any]) -> bytes:
    plain = {name: value for name, value in values.items() if name != "cluster_id"}
    given_properties = commands.Basic.Properties(**plain)
    given_properties.cluster_id = values.get("cluster_id") or None  # pamqp's constructor refuses it as deprecated
    marshalled = header.ContentHeader(body_size=0, properties=given_properties).marshal()
    return bytes(marshalled[12:])


def run_of(bodies: list[bytes], raw: bytes) -> Run:
    """A run of bodies of equal size with these raw properties."""
    (run,) = parse_row(b"".join(publish_bytes(body, "key", "exchange") for body in bodies))
    return with_properties(run, raw)


def contents(run: Run) -> list[tuple[bytes, bytes, bytes]]:
    return [(run.key, run.properties, run.body(i)) for i in range(run.count)]


bodies_of_a_run = st.integers(0, 30).flatmap(
    lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1, max_size=5)
)


@given(tables)
def test_what_is_written_is_read_back_equal(table: dict[str, Any]) -> None:
    assert read_table(write_table(table), 0) == (table, len(write_table(table)))
    assert decode.field_table(write_table(table))[1] == table


def test_types_are_those_of_rabbitmq() -> None:
    moment = datetime(2020, 1, 1, tzinfo=UTC)
    assert write_value(7) == b"l" + struct.pack(">q", 7)
    assert write_value("a") == b"S\0\0\0\x01a"
    assert write_value(moment) == b"T" + struct.pack(">Q", int(moment.timestamp()))
    assert write_value(["a"]) == b"A\0\0\0\x06S\0\0\0\x01a"
    assert write_value({"k": True}) == b"F\0\0\0\x04\x01kt\x01"
    assert write_value(Encoded(b"I\0\0\0\x01")) == b"I\0\0\0\x01"


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, {"n" * 256: 1}])
def test_what_no_field_can_hold_is_a_value_error(value: Any) -> None:
    with pytest.raises(ValueError):
        write_value(value)


@given(tables)
def test_a_table_split_and_joined_is_the_same_bytes(table: dict[str, Any]) -> None:
    data = encode.field_table(table)
    entries = split_entries(data[4:])
    assert b"".join(bytes((len(name),)) + name + value for name, value in entries) == data[4:]
    assert [name.decode() for name, _ in entries] == list(decode.field_table(data)[1])


@given(st.binary(max_size=60))
def test_any_bytes_split_into_a_table_or_are_a_value_error(data: bytes) -> None:
    try:
        entries = split_entries(data)
    except ValueError:
        return
    assert sum(1 + len(name) + len(value) for name, value in entries) == len(data)


@given(properties)
def test_a_property_list_taken_apart_is_put_together_the_same(values: dict[str, Any]) -> None:
    raw = raw_properties(values)
    assert PropertyList(raw).raw() == raw
    assert edited(raw) == raw


@given(st.binary(max_size=40))
def test_any_bytes_are_a_property_list_or_a_value_error(raw: bytes) -> None:
    try:
        properties = PropertyList(raw)
    except ValueError:
        return
    assert properties.raw() == raw


@given(properties, tables, st.sets(names))
def test_headers_are_set_and_removed_and_the_rest_stays(
    values: dict[str, Any], new: dict[str, Any], gone: set[str]
) -> None:
    raw = raw_properties(values)
    changed = edited(raw, new, gone)
    before, after = PropertyList(raw).fields, PropertyList(changed).fields
    assert {flag: after[flag] for flag in after if flag != HEADERS} == {
        flag: before[flag] for flag in before if flag != HEADERS
    }
    read = PropertiesReader().read(changed).headers
    kept = {name: value for name, value in (values.get("headers") or {}).items() if name not in gone}
    if HEADERS in after:
        assert read == kept | new
    else:
        assert not kept | new
    old_entries = dict(split_entries(before[HEADERS][4:])) if HEADERS in before else {}
    new_entries = dict(split_entries(after[HEADERS][4:])) if HEADERS in after else {}
    for name in kept.keys() - new.keys():
        assert new_entries[name.encode()] == old_entries[name.encode()]


def test_a_header_keeps_its_type_and_place_beside_one_that_is_set() -> None:
    table = b"\x01aI\0\0\0\x05" + b"\x01bs\0\x01" + b"\x01cV"
    raw = HEADERS.to_bytes(2, "big") + struct.pack(">I", len(table)) + table
    changed = edited(raw, {"b": "new", "d": 1})
    assert [value[:1] for _, value in split_entries(PropertyList(changed).fields[HEADERS][4:])] == [
        b"I",
        b"S",
        b"V",
        b"l",
    ]


def test_a_name_that_came_twice_is_once_when_it_is_set() -> None:
    table = b"\x01aI\0\0\0\x05" * 2
    raw = HEADERS.to_bytes(2, "big") + struct.pack(">I", len(table)) + table
    assert split_entries(PropertyList(edited(raw, {"a": True})).fields[HEADERS][4:]) == [(b"a", b"t\x01")]


def test_the_last_header_leaves_an_empty_table() -> None:
    raw = raw_properties({"headers": {"BCC": ["a"]}, "priority": 3})
    changed = edited(raw, without_headers=["BCC"])
    assert PropertyList(changed).fields == {HEADERS: b"\0\0\0\0", PRIORITY: b"\x03"}
    assert edited(b"\0\0", without_headers=["BCC"]) == b"\0\0"


@given(properties, st.sampled_from(FLAGS))
def test_a_property_is_removed_and_the_others_stay(values: dict[str, Any], flag: int) -> None:
    raw = raw_properties(values)
    before = PropertyList(raw).fields
    before.pop(flag, None)
    assert PropertyList(edited(raw, without=[flag])).fields == before


def test_a_text_is_set_in_its_place() -> None:
    properties = PropertyList(raw_properties({"reply_to": "a", "expiration": "1", "message_id": "m"}))
    properties.set_text(REPLY_TO, "amq.rabbitmq.reply-to.x")
    read = PropertiesReader().read(properties.raw())
    assert (read.reply_to, read.expiration) == ("amq.rabbitmq.reply-to.x", "1")
    with pytest.raises(ValueError):
        properties.set_text(EXPIRATION, "é" * 128)


@given(bodies_of_a_run, properties, properties)
def test_a_run_with_other_properties_has_the_same_bodies(
    bodies: list[bytes], first: dict[str, Any], second: dict[str, Any]
) -> None:
    run = run_of(bodies, raw_properties(first))
    rewritten = with_properties(run, raw_properties(second))
    assert contents(rewritten) == [(run.key, raw_properties(second), body) for body in bodies]
    (back,) = parse_row(rewritten.raw())
    assert contents(back) == contents(rewritten)
    assert contents(with_properties(rewritten, raw_properties(first))) == contents(run)


@given(bodies_of_a_run, st.text(max_size=30), st.text(max_size=30))
def test_a_run_with_another_address(bodies: list[bytes], exchange: str, routing_key: str) -> None:
    run = run_of(bodies, raw_properties({"priority": 1}))
    (back,) = parse_row(readdressed(run, exchange, routing_key, run.properties).raw())
    assert [back.body(i) for i in range(back.count)] == bodies
    _, channel, method = frame.unmarshal(back.raw())
    assert isinstance(method, commands.Basic.Publish)
    assert (channel, method.exchange, method.routing_key, method.mandatory) == (1, exchange, routing_key, False)


def test_names_that_no_short_string_can_hold_are_a_value_error() -> None:
    run = run_of([b"x"], b"\0\0")
    with pytest.raises(ValueError):
        readdressed(run, "e" * 256, "", b"\0\0")
    with pytest.raises(ValueError):
        readdressed(run, "", "é" * 128, b"\0\0")


def test_a_body_in_several_frames_stays_in_them() -> None:
    (run,) = parse_row(publish_bytes(bytes(300_000), headers={"a": 1}))
    rewritten = with_headers(run, {"b": 2}, without=["a"])
    assert rewritten.body_frames == run.body_frames > 1
    assert rewritten.body(0) == bytes(300_000)
    (back,) = parse_row(rewritten.raw())
    assert back.body(0) == bytes(300_000)
    assert PropertiesReader().read(back.properties).headers == {"b": 2}


def test_a_part_of_a_run_is_rewritten_alone() -> None:
    run = run_of([b"a", b"b", b"c"], b"\0\0")
    part = with_headers(run.part(1, 3), {"n": 1})
    assert [part.body(i) for i in range(part.count)] == [b"b", b"c"]
