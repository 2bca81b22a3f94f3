"""Publishes that differ, in one batch: what goes together, and that each of them stays what it was."""

from __future__ import annotations

import struct
from array import array
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands
from pamqp.exceptions import AMQPSyntaxError

from amqpd.kernel import mixed, pieces
from amqpd.kernel.rows import parse_row
from amqpd.kernel.screening import common_of
from amqpd.message.properties import PropertiesReader
from tests.harness.harness import publish_bytes
from tests.harness.kernels import each_kernel

WHOLE = 131_072


def messages(count: int, seed: int = 1, **common: Any) -> list[bytes]:
    """Of different sizes, ids, headers and keys, seven of which there are."""
    random = Random(seed)
    return [
        publish_bytes(
            random.randbytes(random.choice((0, 1, 40, 600))),
            f"orders.{i % 7}",
            "amq.topic",
            message_id=f"{seed}-{i}",
            timestamp=datetime.fromtimestamp(1_700_000_000 + i, UTC),
            headers={"tenant": f"t{i % 3}", "n": i, "nested": {"list": [1, "two", None]}},
            **common,
        )
        for i in range(count)
    ]


def one_by_one(kernel: Any, data: bytes) -> list[Any]:
    runs, pos = [], 0
    while pos < len(data):
        run = kernel.scan_publishes(data, pos, len(data), WHOLE)
        runs += [run.part(i, i + 1) for i in range(run.count)]
        pos += run.nbytes
    return runs


@each_kernel
def test_what_differs_goes_together_and_stays_what_it_was(kernel: Any) -> None:
    frames = messages(50, delivery_mode=2, priority=0)
    data = b"".join(frames)
    batch = kernel.scan_batch(data, 0, len(data), WHOLE)
    singles = one_by_one(kernel, data)
    assert isinstance(batch, kernel.Mixed)
    assert batch.mixed
    assert (batch.count, batch.nbytes, batch.raw()) == (50, len(data), data)
    assert batch.body_bytes == batch.bytes_in(0, 50) == sum(run.body_size for run in singles)
    assert batch.measures == (50, -1, batch.body_bytes, batch.memory_bytes)
    assert batch.body_size_max == max(run.body_size for run in singles)
    assert batch.bytes_in(3, 9) == sum(run.body_size for run in singles[3:9])
    for i, run in enumerate(singles):
        assert batch.names_of(i) == run.names == run.names_of(0)
        assert batch.body(i) == run.body(0)
        part = batch.part(i, i + 1)
        assert not part.mixed
        assert (part.raw(), part.key, part.properties) == (run.raw(), run.key, run.properties)
    assert batch.keys == tuple(run.key for run in singles[:7])
    assert batch.common == b"\x18\x00\x02\x00"
    assert [batch.part(low, low + 3).raw() for low in range(0, 48, 3)] == [
        b"".join(frames[low : low + 3]) for low in range(0, 48, 3)
    ]


@each_kernel
def test_what_a_run_says_of_all_its_messages_a_batch_cannot_say(kernel: Any) -> None:
    data = b"".join(messages(3))
    batch = kernel.scan_batch(data, 0, len(data), WHOLE)
    for name in ("start", "stride", "method_size", "header_size", "body_size", "body_frames"):
        with pytest.raises(AttributeError):
            getattr(batch, name)
    for name in ("key", "names", "properties"):
        with pytest.raises(AttributeError):
            getattr(batch, name)


def raw_header(payload: bytes) -> bytes:
    return b"\x02\x00\x01" + struct.pack(">I", len(payload) + 12) + b"\x00\x3c\x00\x00" + bytes(8) + payload + b"\xce"


_BY_ITSELF = {
    "a claimed user": publish_bytes(b"x", user_id="guest"),
    "direct replies": publish_bytes(b"x", reply_to="amq.rabbitmq.reply-to"),
    "CC": publish_bytes(b"x", headers={"CC": ["a"]}),
    "BCC": publish_bytes(b"x", headers={"BCC": ["a"]}),
    "a delay": publish_bytes(b"x", headers={"x-delay": 5}),
    "deaths": publish_bytes(b"x", headers={"x-death": []}),
    "another delivery mode": publish_bytes(b"x", delivery_mode=2),
    "a priority": publish_bytes(b"x", priority=1),
    "an expiration": publish_bytes(b"x", expiration="1000"),
    "a large body": publish_bytes(bytes(mixed.BODY_BYTES_MAX + 1)),
    "two body frames": publish_bytes(b"xy")[:-10] + b"\x03\0\x01\0\0\0\x01x\xce\x03\0\x01\0\0\0\x01y\xce",
    "a type that is none": publish_bytes(b"")[:-22] + raw_header(b"\x20\x00\x00\x00\x00\x03\x01a?"),
    "a table that ends early": publish_bytes(b"")[:-22] + raw_header(b"\x20\x00\x00\x00\x00\x09\x01at\x01"),
    "a list with more behind it": publish_bytes(b"")[:-22] + raw_header(b"\x10\x00\x01\x00"),
    "flags that go on": publish_bytes(b"")[:-22] + raw_header(b"\x00\x01\x00\x00"),
    "nested too deep": publish_bytes(b"x", headers={"a": {"b": {"c": {"d": {"e": {"f": 1}}}}}}),
}


@each_kernel
@pytest.mark.parametrize("why", _BY_ITSELF)
def test_what_must_be_looked_at_ends_a_batch_and_begins_none(kernel: Any, why: str) -> None:
    before, special = b"".join(messages(3)), _BY_ITSELF[why]
    data = before + special + b"".join(messages(2, 5))
    batch = kernel.scan_batch(data, 0, len(data), WHOLE)
    assert (batch.count, batch.nbytes) == (3, len(before))
    run = kernel.scan_batch(data, len(before), len(data), WHOLE)
    assert not run.mixed
    assert (run.count, run.nbytes) == (1, len(special))


@each_kernel
def test_messages_with_one_priority_and_expiration_go_together(kernel: Any) -> None:
    data = b"".join(messages(4, priority=3, expiration="5000")) + messages(1, priority=3, expiration="5001")[0]
    batch = kernel.scan_batch(data, 0, len(data), WHOLE)
    assert (batch.count, batch.common) == (4, b"\x09\x00\x03\x045000")


@each_kernel
def test_another_channel_another_method_and_what_is_not_whole_end_a_batch(kernel: Any) -> None:
    frames = b"".join(messages(3))
    ack = struct.pack(">BHIIQBB", 1, 1, 13, 0x003C0050, 1, 0, 0xCE)
    for behind in (publish_bytes(b"x", channel=2), ack + publish_bytes(b"x"), publish_bytes(b"xyz")[:-2], b""):
        data = frames + behind
        assert kernel.scan_batch(data, 0, len(data), WHOLE).count == 3
    assert kernel.scan_batch(frames, 0, len(frames) - 1, WHOLE).count == 2
    assert kernel.scan_batch(frames, 0, 30, WHOLE) is kernel.INCOMPLETE


@each_kernel
def test_many_that_are_alike_are_no_batch_and_few_may_be_part_of_one(kernel: Any) -> None:
    other = publish_bytes(b"other", "another")
    data = publish_bytes(b"same") * mixed.ALIKE_MIN + other
    run = kernel.scan_batch(data, 0, len(data), WHOLE)
    assert (run.mixed, run.count) == (False, mixed.ALIKE_MIN)
    data = publish_bytes(b"same") * (mixed.ALIKE_MIN - 1) + other
    run = kernel.scan_batch(data, 0, len(data), WHOLE)
    assert (run.mixed, run.count) == (True, mixed.ALIKE_MIN)


@each_kernel
def test_a_batch_has_a_largest_number_of_messages(kernel: Any) -> None:
    data = b"".join(publish_bytes(b"", f"k{i}") for i in range(mixed.MESSAGES_MAX + 10))
    batch = kernel.scan_batch(data, 0, len(data), WHOLE)
    assert batch.count == len(batch.keys) == mixed.MESSAGES_MAX
    assert kernel.scan_batch(data, batch.nbytes, len(data), WHOLE).count == 10


@each_kernel
@pytest.mark.parametrize("frame_max", [30, 100, 4096, WHOLE])
@pytest.mark.parametrize("channel", [1, 7])
def test_deliveries_of_a_batch_are_those_of_its_messages(kernel: Any, frame_max: int, channel: int) -> None:
    data = b"".join(messages(40))
    batch, singles = kernel.scan_batch(data, 0, len(data), WHOLE), one_by_one(kernel, data)
    for low, high in ((0, 40), (7, 21), (39, 40), (5, 5)):
        expected = b"".join(
            bytes(kernel.encode_deliveries(run, 0, 1, channel, b"\x02ct", 100 + i, True, frame_max))
            for i, run in enumerate(singles[low:high])
        )
        assert kernel.encode_deliveries(batch, low, high, channel, b"\x02ct", 100, True, frame_max) == expected
    for i in range(40):
        expected = kernel.encode_content(singles[i], 0, channel, frame_max)
        assert kernel.encode_content(batch, i, channel, frame_max) == expected


def led(*keys: tuple[int, ...]) -> tuple[bytes, bytes]:
    """Of each key, the parts it leads to, packed."""
    ends = [sum(map(len, keys[: number + 1])) for number in range(len(keys))]
    return array("I", ends).tobytes(), array("I", [part for parts in keys for part in parts]).tobytes()


@each_kernel
def test_a_batch_is_divided_by_keys_in_the_order_of_its_messages(kernel: Any) -> None:
    frames = messages(50)
    data = b"".join(frames)
    batch = kernel.scan_batch(data, 0, len(data), WHOLE)
    leads = ((0,), (1, 0), (), (2,), (1,), (0, 1, 3), (0,))
    parts = batch.divided(*led(*leads), 4)
    for number, part in enumerate(parts):
        expected = [each for i, each in enumerate(frames) if number in leads[i % 7]]
        assert (part.count, part.raw()) == (len(expected), b"".join(expected))
        assert [bytes(part.part(i, i + 1).raw()) for i in range(part.count)] == expected
        # A few messages that stay in a queue for long must not pin the keys of all.
        assert part.keys == ()
    few = kernel.scan_batch(data, 0, sum(map(len, frames[:3])), WHOLE)
    (alone,) = few.divided(*led((), (0,), ()), 1)
    assert (alone.mixed, alone.raw()) == (False, frames[1])
    batch.drop_keys()
    assert batch.keys == ()


@each_kernel
def test_parts_that_are_not_there_are_refused(kernel: Any) -> None:
    data = b"".join(messages(9))
    batch = kernel.scan_batch(data, 0, len(data), WHOLE)
    ends, parts = led(*[(0,)] * 7)
    wrong_ends = array("I", [1, 2, 3, 2, 5, 6, 7]).tobytes()
    for arguments in (
        (ends[:-4], parts, 1),
        (ends, parts[:-4], 1),
        (wrong_ends, parts, 1),
        (ends, parts, 0),
        (ends, parts, 2),
        (*led(*[()] * 7), 0),
        (*led(*[()] * 7), 1),
    ):
        with pytest.raises(ValueError):
            batch.divided(*arguments)


@each_kernel
def test_a_few_messages_do_not_pin_a_large_buffer(kernel: Any) -> None:
    data = b"".join(messages(6)) + bytes(100_000)
    batch = kernel.scan_batch(data, 0, len(data), WHOLE)
    assert len(batch.data) == batch.nbytes
    data = b"".join(messages(600))
    batch = kernel.scan_batch(data, 0, len(data), WHOLE)
    assert batch.data is data
    chosen, most = batch.divided(*led((0, 1), *[(1,)] * 5, ()), 2)
    assert len(chosen.data) == chosen.nbytes
    assert most.data is data


@each_kernel
def test_an_index_that_is_not_the_datas_is_refused(kernel: Any) -> None:
    data = b"".join(messages(3))
    batch = kernel.scan_batch(data, 0, len(data), WHOLE)
    places = list(struct.iter_unpack("=IHHII", batch.index))

    def packed(changed: list[tuple[Any, ...]]) -> bytes:
        return b"".join(struct.pack("=IHHII", *place) for place in changed)

    assert kernel.Mixed(data, packed(places), batch.keys, batch.common).raw() == data
    for wrong in (
        places[:1],
        [],
        places[::-1],
        [*places[:2], (places[2][0], *places[2][1:4], places[2][4] + 1)],
        [*places[:2], (len(data), *places[2][1:])],
        [*places[:2], (places[2][0], 16, *places[2][2:])],
        [*places[:2], (*places[2][:3], 21, places[2][4])],
        [*places[:2], (*places[2][:2], 3, *places[2][3:])],
        [(0, 17, 0, 22, mixed.BODY_BYTES_MAX + 1)] * 2,
        places * (mixed.MESSAGES_MAX // 3 + 1),
    ):
        with pytest.raises(ValueError):
            kernel.Mixed(data, packed(wrong), batch.keys, batch.common)


def test_rows_come_back_as_batches_where_that_is_asked_for() -> None:
    frames = [
        *messages(5, delivery_mode=2),
        publish_bytes(b"x", delivery_mode=2, headers={"CC": ["a"]}),
        *messages(3),
    ]
    data = b"".join(frames)
    assert [run.count for run in parse_row(data)] == [1] * 9
    assert [run.count for run in parse_row(data, batches=True)] == [5, 1, 3]
    assert b"".join(run.raw() for run in parse_row(data, batches=True)) == data
    with pytest.raises(ValueError):
        parse_row(data[:-1], batches=True)


# What the broker must know of a message is found without reading its properties


_TEXT = st.text(max_size=12)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | _TEXT | st.binary(max_size=9).map(bytearray),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=8,
)
_NAMES = st.sampled_from(["CC", "BCC", "x-delay", "x-death"]) | _TEXT
_PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        "content_type": _TEXT,
        "content_encoding": _TEXT,
        "headers": st.dictionaries(_NAMES, _VALUES, max_size=4),
        "delivery_mode": st.sampled_from([1, 2]),
        "priority": st.integers(0, 255),
        "correlation_id": _TEXT,
        "reply_to": _TEXT | st.just("amq.rabbitmq.reply-to"),
        "expiration": _TEXT | st.sampled_from(["0", "1000", "-1"]),
        "message_id": _TEXT,
        "timestamp": st.just(datetime.fromtimestamp(1_700_000_000, UTC)),
        "message_type": _TEXT,
        "user_id": _TEXT,
        "app_id": _TEXT,
    },
)


def raw_of(properties: dict[str, Any]) -> bytes:
    return bytes(commands.Basic.Properties(**properties).marshal())


def assert_known(raw: bytes) -> bool:
    """Whether the message may be in a batch; then it is what its batch says."""
    common = common_of(raw)
    if common is None:
        return False
    known, read = PropertiesReader().read(common), PropertiesReader().read(raw)
    for name in ("persistent", "priority", "expiration", "problem", "plain", "delay_ms", "routing_keys", "has_bcc"):
        assert getattr(known, name) == getattr(read, name), name
    return True


@given(_PROPERTIES)
def test_what_is_found_is_what_reading_finds(properties: dict[str, Any]) -> None:
    raw = raw_of(properties)
    if not assert_known(raw):
        read = PropertiesReader().read(raw)
        assert not read.plain or read.user_id is not None or read.headers is not None


@given(_PROPERTIES, st.integers(0, 200), st.binary(max_size=6))
def test_whatever_is_not_read_is_not_in_a_batch(properties: dict[str, Any], at: int, octets: bytes) -> None:
    raw = bytearray(raw_of(properties))
    raw[min(at, len(raw)) : at + len(octets)] = octets
    if len(raw) >= 2:
        assert_known(bytes(raw))


@given(st.binary(min_size=2, max_size=60))
def test_any_octets_are_either_read_or_not_in_a_batch(raw: bytes) -> None:
    assert_known(raw)


def test_reading_refuses_what_a_batch_does_not_take() -> None:
    """The table above has lists that are malformed; the ordinary way gives the verdict."""
    for why in ("a type that is none", "a table that ends early", "a list with more behind it", "flags that go on"):
        (run,) = parse_row(_BY_ITSELF[why])
        with pytest.raises(AMQPSyntaxError):
            PropertiesReader().read(run.properties)


def test_what_is_large_is_large_everywhere() -> None:
    """A body that the kernel takes in pieces knows nothing of batches."""
    assert mixed.BODY_BYTES_MAX == pieces.LARGE_BYTES_MIN - 1
