"""In which incarnation of the broker, or which leader's epoch, a queue's messages came.

What comes in: what an earlier start knew; the backlogs that the journal gave back; sources whose leader this node
becomes. What goes out: for each queue, the incarnations or epochs whose messages may still be there, with the first
number of each.
Rules: 1. Numbers that never reached the disk are given out again after a restart, so a number alone names no message;
with its epoch it does. 2. What no message needs any more is forgotten. 3. Pure: `files/incarnations.py` has the file.
4. Of a queue that several nodes keep, an epoch of its source takes the place of a node's incarnation: the next leader
may be another node. The journal knows in which epoch a row came in, so nothing is kept for the next start.
Not here: what epochs are for (`book.py`), how one is won (`amqpd/replication/take_over.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Eras = list[tuple[int, int]]
"""(incarnation, first number of that incarnation), ascending"""


class Epochs:
    """Tells in which incarnation of the broker a message came, by its queue and its number."""

    def __init__(self, incarnation: int = 1, known: dict[int, Eras] | None = None) -> None:
        """`known`: as `recovered` of the incarnation before left it."""
        self.incarnation = incarnation
        self._eras: dict[int, Eras] = known or {}

    def of(self, queue_id: int) -> Eras:
        """The incarnations before this one."""
        return self._eras.get(queue_id, [])

    def recovered(self, levels: Iterable[tuple[int, int, int | None]]) -> dict[int, Eras]:
        """What the next start has to know. `levels`: (queue_id, next number, the lowest number that stands there or
        None), of all there are at this start."""
        next_eras: dict[int, Eras] = {}
        eras: dict[int, Eras] = {}
        for queue_id, next_seq, lowest in levels:
            # Of an incarnation that began beyond the end nothing is left, and its numbers are given out again.
            known = [era for era in self._eras.get(queue_id, ()) if era[1] < next_seq]
            if not known:
                # It was made in the last incarnation, whatever it holds.
                known = [(self.incarnation - 1, 0)]
            while len(known) > 1 and (lowest is None or known[1][1] <= lowest):
                known.pop(0)
            eras[queue_id] = known
            next_eras[queue_id] = [*([] if lowest is None else known), (self.incarnation, next_seq)]
        self._eras = eras
        return next_eras


class LeaderEpochs:
    """The epochs of the sources that one node leads, and the epochs in which the messages of their queues came in."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        """of each source that is led here"""
        self._eras: dict[int, Eras] = {}
        self._queues: dict[int, list[int]] = {}
        """of each source, those that have eras"""

    def begin(self, source: int, epoch: int, eras: Mapping[int, Eras]) -> None:
        """`eras`: of each queue in which something stands, by its id."""
        self.end(source)
        self.epochs[source] = epoch
        self._eras.update(eras)
        self._queues[source] = list(eras)

    def end(self, source: int) -> None:
        self.epochs.pop(source, None)
        for queue_id in self._queues.pop(source, ()):
            del self._eras[queue_id]

    def of(self, queue_id: int) -> Eras:
        """The epochs before this one, of which something is there."""
        return self._eras.get(queue_id, [])
