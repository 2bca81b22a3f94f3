"""The buffer of a spool file: blocks, names once in each file, rows counted."""

from __future__ import annotations

import json
from zlib import crc32

import pytest

from amqpd.audit.kinds import ACKED
from amqpd.audit.party import Party
from amqpd.audit.spool import BLOCK, BLOCK_MAGIC, HEAD, KEPT_BYTES_MAX, RECORD, SpoolBuffer


@pytest.fixture
def buffer() -> SpoolBuffer:
    return SpoolBuffer()


def test_a_block_has_its_lengths_its_rows_and_its_checksum_in_front(buffer: SpoolBuffer) -> None:
    buffer.put(ACKED, 0, 1, 5, 6, 7, queue=buffer.name({"queue": "q"}))
    buffer.take()
    buffer.put(ACKED, 8, 2, 5, 6, 7, 1, 2, 3, 4, 9, 10, 11)
    name = json.dumps([2, {"queue": "ü"}], separators=(",", ":")).encode()
    assert buffer.name({"queue": "ü"}) == 2
    buffer.act({"event": "bound"})
    block = buffer.take()
    magic, records, names, acts, before, checksum = BLOCK.unpack_from(block)
    assert (magic, records, names, before) == (BLOCK_MAGIC, RECORD.size, len(name), 1)
    assert BLOCK.size + records + names + acts == len(block)
    assert checksum == crc32(block[BLOCK.size :], crc32(block[: HEAD.size]))
    body = block[BLOCK.size :]
    assert RECORD.unpack_from(body) == (5, 6, 3, 4, 7, 9, 1, 2, 10, ACKED, 8, 11)
    assert body[records : records + names] == name
    assert json.loads(body[records + names :]) == {"event": "bound", "number": 4}


def test_what_was_taken_does_not_wait_any_more(buffer: SpoolBuffer) -> None:
    assert not buffer.pending
    buffer.act({"event": "bound"})
    assert buffer.pending
    buffer.take()
    assert not buffer.pending
    assert len(buffer.take()) == BLOCK.size


@pytest.mark.parametrize("count", [255, 256, 257, 10_000])
def test_it_grows_with_what_a_tick_has_and_gives_much_back(buffer: SpoolBuffer, count: int) -> None:
    for number in range(count):
        buffer.put(ACKED, 0, 1, 1, number, 1)
    block = buffer.take()
    firsts = [RECORD.unpack_from(block, BLOCK.size + at * RECORD.size)[1] for at in range(count)]
    assert firsts == list(range(count))
    assert len(buffer._records) <= KEPT_BYTES_MAX
    assert buffer.rows == count


def test_a_party_is_named_once_in_each_file(buffer: SpoolBuffer) -> None:
    party, other = Party({"user": "a"}), Party({"user": "b"})
    assert [party.name(buffer), other.name(buffer), party.name(buffer)] == [1, 2, 1]
    buffer.take()
    assert party.name(buffer) == 1, "a block is not a file"
    buffer.begin_file()
    assert [other.name(buffer), party.name(buffer)] == [1, 2]


def test_what_is_dropped_is_named_again_and_keeps_its_numbers(buffer: SpoolBuffer) -> None:
    party = Party({"user": "a"})
    party.name(buffer)
    buffer.put(ACKED, 8, 2, 1, 1, 1)
    buffer.act({"event": "bound"})
    buffer.drop()
    assert not buffer.pending
    buffer.begin_file()
    assert party.name(buffer) == 1
    buffer.act({"event": "gap"})
    block = buffer.take()
    _, _, names, acts, before, _ = BLOCK.unpack_from(block)
    assert names
    assert before == 3
    assert json.loads(block[-acts:])["number"] == 4


def test_a_file_begins_with_nothing_that_waits(buffer: SpoolBuffer) -> None:
    buffer.put(ACKED, 0, 1, 1, 1, 1)
    with pytest.raises(AssertionError):
        buffer.begin_file()
