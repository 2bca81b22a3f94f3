"""Holds: the journal commits nothing while what must be in one of its transactions is carried out step by step.

What comes in: a commit of a transaction, as steps; what queues do with dead letters. What goes out:
`JournalBuffer.hold` and `release`, always in pairs; the connection whose commit holds the journal, for `Turns`, which
serves it first.
Rules: 1. While the journal is held nobody's durable message is confirmed. So what commits do under it between two
transactions of the journal has a bound, and what dead letters do has one of its own: HOLD_WORK_MAX each. 2. One
commit holds at a time. The next ones are parked, in order, without a turn of their own, until there is space for them
in the transaction that gathers, or the journal has taken that one. 3. A commit that is larger than the bound does not
hold, so its parts may be in several transactions; commit-ok follows the last of them. 4. Dead letters cannot wait,
what died has left its queue: those that would go beyond the bound go on without a hold. 5. A hold ends with its
steps, whatever ends them.
Not here: what is committed (`methods/modes.py`), dead letters (`publishing/dead_lettering.py`,
`node/dispatching.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from amqpd.vocabulary.client import Client

if TYPE_CHECKING:
    from amqpd.flow.turns import Turns
    from amqpd.journal.buffer import JournalBuffer

# In the unit of `flow/turns.py`, a microsecond: commits and dead letters together make a hold of about 100 ms. It
# is a commit of some 8,000 messages to a queue each, or of 25,000 copies of few messages.
HOLD_WORK_MAX = 50_000


class Holds:
    """The holds on the journal, and the commits that wait for one."""

    def __init__(self, journal: JournalBuffer, turns: Turns) -> None:
        self._journal = journal
        self._turns = turns
        self.waiting: deque[tuple[Client, int]] = deque()
        """parked, with what their commits will take"""
        self._index = journal.index
        """of the transaction that the work belongs to"""
        self._commits_work = self._dead_letters_work = 0
        """under a hold, for the transaction that gathers"""
        self._dead_letters = False
        """they hold the journal"""

    def commit(self, connection: Client, work: int, steps: Iterator[None]) -> Iterator[None]:
        """The steps of a commit, which take so much work, under a hold if they fit into one. For `Intake.begin`."""
        if work > HOLD_WORK_MAX:
            yield from steps
            return
        turns = self._turns
        if turns.holder is not None or self.waiting or not self._fits(work):
            self.waiting.append((connection, work))
            connection.turn.parked = True
            self.look()
            yield
        turns.holder = connection
        self._new_transaction()
        self._commits_work += work
        self._journal.hold()
        try:
            yield from steps
        finally:
            self._journal.release()
            turns.holder = None
            self.look()

    def look(self) -> None:
        """A hold has ended, or the journal may have taken a transaction: the next one goes on if it can, with a turn
        in the next tick."""
        if self.waiting and self._turns.holder is None and self._fits(self.waiting[0][1]):
            connection = self.waiting.popleft()[0]
            self._turns.holder = connection
            connection.turn.parked = False
            self._turns.end(connection)

    def dead_letters_begin(self) -> None:
        """What died leaves its queue, and its dead letter follows in steps."""
        self._new_transaction()
        if not self._dead_letters and self._dead_letters_work < HOLD_WORK_MAX:
            self._dead_letters = True
            self._journal.hold()

    def dead_letters_did(self, work: int) -> None:
        """A step took so much."""
        self._dead_letters_work += work
        if self._dead_letters_work >= HOLD_WORK_MAX:
            self.dead_letters_end()

    def dead_letters_end(self) -> None:
        """All dead letters are where they go, or hold the journal no longer."""
        if self._dead_letters:
            self._dead_letters = False
            self._journal.release()
            # If nothing gathered under it, no transaction follows after which somebody would look.
            self.look()

    def _fits(self, work: int) -> bool:
        self._new_transaction()
        return not self._commits_work or self._commits_work + work <= HOLD_WORK_MAX

    def _new_transaction(self) -> None:
        """What was done is counted from the last take on. Without anything that waits for the journal there is no
        take, and nothing waits."""
        journal = self._journal
        if journal.index != self._index or not (journal.held or journal.gathered):
            self._index = journal.index
            self._commits_work = self._dead_letters_work = 0
