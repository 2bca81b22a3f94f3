"""The journal as a forwarder knows it, with an ear: what becomes known to be committed is told to the law at once.

What comes in: what a forwarder hands to its journal. What goes out: the same, to the real one; entries, to the law.
Rules: 1. Nothing is changed on the way. 2. An entry is heard of when it is to be written, and told when the forwarder
says that it is committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amqpd.peers.entry import START, LogEntry, Position
from amqpd.replication.replica import (
    Appended,
    StateBegin,
    StateDiscard,
    StateEnd,
    StateInstall,
    Undone,
    VoteCast,
    Write,
)

if TYPE_CHECKING:
    from tests.replication.simulation.process import Process


class HeardJournal:
    def __init__(self, process: Process) -> None:
        self.__dict__["_process"] = process
        self.__dict__["_journal"] = process.journal
        self.__dict__["_tails"] = {
            source: process.disk.log_entries(source, process.disk.head(source).committed, 1 << 62)
            for source in process.cluster.sets
        }
        self.__dict__["_staged"] = {}
        self.__dict__["_ended"] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._journal, name, value)

    def write(self, writes: list[Write]) -> int:
        self.writes(writes)
        index: int = self._journal.write(writes)
        return index

    def writes(self, writes: list[Write]) -> list[Write]:
        """These are on their way."""
        tails: dict[int, list[LogEntry]] = self._tails
        staged: dict[int, list[LogEntry]] = self._staged
        ended: dict[int, Position] = self._ended
        counts = self._process.clock.counts
        for write in writes:
            if isinstance(write, Appended):
                source = write.entry.source
                (staged[source] if source in staged else tails[source]).append(write.entry)
            elif isinstance(write, Undone):
                counts["tail undone"] += 1
                of = staged if write.source in staged else tails
                for each in of[write.source]:
                    if each.position > write.position:
                        self._process.cluster.law.undone(self._process.name, each)
                of[write.source] = [each for each in of[write.source] if each.position <= write.position]
            elif isinstance(write, StateBegin):
                staged[write.source] = []
            elif isinstance(write, StateDiscard):
                staged.pop(write.source, None)
            elif isinstance(write, StateEnd):
                ended[write.source] = write.base
            elif isinstance(write, StateInstall):
                # A copy that is dropped has nothing then.
                counts["caught up by state"] += ended.pop(write.source) > START
                tails[write.source] = staged.pop(write.source)
            elif isinstance(write, VoteCast):
                counts["voted"] += 1
        return writes

    def note_committed(self, source: int, position: Position) -> None:
        process, tail = self._process, self._tails[source]
        if tail and tail[0].position <= position:
            known = [each for each in tail if each.position <= position]
            self._tails[source] = tail[len(known) :]
            read = process.disk.content
            process.cluster.law.committed(process.name, [(each, read(each.payload)) for each in known])
        self._journal.note_committed(source, position)
