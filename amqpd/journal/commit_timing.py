"""When a commit begins, where the one who begins it has nothing else to do: at once, or after what comes next; and
whether it may keep the pump's thread.

What comes in: the buffer, the time, whether something came while a commit was put off; when commits on the pump's
thread began and ended. What goes out: until when to wait; whether the next commit may be one of these.
Rules: 1. A commit that nobody waits for is put off until nothing comes. 2. Where consumers lately settled messages
before they were written, a commit is put off for a moment: it spares the commit of the message, of the
acknowledgement and of the deletion. Where none does, each try costs its time; so it is tried as long as one of some
tries succeeds, and else only now and then. 3. If much less waits for this commit than did for the last ones, those
clients have just had their confirms, and their next messages are one commit with this one: it is put off for them,
for less than a sync takes. 4. While a commit lasts on the pump's thread, all clients wait: after one that took long,
or when some took long on the average, the next ones go to a thread for a pause. A disk with a hiccup now and then is
hardly noticed, neither by those that wait for confirms nor by others. 5. Each time that this happens soon after the
last pause, the next is twice as long: a slow disk takes some hundredths of all clients' time. A process that the
system does not let run looks like a slow disk, too. 6. With replicas rules 1 and 2 spare the commits of all of them,
and the frames; there it is the writer's task that waits, and it sleeps.
Not here: what is committed, and what is small enough for the pump's thread (`buffer.py`), what is settled before it
is written (`unwritten.py`), who carries commits out (`writer.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from amqpd.journal.buffer import JournalBuffer

# Of the pump: a success is worth some three commits, and a try costs a third of one.
SUCCESS: Final = 4
CREDIT_MAX: Final = 32
# Without credit one commit of this many is waited with: that costs them one part in two hundred.
TRY_EACH: Final = 64


class SettlingOdds:
    """Decides whether a commit waits for a moment, by how often that was worth it."""

    def __init__(self, success: int = SUCCESS) -> None:
        """`success`: how many tries without success it makes up for."""
        self._success = success
        self._credit = CREDIT_MAX
        self._refused = 0

    def tries_next(self) -> bool:
        """Whether to wait with the next commit; it counts as asked for that one."""
        if self._credit > 0:
            return True
        self._refused += 1
        if self._refused < TRY_EACH:
            return False
        self._refused = 0
        return True

    def tried(self, worth_it: bool) -> None:
        """What was waited with is not needed any more, or it is."""
        self._credit = min(self._credit + self._success, CREDIT_MAX) if worth_it else max(self._credit - 1, 0)


# Some part of what a disk takes.
GATHER_S: Final = 0.0002


class CommitTiming:
    """Decides when the next commit of one buffer begins. Times are seconds of the clock `now_s`."""

    def __init__(self, journal: JournalBuffer, settle_s: float, now_s: Callable[[], float]) -> None:
        """`settle_s`: how long a consumer is given to settle what would be written; 0: commits begin at once."""
        self._journal = journal
        self._settle_s = settle_s
        self._now_s = now_s
        self._odds = SettlingOdds()
        self._tried = 0
        """the transaction that is put off by rule 2; 0: none is"""
        self._tried_until = 0.0
        self._gathers = 0
        """the same by rule 3"""
        self._gathers_until = 0.0

    def wait_until(self) -> float:
        """The commit of what gathers begins if nothing comes before this time; infinite: nobody waits for one."""
        journal, index = self._journal, self._journal.index
        if self._tried and (self._tried != index or not journal.urgent):
            if self._tried == index:
                self._odds.tried(True)
            self._tried = 0
        if not (journal.pending and journal.urgent):
            return math.inf
        if not self._settle_s:
            return 0.0
        if self._tried or self._odds.tries_next():
            if not self._tried:
                self._tried, self._tried_until = index, self._now_s() + self._settle_s
            return self._tried_until
        if 2 * journal.came >= journal.came_before:
            return 0.0
        if self._gathers != index:
            self._gathers, self._gathers_until = index, self._now_s() + GATHER_S
        return self._gathers_until

    def nothing_came(self) -> None:
        """Before the time that `wait_until` said."""
        if self._tried:
            self._tried = 0
            self._odds.tried(False)


# What one try of a leader costs at most; a consumer has it, settles it and is read within some tenths of it. There is
# no shorter sleep (`epoll`), and to stay awake would keep the peers from their sockets.
SETTLES_S: Final = 0.001
# Nobody waits for acknowledgements: with the next message they are one frame and one commit at each node.
ACKS_S: Final = 0.002


class LeaderTiming:
    """Decides when the next transaction of a node that leads replicated sources is cut: it is a frame to each peer,
    and a commit at each. Times are seconds of one clock."""

    def __init__(self, journal: JournalBuffer) -> None:
        self._journal = journal
        # A try that fails takes about as long as what a success spares.
        self._odds = SettlingOdds(1)
        self._index = 0
        """the transaction that the next three are of"""
        self._began_s = 0.0
        """since when there is something in it, or somebody waits for it"""
        self._urgent = False
        """somebody does"""
        self._tries = False
        """it is put off for consumers"""

    def wait_until(self, now_s: float) -> float:
        """It is cut at this time, if that is not over; earlier, if this says so when something has changed."""
        journal = self._journal
        if not journal.led_sources:
            return 0.0
        if self._index != journal.index:
            self._index, self._began_s, self._urgent, self._tries = journal.index, now_s, False, False
        if not journal.urgent:
            return self._began_s + ACKS_S
        if not self._urgent:
            self._urgent, self._began_s = True, now_s
            self._tries = journal.settles_soon and self._odds.tries_next()
        return self._began_s + SETTLES_S if self._tries and journal.settles_soon else 0.0

    def cut(self) -> None:
        """It is cut now."""
        if self._tries and self._index == self._journal.index:
            self._odds.tried(not self._journal.unwritten.is_left)
            self._tries = False


TOOK_S_MAX: Final = 0.02
AVERAGE_S_MAX: Final = 0.003
AVERAGED: Final = 8
PAUSE_S_MIN: Final = 0.25
PAUSE_S_MAX: Final = 16.0


class Promptness:
    """Predicts whether the next commit on one disk is prompt enough for the pump's thread. Times are seconds of
    one clock."""

    def __init__(self) -> None:
        self._average_s = 0.0
        self._pause_s = PAUSE_S_MIN
        """of the next one"""
        self._paused_until = -math.inf

    def expected(self, now_s: float) -> bool:
        """No pause is on."""
        return now_s >= self._paused_until

    def took(self, began_s: float, ended_s: float) -> None:
        """A commit on the pump's thread did."""
        took_s = ended_s - began_s
        self._average_s += (took_s - self._average_s) / AVERAGED
        if took_s <= TOOK_S_MAX and self._average_s <= AVERAGE_S_MAX:
            return
        self._average_s = 0.0
        if began_s - self._paused_until >= 2 * self._pause_s:
            self._pause_s = PAUSE_S_MIN
        self._paused_until = ended_s + self._pause_s
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
