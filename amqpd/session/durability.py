"""What waits until it is decided: confirms of channels, and calls.

What comes in: channels whose confirms wait, calls to make later, each for some lanes; lanes that have reported. What
goes out: confirms, once for each tick; the calls, each with its decision; receipts for what may be refused later.
Rules: 1. Nothing is told before all the lanes that it waits for have reported. 2. What is due is told at the end of a
tick, or before a channel closes. 3. An error in one channel's confirms is that connection's, one in a call is that
task's. 4. A lane's report costs nothing for what waits for other lanes. 5. Each lane is asked to report what somebody
waits for; the local journal is asked only for lanes whose messages gather in it. 6. A run has its numbers before the
first queue is offered it, so a refusal that comes later names them; one that comes before all of its queues have the
run waits until they do.
Not here: which publishes are safe (`confirms.py`), what a lane is (`journal/lane.py`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from enum import Enum

from amqpd.faults import TASK, Faults
from amqpd.journal.lane import Lane, Lanes
from amqpd.journal.unwritten import UnwrittenQueues
from amqpd.queues.receipt import Receipt
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


class ConfirmReceipt(Receipt):
    """The receipt of one run that a channel in confirm mode has published."""

    def __init__(self, durability: Durability, channel: ConfirmingChannel, first: int) -> None:
        """`first`: the number of its first message."""
        self._durability = durability
        self._channel = channel
        self._first = first
        self._taken = -1
        self._early: list[tuple[int, int]] = []
        """what was refused before all of its queues had it"""

    def offered(self, taken: int) -> None:
        """All queues were offered the run, and took this many of its messages, from the first on."""
        self._taken = taken
        early, self._early = self._early, []
        for low, high in early:
            self.refuse(low, high)

    def refuse(self, low: int, high: int) -> None:
        if self._taken < 0:
            self._early.append((low, high))
            return
        high = min(high, self._taken)
        if low < high and not self._channel.closed:
            self._durability.refuse(self._channel, self._first + low, self._first + high - 1)


class CommonReceipt(Receipt):
    """The receipt of all runs of a transaction, or of a message that an operator publishes: all or none of it."""

    def __init__(self) -> None:
        self.refused = False
        """some of it was"""

    def refuse(self, low: int, high: int) -> None:
        self.refused = self.refused or low < high


class Decision(Enum):
    """The outcome of messages that were handed to lanes."""

    SAFE = "safe"
    REFUSED = "refused"
    """a queue did not take some of it after all; the rest is safe"""
    LOST = "lost"
    """nobody will know whether it is safe"""


class LaneCall:
    """A call to be made when all of its lanes have reported, or one of them is lost."""

    def __init__(self, decided: Callable[[Decision], object], lanes: int, receipt: CommonReceipt | None) -> None:
        self._decided = decided
        self._receipt = receipt
        self.lanes = lanes
        """how many have not reported"""

    def done(self) -> None:
        """All have reported."""
        refused = self._receipt is not None and self._receipt.refused
        self._decided(Decision.REFUSED if refused else Decision.SAFE)

    def lost(self) -> None:
        """One of them never will."""
        self._decided(Decision.LOST)


class Durability:
    """The waiters for what makes messages safe, of one node."""

    def __init__(self, local: Lane, unwritten: UnwrittenQueues, faults: Faults) -> None:
        """`local`: the lane of what is this node's alone; `unwritten`: of its journal."""
        self._local = local
        self._unwritten = unwritten
        self._faults = faults
        self.due: dict[ConfirmingChannel, None] = {}
        """channels that have something to tell, in order"""
        self.waiting: dict[Lane, dict[ConfirmingChannel, None]] = {}
        """channels with publishes that are not safe yet, each once: at a lane that its first one waits for"""
        self._unsettled: dict[int, dict[ConfirmingChannel, None]] = {}
        """queue_id -> channels that do not wait for the commit of `_number` when their queues are settled before"""
        self._number = 0
        self._calls: dict[Lane, deque[tuple[int, LaneCall]]] = {}

    def wait(self, channel: ConfirmingChannel, confirms: Confirms) -> None:
        """Some of the channel's publishes wait."""
        lane = confirms.waits_for()
        if lane is None and confirms.advance():
            # The lanes of the first of them have reported since they were collected.
            self.due[channel] = None
            lane = confirms.waits_for()
        confirms.registered = lane
        if lane is not None:
            waiting = self.waiting.get(lane)
            if waiting is None:
                waiting = self.waiting[lane] = {}
            waiting[channel] = None

    def accepted(self, channel: ConfirmingChannel, confirms: Confirms, waits: Lanes, at_once: bool) -> None:
        """Some of the channel's publishes have just been accepted, and wait for these lanes. `at_once`: they went to
        all of their queues since the last call, so these are the ones that `UnwrittenQueues` knows."""
        if waits is not self._local.alone and not _gathers_here(waits):
            if confirms.registered is None:
                self.wait(channel, confirms)
            return
        number, unwritten = self._local.gathering, self._unwritten
        entered, unwritten.entered = unwritten.entered, []
        if not (at_once and unwritten.apart and entered):
            confirms.rests_on_commit(number)
            self._local.force()
        else:
            queues = [queue_id for queue_id in entered if unwritten.left(queue_id)]
            if confirms.rests_on(number, queues):
                if number != self._number:
                    self._number, self._unsettled = number, {}
                for queue_id in queues:
                    channels = self._unsettled.get(queue_id)
                    if channels is None:
                        channels = self._unsettled[queue_id] = {}
                    channels[channel] = None
                # They were settled while they came in, in all queues; the number is no queue's.
                if not queues and confirms.settled(0):
                    self._advance(channel, confirms)
        if confirms.registered is None:
            self.wait(channel, confirms)

    def settled(self, queues: list[int]) -> None:
        """Nothing of what gathers in these queues has to be written any more."""
        if self._number != self._local.gathering:
            self._number, self._unsettled = 0, {}
            return
        for queue_id in queues:
            channels = self._unsettled.pop(queue_id, None)
            if channels is not None:
                for channel in channels:
                    confirms = channel.confirms
                    if confirms is not None and confirms.number == self._number and confirms.settled(queue_id):
                        self._advance(channel, confirms)

    def _advance(self, channel: ConfirmingChannel, confirms: Confirms) -> None:
        """What it waits for is less than before."""
        if confirms.advance():
            self.due[channel] = None
        self._stand_nowhere(channel, confirms)
        self.wait(channel, confirms)

    def _stand_nowhere(self, channel: ConfirmingChannel, confirms: Confirms) -> None:
        lane = confirms.registered
        if lane is not None:
            confirms.registered = None
            waiting = self.waiting.get(lane)
            if waiting is not None:
                waiting.pop(channel, None)
                if not waiting:
                    del self.waiting[lane]

    def when_durable(
        self, decided: Callable[[Decision], object], lanes: Lanes = (), receipt: CommonReceipt | None = None
    ) -> None:
        """Call `decided` when it is known what became of all that was handed to these lanes until now; without any,
        to the local one. `receipt`: of all that was handed to them, if it may be refused later."""
        lanes = lanes or self._local.alone
        left = tuple([lane for lane in lanes if lane.reported < lane.gathering])
        call = LaneCall(decided, len(left), receipt)
        # A lane that was collected some turns ago may have ended: then it has reported all, or is lost.
        if any(lane.lost for lane in lanes):
            call.lost()
            return
        lanes = left
        if not lanes:
            call.done()
            return
        for lane in lanes:
            lane.force()
            calls = self._calls.get(lane)
            if calls is None:
                calls = self._calls[lane] = deque()
            calls.append((lane.gathering, call))

    def abandon(self, lane: Lane) -> None:
        """Something that was handed to the lane may not be safe, whatever it reports from now on."""
        for number, call in self._calls.pop(lane, ()):
            if number <= lane.reported or call.lanes <= 0:
                continue
            call.lanes = 0
            for other in [each for each, calls in self._calls.items() if any(of is call for _, of in calls)]:
                self._calls[other] = deque(each for each in self._calls[other] if each[1] is not call)
            try:
                call.lost()
            except Exception as error:  # noqa: BLE001 - the waiting task's; faults reports it, or raises it on
                self._faults.contain(TASK, "durable", error)

    def refuse(self, channel: ConfirmingChannel, first: int, last: int) -> None:
        """Of the channel's publishes these, which wait, were not taken after all; see `Confirms.refuse_waiting`."""
        if channel.confirms is not None:
            channel.confirms.refuse_waiting(first, last)
            self.due[channel] = None

    def reported(self, lane: Lane) -> None:
        """The lane's number has grown."""
        waiting = self.waiting.pop(lane, None)
        if waiting is not None:
            for channel in waiting:
                confirms = channel.confirms
                if confirms is not None:
                    if confirms.advance():
                        self.due[channel] = None
                    self.wait(channel, confirms)
        calls = self._calls.get(lane)
        if calls is not None:
            self._call(lane, calls)

    def _call(self, lane: Lane, calls: deque[tuple[int, LaneCall]]) -> None:
        while calls and calls[0][0] <= lane.reported:
            call = calls.popleft()[1]
            call.lanes -= 1
            if not call.lanes:
                try:
                    call.done()
                except Exception as error:  # noqa: BLE001 - the waiting task's; faults reports it, or raises it on
                    self._faults.contain(TASK, "durable", error)
        if not calls and self._calls.get(lane) is calls:
            del self._calls[lane]

    def flush_due(self) -> None:
        """The end of a tick: write the confirms that are due."""
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
        self.due.pop(channel, None)
        confirms = channel.confirms
        if confirms is not None:
            self._stand_nowhere(channel, confirms)
            if confirms.number == self._number and confirms.unsettled:
                for queue_id in confirms.unsettled:
                    channels = self._unsettled.get(queue_id)
                    if channels is not None:
                        channels.pop(channel, None)


def _gathers_here(lanes: Lanes) -> bool:
    """Lanes of other nodes are asked to report; whether there is one of this node's journal."""
    here = False
    for lane in lanes:
        if lane.journalled:
            here = True
        else:
            lane.force()
    return here
