"""Sources that the store's record gives to this process, which does not become their leader: given back.

What comes in: records of attempts that ended after the store had named this process; records as the store had them
last; the time. What goes out: swaps that leave the source without a leader.
Rules: 1. The others hear this process, and would wait for a leader that the store names: it is tried until the record
names somebody else, or nobody. A store that does not answer, and a swap of the record with itself that another member
was first with (`leftovers.py`), are both a reason to try it again. 2. The others come first: as long as that is not
done, and for `OTHERS_FIRST_S` after it, this process does not try to become the leader again.
Not here: why an attempt ends (`takeovers.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from amqpd.cluster.shell import Shell
from amqpd.replication.set_change import handed_over
from amqpd.replication.take_over import SourceRecord

OTHERS_FIRST_S = 2.0
"""longer than all the others take to try it"""
AGAIN_S = 2.0
"""after a swap that was not carried out, or is not known to be"""
ANSWER_S = 40.0
"""The store may never answer. Longer than a swap takes (`swaps.SWAP_S`)."""


class GiveBacks:
    """The sources that one process gives back, because the store's record names it and it does not become their
    leader."""

    def __init__(self, shell: Shell, records: Mapping[int, SourceRecord]) -> None:
        """`records`: as the store had them last."""
        self._shell = shell
        self._records = records
        self._pending: dict[int, tuple[SourceRecord, float]] = {}
        """source -> the record that names this process, and when it is tried again"""
        self._until_s: dict[int, float] = {}
        """sources that were given back: the others come first until then"""

    def keeps_off(self, source: int) -> bool:
        """The others come first."""
        return source in self._pending or self._until_s.get(source, 0.0) > self._shell.now_s

    def begin(self, record: SourceRecord) -> None:
        """It names this process, which makes no attempt of the source before this is done."""
        self._pending[record.source] = record, self._shell.now_s
        self._look(record.source)

    def beat(self) -> None:
        """Some twenty times in a lease."""
        for source in list(self._pending):
            self._look(source)

    def _look(self, source: int) -> None:
        record, again_s = self._pending[source]
        known = self._records.get(source, record)
        if known.revision > record.revision and known.leader != record.leader:
            self._done(source)
        elif again_s <= self._shell.now_s:
            self._try(max(record, known, key=lambda each: each.revision))

    def _try(self, record: SourceRecord) -> None:
        source, now_s = record.source, self._shell.now_s
        asked = self._pending[source] = record, now_s + ANSWER_S

        def answered(found: SourceRecord | None) -> None:
            if self._pending.get(source) is not asked:
                return  # it came too late
            if found is not None:
                self._done(source)
            else:
                self._pending[source] = record, self._shell.now_s + AGAIN_S

        self._shell.swap(handed_over(record), answered)

    def _done(self, source: int) -> None:
        del self._pending[source]
        self._until_s[source] = self._shell.now_s + OTHERS_FIRST_S
