"""The figures of a minute: what the level `counts` records.

What comes in: the queues' facts and the connections' counts of publishes. What goes out: a row for each figure that
grew.
Rules: 1. Increases, not totals: sums over any time are right, whatever restarts lie in it. 2. Queues whose messages
are recorded have no figures: they can be counted.
Not here: who calls it each minute (`files/log.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from operator import sub
from typing import TYPE_CHECKING

from amqpd.audit.coverage.coverage import Coverage
from amqpd.queues.states import AWAY, QueueState

if TYPE_CHECKING:
    from amqpd.audit.coverage.audited import Audited
    from amqpd.vocabulary.client import Client

FIGURES = ("accepted", "delivered", "acked", "expired", "dropped", "rejected", "dead_lettered", "purged")
_NONE = (0,) * len(FIGURES)


GONE = (*AWAY, QueueState.DELETED)
# Queues or connections that are looked at together: some milliseconds.
AT_ONCE = 500


class MinuteCounts:
    """Adds up, a minute at a time, what happens to messages of queues whose events are not recorded one by one."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage
        coverage.on_gone = self.gone
        self._before: dict[Audited, tuple[int, ...]] = {}
        """of all queues that have any, also of those that are recorded: they may not be for ever"""
        self._published: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
        """by (virtual host, user): messages and bytes since the last row"""

    def begin(self, queues: Sequence[Audited]) -> None:
        """What was there at the start was counted in an earlier incarnation."""
        self._before = {queue: figures for queue in queues if (figures := _figures(queue)) != _NONE}

    def left(self, connection: Client) -> None:
        """The connection is closed: what it published is counted with the next rows."""
        if connection.published > connection.audited:
            known = self._published[connection.vhost, connection.user]
            known[0] += connection.published - connection.audited
            known[1] += connection.published_bytes - connection.audited_bytes
            connection.audited, connection.audited_bytes = connection.published, connection.published_bytes

    def gone(self, queue: Audited) -> None:
        """The queue is deleted, or its leader is another node now."""
        if not queue.facts.accepted:
            return  # nothing ever came into it, so nothing left it
        self._count(queue, self._before.pop(queue, _NONE), _figures(queue))

    def write_in_steps(self, queues: Sequence[Audited], connections: list[Client]) -> Iterator[None]:
        """The node may go on between two steps."""
        recorder, coverage = self._coverage.recorder, self._coverage
        for at, connection in enumerate(connections, 1):
            self.left(connection)
            if at % AT_ONCE == 0:
                yield
        for at, queue in enumerate(queues, 1):
            # What has gone since was counted when it went.
            if queue.state not in GONE:
                before, figures = self._before.get(queue, _NONE), _figures(queue)
                if figures != before:
                    self._count(queue, before, figures)
                    self._before[queue] = figures
            if at % AT_ONCE == 0:
                yield
        published, self._published = self._published, defaultdict(lambda: [0, 0])
        for (vhost, user), counts in published.items():
            if coverage.of_vhost(vhost).counts:
                for figure, count in zip(("published", "published_bytes"), counts, strict=True):
                    about = {"vhost": vhost, "user": user}
                    recorder.row("counted", {**about, "detail": figure, "count": count})

    def _count(self, queue: Audited, before: tuple[int, ...], now: tuple[int, ...]) -> None:
        if before == now or not self._coverage.level_of(queue).counts:
            return
        record = queue.record
        for figure, count in zip(FIGURES, map(sub, now, before), strict=True):
            if count > 0:
                about = {"vhost": record.vhost, "queue": record.name, "queue_id": record.id}
                self._coverage.recorder.row("counted", {**about, "detail": figure, "count": count})


def _figures(queue: Audited) -> tuple[int, ...]:
    facts = queue.facts
    accepted, *left = [getattr(facts, figure) for figure in FIGURES]
    # What was recovered was counted where it came in: in an earlier incarnation, or by the leader before this one.
    return (accepted - facts.recovered, *left)
