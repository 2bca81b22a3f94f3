"""What waits until the disk has it: confirms of channels, and calls.

What comes in: channels whose confirms wait, calls to make later; the journal's durable number. What goes out:
confirms, once for each tick; the calls.
Rules: 1. Nothing is told before the journal's number covers it. 2. What is due is told at the end of a tick, or
before a channel closes. 3. An error in one channel's confirms is that connection's, one in a call is that task's.
Not here: which publishes are safe (`confirms.py`), transactions (`journal/buffer.py`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable

from amqpd.faults import TASK, Faults
from amqpd.journal.buffer import JournalBuffer
from amqpd.session.confirms import Confirms
from amqpd.vocabulary.client import UnfinishedChannel


class ConfirmingChannel(UnfinishedChannel):
    """A channel, as far as its publishes are confirmed."""

    def __init__(self) -> None:
        super().__init__()
        self.confirms: Confirms | None = None

    @abstractmethod
    def flush_confirms(self) -> None:
        """Tell what is due."""


class Durability:
    """The waiters for the disk, of one node."""

    def __init__(self, journal: JournalBuffer, faults: Faults) -> None:
        self._journal = journal
        self._faults = faults
        self.due: dict[ConfirmingChannel, None] = {}
        """channels that have something to tell, in order"""
        self.waiting: dict[ConfirmingChannel, None] = {}
        """channels with publishes that are not on the disk yet"""
        self._calls: deque[tuple[int, Callable[[], None]]] = deque()

    def when_durable(self, done: Callable[[], None]) -> None:
        """Call `done` when all that was handed to the journal until now is on disk."""
        self._journal.force()
        self._calls.append((self._journal.index, done))

    def durable(self, index: int) -> None:
        """The journal's transactions up to `index` are on disk."""
        waiting, self.waiting = self.waiting, {}
        for channel in waiting:
            if channel.confirms is not None:
                self.due[channel] = None
                if not channel.confirms.durable(index):
                    self.waiting[channel] = None
        while self._calls and self._calls[0][0] <= index:
            done = self._calls.popleft()[1]
            try:
                done()
            except Exception as error:  # noqa: BLE001 - whoever waited; faults reports it, or raises it on
                self._faults.contain(TASK, "durable", error)

    def tell(self) -> None:
        """The end of a tick: what is due is told."""
        due, self.due = self.due, {}
        for channel in due:
            try:
                channel.flush_confirms()
            except Exception as error:  # noqa: BLE001 - the connection's; reported, or raised on
                channel.client.contain_later(error)

    def flush(self, channel: ConfirmingChannel) -> None:
        """Before something else is told to the channel."""
        self.due.pop(channel, None)
        channel.flush_confirms()

    def forget(self, channel: ConfirmingChannel) -> None:
        """It is closed."""
        self.waiting.pop(channel, None)
        self.due.pop(channel, None)
