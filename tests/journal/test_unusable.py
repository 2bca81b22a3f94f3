"""What another node has sent and no disk takes: its source is left out of the transaction, and everything else is
stored.

What is verified: payloads and states that are cut, of something else, or made up, as a leader with a fault would make
them; that what this node made itself still raises. Not verified: what the node does then
(`tests/cluster/test_lies.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from amqpd.journal.buffer import JournalBuffer
from amqpd.journal.records import SeqRange, SourceEntry
from amqpd.journal.sqlite.disk import SqliteDisk
from amqpd.journal.sqlite.outcome import JointOutcome
from amqpd.journal.sqlite.payload import VERSION, encode
from amqpd.journal.sqlite.state import SourceState
from amqpd.journal.transaction import JournalTransaction
from amqpd.journal.writer import JournalWriter
from amqpd.peers.entry import START, new_entry
from amqpd.replication.replica import Appended, StateBegin, StateEnd, StateInstall, StatePart, Undone, Write
from tests.journal.disks import row

BAD, GOOD = 5, 6
EPOCH = 1


def payload(source: int) -> bytes:
    """With rows, deadlines, what is settled, and all that is rare."""
    entry = SourceEntry(source, EPOCH, 2, reserved=50)
    entry.rows = [row(40 + source, 1, 9, nbytes=50)]
    entry.settled = [SeqRange(40 + source, 1, 1)]
    entry.retired = [SeqRange(40 + source, 1, 1)]
    entry.delivered = {40 + source: 5}
    entry.counts = [(40 + source, 2, 1)]
    return encode(entry)


def appended(source: int, data: bytes) -> Appended:
    return Appended(new_entry(source, (EPOCH, 2), START, data))


def replaced(old: bytes, new: bytes) -> list[Write]:
    data = payload(BAD)
    assert old in data
    return [appended(BAD, data.replace(old, new))]


def state(**more: object) -> bytes:
    return SourceState(**{"source": BAD, "after": START, "base": (1, 4), "reserved": 1, **more}).encode()  # type: ignore[arg-type]


def staged(part: bytes) -> list[Write]:
    return [StateBegin(BAD), StatePart(BAD, part), StateEnd(BAD, (1, 4)), StateInstall(BAD)]


UNUSABLE: dict[str, Callable[[], list[Write]]] = {
    "nothing": lambda: [appended(BAD, b"")],
    "cut": lambda: [appended(BAD, payload(BAD)[:-1])],
    "garbage": lambda: [appended(BAD, bytes(range(256)))],
    "of a later version": lambda: [appended(BAD, bytes((VERSION + 1,)) + payload(BAD)[1:])],
    "of another source": lambda: [appended(BAD, payload(GOOD))],
    "settled that is no JSON": lambda: replaced(b"[[45,", b"[[45;"),
    "reserves all numbers": lambda: replaced(struct.pack("<q", 50), struct.pack("<q", 2**63 - 1)),
    "what is retired below zero": lambda: replaced(struct.pack("<qqq", 45, 1, 1), struct.pack("<qqq", 45, -1, 1)),
    "follows something else": lambda: [Appended(new_entry(BAD, (EPOCH, 2), (1, 1), payload(BAD)))],
    "an undo that nothing is to be undone for": lambda: [Undone(BAD, (9, 9))],
    "a part of a state that nobody began": lambda: [StatePart(BAD, state())],
    "a state that is cut": lambda: staged(state()[:-1]),
    "a state of another source": lambda: staged(state(source=GOOD)),
    "a state that reserves all numbers": lambda: staged(state(reserved=2**63 - 1)),
    "a state from somewhere else": lambda: staged(state(base=(1, 3))),
}


@pytest.fixture
def disk(tmp_path: Path) -> SqliteDisk:
    made = SqliteDisk(tmp_path)
    made.recover()
    return made


def logs(disk: SqliteDisk) -> dict[int, int]:
    """How many entries each source has."""
    return {each.source: len(each.tail) for each in disk.replicas()}


@pytest.mark.parametrize("writes", UNUSABLE.values(), ids=UNUSABLE)
def test_a_source_that_cannot_be_written_is_left_out(disk: SqliteDisk, writes: Callable[[], list[Write]]) -> None:
    bad = writes()
    given = JournalTransaction(disk.index + 1, writes=[*bad, appended(GOOD, payload(GOOD))], committed={BAD: (1, 2)})
    given.own = frozenset()
    disk.commit(given)
    assert set(given.unusable) == {BAD}
    assert given.unusable[BAD]
    assert logs(disk) == {GOOD: 1}
    after = JournalTransaction(disk.index + 1, writes=[appended(BAD, payload(BAD))])
    after.own = frozenset()
    disk.commit(after)
    assert not after.unusable
    assert logs(disk) == {BAD: 1, GOOD: 1}
    disk.close()


def test_what_this_node_has_made_itself_is_not_left_out(disk: SqliteDisk) -> None:
    """Somebody waits for it: that it is not there must not be passed over."""
    for own in (frozenset({BAD}), None):
        given = JournalTransaction(disk.index + 1, writes=[appended(BAD, b"")])
        given.own = own
        with pytest.raises(ValueError, match="is none"):
            disk.commit(given)
        assert not given.unusable
    disk.close()


def test_the_writer_tells_it_before_the_transaction_is_said_to_be_durable(disk: SqliteDisk) -> None:
    """What a replica answers goes out with that."""
    told: list[object] = []
    buffer = JournalBuffer(disk.index)
    writer = JournalWriter(
        buffer, disk, told.append, told.append, on_unusable=lambda sources: told.append([*sources])
    )
    buffer.write([appended(BAD, b""), appended(GOOD, payload(GOOD))])

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writer.run)
            await writer.flush()
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert told == [[BAD], disk.index]
    assert logs(disk) == {GOOD: 1}
    disk.close()


def test_what_gathers_of_it_goes_on_from_nothing_and_is_not_written() -> None:
    buffer = JournalBuffer()
    buffer.write([appended(BAD, b""), appended(GOOD, b"")])
    buffer.note_committed(BAD, (1, 2))
    buffer.leave_out(BAD)
    taken = buffer.take()
    assert taken.writes == [appended(GOOD, b"")]
    assert taken.committed == {}


def test_of_several_disks_each_is_given_all_that_a_transaction_has() -> None:
    """The marks of operations of the local source were not among it."""
    names = [
        "rows",
        "settled",
        "deletes",
        "delivered",
        "counts",
        "dropped",
        "entries",
        "writes",
        "committed",
        "marks",
    ]
    whole = JournalTransaction(7)
    whole.after, whole.own = 5, frozenset([BAD])
    for name in names:
        setattr(whole, name, type(getattr(whole, name))([("of", name)]))
    left = JointOutcome(whole).left()
    assert [getattr(left, name) for name in ("index", "after", "own")] == [7, 5, {BAD}]
    assert [getattr(left, name) for name in names] == [getattr(whole, name) for name in names]
