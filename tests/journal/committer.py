"""A process of its own that commits, for tests that kill it or its disk.

Run as `python -m tests.journal.committer DIRECTORY COUNT`.

Prints the index of each transaction after its commit has returned; "failed: ..." when the disk fails, and then
"refused: ..." when the journal will not write any more.
"""

from __future__ import annotations

import sys
from pathlib import Path

from amqpd.journal.errors import DiskFailure
from amqpd.journal.operation_marks import MarkChange, OperationMark, OutcomeRange
from amqpd.journal.records import JournalDamaged, Recovered, SeqRange
from amqpd.journal.sqlite.disk import SqliteDisk
from amqpd.journal.transaction import JournalTransaction
from tests.journal.disks import RESERVE_BYTES, deadlines, row, transaction


def nth(index: int) -> JournalTransaction:
    """Two rows, the second with deadlines; settles the first of the transaction before; deletes what was settled two
    transactions ago. A message of each row comes back, the second row's once more in the next transaction. The mark
    of an edge, which refused something, and has been heard up to two transactions ago."""
    first = index * 10
    return transaction(
        index,
        row(1, first, first + 4, nbytes=3000 * (index % 7), deadlines=expiring(first), body_bytes=index),
        row(1, first + 5, first + 9, deadlines=expiring(first + 5), body_bytes=index + 1, published_ms=first),
        *([SeqRange(1, first - 10, first - 6)] if index > 1 else []),
        deletes=[SeqRange(1, first - 20, first - 16)] if index > 2 else [],
        delivered={1: first},
        marks=[MarkChange("edge", incarnation=1, mark=index, heard=index - 2, ranges=(refused(index),))],
        counts=[(1, first, 1), (1, first + 5, 1), *([(1, first - 5, 2)] if index > 1 else [])],
    )


def expiring(first: int) -> bytes:
    return deadlines((first + 1000, first, first + 1), (first + 2000, first + 4, first + 4))


def refused(index: int) -> OutcomeRange:
    return OutcomeRange(0, index, index, 0, index)


def check(recovered: Recovered) -> None:
    """Recovery after any number of `nth`: all of the first ones, nothing of the others."""
    index = recovered.index
    expected = [(10 * n + 5, 10 * n + 9) for n in range(1, index + 1)] + [(10 * index, 10 * index + 4)] * (index > 0)
    queue, marks = recovered.queues.get(1), recovered.marks_of(0)
    left = tuple([refused(n) for n in range(max(1, index - 1), index + 1)])
    assert marks.marks == ({("edge", 1): OperationMark(index, left)} if index else {})
    assert [(each.first_seq, each.last_seq) for each in (queue.rows if queue else [])] == sorted(expected)
    if queue is not None:
        assert all(each.settled == [] for each in queue.rows)
        for each in queue.rows:
            n, second = divmod(each.first_seq, 10)
            assert each.deadlines == expiring(each.first_seq)
            assert (each.body_bytes, each.published_ms) == ((n + 1, n * 10) if second else (n, 0))
        counts = {10 * n + 5: 2 for n in range(1, index)} | {10 * index: 1, 10 * index + 5: 1}
        assert queue.counts == counts
        assert (queue.next_seq, queue.delivered) == (index * 10 + 10, index * 10)


def main() -> None:
    directory, count = Path(sys.argv[1]), int(sys.argv[2])
    disk = SqliteDisk(directory, reserve_bytes=RESERVE_BYTES)
    index = 0
    print("open", flush=True)
    try:
        index = disk.recover().index
        for _ in range(count):
            disk.commit(nth(index + 1))
            index += 1
            print(index, flush=True)
    except (DiskFailure, JournalDamaged) as failure:
        print(f"failed: {failure}", flush=True)
        try:
            # Unknown when recovery failed; the journal refuses before it looks at it, or this would be a ValueError.
            disk.commit(nth(index + 1))
        except DiskFailure as again:
            print(f"refused: {again}", flush=True)


if __name__ == "__main__":
    main()
