"""Whether a connection may be read: alarms, quotas, queues that drain, a journal that is behind, suspended channels.

What comes in: what the connection published to, what its channels hold. What goes out: `paused`; connection.blocked
and unblocked.
Rules: 1. An alarm blocks a connection at its next publish, and tells it once for all alarms; consumers go on. So it
is, without a word, while the node is not current. Nothing of that publish is taken, nor the rest of one that was half
received: it waits where it is, with what came behind it. 2. What slows without an alarm is not told, for it ends
soon; except that no majority of a queue's nodes answers. 3. A connection that is paused is looked at again after each
tick. 4. One that goes on begins with what was left in the middle, then come frames that its channels hold, then what
came.
Not here: when a queue slows its publishers (`flow/congestion.py`), when memory or disk are short
(`process/alarms.py`), how fast somebody may publish (`flow/quotas.py`), how long a turn is (`flow/turns.py`).

Source: https://www.rabbitmq.com/docs/connection-blocked, https://www.rabbitmq.com/docs/flow-control.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Final

from pamqp import commands
from pamqp.exceptions import AMQPSoftError

from amqpd.session.ports import ChannelBase, ConnectionBase, IntakeBase
from amqpd.vocabulary.states import ConnectionState

# What suspended channels of one connection may hold before the connection is not read any more.
HELD_BYTES_MAX: Final = 1024 * 1024

NO_MAJORITY: Final = "a majority of the nodes that keep a queue does not answer"

_PUBLISH_ID = b"\x00\x3c\x00\x28"


class Intake(IntakeBase):
    """The turn of one connection, and all that may keep it from being read."""

    __slots__ = (
        "_connection",
        "_finishing",
    )

    def __init__(self, connection: ConnectionBase) -> None:
        super().__init__(connection.shared.turns.turn_work)
        self._connection = connection
        self._finishing = False

    @property
    def paused(self) -> bool:
        connection = self._connection
        if self.blocked or self.throttled or (connection.publishing and connection.shared.journal.full):
            return True
        if self.congested:
            slows = connection.shared.congestion.slows
            while self.congested:
                # One that slows it still is found again first: the others are not asked each time.
                queue = self.congested.popitem()[0]
                if slows(queue):
                    self.congested[queue] = None
                    return True
        return self.held_bytes > HELD_BYTES_MAX

    def stops(self, kind: int, number: int, method_id: bytes) -> bool:
        """An alarm is on: whether it stops the connection at this frame of that channel. It does at publishes and
        their content: what has come of a body takes memory too."""
        if kind not in (2, 3) and not (kind == 1 and method_id == _PUBLISH_ID):
            return False
        channel = self._connection.channels.get(number)
        if channel is None or channel.closing:
            return False  # an error, or thrown away
        self._block()
        return True

    def _block(self) -> None:
        connection = self._connection
        if not self.blocked:
            self.blocked = True
            if not self.cut_off and (short := connection.shared.alarms.shortages):
                self._tell_blocked("low on " + " & ".join(short))

    def _tell_blocked(self, reason: str) -> None:
        connection = self._connection
        if connection.capabilities.get("connection.blocked"):
            self.told_blocked = True
            connection.send(commands.Connection.Blocked(reason=reason))
            connection.shared.touched[connection] = None

    def _tell_unblocked(self) -> None:
        connection = self._connection
        if self.told_blocked and not (self.blocked or self.cut_off):
            self.told_blocked = False
            connection.send(commands.Connection.Unblocked())
            connection.shared.touched[connection] = None

    def set_cut_off(self, on: bool) -> None:
        if on == self.cut_off or self._connection.ended:
            return
        self.cut_off = on
        if on:
            if not self.told_blocked:  # who is blocked already is told once, as by RabbitMQ
                self._tell_blocked(NO_MAJORITY)
        else:
            self._tell_unblocked()
            self._connection.shared.touched[self._connection] = None
            self._connection.shared.turns.end(self._connection)

    def unblock(self) -> None:
        connection = self._connection
        if self.blocked:
            self.blocked = False
            self._tell_unblocked()
            connection.shared.touched[connection] = None
            # In turns: very many may have waited, each with as much as one read brought.
            connection.shared.turns.end(connection)

    def begin(self, steps: Iterator[None]) -> None:
        """Carry out the steps: as many as this turn has time for now, the others in later turns, before anything else
        of this connection."""
        if self.unfinished is None:
            self.unfinished = deque()
        self.unfinished.append(steps)
        if len(self.unfinished) == 1:
            self._finish()

    def carry_out(self, channel: ChannelBase, steps: Iterator[None], method_id: bytes) -> None:
        self.begin(_translated(channel, steps, method_id))

    def begin_apart(self, steps: Iterator[None]) -> None:
        turns = self._connection.shared.turns
        self.work_left = work = turns.turn_work
        self.begin(steps)
        turns.tick_left -= work - self.work_left

    def _finish(self) -> None:
        """One after the other. What a step begins comes behind it."""
        unfinished, turns = self.unfinished, self._connection.shared.turns
        if self._finishing or unfinished is None:
            return
        self._finishing = True
        try:
            while unfinished:
                for _ in unfinished[0]:
                    if self.parked:
                        self.throttled = True
                        return
                    if self.work_left <= 0:
                        turns.end(self._connection)
                        return
                unfinished.popleft()
        except Exception:
            # The others are still to be done.
            unfinished.popleft()
            if unfinished:
                turns.end(self._connection)
            raise
        finally:
            self._finishing = False

    def go_on(self) -> None:
        """Its next turn begins, or it may publish again."""
        connection = self._connection
        turns = connection.shared.turns
        self.throttled = self.parked and connection.state is ConnectionState.RUNNING
        self.work_left = work = turns.turn_work
        if self.unfinished and not self.parked:
            connection.guard(self._finish)
        if connection in connection.shared.quotas.waiting:
            self.throttled = True
        if self.stopped and not self.throttled:
            self._go_on_in_channels(self.stopped)
        turns.tick_left -= work - self.work_left
        if not (self.throttled or connection.suspended):
            connection.resume()

    def _go_on_in_channels(self, stopped: OrderedDict[ChannelBase, None]) -> None:
        """One that is stopped again comes last. The others are not looked at: of thousands that wait for the metadata
        store, that would be most of what a turn does."""
        connection = self._connection
        for _ in range(len(stopped)):
            if self.throttled or connection.state is not ConnectionState.RUNNING:
                break
            channel = stopped.popitem(last=False)[0]
            if channel.held and not channel.suspended and not channel.closed:
                connection.guard(channel.go_on)
        connection.channel_went_on()


def _translated(channel: ChannelBase, steps: Iterator[None], method_id: bytes) -> Iterator[None]:
    try:
        yield from steps
    except AMQPSoftError as error:
        if not channel.closed:
            channel.fail(error, method_id)


def unblocking(connections: list[ConnectionBase]) -> Iterator[None]:
    """No alarm is on any more: tell each connection."""
    for connection in connections:
        if not connection.shared.alarms.kinds:
            connection.guard(connection.intake.unblock)
        yield
