"""Of the sources that this node leads: which epoch each is in, and in which ones what stands there came in.

What comes in: sources that begin and end here; of each queue, the epochs of what was there. What goes out: what the
books of these queues name messages by.
Rules: 1. Of a queue that several nodes keep, an epoch of its source takes the place of a node's incarnation: the next
leader may be another node, which has a log and incarnations of its own. 2. The journal knows in which epoch a row
came in, so nothing is kept for the next start. 3. Pure.
Not here: the incarnations of a node (`epochs.py`), how an epoch is won (`amqpd/replication/take_over.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from amqpd.audit.epochs import Eras


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
