"""What a transaction says of messages beside their bodies, and what it leaves out."""

from __future__ import annotations

import pytest

from amqpd.journal.buffer import JournalBuffer
from amqpd.queues.deadlines import Deadlines
from amqpd.queues.segment import Segment


class Written:
    """A run of one message, as far as a segment looks at it."""

    count = 1
    nbytes = 4
    stride = 4
    body_size = 3

    def raw(self) -> bytes:
        return b"data"


@pytest.fixture
def buffer() -> JournalBuffer:
    return JournalBuffer()


def filled(first: int, count: int) -> Segment:
    segment = Segment(first, True)
    for _ in range(count):
        segment.add(Written(), now_ms=34)  # type: ignore[arg-type]
    return segment


def test_a_row_says_size_age_and_deadlines_of_its_segment(buffer):
    segment = filled(5, 2)
    segment.deadlines = Deadlines()
    segment.deadlines.add(70, 5, 6)
    buffer.append(1, segment)
    segment.add(Written(), now_ms=99)
    (row,) = buffer.take().rows
    assert (row.first_seq, row.last_seq, row.data) == (5, 7, b"datadatadata")
    assert (row.body_bytes, row.published_ms, row.deadlines) == (9, 34, segment.deadlines.pack())


def test_counts_make_a_transaction_and_the_last_one_counts(buffer):
    assert not buffer.pending
    buffer.count(1, 3, 1)
    buffer.count(1, 3, 2)
    buffer.count(2, 3, 1)
    assert buffer.pending
    assert buffer.take().counts == [(1, 3, 2), (2, 3, 1)]
    assert not buffer.pending
    assert buffer.take().counts == []


def test_counts_of_a_deleted_queue_are_not_written(buffer):
    buffer.count(1, 3, 1)
    buffer.count(2, 4, 1)
    buffer.drop(1)
    assert buffer.take().counts == [(2, 4, 1)]


def test_counts_of_messages_that_are_never_written_are_not_written_either(buffer):
    gone, left = filled(0, 3), filled(3, 3)
    buffer.append(1, gone)
    buffer.append(1, left)
    buffer.count(1, 2, 1)
    buffer.count(1, 3, 1)
    gone.discard(0, 2)
    left.discard(5, 5)
    cut = buffer.take()
    assert [(row.first_seq, row.last_seq) for row in cut.rows] == [(3, 5)]
    assert cut.counts == [(1, 3, 1)]
