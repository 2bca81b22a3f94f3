"""Spool files become Parquet files: each event and column, numbers, what is cut off, what is not UTF-8."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from zlib import crc32

import pyarrow.parquet as pq
import pytest

from amqpd.audit import kinds
from amqpd.audit.files import parquet
from amqpd.audit.files.columns import SCHEMA
from amqpd.audit.files.damage import Reached, SpoolDamaged
from amqpd.audit.files.parquet import convert
from amqpd.audit.spool import BLOCK, BLOCK_MAGIC_1, RECORD, SpoolBuffer
from tests.audit.reading import Row, only, rows_at, rows_in, told

NOON_US = 1_795_348_800_000_000
QUEUE = {"vhost": "/", "queue": "q", "queue_id": 256, "epoch": 1}
WHO = {"vhost": "/", "exchange": "x", "routing_key": "k", "user": "alice", "connection": "[::1]:5"}


@pytest.fixture
def buffer() -> SpoolBuffer:
    return SpoolBuffer()


def put(buffer: SpoolBuffer, kind: int, flags: int = 0, rows: int = 1, **columns: int) -> None:
    named = {"first": 10, "count": 3, **columns}
    buffer.put(kind, flags, rows, NOON_US, **named)


def one(buffer: SpoolBuffer) -> Row:
    (row,) = rows_in([buffer.take()])
    return row


@pytest.mark.parametrize("kind", sorted(kinds.NAMES))
def test_each_kind_has_its_event_and_reason(buffer: SpoolBuffer, kind: int) -> None:
    put(buffer, kind, queue=buffer.name(QUEUE))
    row = one(buffer)
    assert (row["event"], row["reason"]) == kinds.NAMES[kind]
    assert (row["time"], row["number"], row["incarnation"], row["node"]) == (
        datetime(2026, 11, 22, 12, tzinfo=UTC),
        1,
        1,
        "node",
    )
    assert (row["vhost"], row["queue"], row["queue_id"], row["epoch"]) == ("/", "q", 256, 1)
    assert (row["first"], row["count"]) == (10, 3)
    assert set(row) == set(SCHEMA.names)


def test_what_does_not_apply_is_null_or_nothing(buffer: SpoolBuffer) -> None:
    put(buffer, kinds.ACKED, queue=buffer.name(QUEUE))
    row = one(buffer)
    texts = ("exchange", "routing_key", "user", "connection", "consumer", "reason", "message_id", "correlation_id")
    assert {row[name] for name in (*texts, "address", "object", "detail")} == {None}
    assert {row[name] for name in ("publication", "confirm_tag", "channel", "body_bytes")} == {0}
    assert {row[name] for name in ("persistent", "redelivered", "auto")} == {False}


def test_routed_and_published_are_two_rows_of_one_record(buffer: SpoolBuffer) -> None:
    text = buffer.name({"message_id": "m", "correlation_id": None})
    columns = {"publication": 7, "tag": 2, "body_bytes": 100, "text": text, "channel": 5}
    flags = kinds.WITH_PUBLISHED | kinds.PERSISTENT
    put(buffer, kinds.ROUTED, flags, 2, name=buffer.name(WHO), queue=buffer.name(QUEUE), **columns)
    published, routed = rows_in([buffer.take()])
    assert told([published, routed], "event", "number") == [("published", 1), ("routed", 2)]
    for row in (published, routed):
        assert {name: row[name] for name in WHO} == WHO
        assert (row["publication"], row["confirm_tag"], row["body_bytes"], row["channel"]) == (7, 2, 100, 5)
        assert (row["message_id"], row["correlation_id"], row["count"]) == ("m", None, 3)
    of_queue = ("queue", "queue_id", "epoch", "first", "persistent")
    assert told([published, routed], *of_queue) == [(None, 0, 0, 0, False), ("q", 256, 1, 10, True)]


def test_delivered_and_acked_by_nobody_are_two_rows_of_one_record(buffer: SpoolBuffer) -> None:
    consumer = buffer.name({"connection": "c", "user": "bob", "consumer": "t"})
    flags = kinds.WITH_ACKED | kinds.REDELIVERED
    put(buffer, kinds.DELIVERED, flags, 2, name=consumer, queue=buffer.name(QUEUE), channel=4)
    put(buffer, kinds.ACKED, queue=1 + consumer)
    delivered, auto, acked = rows_in([buffer.take()])
    columns = ("event", "number", "consumer", "user", "channel", "redelivered", "auto")
    assert told([delivered, auto, acked], *columns) == [
        ("delivered", 1, "t", "bob", 4, True, False),
        ("acked", 2, None, None, 0, False, True),
        ("acked", 3, None, None, 0, False, False),
    ]
    assert {(row["queue"], row["first"], row["count"]) for row in (delivered, auto, acked)} == {("q", 10, 3)}


def test_anchors_say_how_many_stretches_follow(buffer: SpoolBuffer) -> None:
    queue = buffer.name(QUEUE)
    for stretches in (0, 12, 0):
        put(buffer, kinds.ANCHOR_STOPPED, count=0, queue=queue, text=stretches)
    put(buffer, kinds.STANDING, queue=queue)
    found = told(rows_in([buffer.take()]), "reason", "count", "detail", "message_id")
    assert found == [
        ("stopped", 0, "0", None),
        ("stopped", 0, "12", None),
        ("stopped", 0, "0", None),
        (None, 3, None, None),
    ]


def test_acts_stand_between_records_by_their_numbers(buffer: SpoolBuffer) -> None:
    blocks = []
    for _ in range(2):
        buffer.act({"event": "login_failed", "time": NOON_US, "user": "eve", "address": "::1"})
        put(buffer, kinds.ROUTED, kinds.WITH_PUBLISHED, 2, name=buffer.name(WHO), queue=buffer.name(QUEUE))
        buffer.act({"event": "bound", "time": NOON_US, "detail": json.dumps({"a": "ü"})})
        put(buffer, kinds.ACKED, queue=2)
        blocks.append(buffer.take())
        buffer._named = 0
        buffer.begin_file()
    rows = [row for block in blocks for row in rows_in([block])]
    assert [row["number"] for row in rows] == list(range(1, 11))
    events = ["login_failed", "published", "routed", "bound", "acked"]
    assert [row["event"] for row in rows] == events * 2
    assert (rows[0]["count"], rows[0]["user"], rows[0]["address"], rows[3]["detail"]) == (
        1,
        "eve",
        "::1",
        '{"a": "\\u00fc"}',
    )


def test_a_file_of_acts_alone_is_one_too(buffer: SpoolBuffer) -> None:
    buffer.act({"event": "counted", "time": NOON_US, "count": 17, "queue": "q", "queue_id": 256, "detail": "acked"})
    row = one(buffer)
    assert (row["event"], row["count"], row["queue"], row["detail"]) == ("counted", 17, "q", "acked")


def blocks_of(buffer: SpoolBuffer, count: int) -> list[bytes]:
    blocks = []
    for number in range(count):
        put(buffer, kinds.ACKED, first=number, queue=buffer.name(QUEUE) if not number else 1)
        blocks.append(buffer.take())
    return blocks


@pytest.mark.parametrize("lost", [1, RECORD.size, RECORD.size + 1, RECORD.size + BLOCK.size - 1])
def test_a_block_that_was_cut_off_is_left_out(buffer: SpoolBuffer, lost: int) -> None:
    data = b"".join(blocks_of(buffer, 3))
    assert [row["first"] for row in rows_in([data[:-lost]])] == [0, 1]


def test_nothing_behind_a_damaged_block_is_believed(buffer: SpoolBuffer, tmp_path: Path) -> None:
    first, second, third = blocks_of(buffer, 3)
    damaged = second[:-1] + bytes((second[-1] ^ 1,))
    spool = tmp_path / "n-1-1.spool"
    spool.write_bytes(first + damaged + third)
    with pytest.raises(SpoolDamaged, match=f"from byte {len(first)} of") as caught:
        convert(spool, tmp_path)
    assert [row["first"] for row in rows_at(caught.value.written)] == [0]
    assert spool.exists(), "for the caller to set aside"


def test_each_flipped_byte_is_noticed(buffer: SpoolBuffer, tmp_path: Path) -> None:
    """But in the length of the last block: it looks as if it had been cut off."""
    blocks = blocks_of(buffer, 2)
    data = b"".join(blocks)
    spool = tmp_path / "n-1-1.spool"
    for at in range(len(data)):
        spool.write_bytes(data[:at] + bytes((data[at] ^ 128,)) + data[at + 1 :])
        ends, noticed = [], False
        try:
            ends += [part.end for part in parquet._parts(spool, [{}])]
        except SpoolDamaged:
            noticed = True
        assert noticed != (at - len(blocks[0]) in range(4, 16)), at


@pytest.mark.parametrize("cut", [0, 1, 50])
def test_a_block_that_is_missing_in_the_middle_is_noticed(buffer: SpoolBuffer, tmp_path: Path, cut: int) -> None:
    first, second, third = blocks_of(buffer, 3)
    spool = tmp_path / "n-1-1.spool"
    spool.write_bytes(first + second[:cut] + third)
    with pytest.raises(SpoolDamaged) as caught:
        convert(spool, tmp_path)
    assert [row["first"] for row in rows_at(caught.value.written)] == [0]


def test_a_file_whose_end_is_missing_shows_in_the_next_one(buffer: SpoolBuffer, tmp_path: Path) -> None:
    reached = Reached()
    blocks = blocks_of(buffer, 3)
    buffer.begin_file()
    later = blocks_of(buffer, 1)
    for number, data in enumerate((blocks[:2], later)):
        spool = tmp_path / f"n-1-{number}.spool"
        spool.write_bytes(b"".join(data))
        assert convert(spool, tmp_path, reached)
        assert reached.missing == ((3, 3) if number else None)


def test_what_is_missing_because_the_disk_was_full_is_no_damage(buffer: SpoolBuffer, tmp_path: Path) -> None:
    reached = Reached()
    first = blocks_of(buffer, 1)
    blocks_of(buffer, 1)
    buffer.drop()
    buffer.begin_file()
    buffer.act({"event": "gap", "time": NOON_US, "reason": "disk_full"})
    for number, data in enumerate((first, [buffer.take()])):
        spool = tmp_path / f"n-1-{number}.spool"
        spool.write_bytes(b"".join(data))
        assert convert(spool, tmp_path, reached)
    assert reached.missing is None


def test_rows_that_are_there_already_are_damage(buffer: SpoolBuffer, tmp_path: Path) -> None:
    reached = Reached({("n", 1): 5})
    spool = tmp_path / "n-1-2.spool"
    spool.write_bytes(b"".join(blocks_of(buffer, 1)))
    with pytest.raises(SpoolDamaged, match="row 1 follows row 5"):
        convert(spool, tmp_path, reached)


def test_a_spool_file_of_an_earlier_version_is_read(buffer: SpoolBuffer, tmp_path: Path) -> None:
    (block,) = blocks_of(buffer, 1)
    fields = list(BLOCK.unpack_from(block))
    body = block[BLOCK.size :]
    fields[0], fields[-1] = BLOCK_MAGIC_1, crc32(body)
    assert [row["first"] for row in rows_in([BLOCK.pack(*fields) + body])] == [0]


def test_a_spool_file_that_cannot_be_read_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "n-1-1.spool").mkdir()
    with pytest.raises(SpoolDamaged, match="it cannot be read: Is a directory"):
        convert(tmp_path / "n-1-1.spool", tmp_path)


def test_a_spool_without_rows_makes_no_file(buffer: SpoolBuffer, tmp_path: Path) -> None:
    for number, data in enumerate((b"", b"\0" * 5, buffer.take())):
        spool = tmp_path / f"n-1-{number}.spool"
        spool.write_bytes(data)
        assert convert(spool, tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_named_after_node_and_incarnation_in_the_hour_of_its_first_event(
    buffer: SpoolBuffer, tmp_path: Path
) -> None:
    spool = tmp_path / "a-node.example-12-3.spool"
    spool.write_bytes(b"".join(blocks_of(buffer, 2)))
    path = convert(spool, tmp_path)
    assert path == tmp_path / "date=2026-11-22/hour=12/a-node.example-12-3.parquet"
    assert told(rows_at(path), "node", "incarnation") == [("a-node.example", 12)] * 2
    assert pq.read_schema(path).metadata[b"amqpd.audit.format"] == b"1"
    assert pq.read_schema(path).names == SCHEMA.names
    assert sorted(each.name for each in tmp_path.iterdir()) == ["date=2026-11-22"]


def test_a_file_appears_whole_or_not_at_all(
    buffer: SpoolBuffer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(temporary: Path, written: Path) -> None:
        assert pq.read_metadata(temporary).num_rows == 1, "it was closed"
        assert not list(tmp_path.rglob("*.parquet"))
        raise OSError("no space")

    spool = tmp_path / "n-1-1.spool"
    spool.write_bytes(b"".join(blocks_of(buffer, 1)))
    with monkeypatch.context() as patch:
        patch.setattr(parquet, "_rename_durably", fails)
        with pytest.raises(OSError, match="no space"):
            convert(spool, tmp_path)
    assert spool.exists()
    assert not list(tmp_path.rglob("*.parquet"))
    assert len(rows_at(convert(spool, tmp_path))) == 1
    assert not spool.exists()


def test_ids_of_messages_are_forgotten_with_their_part(
    buffer: SpoolBuffer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be one for each message, so a file's would not fit into memory."""
    monkeypatch.setattr(parquet, "PART_RECORDS_MAX", 4)
    queue, who, blocks = buffer.name(QUEUE), buffer.name(WHO), []
    for number in range(20):
        text = buffer.name({"message_id": f"m{number}", "correlation_id": None})
        put(buffer, kinds.ROUTED, first=number, name=who, queue=queue, text=text)
        blocks.append(buffer.take())
    spool = tmp_path / "n-1-1.spool"
    spool.write_bytes(b"".join(blocks))
    names: list[dict[str, object]] = [{}]
    for part in parquet._parts(spool, names):
        assert part.size == 4
        assert sum("message_id" in columns for columns in names) == 4
    assert told(only(rows_at(convert(spool, tmp_path)), "routed"), "message_id", "queue", "user") == [
        (f"m{number}", "q", "alice") for number in range(20)
    ]


def test_names_that_are_not_utf_8_do_not_stop_the_log(buffer: SpoolBuffer) -> None:
    """A routing key is octets; what is no text is written with backslashes."""
    key = b"k\xff\xf0\x9f\x90\x87".decode("utf-8", "surrogateescape")
    put(buffer, kinds.PUBLISHED, name=buffer.name({**WHO, "routing_key": key}))
    buffer.act({"event": "bound", "time": NOON_US, "object": key})
    published, bound = rows_in([buffer.take()])
    assert published["routing_key"] == bound["object"] == "k\\udcff\N{RABBIT}"
