"""The start of one process: from its disk's last claim until it is a member.

What comes in: what the disk has kept, what the store knows. What goes out: the next claim, on the disk and then in
the store; the process begins as a member.
Rules: 1. `Claim` and what a disk keeps of it (`amqpd/cluster/claims.py`, `amqpd/cluster/incarnations.py`) are the
shipped ones; the order of the steps is that of `Directory._join`. 2. Between two steps time passes, in which the
process may be killed, or paused until its lease has run out; what it sent to the store may arrive when it is gone.
Not here: `Directory` itself, which is driven step by step in `tests/cluster/test_starts.py`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from amqpd.cluster import incarnations
from amqpd.cluster.claims import Claim
from amqpd.cluster.records import KnownRecord

if TYPE_CHECKING:
    from tests.replication.simulation.process import Process


class Start:
    """`look` begins it."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._store = process.cluster.store
        self._claim: Claim = incarnations.of(process.disk)
        self._claimed_upon: int | None = None
        """the revision of what the store knew when the claim was made; None: this process has made none"""

    def look(self) -> None:
        """What the store knows of this node."""
        self._store.look(self._process.name, lambda *seen: self._process.run(partial(self._seen, *seen)))

    def _seen(self, known: KnownRecord | None, revision: int, is_member: bool) -> None:
        process, claim = self._process, self._claim
        if self._claimed_upon is not None:
            if is_member and known == self._as_known():
                process.begin(claim)
                return
            if known is None or revision == self._claimed_upon or claim.goes_on(known):
                self._put(revision)
                return
        self._claim = claim.next(known, partial(self._store.draw_generation, process.name), self._store.draw_nonce)
        self._claimed_upon = revision
        process.incarnation = self._claim.incarnation
        self._keep(revision)

    def _keep(self, revision: int) -> None:
        def kept(_: object, error: BaseException | None) -> None:
            if error is not None:
                raise error
            self._process.run(partial(self._put, revision))

        self._process.machine.thread(self._process, self._write, (), kept)

    def _write(self) -> None:
        self._process.disk.set_names(**incarnations.names(self._claim))

    def _put(self, revision: int) -> None:
        """Whatever comes of it, the store is looked at again."""
        process = self._process
        self._store.put(process, self._as_known(), revision, lambda: process.run(self.look))

    def _as_known(self) -> KnownRecord:
        return KnownRecord(self._process.name, self._claim.incarnation, self._claim.generation, self._claim.nonce)
