"""What waits until it is safe: confirms of channels, and calls.

What comes in: channels whose confirms wait, calls to make later, each for some lanes; lanes that have reported. What
goes out: confirms, once for each tick; the calls.
Rules: 1. Nothing is told before all the lanes that it waits for have reported. 2. What is due is told at the end of a
tick, or before a channel closes. 3. An error in one channel's confirms is that connection's, one in a call is that
task's. 4. A lane's report costs nothing for what waits for other lanes.
Not here: which publishes are safe (`confirms.py`), what a lane is (`journal/lane.py`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable

from amqpd.faults import TASK, Faults
from amqpd.journal.lane import Lane, Lanes
from amqpd.journal.unwritten import Unwritten
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


class Call:
    """To be made when all of its lanes have reported."""

    def __init__(self, done: Callable[[], None], lanes: int, lost: Callable[[], None] | None) -> None:
        self.done = done
        self.lost = lost
        self.lanes = lanes
        """how many have not"""


class Durability:
    """The waiters for what makes messages safe, of one node."""

    def __init__(self, local: Lane, unwritten: Unwritten, faults: Faults) -> None:
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
        self._calls: dict[Lane, deque[tuple[int, Call]]] = {}

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

    def accepted(self, channel: ConfirmingChannel, confirms: Confirms, at_once: bool) -> None:
        """Some of the channel's publishes have just been accepted, and wait. `at_once`: they went to all of their
        queues since the last call, so these are the ones that `Unwritten` knows."""
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
        self, done: Callable[[], None], lanes: Lanes = (), lost: Callable[[], None] | None = None
    ) -> None:
        """Call `done` when all that was handed to these lanes until now is safe; without any, to the local one.
        `lost`: called instead, when nobody will know that of one of them (`abandon`)."""
        lanes = lanes or self._local.alone
        # A lane that was collected some turns ago may have ended: then it has reported all, or is lost.
        if any(lane.lost for lane in lanes):
            if lost is not None:
                lost()
            return
        lanes = tuple([lane for lane in lanes if lane.reported < lane.gathering])
        if not lanes:
            done()
            return
        call = Call(done, len(lanes), lost)
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
            if call.lost is not None:
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

    def _call(self, lane: Lane, calls: deque[tuple[int, Call]]) -> None:
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
        self.due.pop(channel, None)
        confirms = channel.confirms
        if confirms is not None:
            self._stand_nowhere(channel, confirms)
            if confirms.number == self._number and confirms.unsettled:
                for queue_id in confirms.unsettled:
                    channels = self._unsettled.get(queue_id)
                    if channels is not None:
                        channels.pop(channel, None)
