"""Records to keys and values and back, for any names and any field table."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp.exceptions import AMQPPreconditionFailed

from amqpd.topology.metadata.codec import (
    TABLE_DEPTH_MAX,
    decode_key,
    decode_record,
    encode_key,
    encode_record,
)
from amqpd.topology.metadata.store import StoreDamaged
from amqpd.vocabulary.records import (
    BindingRecord,
    ExchangeRecord,
    ParameterRecord,
    PermissionRecord,
    PolicyRecord,
    QueueRecord,
    Record,
    TopicPermissionRecord,
    UserRecord,
    VhostRecord,
)
from amqpd.wire.fieldtypes import NUMBERS, NumberType, number_type

# Surrogates too: names that were decoded with "surrogateescape".
NAMES = st.text(st.characters(), max_size=12) | st.sampled_from(["", "/", "%", "%2F", "a/b", "$table", "é", "😀"])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64)
    | st.floats(allow_nan=False)
    | NAMES
    | st.binary(max_size=9)
    | st.binary(max_size=9).map(bytearray)
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.datetimes().map(lambda moment: moment.replace(fold=0))
    | st.datetimes(timezones=st.just(UTC)).map(lambda moment: moment.replace(fold=0))
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
TABLES = st.dictionaries(NAMES, VALUES, max_size=4)
RECORDS: st.SearchStrategy[Record] = st.one_of(
    st.builds(VhostRecord, NAMES, NAMES, st.booleans()),
    st.builds(UserRecord, NAMES, NAMES, st.lists(NAMES, max_size=3).map(tuple), st.booleans(), TABLES),
    st.builds(PolicyRecord, NAMES, NAMES, NAMES, NAMES, TABLES, st.integers(-(2**31), 2**31), st.booleans()),
    st.builds(ParameterRecord, NAMES, NAMES, NAMES, VALUES),
    st.builds(PermissionRecord, NAMES, NAMES, NAMES, NAMES, NAMES),
    st.builds(TopicPermissionRecord, NAMES, NAMES, NAMES, NAMES, NAMES),
    st.builds(ExchangeRecord, NAMES, NAMES, NAMES, st.booleans(), st.booleans(), st.booleans(), TABLES),
    st.builds(
        QueueRecord,
        NAMES,
        NAMES,
        st.integers(0, 2**63 - 1),
        st.booleans(),
        st.booleans(),
        st.booleans(),
        st.none() | NAMES,
        TABLES,
    ),
    st.builds(
        BindingRecord,
        NAMES,
        NAMES,
        NAMES,
        st.sampled_from(["queue", "exchange"]),
        NAMES,
        st.booleans(),
        TABLES,
        NAMES,
    ),
)


def typed(value: Any) -> Any:
    """Equality that tells 1 from True and 1.0, bytes from bytearray, Decimal("1.0") from Decimal("1.00")."""
    if isinstance(value, dict):
        return {name: typed(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [typed(inner) for inner in value]
    return (type(value), repr(value))


@given(RECORDS)
def test_a_record_comes_back_as_it_was(record: Record) -> None:
    key, text = encode_key(record.key), encode_record(record)
    back = decode_record(key, text)
    assert back == record
    for field in ("arguments", "limits", "definition", "value"):
        assert typed(getattr(back, field, {})) == typed(getattr(record, field, {}))
    assert decode_key(key) == record.key
    assert key.isascii()
    assert text.isascii()


@given(RECORDS, RECORDS)
def test_keys_of_different_records_differ(one: Record, other: Record) -> None:
    assert (encode_key(one.key) == encode_key(other.key)) == (one.key == other.key)


def test_not_a_number_is_kept() -> None:
    record = ExchangeRecord("/", "x", "direct", arguments={"nan": math.nan, "inf": -math.inf})
    back = decode_record(encode_key(record.key), encode_record(record))
    assert isinstance(back, ExchangeRecord)
    assert math.isnan(back.arguments["nan"])
    assert back.arguments["inf"] == -math.inf


@given(st.sampled_from(NUMBERS), st.integers(0, 127))
def test_a_number_keeps_the_type_that_a_client_sent(kind: NumberType, value: int) -> None:
    record = QueueRecord(
        "/", "q", 1, arguments={"x-message-ttl": kind(value), "in": [{"a": kind(value)}], "l": 2**40}
    )
    back = decode_record(encode_key(record.key), encode_record(record))
    assert back == record
    assert isinstance(back, QueueRecord)
    assert number_type(back.arguments["x-message-ttl"]) == kind.type_name
    assert number_type(back.arguments["in"][0]["a"]) == kind.type_name
    assert number_type(back.arguments["l"]) == "long"


def test_values_are_readable_json() -> None:
    arguments = {
        "x-max-length": 10,
        "at": datetime(2026, 1, 2, tzinfo=UTC),
        "n": Decimal("1.50"),
        "b": b"\xff",
    }
    assert json.loads(encode_record(QueueRecord("/", "q", 7, arguments=arguments)))["arguments"] == {
        "x-max-length": 10,
        "at": {"$datetime": "2026-01-02T00:00:00+00:00"},
        "n": {"$decimal": "1.50"},
        "b": {"$bytes": "/w=="},
    }


def test_nesting_is_bounded() -> None:
    table: dict[str, Any] = {}
    for _ in range(TABLE_DEPTH_MAX - 1):
        table = {"$": table}
    record = ExchangeRecord("/", "x", "direct", arguments=table)
    assert decode_record(encode_key(record.key), encode_record(record)) == record
    array: list[Any] = []
    for _ in range(100_000):
        array = [array]
    for deeper in ({"a": table}, {"a": array}):
        with pytest.raises(AMQPPreconditionFailed, match="nested deeper"):
            encode_record(ExchangeRecord("/", "x", "direct", arguments=deeper))
    with pytest.raises(TypeError, match="object"):
        encode_record(ExchangeRecord("/", "x", "direct", arguments={"a": object()}))


def test_a_user_from_before_there_were_limits_has_none() -> None:
    text = '{"name":"u","password_hash":"h","tags":["t"],"durable":true}'
    assert decode_record("topology/user/u/", text) == UserRecord("u", "h", ("t",), limits={})


def test_a_policy_and_an_operator_policy_of_one_name_are_two() -> None:
    policy, operator = (PolicyRecord("/", "p", ".*", "all", {"expires": 1}, operator=each) for each in (False, True))
    assert encode_key(policy.key) == "topology/policy/%2F/p/"
    assert encode_key(operator.key) == "topology/operator-policy/%2F/p/"
    with pytest.raises(StoreDamaged, match="belongs to another key"):
        decode_record(encode_key(policy.key), encode_record(operator))


def queue_with(**arguments: Any) -> QueueRecord:
    record = QueueRecord("orders", "q", 1, arguments=arguments)
    read = decode_record(encode_key(record.key), encode_record(record))
    assert read == record
    assert isinstance(read, QueueRecord)
    return read


def test_what_could_not_be_read_again_is_not_written() -> None:
    with pytest.raises(AMQPPreconditionFailed, match="could not be read again"):
        encode_record(VhostRecord("/", None))  # type: ignore[arg-type]


@pytest.mark.parametrize("priority", [1 << 63, -(1 << 200)])
def test_a_priority_from_before_there_was_a_bound_is_the_bound(priority: int) -> None:
    record = PolicyRecord("/", "p", ".*", "all", {"max-length": 1})
    text = encode_record(record).replace('"priority":0', f'"priority":{priority}')
    read = decode_record(encode_key(record.key), text)
    assert isinstance(read, PolicyRecord)
    assert abs(read.priority) == (1 << 63) - 1
    assert (read.priority > 0) == (priority > 0)


def test_records_with_equal_arguments_share_them() -> None:
    """A hundred thousand queues may have the same ones."""
    one, other = queue_with(**{"x-queue-type": "quorum"}), queue_with(**{"x-queue-type": "quorum"})
    assert one.arguments is other.arguments
    assert one.vhost is other.vhost


def test_arguments_that_only_compare_as_equal_are_not_shared() -> None:
    assert type(queue_with(a=1).arguments["a"]) is int
    assert type(queue_with(a=True).arguments["a"]) is bool
    assert type(queue_with(a=1.0).arguments["a"]) is float


def test_tables_in_arguments_are_each_records_own() -> None:
    assert queue_with(a={"b": 1}).arguments["a"] is not queue_with(a={"b": 1}).arguments["a"]


def test_a_field_of_another_type_is_damage_also_behind_sound_records() -> None:
    """What was seen of the fields' types is remembered."""
    record = QueueRecord("/", "q", 1)
    key, text = encode_key(record.key), encode_record(record)
    assert decode_record(key, text) == record
    with pytest.raises(StoreDamaged, match="durable is 1"):
        decode_record(key, text.replace('"durable":true', '"durable":1'))
    with pytest.raises(StoreDamaged, match="durable is 1"):
        decode_record(key, text.replace('"durable":true', '"durable":1'))
    assert decode_record(key, text) == record


@pytest.mark.parametrize("key", ["", "queue/a/b/", "topology/", "topology/queue/a/b", "topology/no/a/"])
def test_a_foreign_key_is_damage(key: str) -> None:
    with pytest.raises(StoreDamaged, match="key that is not a record's"):
        decode_key(key)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"name":"b"}',
        '{"name":"a","colour":"red"}',
        '{"name":1}',
        '{"name":"a","durable":1}',
        '{"name":"a","durable":null}',
    ],
)
def test_a_damaged_vhost_is_damage(text: str) -> None:
    with pytest.raises(StoreDamaged, match="topology/vhost/a/ cannot be read"):
        decode_record("topology/vhost/a/", text)


def test_a_record_that_is_no_json_is_said_to_be_that() -> None:
    with pytest.raises(StoreDamaged, match=r"cannot be read \(it is no JSON\)"):
        decode_record("topology/vhost/a/", "etcdctl put")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "it has no 'name', 'type', 'vhost'"),
        ('{"vhost":"/","name":"x"}', "it has no 'type'"),
        ("[]", "it is no JSON object"),
    ],
)
def test_what_a_record_lacks_is_said_in_words(text: str, said: str) -> None:
    with pytest.raises(StoreDamaged) as raised:
        decode_record("topology/exchange/%2F/x/", text)
    assert str(raised.value) == f"the metadata's record topology/exchange/%2F/x/ cannot be read ({said})"


@pytest.mark.parametrize(
    "value",
    [
        '{"$bytes":"!"}',
        '{"$bytes":1}',
        '{"$decimal":"x"}',
        '{"$no":1}',
        '{"$datetime":"x"}',
        '{"$float":"","b":1}',
    ],
)
def test_a_damaged_argument_is_damage(value: str) -> None:
    text = '{"vhost":"/","name":"x","type":"direct","arguments":{"a":%s}}' % value  # noqa: UP031
    with pytest.raises(StoreDamaged, match="cannot be read"):
        decode_record("topology/exchange/%2F/x/", text)
