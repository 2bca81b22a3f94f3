"""What a frame costs a replica in Python does not depend on how many messages and rows it has.

What is verified: the number of Python calls, from the bytes of a message to the commit, with one row and with many,
with few messages and with many. Not verified here: the time, SQLite's own work.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from amqpd.journal.records import SeqRange, SourceEntry
from amqpd.journal.sqlite.disk import SqliteDisk
from amqpd.journal.sqlite.payload import encode as payload_of
from amqpd.journal.transaction import JournalTransaction
from amqpd.peers.encoding import decode, encode
from amqpd.peers.entry import START, Frame, new_entry
from amqpd.peers.messages import Cut, OpenedSource, Opening
from amqpd.replication.log import Log
from amqpd.replication.receiver import Receiver
from amqpd.replication.replica import Replica, Replicas, Write
from tests.journal.disks import row

SOURCE, EPOCH = 5, 3


def calls_of_a_frame(directory: Path, rows: int, settled: int) -> int:
    """Of Python functions, for one that has these numbers of rows and of settled ranges."""
    disk = SqliteDisk(directory)
    receiver = Receiver("a", 1, Replicas([Replica(SOURCE, Log(START))]))
    opening: list[Write] = []
    try:
        index = disk.recover().index
        receiver.open(Opening(1, (OpenedSource(SOURCE, EPOCH, START, None),), 0), opening)
        entry = SourceEntry(SOURCE, EPOCH, 2)
        entry.rows = [row(40 + at % 3, 10 * at, 10 * at + 9, nbytes=500) for at in range(rows)]
        entry.settled = [SeqRange(40, 20_000 + 2 * at, 20_000 + 2 * at) for at in range(settled)]
        frame = Frame(2, 1, (new_entry(SOURCE, (EPOCH, 2), START, payload_of(entry)),), 1)
        came = b"".join(encode(Cut(1, 1, frame)))
        disk.commit(JournalTransaction(index + 1, writes=opening))
        calls = 0

        def count(frame: FrameType, event: str, argument: Any) -> None:
            nonlocal calls
            calls += event == "call"

        gc.disable()  # what other tests left, and is collected meanwhile, may call what counts
        sys.setprofile(count)
        try:
            message = decode(came)
            assert isinstance(message, Cut)
            writes: list[Write] = []
            receiver.receive(message.frame, writes)
            disk.commit(JournalTransaction(index + 2, writes=writes))
        finally:
            sys.setprofile(None)
            gc.enable()
        assert disk._writer.execute("SELECT count(*) FROM batch").fetchone() == (rows,)
        return calls
    finally:
        disk.close()


@pytest.mark.parametrize(("rows", "settled"), [(200, 1), (1, 500), (300, 300)])
def test_a_frame_costs_a_replica_the_same_whatever_it_has(tmp_path: Path, rows: int, settled: int) -> None:
    assert calls_of_a_frame(tmp_path / "many", rows, settled) == calls_of_a_frame(tmp_path / "one", 1, 1)
