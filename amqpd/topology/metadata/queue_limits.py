"""Limits of virtual hosts on queues, where several nodes share a store: together they make no queue too many.

What comes in: transactions that create queues; what the store says was applied. What goes out: the same with a key of
the virtual host that is put, and, near the limit, compared.
Rules: 1. Each queue that is created in a virtual host with a limit puts the virtual host's key. 2. Near the limit the
key has to be as it was when the queues were counted: if another node was first, the creation conflicts, and it is
counted again. So the limit is exact, as long as others have not made `NEAR` queues that this node has not heard
of. 3. Near the limit one creation of a virtual host is under way at a time: those of one node do not conflict with
each other.
Not here: counting, and the refusal (`flow/client_counters.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from urllib.parse import quote

from amqpd.topology.limit_keys import MAX_QUEUES, limit_of
from amqpd.topology.metadata.store import Compare, Event, MetadataTransaction, PutKey, Snapshot
from amqpd.topology.state import Topology
from amqpd.vocabulary.records import Change, Put, QueueRecord

PREFIX = "limits/queues/"
NEAR = 256
"""Queues below the limit. Far from it creations go together, as many in a commit as there are."""

Resume = Callable[[bool], None]


class QueueLimits:
    """The keys by which the nodes that share a store keep the limits of virtual hosts on queues, as one node has
    read them."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._revisions: dict[str, int] = {}
        """of each key, as far as the topology is"""
        self._heard: dict[str, int] = {}
        """of the revision that is being applied"""
        self._waiting: dict[str, deque[Resume]] = {}
        """by key: a creation is under way, and these look again after it"""

    def load(self, snapshot: Snapshot) -> None:
        """Of `PREFIX`, not newer than what is then loaded of the topology."""
        self._revisions = {entry.key: entry.mod_revision for entry in snapshot.entries}

    def heard(self, event: Event) -> None:
        """It is about to be applied."""
        put = (each.key for each in event.operations if isinstance(each, PutKey) and each.key.startswith(PREFIX))
        self._heard.update(dict.fromkeys(put, event.revision))

    def applied(self) -> None:
        """All that was heard is in the topology."""
        self._revisions |= self._heard
        self._heard = {}

    def guarded(
        self, changes: Sequence[Change], transaction: MetadataTransaction, resume: Resume
    ) -> tuple[MetadataTransaction, Resume] | None:
        """None: it waits, and `resume(False)` is called when it is to look again."""
        vhost = _creates_in(changes)
        limit = None if vhost is None else limit_of(self._topology, "vhost", vhost, MAX_QUEUES)
        if vhost is None or limit is None or vhost not in self._topology.vhosts:
            return transaction, resume
        key = PREFIX + quote(vhost, safe="", errors="surrogatepass")
        put = replace(transaction, operations=(*transaction.operations, PutKey(key, "1")))
        if len(self._topology.vhosts[vhost].queues) + NEAR < limit:
            return put, resume
        if key in self._waiting:
            self._waiting[key].append(resume)
            return None
        self._waiting[key] = deque()
        compare = Compare(key, self._revisions.get(key, 0))
        return replace(put, compares=(*put.compares, compare)), partial(self._done, key, resume)

    def _done(self, key: str, resume: Resume, made: bool) -> None:
        waiting = self._waiting.pop(key)
        resume(made)
        while waiting and key not in self._waiting:
            waiting.popleft()(False)
        if waiting:
            self._waiting[key].extend(waiting)


def _creates_in(changes: Sequence[Change]) -> str | None:
    """The virtual host in which a queue is created; None: in none. One transaction creates queues in one."""
    for change in changes:
        if isinstance(change, Put) and change.create and isinstance(change.record, QueueRecord):
            return change.record.vhost
    return None
