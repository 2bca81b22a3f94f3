"""What a commit of the journal costs: `python -m bench.journal_commit [--directory DIR] [--seconds S] [--backlog]`.

What comes in: a directory on the disk to measure. What goes out: tables on standard output.
1. Commits in steady state: each one writes its rows, settles those of the one before, and deletes those of the one
before that. Wall clock per commit (median and 99th percentile), processor time of the thread, and the part of it
that is Python under the interpreter lock. 2. The same while another thread is as busy as the pump under load
(some 60 us of interpreter between two system calls): what the hand-over of the interpreter lock adds.
3. With --backlog: writing, recovering, reading and deleting a large backlog.
Not here: whole brokers (`python -m bench`).
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from amqpd.journal.operation_marks import MarkChange
from amqpd.journal.records import Row, SeqRange
from amqpd.journal.sqlite import statement_parameters
from amqpd.journal.sqlite.checkpoints import CHECKPOINT_BYTES, Checkpoints
from amqpd.journal.sqlite.discards import Discards
from amqpd.journal.sqlite.disk import SqliteDisk
from amqpd.journal.sqlite.mark_rows import MarkRows
from amqpd.journal.sqlite.queue_marks import QueueMarks
from amqpd.journal.sqlite.schema import PAGE_BYTES
from amqpd.journal.sqlite.sources import SourceHead, SourceProgress
from amqpd.journal.transaction import JournalTransaction


class Shape(NamedTuple):
    name: str
    rows: int
    row_bytes: int
    row_messages: int
    queues: int
    marks: int = 0
    """of edges whose operations it has"""


SHAPES = (
    Shape("nothing", 0, 0, 1, 1),
    Shape("1 row of 200 B", 1, 200, 1, 1),
    Shape("1 row of 200 B, 1 mark", 1, 200, 1, 1, 1),
    Shape("1 row of 20 kB", 1, 20_000, 200, 1),
    Shape("1 row of 200 kB", 1, 200_000, 2000, 1),
    Shape("50 rows of 200 B, 50 queues", 50, 200, 1, 50),
    Shape("the same, 4 marks", 50, 200, 1, 50, 4),
    Shape("50 rows of 20 kB, 50 queues", 50, 20_000, 200, 50),
    Shape("2,000 rows of 100 B, 200 queues", 2000, 100, 1, 200),
)
# As large as such numbers are.
PUBLISHED_MS = 1_700_000_000_000
BACKLOGS = (
    ("2,000,000 messages of 1 kB in 20,000 rows", Shape("", 20, 100_000, 100, 1), 1000),
    ("500,000 rows of 100 B in 100 queues", Shape("", 1000, 100, 1, 100), 500),
)


def incarnation(shape: Shape, *, deletes: bool = True) -> Iterator[JournalTransaction]:
    """The transactions of queues whose consumers keep up (or, without `deletes`, stay away)."""
    body = os.urandom(shape.row_bytes)
    settled: list[SeqRange] = []
    deletable: list[SeqRange] = []
    index = first = 0
    while True:
        index += 1
        cut = JournalTransaction(index)
        for at in range(shape.rows):
            start = first + at // shape.queues * shape.row_messages
            row = Row(at % shape.queues, start, start + shape.row_messages - 1, body)
            row.body_bytes, row.published_ms = shape.row_bytes, PUBLISHED_MS + index
            cut.rows.append(row)
        if deletes:
            cut.settled, cut.deletes = settled, deletable
            deletable = settled
            settled = [SeqRange(row.queue_id, row.first_seq, row.last_seq) for row in cut.rows]
        cut.marks = [MarkChange(f"node-{at}", incarnation=7, mark=index, heard=index) for at in range(shape.marks)]
        first += -(-shape.rows // shape.queues) * shape.row_messages
        yield cut


class Cost(NamedTuple):
    commits: int
    seconds: float
    median_us: float
    p99_us: float
    cpu_us: float


def commits(disk: SqliteDisk, shape: Shape, seconds: float) -> Cost:
    source = incarnation(shape)
    for _ in range(3):
        disk.commit(next(source))
    taken = []
    cpu = 0.0
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds or len(taken) < 3:
        transaction = next(source)
        cpu -= time.thread_time()
        start = time.perf_counter()
        disk.commit(transaction)
        taken.append(time.perf_counter() - start)
        cpu += time.thread_time()
    taken.sort()
    count = len(taken)
    return Cost(
        count,
        time.perf_counter() - begun,
        taken[count // 2] * 1e6,
        taken[count * 99 // 100] * 1e6,
        cpu / count * 1e6,
    )


def interpreter_us(shape: Shape) -> float:
    """Python of one commit alone: SQLite is replaced by nothing."""

    class Nothing:
        in_transaction = False

        def execute(self, *_: object) -> Nothing:
            return self

        executemany = execute

        def fetchone(self) -> tuple[int, int, int]:
            return 0, 0, 0

    disk = object.__new__(SqliteDisk)
    connection: Any = Nothing()
    disk.__dict__.update(_recovered=True, _failure=None, kept=None, _mark=None, path=Path())
    sources = SourceProgress({0: SourceHead(0, 2)})
    disk.__dict__.update(_sources=sources, _discards=Discards([], sources.is_committed))
    disk.__dict__.update(_marks=QueueMarks({}), _operations=MarkRows({}), names={"identity": ""})
    disk.__dict__.update(_writer=connection, _timed=set(), _counted=set(), _noted={})
    disk.__dict__.update(checkpoints=Checkpoints(connection, Path("no.db"), nullcontext(), 0, sources.log_begins))
    source = incarnation(shape)
    count = max(20, 4000 // (shape.rows + 1))
    transactions = [next(source) for _ in range(count)]
    start = time.perf_counter()
    for transaction in transactions:
        disk.commit(transaction)
    return (time.perf_counter() - start) / count * 1e6


def beside_a_busy_thread(work: Callable[[], Cost]) -> Cost:
    results: list[Cost] = []
    writer = threading.Thread(target=lambda: results.append(work()))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        writer.start()
        while writer.is_alive():
            total = 0
            for number in range(2000):
                total += number
            ours.send(b"x")
            theirs.recv(16)
    return results[0]


def commit_table(directory: Path, seconds: float, *, busy: bool) -> None:
    print(f"\n{'beside a busy thread' if busy else 'alone':36} commits/s  median us    p99 us    cpu us   us/row"
          + ("" if busy else "  python us"))  # fmt: skip
    for shape in SHAPES:
        place = Path(tempfile.mkdtemp(dir=directory))
        disk = SqliteDisk(place)
        disk.recover()

        def work(disk: SqliteDisk = disk, shape: Shape = shape) -> Cost:
            return commits(disk, shape, seconds)

        cost = beside_a_busy_thread(work) if busy else work()
        disk.close()
        shutil.rmtree(place)
        python = "" if busy else f"{interpreter_us(shape):11.0f}"
        per_row = f"{cost.median_us / shape.rows:8.1f}" if shape.rows else "       -"
        print(f"{shape.name:36} {cost.commits / cost.seconds:9.0f} {cost.median_us:10.0f} {cost.p99_us:9.0f} "
              f"{cost.cpu_us:9.0f} {per_row} {python}", flush=True)  # fmt: skip


def backlog(directory: Path, name: str, shape: Shape, count: int) -> None:
    place = Path(tempfile.mkdtemp(dir=directory))
    clock = _Clock(name)
    disk = SqliteDisk(place)
    disk.recover()
    for _, transaction in zip(range(count), incarnation(shape, deletes=False), strict=False):
        disk.commit(transaction)
    clock.lap("written")
    disk.close()
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("1") if os.geteuid() == 0 else None
    clock.lap("closed, caches dropped")
    disk = SqliteDisk(place)
    recovered = disk.recover()
    clock.lap("opened and recovered")
    first = rows = nbytes = 0
    while found := disk.read(0, first, 1 << 60, 4 << 20):
        rows, nbytes, first = (
            rows + len(found),
            nbytes + sum(len(each.data) for each in found),
            found[-1].last_seq + 1,
        )
    clock.lap(f"queue 0 read back, 4 MB at a time ({rows} rows, {nbytes >> 20} MB)")
    disk.commit(JournalTransaction(recovered.index + 1, dropped=list(recovered.queues)))
    clock.lap("queues dropped")
    steps = _steps(disk)
    clock.lap(
        f"{len(steps)} idle steps, median {steps[len(steps) // 2] * 1e3:.1f} ms, longest {steps[-1] * 1e3:.1f} ms"
    )
    size = sum(path.stat().st_size for path in place.glob("journal.db*"))
    print(f"  {size >> 20} MB left on the disk")
    disk.close()
    shutil.rmtree(place)


def _steps(disk: SqliteDisk) -> list[float]:
    steps = []
    more = True
    while more:
        start = time.perf_counter()
        more = disk.vacuum_step()
        steps.append(time.perf_counter() - start)
    return sorted(steps)


class _Clock:
    def __init__(self, title: str) -> None:
        print(f"\n{title}")
        self._last = time.perf_counter()

    def lap(self, what: str) -> None:
        now = time.perf_counter()
        print(f"  {now - self._last:7.2f} s  {what}", flush=True)
        self._last = time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser(description="What a commit of the journal costs.")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--seconds", type=float, default=1.0, help="per line of the tables")
    parser.add_argument("--switch-interval", type=float, default=sys.getswitchinterval(), help="seconds")
    parser.add_argument("--backlog", action="store_true", help="large backlogs instead (writes 2 GB)")
    options = parser.parse_args()
    print(f"page {PAGE_BYTES} bytes, checkpoint after {CHECKPOINT_BYTES >> 20} MB, "
          f"statement up to {statement_parameters.STATEMENT_BYTES_MAX >> 20} MB")  # fmt: skip
    if options.backlog:
        for name, shape, count in BACKLOGS:
            backlog(options.directory, name, shape, count)
        return
    sys.setswitchinterval(options.switch_interval)
    commit_table(options.directory, options.seconds, busy=False)
    commit_table(options.directory, options.seconds, busy=True)


if __name__ == "__main__":
    main()
