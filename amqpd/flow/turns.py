"""The budget of a turn and of a tick: nobody's input keeps the others waiting.

What comes in: how much work was done for which connection. What goes out: connections that are not read on
(`Intake.throttled`), and that go on in a later tick.
Rules: 1. Work is counted, not timed: the core has no clock. The unit is about a microsecond of the compiled build on
a processor of today; the plain build takes two or three. Code whose work a client can make large charges it by what
was visited (bindings, targets, consumers, nodes, bytes). 2. A turn begins with each read, and ends when its budget
is used up. What was sent beyond it waits in the connection's buffer, so there is never more of it than one read, and
goes on when everybody else has had a turn. 3. All connections of a tick share a budget: those that are ready when it
is used up come first in the next tick. 4. What a single step cannot finish goes on in the next turn
(`Intake.unfinished`), before anything else of that connection, and also when the connection has closed meanwhile.
Not here: what queues may do in a tick (`QueueHost.work_left`), how many bytes are read (`amqpd/pump.py`), how fast
somebody may publish (`quotas.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Final

from amqpd.vocabulary.client import Client
from amqpd.vocabulary.states import ConnectionState

# A client may have to wait for one tick that has just begun and for its own, each of which has this budget twice, for
# connections and for queues: 16 ms of the 50 ms that nobody is to wait. Messages that all differ, in backlogs of
# hundreds of thousands, take two or three times what they are charged.
TURN_WORK_MAX = 4_000
# The connections that are ready in one tick share it, so that a tick with twenty is no longer than with one. A turn
# shorter than this would be spent on putting aside the rest of what came.
TURN_WORK_MIN = 250

# What is charged, in the unit above.
FRAME_WORK: Final = 3
"""any frame, or a run of publishes"""
METHOD_WORK: Final = 15
"""a method that is carried out, its answer included"""
COPY_WORK: Final = 2
"""a run that is put into one of several queues"""
LOST_WORK: Final = 100
"""a connection that ends without a word, its socket and the line in the log included"""
SENT_WORK: Final = 10
"""a send to a connection that did not ask for it"""


class Turns:
    """The budget of the turn and of the tick, and the clients that wait for their next turn."""

    def __init__(self, slowed: Mapping[Client, None] | None = None) -> None:
        """`slowed`: connections that wait for their quota (`quotas.py`), which lets them go on."""
        self._slowed: Mapping[Client, None] = {} if slowed is None else slowed
        self.waiting: dict[Client, None] = {}
        """what they sent was more than their turn could do; the one that waits longest first"""
        self.turn_work = TURN_WORK_MAX
        """how long a turn is in this tick"""
        self.tick_left = TURN_WORK_MAX
        """what connections may still do in this tick"""
        self.holder: Client | None = None
        """whose commit the journal waits for, and with it all that wait for confirms (`session/holds.py`)"""

    def begin(self, ready: int) -> None:
        """A tick begins, with this number of sockets ready."""
        self.tick_left = TURN_WORK_MAX
        if ready > 1 or self.waiting:
            self.turn_work = max(TURN_WORK_MIN, TURN_WORK_MAX // (ready + len(self.waiting)))
        else:
            self.turn_work = TURN_WORK_MAX

    def charge(self, client: Client, work: int) -> None:
        """This much work was done for the connection."""
        turn = client.turn
        turn.work_left -= work
        if turn.work_left <= 0 and not turn.throttled:
            self.end(client)

    def end(self, client: Client) -> None:
        """The connection's turn ends."""
        client.turn.throttled = True
        self.waiting[client] = None

    def next(self) -> None:
        """The connections that wait go on, one at least, and as many as the tick's budget allows. The one that the
        journal waits for goes first, with a whole turn in each tick."""
        waiting = self.waiting
        if not waiting:
            return
        self.waiting = {}
        holder = self.holder
        if holder is not None and holder in waiting:
            del waiting[holder]
            turn_work, self.turn_work = self.turn_work, TURN_WORK_MAX
            holder.guard(holder.turn.go_on)
            self.turn_work = turn_work
        served = 0
        for client in waiting:
            served += 1
            turn = client.turn
            if turn.unfinished or (client.state is not ConnectionState.CLOSED and client not in self._slowed):
                client.guard(turn.go_on)
            if self.tick_left <= 0:
                break
        if served < len(waiting):
            self.waiting = {**dict.fromkeys(islice(waiting, served, None)), **self.waiting}
