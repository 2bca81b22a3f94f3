"""The metadata store: one record for each source, and compare-and-swap.

What can go wrong: it does not answer, before or after it did what it was asked; it is put back to an old copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from amqpd.replication import seal as seals
from amqpd.replication.take_over import SourceRecord
from tests.replication.simulation.clock import Clock


class SimulatedStore:
    """Of a cluster."""

    def __init__(self, clock: Clock, members: dict[int, tuple[str, ...]]) -> None:
        self._clock = clock
        self.revision = 1
        self.records = {
            source: SourceRecord(source, seals.NONE, each, (1,) * len(each), 1) for source, each in members.items()
        }
        self.copy = dict(self.records)
        self.silence = 0.0
        """how often it does not answer"""

    def swap(self, record: SourceRecord, then: Callable[[SourceRecord | None], None]) -> None:
        """Calls with the record as it is now, or None when somebody was first; again and again while the outcome is
        unknown, as a forwarder does."""
        self._clock.after(0.2, 5, lambda: self._swap(record, then))

    def _swap(self, record: SourceRecord, then: Callable[[SourceRecord | None], None]) -> None:
        chance, now = self._clock.chance, self.records[record.source]
        if chance.random() < self.silence:
            self._clock.counts["store did not answer"] += 1
            self._clock.after(5, 50, lambda: self._swap(record, then))
            return
        if now.revision == record.revision:
            self.revision += 1
            now = self.records[record.source] = replace(record, revision=self.revision)
            if chance.random() < self.silence:
                self._clock.counts["swap of unknown outcome"] += 1
                self._clock.after(5, 50, lambda: self._swap(record, then))
                return
        # The second swap of an unknown one conflicts with the first, which was the same life's.
        won = replace(now, revision=record.revision) == record
        self._clock.after(0.2, 5, lambda: then(now if won else None))

    def put_back(self) -> None:
        """An operator restores a copy. Revisions go on: a store of another generation would be told apart. The disks'
        generations stay as well: with older ones a set may have no majority, and waits for the operator again."""
        self._clock.counts["store put back"] += 1
        self.revision += 1
        self.records = {
            source: replace(each, revision=self.revision, generations=self.records[source].generations)
            for source, each in self.copy.items()
        }

    def keep_copy(self) -> None:
        self.copy = dict(self.records)
