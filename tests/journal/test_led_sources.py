"""What a node has as the leader of a source, from its queues to its disk and a replica's: buffer, writer, `cut`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from amqpd.audit.kinds import DEAD_REJECTED
from amqpd.journal import writer as writer_module
from amqpd.journal.buffer import JournalBuffer
from amqpd.journal.lane import JournalLane
from amqpd.journal.numbers import NUMBERS_STEP, Numbers
from amqpd.journal.operation_marks import MarkChange, Marked, Outcome, OutcomeRange, Refused
from amqpd.journal.records import SeqRange, SourceEntry
from amqpd.journal.sqlite.disk import SqliteDisk
from amqpd.journal.writer import JournalWriter
from amqpd.peers.entry import START, LogEntry, Position, Vote, new_entry
from amqpd.queues.backlog import Backlog
from amqpd.replication.replica import Appended, VoteCast, Write
from tests.journal.disks import SqliteDrive
from tests.journal.test_numbers import run
from tests.journal.test_replicas import seen

SOURCE, EPOCH = 1, 5
LEADER = Vote(EPOCH, "a", 1)


def leader(buffer: JournalBuffer, reserved: int = NUMBERS_STEP) -> Backlog:
    """Of the source, with a queue of it."""
    lane = JournalLane(buffer.force, buffer.index, buffer.stored_index)
    buffer.lead(SOURCE, EPOCH, Numbers(0, reserved), lane)
    buffer.assign(20, SOURCE)
    return Backlog(20, buffer, True)


def entry(position: Position) -> LogEntry:
    return new_entry(SOURCE, position, START, b"payload")


def test_what_is_written_goes_in_order_with_the_transaction_that_gathers():
    buffer = JournalBuffer(6)
    writes: list[Write] = [VoteCast(SOURCE, LEADER), Appended(entry((5, 1)))]
    assert not buffer.pending
    assert buffer.write(writes[:1]) == buffer.write(writes[1:]) == 7
    assert (buffer.pending, buffer.urgent, buffer.small) == (True, True, False)
    assert buffer.gathered_bytes == len(b"payload")
    transaction = buffer.take()
    assert (transaction.index, transaction.writes, transaction.is_one_row) == (7, writes, False)
    assert (buffer.pending, buffer.gathered_bytes, buffer.write(writes)) == (False, 0, 8)


def test_what_comes_while_a_transaction_is_on_its_way_is_not_in_that_one() -> None:
    """It had nothing of other sources when it was cut, and shared the lists that the next one gathers in: positions
    were told to the disk as committed before their entries were there."""
    buffer = JournalBuffer()
    buffer.force()
    taken = buffer.take()
    buffer.write([Appended(entry((EPOCH, 1)))])
    buffer.note_committed(SOURCE, (EPOCH, 1))
    assert (taken.writes, taken.committed) == ([], {})
    following = buffer.take()
    assert (len(following.writes), following.committed) == (1, {SOURCE: (EPOCH, 1)})


def test_what_is_committed_goes_along_and_forces_nothing():
    buffer = JournalBuffer(6)
    buffer.note_committed(SOURCE, (5, 2))
    buffer.note_committed(SOURCE, (5, 1))
    buffer.note_committed(2, (1, 1))
    assert (buffer.pending, buffer.urgent, buffer.deletable) == (False, False, True)
    buffer.force()
    assert buffer.take().committed == {SOURCE: (5, 2), 2: (1, 1)}
    assert not buffer.deletable


def marked(mark: int, *outcomes: Outcome) -> Marked:
    return Marked("f", 1, mark, 0, outcomes)


def test_the_mark_of_operations_is_in_the_entry_that_has_their_effects():
    """Several of one transaction are one change, and a reason for a commit, for which nobody waits by itself."""
    buffer = JournalBuffer()
    backlog = leader(buffer)
    buffer.take()
    buffer.note_mark(SOURCE, marked(3, Refused(2, 0, 1)))
    assert (buffer.pending, buffer.urgent, buffer.small) == (True, False, True)
    backlog.publish(run(), True, 0)
    buffer.note_mark(SOURCE, marked(4, Refused(4, 0, 1)))
    buffer.hold()
    assert not buffer.pending
    buffer.release()
    transaction = buffer.take()
    [made] = transaction.entries
    outcomes = OutcomeRange(0, 2, 2, 0, 1), OutcomeRange(0, 4, 4, 0, 1)
    assert made.marks == [MarkChange("f", incarnation=1, mark=4, ranges=outcomes)]
    assert (len(made.rows), transaction.marks, transaction.rows) == (1, [], [])
    assert not buffer.pending
    assert not buffer.take().entries


def test_a_mark_of_the_local_source_is_of_the_transaction_itself():
    buffer = JournalBuffer()
    buffer.note_mark(0, marked(3))
    assert (buffer.pending, buffer.urgent, buffer.small) == (True, False, True)
    transaction = buffer.take()
    assert transaction.marks == [MarkChange("f", incarnation=1, mark=3)]
    assert (transaction.is_one_row, buffer.pending) == (False, False)
    backlog = Backlog(10, buffer, True)
    backlog.publish(run(), True, 0)
    buffer.note_mark(0, marked(4))
    assert not buffer.take().is_one_row


def test_of_a_source_that_has_its_leader_elsewhere_no_mark_is_written():
    buffer = JournalBuffer()
    with pytest.raises(ValueError, match="source 1 has its leader elsewhere"):
        buffer.note_mark(SOURCE, marked(3))
    leader(buffer)
    buffer.take()
    buffer.note_mark(SOURCE, marked(3))
    buffer.leave(SOURCE)
    assert not buffer.pending
    assert not buffer.take().entries


def test_a_message_that_is_settled_before_it_is_written_leaves_its_mark():
    """Else the edge would hear nothing, and send it again."""
    buffer = JournalBuffer()
    backlog = leader(buffer)
    buffer.take()
    backlog.publish(run(), True, 0)
    buffer.note_mark(SOURCE, marked(1))
    backlog.take(1)
    backlog.settle(0, 0)
    assert buffer.drop_settled() == [20]
    assert buffer.pending
    [made] = buffer.take().entries
    assert (made.rows, [each.mark for each in made.marks]) == ([], [1])


def test_a_mark_does_not_wait_for_what_its_operations_sent_on_to_another_source():
    """The message is settled later, or comes again: docs/decisions/operation-marks.md."""
    buffer = JournalBuffer()
    backlog = leader(buffer)
    other = JournalLane(buffer.force, buffer.index, buffer.stored_index)
    buffer.lead(2, EPOCH, Numbers(0, NUMBERS_STEP), other)
    buffer.assign(30, 2)
    target = Backlog(30, buffer, True)
    backlog.publish(run(), True, 0)
    buffer.take()
    backlog.take(1)
    backlog.settle(0, 0, DEAD_REJECTED)
    target.publish(run(), True, 0)
    buffer.note_mark(SOURCE, marked(1))
    entries = {each.source: each for each in buffer.take().entries}
    assert [each.mark for each in entries[SOURCE].marks] == [1]
    assert (entries[SOURCE].settled, len(entries[2].rows)) == ([], 1)
    other.reported = buffer.index - 1
    buffer.force()
    [later] = buffer.take().entries
    assert (later.source, later.settled, later.marks) == (SOURCE, [SeqRange(20, 0, 0)], [])


def test_of_a_source_that_is_left_nothing_is_written():
    buffer = JournalBuffer()
    backlog, local = leader(buffer), Backlog(10, buffer, True)
    buffer.take()
    for each in (backlog, local):
        each.publish(run(), True, 0)
        each.publish(run(), False, 0)
        buffer.delivered(each.queue_id, 1)
        buffer.retire(each.queue_id, 0, 3)
        buffer.count(each.queue_id, 9, 2)
    buffer.drop(20)
    buffer.leave(SOURCE)
    # The same again, at once: what the first leader lease left is not of the second.
    lane = JournalLane(buffer.force, buffer.index, buffer.stored_index)
    buffer.lead(SOURCE, EPOCH + 1, Numbers(0, NUMBERS_STEP), lane)
    buffer.assign(20, SOURCE)
    transaction = buffer.take()
    assert transaction.entries == []
    assert {each.queue_id for each in transaction.rows} == {10}
    assert (transaction.settled, transaction.delivered) == ([SeqRange(10, 0, 3)], {10: 1})
    assert (transaction.counts, transaction.dropped) == ([(10, 9, 2)], [])


def test_a_queue_that_is_dropped_is_forgotten_one_transaction_later():
    buffer = JournalBuffer()
    leader(buffer)
    buffer.drop(20)
    [dropping] = buffer.take().entries
    assert dropping.dropped == [20]
    buffer.delivered(20, 3)
    [late] = buffer.take().entries
    assert late.delivered == {20: 3}
    assert buffer.numbers_of(20) is None


class Forwarder:
    """A disk, and the buffer before it."""

    def __init__(self, directory: Path, cut: Callable[[int, dict[int, bytes]], list[Write]]) -> None:
        self.drive = SqliteDrive(directory)
        self.disk: SqliteDisk = self.drive.open()
        self.buffer = JournalBuffer(self.disk.recover().index)
        self.stored = trio.Event()
        self.writer = JournalWriter(self.buffer, self.disk, self._stored, lambda full: None, cut=cut)

    def _stored(self, index: int) -> None:
        self.stored.set()
        self.stored = trio.Event()

    async def wait_stored(self, index: int) -> None:
        self.writer.want_commit()
        while self.buffer.stored_index < index:
            await self.stored.wait()


class Lane:
    """As `ReplicaSetLeader`, of one source and one peer."""

    def __init__(self) -> None:
        self.last: Position = START
        self.entries: list[LogEntry] = []
        self.indexes: list[int] = []

    def cut(self, index: int, payloads: dict[int, bytes]) -> list[Write]:
        self.indexes.append(index)
        if not payloads:
            return []
        made = new_entry(SOURCE, (EPOCH, index), self.last, payloads[SOURCE])
        self.last = made.position
        self.entries.append(made)
        return [Appended(made)]


def refuse(index: int, payloads: dict[int, bytes]) -> list[Write]:
    raise AssertionError("this node is no leader")


@pytest.mark.trio
async def test_a_message_of_a_queue_comes_to_both_disks_and_leaves_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "HOUSEKEEPING_IDLE_S", 0.001)
    lane = Lane()
    one, two = Forwarder(tmp_path / "one", lane.cut), Forwarder(tmp_path / "two", refuse)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.writer.run)
        nursery.start_soon(two.writer.run)
        with trio.fail_after(30):
            await one.wait_stored(one.buffer.write([VoteCast(SOURCE, LEADER)]))
            backlog = leader(one.buffer, 0)
            backlog.publish(run(), True, 0)
            assert one.buffer.full, "nothing is reserved yet"
            await one.wait_stored(one.buffer.index)
            one.buffer.source_committed(SOURCE, one.buffer.stored_index)
            assert not one.buffer.full
            one.buffer.retire(20, 0, 0)
            await one.wait_stored(one.buffer.index)
            writes = [VoteCast(SOURCE, LEADER), *map(Appended, lane.entries)]
            await two.wait_stored(two.buffer.write(writes))
            assert seen(one.disk) == seen(two.disk) == {}
            for each in (one, two):
                assert each.disk.log_entries(SOURCE, START, 1 << 20) == lane.entries
                [state] = each.disk.replicas()
                assert (state.vote, state.reserved) == (LEADER, NUMBERS_STEP)
                each.buffer.note_committed(SOURCE, lane.last)
            for each in (one, two):
                while each.buffer.deletable:
                    await each.stored.wait()
                await each.writer.flush()
        nursery.cancel_scope.cancel()
    assert lane.indexes == list(range(2, one.buffer.index)), (
        "also of what has nothing of a source: something may wait"
    )
    for each in (one, two):
        assert each.disk._writer.execute("SELECT count(*) FROM batch").fetchone() == (0,)
        assert [state.tail for state in each.disk.replicas()] == [[]]
        each.disk.close()


@pytest.mark.trio
async def test_of_a_source_that_was_left_while_its_payload_was_made_no_entry_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A payload names the epoch that it was made in."""
    given: list[dict[int, bytes]] = []

    def cut(index: int, payloads: dict[int, bytes]) -> list[Write]:
        given.append(payloads)
        return []

    one = Forwarder(tmp_path / "one", cut)

    def payload(entry: SourceEntry) -> bytes:
        trio.from_thread.run_sync(leave)
        return b""

    def leave() -> None:
        one.buffer.leave(SOURCE)
        lane = JournalLane(one.buffer.force, one.buffer.index, one.buffer.stored_index)
        one.buffer.lead(SOURCE, EPOCH + 1, Numbers(0, NUMBERS_STEP), lane)

    monkeypatch.setattr(one.disk, "payload", payload)
    monkeypatch.setattr(writer_module, "ENTERED_HERE_BYTES_MAX", -1)
    leader(one.buffer).publish(run(), True, 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(one.writer.run)
        with trio.fail_after(30):
            await one.wait_stored(one.buffer.index)
        nursery.cancel_scope.cancel()
    assert (given, one.disk.replicas()) == ([{}], [])
    one.disk.close()
