"""What a transaction says of messages beside their bodies, and what it leaves out."""

from __future__ import annotations

import pytest

from amqpd.journal import buffer as buffer_module
from amqpd.journal.buffer import JournalBuffer
from amqpd.queues.deadlines import Deadlines
from amqpd.queues.segment import Segment


class Written:
    """A run of one message, as far as a segment looks at it."""

    count = 1
    mixed = False
    nbytes = memory_bytes = 4
    body_size = body_bytes = 3
    measures = count, body_size, body_bytes, memory_bytes

    def raw(self) -> bytes:
        return b"data"


@pytest.fixture
def buffer() -> JournalBuffer:
    return JournalBuffer()


def filled(first: int, count: int, persistent: bool = True) -> Segment:
    segment = Segment(first, persistent)
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
    row.join()
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
    gone.mark_settled(0, 2)
    left.mark_settled(5, 5)
    cut = buffer.take()
    assert [(row.first_seq, row.last_seq) for row in cut.rows] == [(3, 5)]
    assert cut.counts == [(1, 3, 1)]


def paged(buffer: JournalBuffer, count: int) -> list[Segment]:
    """This many transient segments of 12 bytes, handed in."""
    segments = [filled(3 * n, 3, persistent=False) for n in range(count)]
    for segment in segments:
        buffer.append(1, segment)
    return segments


def bodies_alone(monkeypatch: pytest.MonkeyPatch, paged_bytes_max: int) -> None:
    """Bound what goes with one transaction by the bytes of bodies, which here are few."""
    monkeypatch.setattr(buffer_module, "PAGED_BYTES_MAX", paged_bytes_max)
    for name in ("ROW_BYTES", "RANGE_BYTES"):
        monkeypatch.setattr(buffer_module, name, 0)


def rows_of(buffer: JournalBuffer) -> list[tuple[int, int, bool]]:
    return [(row.queue_id, row.first_seq, row.persistent) for row in buffer.take().rows]


def test_what_only_leaves_memory_goes_a_part_at_a_time_and_what_is_waited_for_at_once(buffer, monkeypatch):
    bodies_alone(monkeypatch, 20)
    segments = paged(buffer, 5)
    waited_for = filled(0, 3)
    buffer.append(2, waited_for)
    assert buffer.gathered_bytes == 72
    assert rows_of(buffer) == [(1, 0, False), (1, 3, False), (2, 0, True)]
    assert (buffer.pending, buffer.gathered_bytes) == (True, 36)
    assert [segment.stored for segment in segments] == [True, True, False, False, False]
    assert [segment.index for segment in segments[:2]] == [1, 1]
    buffer.append(1, filled(15, 3, persistent=False))
    assert rows_of(buffer) == [(1, 6, False), (1, 9, False)]
    assert rows_of(buffer) == [(1, 12, False), (1, 15, False)]
    assert [segment.index for segment in segments] == [1, 1, 2, 2, 3]
    assert (buffer.pending, buffer.gathered_bytes) == (False, 0)


def test_very_many_small_rows_go_with_several_transactions(buffer):
    """Of messages that stand alone, transient and persistent in turn, the bytes are few and the rows are many."""
    many = 3 * buffer_module.PAGED_BYTES_MAX // buffer_module.ROW_BYTES
    paged(buffer, many)
    for number in range(many):
        buffer.append(2, filled(3 * number, 3))
    assert buffer.gathered_bytes > many * buffer_module.ROW_BYTES
    rows = rows_of(buffer)
    assert sum(queue_id == 2 for queue_id, _, _ in rows) == many
    assert sum(queue_id == 1 for queue_id, _, _ in rows) <= many // 3
    taken = [len(rows_of(buffer)) for _ in range(3)]
    assert max(taken) <= many // 3
    assert not buffer.pending


def test_what_is_settled_or_dropped_while_it_waits_for_its_transaction_is_never_written(buffer, monkeypatch):
    bodies_alone(monkeypatch, 10)
    segments = paged(buffer, 4)
    assert rows_of(buffer) == [(1, 0, False)]
    segments[1].mark_settled(3, 5)
    segments[2].mark_settled(6, 7)
    cut = buffer.take()
    assert [(row.first_seq, row.last_seq) for row in cut.rows] == [(6, 8)]
    assert [(part.first_seq, part.last_seq) for part in cut.settled] == [(6, 7)]
    buffer.drop(1)
    assert rows_of(buffer) == []
    assert not buffer.pending


def test_what_waits_of_a_dropped_queue_is_never_written_later(buffer, monkeypatch):
    bodies_alone(monkeypatch, 10)
    paged(buffer, 3)
    buffer.append(2, filled(0, 3, persistent=False))
    assert rows_of(buffer) == [(1, 0, False)]
    buffer.drop(1)
    assert rows_of(buffer) == [(2, 0, False)]
    assert (buffer.pending, buffer.gathered_bytes) == (False, 0)
