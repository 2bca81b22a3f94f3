"""What a proven member sends with numbers that no leader makes: its source is left out, or taken, and that is all.

What is verified: each number of a state and of an entry: below zero, zero, as large as SQLite takes, and with a gap;
what an entry says of rows and ranges with checksums that fit, and of another source's queue; what the other sources
have is unchanged, the disk takes the next transactions, and a start finds a journal that it can go on with. Not
verified: JSON and bytes that are none (`test_unusable.py`); bodies, which are compared when they are read
(`tests/queues`); numbers outside of a payload (`tests/cluster/test_lies.py`).
"""

from __future__ import annotations

import re
import sqlite3
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from zlib import crc32

import pytest

from amqpd.journal.operation_marks import (
    FORWARDERS_MAX,
    OUTCOME_RANGES_MAX,
    OUTCOMES_MAX,
    MarkChange,
    OutcomeRange,
    Purged,
    Refused,
)
from amqpd.journal.records import SeqRange, SourceEntry
from amqpd.journal.sqlite import checksums, entry_checks
from amqpd.journal.sqlite.disk import SqliteDisk
from amqpd.journal.sqlite.mark_bytes import pack_changes
from amqpd.journal.sqlite.mark_rows import MarkRow
from amqpd.journal.sqlite.payload import BadPayload, decode, encode
from amqpd.journal.sqlite.state import SourceState, StateRow, _head, _sizes
from amqpd.journal.sqlite.statement_parameters import checksum_of_deadlines
from amqpd.journal.sqlite.statements import NUMBER_BYTES
from amqpd.journal.transaction import JournalTransaction
from amqpd.peers.entry import START, new_entry
from amqpd.replication.replica import Appended, StateBegin, StateEnd, StateInstall, StatePart, Write
from tests.harness.slow import slow
from tests.journal.disks import RESERVE_BYTES, row

BAD, GOOD = 5, 6
STATE_HEAD_BYTES = _head.size + _sizes[1].size
EPOCH = 1
QUEUE = {BAD: 45, GOOD: 46}
FEW = (-1, 2**63 - 1)
MANY = (-(2**63), -1, 0, 7, 2**32 - 1, 2**53, 2**63 - 2, 2**63 - 1)
Lies = Callable[[Sequence[int]], Iterator[tuple[str, bytes]]]


def deadlines(first: int, last: int) -> bytes:
    return struct.pack("<qqq", 9_000_000_000_000, first, last)


def said(source: int, idx: int = 2, first: int = 1, last: int = 9, **more: object) -> bytes:
    """With rows, deadlines, what is settled, and all that is rare."""
    queue_id = QUEUE[source]
    entry = SourceEntry(source, EPOCH, idx, reserved=50)
    entry.rows = [row(queue_id, first, last, nbytes=50, deadlines=deadlines(first + 2, first + 3))]
    entry.settled = [SeqRange(queue_id, first, first)]
    entry.retired = [SeqRange(queue_id, first, first)]
    entry.delivered = {queue_id: 5}
    entry.counts = [(queue_id, 2, 1)]
    for name, value in more.items():
        setattr(entry, name, value)
    return encode(entry)


def appended(source: int, data: bytes, idx: int = 2, before: tuple[int, int] = START) -> Appended:
    return Appended(new_entry(source, (EPOCH, idx), before, data))


def state(
    queue_id: int = QUEUE[BAD],
    last: int = 3,
    timed: bytes = b"",
    *,
    twice: bool = False,
    operations: dict[str, MarkRow] | None = None,
) -> bytes:
    source, body = BAD, b"a body"
    head = checksums.of_head(queue_id, 1, last, 1, len(body), source, 1, 2, 4, 5, len(timed))
    crc = head << checksums.HEAD_SHIFT | crc32(body)
    timed_crc = checksum_of_deadlines(queue_id, 1, last, timed) if timed else 0
    return SourceState(
        *(source, START, (1, 4), 9),
        live=[(queue_id, 1, last)],
        settled=[(queue_id, 2, 2, 1, 3, checksums.of_settled(queue_id, 2, 2, source, 1, 3))],
        returned=[(queue_id, 3, 1, 1, 3, checksums.of_returned(queue_id, 3, 1, source, 1, 3))],
        marks=[(queue_id, 2, 1, 3)],
        known=[(queue_id, 4)],
        rows=[(StateRow(queue_id, 1, last, len(body), 1, 4, 5, len(timed), 1, 2, crc, timed_crc), body, timed)]
        * (1 + twice),
        operations=operations or {},
    ).encode()


def lies_of_entries(odd: Sequence[int]) -> Iterator[tuple[str, bytes]]:
    whole = said(BAD)
    [count] = struct.unpack_from("<I", whole, 4)
    lengths = struct.unpack_from("<5I", whole, 40)
    for name, at, form in (
        *(("head", 8 * each, "<q") for each in range(1, 5)),
        *(("size", 40 + 4 * each, "<I") for each in range(5)),
        *(("chunk", 60 + 4 * each, "<I") for each in range(3)),
        ("data", 72, "<Q"),
        ("chunks", 4, "<I"),
    ):
        yield from _other(whole, f"{name} at {at}", at, form, odd)
    settled = 60 + 20 * count
    begin = settled + lengths[0]
    end = begin + sum(lengths[1:])
    for at in range(begin, end, 8):
        yield from _other(whole, f"list at {at}", at, "<q", odd)
    rows = struct.unpack_from("<I", whole, 64)[0]
    for at in range(end, end + rows, NUMBER_BYTES):
        yield from _otherwise(whole, f"row at {at - end}", at, at + NUMBER_BYTES, [b"%020d" % each for each in odd])
    texts = [b"%d" % each for each in odd]
    for start, stop in ((settled, begin), (end + rows, len(whole))):
        for found in re.finditer(rb"\d+", whole[start:stop].split(b"]]")[0]):
            here, there = found.span()
            yield from _otherwise(whole, f"JSON at {here}", start + here, start + there, texts)


def _otherwise(whole: bytes, name: str, begin: int, end: int, texts: list[bytes]) -> Iterator[tuple[str, bytes]]:
    """With these in place of a number, as long as it or padded: sizes stay."""
    for text in texts:
        padded = text.rjust(end - begin)
        if len(padded) == end - begin and padded != whole[begin:end]:
            yield f"{name}: {text.decode()}", whole[:begin] + padded + whole[end:]


def lies_that_fit(_: Sequence[int] = ()) -> Iterator[tuple[str, bytes]]:
    """With the checksums of a leader that means them."""
    mine, other, unknown = QUEUE[BAD], QUEUE[GOOD], 47
    bad_row, more = row(mine, 1, 9, nbytes=50), 2**62 + 1
    big = [row(mine + 100 + at, 1, 9, nbytes=50) for at in range(entry_checks.FEW_ROWS)]
    rows = {
        "the same row twice": [bad_row, bad_row],
        "the same row twice among many": [*big, big[3]],
        "a row within another": [bad_row, row(mine, 4, 5)],
        "one that begins where another ends": [bad_row, row(mine, 9, 12)],
        "last before first": [row(mine, 9, 1)],
        "last before first among many": [*big, row(mine, 9, 1)],
        "a number below zero": [row(mine, -3, 1)],
        "a queue below zero": [row(-1, 1, 9)],
        "numbers that are used up": [row(mine, 2**63 - 9, 2**63 - 2)],
        "numbers that are used up among many": [*big, row(mine, 2**63 - 9, 2**63 - 2)],
        "more messages than bytes": [row(mine, 1, more, nbytes=50)],
        "more bodies than bytes": [row(mine, 1, 9, body_bytes=more)],
        "a time below zero": [row(mine, 1, 9, published_ms=-1)],
        "deadlines that are cut": [row(mine, 1, 9, nbytes=50, deadlines=deadlines(3, 4)[:-1])],
        "deadlines of others": [row(mine, 1, 9, nbytes=50, deadlines=deadlines(3, 10))],
        "deadlines of others among many": [*big, row(mine, 1, 9, nbytes=50, deadlines=deadlines(3, 10))],
        "a row of another's queue": [row(other, 100, 109)],
        "a row of another's queue, before all": [row(other, 0, 0)],
        "another's row": [row(other, 1, 9, nbytes=50)],
        "another's row among many": [*big, row(other, 1, 9, nbytes=50)],
    }
    for name, given in rows.items():
        yield name, said(BAD, rows=given, settled=[], retired=[])
    for name, ranges in {
        "a range twice": [SeqRange(mine, 1, 1), SeqRange(mine, 1, 1)],
        "ranges over each other": [SeqRange(mine, 1, 5), SeqRange(mine, 3, 7)],
        "one that was never there": [SeqRange(mine, 500, 600)],
        "one of a queue that was never there": [SeqRange(unknown, 1, 5)],
        "all that can be": [SeqRange(mine, 0, 2**62)],
        "more than can be": [SeqRange(mine, 0, 2**63 - 2)],
        "last before first": [SeqRange(mine, 9, 1)],
        "below zero": [SeqRange(mine, -5, 1)],
        "another's": [SeqRange(other, 1, 9)],
        "a part of another's": [SeqRange(other, 2, 3)],
        "what another has not yet": [SeqRange(other, 10, 19)],
    }.items():
        yield f"settled: {name}", said(BAD, settled=ranges, retired=[])
        yield f"retired: {name}", said(BAD, settled=[], retired=ranges)
        yield f"both: {name}", said(BAD, settled=ranges, retired=ranges)
    for queue_id in (other, unknown):
        yield f"dropped: {queue_id}", said(BAD, dropped=[queue_id])
        yield f"delivered: {queue_id}", said(BAD, delivered={queue_id: 100})
        yield f"counted: {queue_id}", said(BAD, counts=[(queue_id, 5, 7)])


def lies_of_states_that_fit(_: Sequence[int] = ()) -> Iterator[tuple[str, bytes]]:
    mine, other = QUEUE[BAD], QUEUE[GOOD]
    yield "the same row twice", state(twice=True)
    for name, queue_id, last, timed in (
        ("another's row", other, 3, b""),
        ("another's row behind it", other, 100, b""),
        ("more messages than bytes", mine, 2**61, b""),
        ("deadlines that are cut", mine, 3, deadlines(2, 3)[:-1]),
        ("deadlines of others", mine, 3, deadlines(3, 10)),
    ):
        yield name, state(queue_id=queue_id, last=last, timed=timed)
    head = (BAD, START, (1, 4), 9)
    settled = (other, 2, 2, 1, 3, checksums.of_settled(other, 2, 2, BAD, 1, 3))
    returned = (other, 3, 1, 1, 3, checksums.of_returned(other, 3, 1, BAD, 1, 3))
    yield "another's is settled", SourceState(*head, settled=[settled]).encode()
    yield "another's came back", SourceState(*head, returned=[returned]).encode()
    yield "another's was delivered", SourceState(*head, marks=[(other, 2, 1, 3)]).encode()
    yield "another's is known", SourceState(*head, known=[(other, 4)]).encode()


def lies_of_states(odd: Sequence[int]) -> Iterator[tuple[str, bytes]]:
    whole = state()
    for at in range(8, 56, 8):
        yield from _other(whole, f"head at {at}", at, "<q", odd)
    for at in range(56, STATE_HEAD_BYTES, 4):
        yield from _other(whole, f"size at {at}", at, "<I", odd)
    for at in range(STATE_HEAD_BYTES, len(whole) - len(b"a body"), 8):
        yield from _other(whole, f"number at {at}", at, "<q", odd)


NAME = "edge"
CHANGE = MarkChange(
    NAME,
    gone=True,
    ended=1,
    incarnation=2,
    mark=9,
    heard=1,
    ranges=(OutcomeRange(0, 3, 5, 0, 1), OutcomeRange(1, 6, 6, 7, 0)),
)


def lies_of_marks(odd: Sequence[int]) -> Iterator[tuple[str, bytes]]:
    """Of what an entry says of operations."""
    whole = said(BAD, marks=[CHANGE])
    begin = whole.index(pack_changes([CHANGE]))
    yield from _other(whole, "bytes of the name", begin + 2, "<H", odd)
    yield from _other(whole, "number of ranges", begin + 4, "<I", odd)
    ranges = begin + 40 + len(NAME)
    for at in (*range(begin + 8, begin + 40, 8), *range(ranges, ranges + 80, 8)):
        yield from _other(whole, f"number at {at - begin}", at, "<q", odd)


def lies_of_marks_that_fit(_: Sequence[int] = ()) -> Iterator[tuple[str, bytes]]:
    wide = OutcomeRange(0, 1, OUTCOMES_MAX + 1, 0, 1)
    narrow = tuple([OutcomeRange(0, at, at, 0, 1) for at in range(1, 6 * OUTCOME_RANGES_MAX, 2)])
    for name, change in {
        "more outcomes than a leader has in memory": CHANGE._replace(mark=wide.last, ranges=(wide,)),
        "more ranges than are read": CHANGE._replace(mark=narrow[-1].last, ranges=narrow),
        "outcomes above the mark": CHANGE._replace(mark=4),
        "outcomes of no incarnation": CHANGE._replace(incarnation=0),
        "no forwarder": CHANGE._replace(forwarder=""),
        "a long name": CHANGE._replace(forwarder="x" * 256),
        "a kind of outcome that nobody knows": CHANGE._replace(ranges=(OutcomeRange(2, 3, 5, 0, 1),)),
        "the same operation twice": CHANGE._replace(ranges=CHANGE.ranges * 2),
    }.items():
        yield name, said(BAD, marks=[change])
    yield "a forwarder twice", said(BAD, marks=[CHANGE, CHANGE])
    many = [CHANGE._replace(forwarder=str(at), ranges=()) for at in range(FORWARDERS_MAX + 1)]
    yield "too many forwarders", said(BAD, marks=many)


def lies_of_operations(odd: Sequence[int]) -> Iterator[tuple[str, bytes]]:
    """Of what a state says of them."""
    given = SourceState(BAD, START, (1, 4), 9)
    given.operations = {NAME: MarkRow().after(CHANGE, (1, 3))}
    whole = given.encode()
    begin = _head.size + _sizes[2].size
    yield from _other(whole, "bytes of the name", begin, "<H", odd)
    yield from _other(whole, "bytes of outcomes", begin + 2, "<I", odd)
    for at in range(begin + 6, begin + 54, 8):
        yield from _other(whole, f"number at {at - begin}", at, "<q", odd)
    for at in range(begin + 54 + len(NAME), len(whole), 8):
        yield from _other(whole, f"outcome at {at - begin}", at, "<q", odd)
    for name, wrong in {
        "of a transaction that is not there": given.operations[NAME]._replace(position=(1, 5)),
        "of an incarnation below zero": given.operations[NAME]._replace(incarnation=-1),
    }.items():
        given.operations = {NAME: wrong}
        yield name, given.encode()


def _other(whole: bytes, name: str, at: int, form: str, odd: Sequence[int]) -> Iterator[tuple[str, bytes]]:
    for number in odd:
        try:
            lie = struct.pack(form, number)
        except struct.error:
            continue
        if whole[at : at + len(lie)] != lie:
            yield f"{name}: {number}", whole[:at] + lie + whole[at + len(lie) :]


def made(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


def written(data: bytes) -> list[Write]:
    return [appended(BAD, data)]


def staged(part: bytes) -> list[Write]:
    return [StateBegin(BAD), StatePart(BAD, part), StateEnd(BAD, (1, 4)), StateInstall(BAD)]


def of_good(disk: SqliteDisk) -> object:
    recovered = disk.recovered_of([GOOD])
    recovered.standing()
    return {queue_id: (each.rows, each.next_seq) for queue_id, each in recovered.queues.items()}


def commit(disk: SqliteDisk, writes: list[Write], committed: dict[int, tuple[int, int]]) -> JournalTransaction:
    given = JournalTransaction(disk.index + 1, writes=writes, committed=committed)
    given.own = frozenset()
    disk.commit(given)
    return given


def judge(directory: Path, writes: list[Write], expected: object) -> object:
    """What the good source has at the end: as `expected`, if that is given."""
    disk = SqliteDisk(directory, reserve_bytes=RESERVE_BYTES)
    disk.recover()
    commit(disk, [appended(GOOD, said(GOOD))], {GOOD: (1, 2)})
    # A state is committed as it comes.
    of_bad = {BAD: (1, 2)} if writes and isinstance(writes[0], Appended) else {}
    more = appended(GOOD, said(GOOD, 3, 10, 19, retired=[]), 3, (1, 2))
    first = commit(disk, [*writes, more], {**of_bad, GOOD: (1, 3)})
    assert set(first.unusable) <= {BAD}
    disk.vacuum_step()
    disk.recovered_of([BAD]).standing()
    found = of_good(disk)
    disk.close()
    disk = SqliteDisk(directory, reserve_bytes=RESERVE_BYTES)
    disk.recover()
    assert of_good(disk) == found
    assert expected is None or found == expected
    last = appended(GOOD, said(GOOD, 4, 20, 29), 4, (1, 3))
    assert not commit(disk, [last], {GOOD: (1, 4)}).unusable
    disk.close()
    return found


@pytest.mark.parametrize(("odd", "step"), [(FEW, 13), slow(MANY, 1)], ids=["some", "all"])
@pytest.mark.parametrize("lies", [lies_of_entries, lies_of_marks, lies_of_states, lies_of_operations])
def test_one_source_leaves_and_nothing_else_does(lies: Lies, odd: Sequence[int], step: int, tmp_path: Path) -> None:
    """`step`: each database is opened twice, which takes a tenth of a second."""
    judge_all(
        islice(lies(odd), 0, None, step),
        staged if lies in (lies_of_states, lies_of_operations) else written,
        tmp_path,
    )


def test_what_no_leader_has_is_not_believed_though_its_checksums_fit(tmp_path: Path) -> None:
    judge_all(lies_that_fit(), written, tmp_path)


def test_of_operations_no_more_is_taken_than_there_may_be(tmp_path: Path) -> None:
    disk = Refusing(tmp_path)
    for name, data in lies_of_marks_that_fit():
        assert not disk.takes(written(data)), name
    disk.close()


def test_what_is_said_of_operations_one_after_the_other_has_a_bound_too(tmp_path: Path) -> None:
    """Of outcomes that are never heard, and of forwarders."""
    disk = SqliteDisk(tmp_path, reserve_bytes=RESERVE_BYTES)
    disk.recover()
    idx, before, number = 2, START, 0
    while True:
        ranges = tuple([OutcomeRange(0, number + at, number + at, 0, 1) for at in range(1, OUTCOME_RANGES_MAX, 2)])
        number += OUTCOME_RANGES_MAX
        entry = SourceEntry(BAD, EPOCH, idx, marks=[CHANGE._replace(gone=False, heard=0, mark=number, ranges=ranges)])
        if commit(disk, [appended(BAD, encode(entry), idx, before)], {}).unusable:
            break
        idx, before = idx + 1, (EPOCH, idx)
    assert idx == 2 + 4
    first = [CHANGE._replace(forwarder=str(at), ranges=()) for at in range(FORWARDERS_MAX - 1)]
    entry = SourceEntry(BAD, EPOCH, idx, marks=first)
    assert not commit(disk, [appended(BAD, encode(entry), idx, before)], {}).unusable
    entry = SourceEntry(BAD, EPOCH, idx + 1, marks=[CHANGE._replace(forwarder="one more")])
    assert set(commit(disk, [appended(BAD, encode(entry), idx + 1, (EPOCH, idx))], {}).unusable) == {BAD}
    disk.close()


def test_a_state_that_no_leader_has_is_not_believed_though_its_checksums_fit(tmp_path: Path) -> None:
    judge_all(lies_of_states_that_fit(), staged, tmp_path)


def judge_all(lies: Iterable[tuple[str, bytes]], writes: Callable[[bytes], list[Write]], tmp_path: Path) -> None:
    """Those that are refused on one disk, which has one start: nothing is left of them. Each that is taken on one of
    its own."""
    expected = judge(made(tmp_path, "honest"), [], None)
    refused, count = Refusing(made(tmp_path, "refused")), 0
    for name, data in lies:
        count += 1
        try:
            if not refused.takes(writes(data)):
                continue
            judge(made(tmp_path, str(count)), writes(data), expected)
            refused.close()
            refused = Refusing(made(tmp_path, f"refused {count}"))
        except BaseException as error:
            error.add_note(name)
            raise
    refused.close()
    assert count > 1


class Refusing:
    """A disk that has nothing of the bad source."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._disk = self._opened()
        commit(self._disk, [appended(GOOD, said(GOOD))], {GOOD: (1, 2)})
        self._had = of_good(self._disk)
        self._idx = 2

    def takes(self, writes: list[Write]) -> bool:
        """With the next entry of the other source, which is taken."""
        idx = self._idx
        empty = appended(GOOD, encode(SourceEntry(GOOD, EPOCH, idx + 1)), idx + 1, (EPOCH, idx))
        self._idx += 1
        return not commit(self._disk, [*writes, empty], {GOOD: (EPOCH, self._idx)}).unusable

    def close(self) -> None:
        self._disk.close()
        self._disk = self._opened()
        assert of_good(self._disk) == self._had
        self._disk.close()

    def _opened(self) -> SqliteDisk:
        disk = SqliteDisk(self._directory, reserve_bytes=RESERVE_BYTES)
        disk.recover()
        return disk


def test_a_lie_behind_what_is_there_is_not_taken(tmp_path: Path) -> None:
    """A row that the queue has already, in an entry of its own; and what is honest is, afterwards."""
    disk = SqliteDisk(tmp_path, reserve_bytes=RESERVE_BYTES)
    disk.recover()
    assert not commit(disk, [appended(BAD, said(BAD))], {BAD: (1, 2)}).unusable
    for first, last in ((1, 9), (5, 12), (0, 1), (9, 9)):
        lie = said(BAD, 3, rows=[row(QUEUE[BAD], first, last, nbytes=50)], settled=[], retired=[])
        assert set(commit(disk, [appended(BAD, lie, 3, (1, 2))], {}).unusable) == {BAD}
    for idx, (first, last) in enumerate(((30, 39), (20, 29)), 3):  # in whichever order they come
        honest = said(BAD, idx, rows=[row(QUEUE[BAD], first, last, nbytes=50)], settled=[], retired=[])
        assert not commit(disk, [appended(BAD, honest, idx, (1, idx - 1))], {}).unusable
    lie = said(BAD, 5, rows=[row(QUEUE[BAD], 35, 45, nbytes=50)], settled=[], retired=[])
    assert set(commit(disk, [appended(BAD, lie, 5, (1, 4))], {}).unusable) == {BAD}
    disk.close()
    disk = SqliteDisk(tmp_path, reserve_bytes=RESERVE_BYTES)
    disk.recover()
    assert [each.first_seq for each in disk.recovered_of([BAD]).queues[QUEUE[BAD]].rows] == [1, 20, 30]
    disk.close()


@pytest.mark.parametrize("name", ["settled", "retired", "dropped", "counts"])
def test_what_is_said_of_a_queue_that_nobody_has_is_not_said_of_who_brings_it(name: str, tmp_path: Path) -> None:
    """It came before the other source's first row, and is committed after that."""
    other = QUEUE[GOOD]
    given: dict[str, object] = {"rows": [], "settled": [], "retired": [], "delivered": {}, "counts": []}
    values: dict[str, object] = {"dropped": other, "counts": (other, 5, 7)}
    given[name] = [values.get(name, SeqRange(other, 1, 9))]
    lie = SourceEntry(BAD, EPOCH, 2)
    for field, value in given.items():
        setattr(lie, field, value)
    honest, lied = (SqliteDisk(made(tmp_path, each), reserve_bytes=RESERVE_BYTES) for each in ("honest", "lied"))
    found = []
    for disk in (honest, lied):
        disk.recover()
        if disk is lied:
            assert not commit(disk, [appended(BAD, encode(lie))], {}).unusable
        assert not commit(disk, [appended(GOOD, said(GOOD, counts=[]))], {GOOD: (1, 2)}).unusable
        commit(disk, [], {BAD: (1, 2)} if disk is lied else {GOOD: (1, 2)})
        for _ in range(3):
            disk.vacuum_step()
        path = disk.path.parent
        disk.close()
        again = SqliteDisk(path, reserve_bytes=RESERVE_BYTES)
        again.recover()
        [queue] = again.recovered_of([GOOD]).queues.values()
        found.append((queue.rows, queue.counts, queue.next_seq))
        again.close()
    assert found[0] == found[1]
    assert found[0][0]


def test_what_was_staged_of_a_source_that_is_left_out_is_gone(tmp_path: Path) -> None:
    """The next leader's entries are not taken for what follows that."""
    disk = SqliteDisk(tmp_path, reserve_bytes=RESERVE_BYTES)
    disk.recover()
    good, bad = state(), state(twice=True)
    assert not commit(disk, [StateBegin(BAD), StatePart(BAD, bad), StateEnd(BAD, (1, 4))], {}).unusable
    assert set(commit(disk, [StateInstall(BAD)], {}).unusable) == {BAD}
    assert not commit(disk, [appended(BAD, said(BAD))], {}).unusable
    assert not commit(disk, staged(good), {}).unusable
    disk.close()
    disk = SqliteDisk(tmp_path, reserve_bytes=RESERVE_BYTES)
    disk.recover()
    assert [each.first_seq for each in disk.recovered_of([BAD]).queues[QUEUE[BAD]].rows] == [1]
    disk.close()


@pytest.mark.parametrize("odd", [FEW, slow(MANY)], ids=["some", "all"])
def test_many_rows_are_looked_at_as_few_are(odd: Sequence[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each number of each of three rows, and what was cut off or added."""
    entry = SourceEntry(BAD, EPOCH, 2)
    entry.rows = [
        row(QUEUE[BAD], 1, 9, nbytes=50),
        row(48, 4, 4, deadlines=deadlines(4, 4), body_bytes=3),
        row(49, 1, 9, nbytes=50, published_ms=7),
    ]
    honest = encode(entry)
    found: list[list[bool]] = []
    for few in (0, 100):
        monkeypatch.setattr(entry_checks, "FEW_ROWS", few)
        assert is_taken(honest)
        found.append([is_taken(data) for _, data in lies_of_rows(honest, odd)])
    assert found[0] == found[1]
    assert not any(found[0])


def lies_of_rows(honest: bytes, odd: Sequence[int]) -> Iterator[tuple[str, bytes]]:
    begin = honest.index(b"%020d" % QUEUE[BAD])
    for at in range(begin, begin + 30 * NUMBER_BYTES, NUMBER_BYTES):
        texts = [b"%020d" % each for each in odd]
        yield from _otherwise(honest, "row", at, at + NUMBER_BYTES, texts)
        yield from _otherwise(honest, "row", at, at + NUMBER_BYTES, [b"9" * 20, b"1_" * 10, b"x" * 20])


def is_taken(data: bytes) -> bool:
    ends = entry_checks.QueueEnds()
    ends._ends[BAD] = dict.fromkeys((QUEUE[BAD], 48, 49), -1)
    with closing(sqlite3.connect(":memory:")) as connection:
        try:
            entry_checks.check(connection, decode(data), ends)
        except (BadPayload, sqlite3.OperationalError):  # it asks, of a queue that is not known, and there is no table
            return False
    return True


def test_what_is_honest_is_taken(tmp_path: Path) -> None:
    """Else nothing above would say anything."""
    for name, writes in (
        ("entry", [appended(BAD, said(BAD, marks=[CHANGE]))]),
        ("state", staged(state(operations={NAME: MarkRow().after(CHANGE, (1, 3))}))),
    ):
        disk = SqliteDisk(made(tmp_path, name))
        disk.recover()
        assert not commit(disk, list(writes), {}).unusable
        marks = disk.recovered_of([BAD]).marks_of(BAD)
        assert marks.ended == {NAME: 1}
        assert marks.marks[NAME, 2].outcomes == [Refused(3, 0, 1), Refused(4, 0, 1), Refused(5, 0, 1), Purged(6, 7)]
        assert disk.recovered_of([BAD]).queues.keys() == {QUEUE[BAD]}
        disk.close()
