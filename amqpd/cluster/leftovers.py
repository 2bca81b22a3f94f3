"""Copies of sources whose sets this forwarder is not in any more: dropped, when that is certain.

What comes in: records, as the store had them last; which leaders send here; the time. What goes out: writes that
leave nothing of a source but its vote.
Rules: 1. A copy is dropped when no leader sends its source here, for `DROP_S`, and the record does not name this
forwarder. 2. That is compared in the store: by a swap of the record with itself, after which every swap that was on
its way, of a leader that still counts on this copy, is refused. A leader that hears of the new revision admits nobody
who has not answered since (`set_changes.py`). 3. The store's answer may come late. Nothing is dropped when there is a
later record by then, or a leader has begun to send the source here since it was asked: that leader may have heard of
the swap first, and made this copy one that counts by another one. 4. A record of an older epoch than was voted for
here is of a store that has gone back, and a record that is missing is no record: nothing is dropped then.
Not here: a queue that is deleted (its leader has that in the log), whether a copy counts (`SourceRecord.counts`).
"""

from __future__ import annotations

from collections.abc import Mapping

from amqpd.cluster.followed_sources import FollowedSources
from amqpd.cluster.log_events import place_of
from amqpd.cluster.shell import Shell
from amqpd.peers.entry import START
from amqpd.replication.replica import Replicas
from amqpd.replication.take_over import SourceRecord

DROP_S = 30.0
"""A leader that is lost while this one learns is followed by another one long before: it need not begin again."""
DROPS_MAX = 2
"""at the same time: what a copy had goes in one transaction of the disk"""
ANSWER_S = 40.0
"""The store may never answer. Longer than a swap takes (`swaps.SWAP_S`)."""


class Leftovers:
    """Finds the copies of sources whose replica sets this node has left, and drops them when the store confirms
    it."""

    def __init__(
        self,
        name: str,
        shell: Shell,
        replicas: Replicas,
        copies: FollowedSources,
        records: Mapping[int, SourceRecord],
    ) -> None:
        """`records`: as the store had them last."""
        self._name = name
        self._shell = shell
        self._replicas = replicas
        self._copies = copies
        self._records = records
        self._since_s: dict[int, float] = {}
        """sources of which there is a copy too many, as far as is known"""
        self._asked: dict[int, float] = {}
        """those of which the store is asked, and until when its answer is waited for"""

    def beat(self) -> None:
        """Some twenty times in a lease."""
        now_s = self._shell.now_s
        self._asked = {source: until_s for source, until_s in self._asked.items() if until_s > now_s}
        for record in self._records.values():
            source = record.source
            if not self._is_leftover(record):
                self._since_s.pop(source, None)
                continue
            lasted_s = now_s - self._since_s.setdefault(source, now_s)
            if lasted_s >= DROP_S and source not in self._asked and len(self._asked) < DROPS_MAX:
                self._ask(record)

    def _is_leftover(self, record: SourceRecord) -> bool:
        replica = self._replicas[record.source]
        return (
            self._name not in record.members
            and replica.log.last > START
            and record.leader.epoch >= replica.vote.epoch
            and not self._copies.is_sent(record.source)
        )

    def _ask(self, record: SourceRecord) -> None:
        source = record.source
        self._asked[source] = self._shell.now_s + ANSWER_S
        openings = self._copies.openings[source]

        def answered(found: SourceRecord | None) -> None:
            in_time = self._asked.pop(source, 0.0) > self._shell.now_s
            if not in_time or found is None or self._copies.openings[source] != openings:
                self._since_s.pop(source, None)
            elif self._records[source].revision <= found.revision and self._is_leftover(found):
                last = self._replicas[source].log.last
                self._copies.drop(source)
                self._shell.log("copy_dropped", source=source, last=place_of(last), members=list(found.members))

        self._shell.swap(record, answered)
