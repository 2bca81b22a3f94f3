"""A disk that is made of another one of the same journal, while that one is in use.

What comes in: a disk that is recovered; what another one knew between two transactions, when its tables were copied.
What goes out: the one or the other.
Rules: 1. What is known is copied: each disk changes its own. 2. A disk that is adopted goes on with the next
transaction, in the same incarnation: nothing of it is recovered, or is dead that is not on the other one.
Not here: copying tables (`likeness.py`), who wants that (`amqpd.datadir.disks`).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from copy import copy
from dataclasses import dataclass

from amqpd.journal.sqlite.checkpoints import Checkpoints
from amqpd.journal.sqlite.discards import Discards
from amqpd.journal.sqlite.mark_rows import MarkRows
from amqpd.journal.sqlite.queue_marks import QueueMarks
from amqpd.journal.sqlite.reserve import Reserve
from amqpd.journal.sqlite.sources import SourceProgress


@dataclass(slots=True)
class AdoptionSource:
    """The state of a disk that it keeps in memory, for another disk that adopts its tables."""

    sources: SourceProgress
    discards: Discards
    timed: set[int]
    counted: set[int]
    marks: QueueMarks
    operations: MarkRows


class Adopts:
    """The part of a disk that is made a copy of another disk, or is copied to one."""

    checkpoints: Checkpoints
    _sources: SourceProgress
    _discards: Discards
    _timed: set[int]
    _counted: set[int]
    _marks: QueueMarks
    _operations: MarkRows
    _recovered: bool
    _reserve: Reserve
    _failure: str | None

    def _make_mark(self) -> None:
        raise NotImplementedError

    @property
    def stored_index(self) -> int:
        """Of the last transaction: one that was not stored is not counted."""
        return self._sources.local.idx

    def adoption_source(self) -> AdoptionSource:
        """What another disk needs to go on as this one. Between two transactions, in the thread that commits."""
        before = self._sources
        sources = SourceProgress(
            {number: copy(head) for number, head in before.heads.items()}, before.held, before.behind
        )
        sources.staged, sources.stale = dict(before.staged), dict(before.stale)
        discards = self._discards.copied(sources.is_committed)
        known = set(self._timed), set(self._counted), self._marks.copied(), self._operations.copied()
        return AdoptionSource(sources, discards, *known)

    def adopt(self, donor: AdoptionSource) -> None:
        """In place of `recover`: the tables are those that the other disk had then. Raises DiskFailure."""
        self._sources, self._discards, self._marks = donor.sources, donor.discards, donor.marks
        self._timed, self._counted, self._operations = donor.timed, donor.counted, donor.operations
        self._recovered = True
        self._reserve.restore()
        self._make_mark()

    def fail(self, reason: str) -> None:
        """Nothing is written to it any more, and `close` leaves its files as they are."""
        if self._failure is None:
            self._failure = f"the journal stopped: {reason}"

    def sharing(self) -> AbstractContextManager[None]:
        """A context in which another connection of this process may copy the log."""
        return self.checkpoints.sharing()
