"""A queue, as everything outside this package reaches it, wherever its leader is.

What comes in: runs of publishes, consumers, ranges of what they have, questions. What goes out: deliveries to the
consumers; what a message waits for; facts.
Rules: 1. Nothing outside looks behind it. 2. Facts are plain values, as of the last time that they were heard of:
where the leader is another node they may be out of date, and what must be exact is asked by a method. 3. What
only the leader can say is a round trip: the method is given a function, and calls it once with the answer. A queue of
this node does so before the method returns; a remote one later, at the latest when it gives its leader up. A refusal
is an answer, an error for the client; what a method raises is a bug of the queue. 4. It is a compiled class and no
Protocol: it is on the way of each message, where attributes have to be found at once.
Not here: what the leader does (`queue.py`), and what only the node of the leader asks of its own queues
(`leader.py`): dispatch, memory, recovery, repair.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple

from mypy_extensions import mypyc_attr
from pamqp.exceptions import AMQPSoftError

from amqpd.audit.book import Book
from amqpd.audit.publication import Publication
from amqpd.journal.lane import Lane
from amqpd.kernel import Run
from amqpd.message.properties import Properties
from amqpd.queues.consumer import Piece, Subscriber
from amqpd.queues.dispatchable import LOOK_WORK, MessageHolder
from amqpd.queues.receipt import Receipt
from amqpd.queues.settings import QueueSettings
from amqpd.queues.states import AWAY, SERVED, QueueState
from amqpd.vocabulary.records import QueueRecord


class Got(NamedTuple):
    """The answer to basic.get: one message."""

    piece: Piece
    ready: int
    """messages that are left"""
    book: Book | None
    """where the delivery is to be recorded, if the message is, and at this node"""


Getter = Callable[[Got | AMQPSoftError | None], bool]
"""takes the answer: a message; a refusal; None for a queue that is empty, or that has gone out of service here. False
when nobody is there any more to take it"""


class DeclareCounts(NamedTuple):
    """The numbers of ready messages and of consumers that queue.declare-ok tells."""

    ready: int
    consumers: int


Condition = Callable[[], bool]
Resume = Callable[[bool], None]
TakeOut = Callable[[Condition, Resume], None]
"""takes a queue out of the topology if the condition holds when its turn has come, and says whether it did"""


def unheard(answer: object) -> None:
    """For an asker that does not wait for the answer."""


class Statistics(NamedTuple):
    """The statistics of one queue: sizes in bytes, of bodies except `memory_bytes`; times in ms since the epoch;
    counts and rates by the names in `facts.py`."""

    settings: QueueSettings
    ready: int
    unacked: int
    ready_bytes: int
    unacked_bytes: int
    memory_bytes: int
    oldest_ms: int | None
    consumers: int
    utilisation: float
    active: Subscriber | None
    """the single active consumer, if there is to be only one"""
    totals: dict[str, int]
    rates: dict[str, float]
    time_in_queue: list[int]
    dying: int
    """of those that are unacked nobody's any more: dead letters that wait for a queue that takes them"""


@mypyc_attr(allow_interpreted_subclasses=True)
class QueuePort(MessageHolder):
    """One queue, as everything outside of this package reaches it, wherever its leader is."""

    def __init__(self, record: QueueRecord, settings: QueueSettings, lane: Lane) -> None:
        self.record = record
        self.lane = lane
        """what makes its messages safe"""
        self.state = SERVED
        self.crash_reason = None
        self.look_work = LOOK_WORK
        self.dead_letters_under_way = 0
        self.is_remote = False
        """another node leads it, or none"""
        self.may_refuse = False
        """it may not have the capacity for all of a run"""
        self.recorded_share = 0
        """of its messages, that the audit log has"""
        self.refusal_told_ms = -1 << 62
        """when the log last said that somebody was refused because of its damage, or because it is away"""
        self.left_at = 0
        """`LeaderMoves.count` since its leader is not this node any more; 0: it has not been since the start"""
        self.know(settings)

    def know(self, settings: QueueSettings) -> None:
        """Its settings are these now; of them others may know what follows."""
        self.type = settings.type
        self.quorum = settings.quorum
        self.single_active_consumer = settings.single_active_consumer
        self.consumer_timeout_ms = settings.consumer_timeout_ms
        self.dead_letters = settings.dead_letter_exchange is not None

    def enter(self, state: QueueState) -> None:
        super().enter(state)
        self.may_refuse = True

    @property
    def is_away(self) -> bool:
        """Its messages are at another node, or at none, and it takes none from here now."""
        return self.state in AWAY

    @abstractmethod
    def abandoned(self) -> Iterator[Getter]:
        """Its consumers are told that it is gone; those who are to be told the same of their basic.get."""

    # Messages in

    @abstractmethod
    def capacity_after_dispatch(self, run: Run) -> int:
        """How many of the run's messages may come in now, after the queue was dispatched if that helps. For
        publishers: not while another queue is being dispatched."""

    @abstractmethod
    def capacity(self, run: Run) -> int:
        """As `capacity_after_dispatch`, without a dispatch: how many may come in if waiting consumers take what they
        can."""

    @abstractmethod
    def turn_away(self, run: Run) -> None:
        """The run was not taken: there was no capacity."""

    @abstractmethod
    def publish(
        self, run: Run, properties: Properties, publication: Publication | None, receipt: Receipt | None = None
    ) -> bool:
        """Accept the run, which the audit log knows as this publication, if it records; True when its confirm must
        wait for the queue's lane. A remote queue may refuse some of it later, which the receipt is told, not within
        this call; None: nobody wants to know."""

    # Settling

    @abstractmethod
    def settle(self, first: int, last: int) -> int:
        """Acknowledged. What it took when that was much, in the unit of `flow/turns.py`."""

    @abstractmethod
    def reject(self, first: int, last: int) -> None:
        """Not to be requeued: dead-lettered, if the queue has somewhere to."""

    @abstractmethod
    def requeue(self, first: int, last: int) -> None:
        """Not settled, and ready again."""

    @abstractmethod
    def purging(self, answer: Callable[[int | AMQPSoftError], object]) -> Generator[int, None, None]:
        """All that is ready now leaves, in steps, if there is something to do here: what each took. Answer: how many,
        when the steps have ended, the last one or not."""

    # Consumers

    @abstractmethod
    def consume(self, consumer: Subscriber, answer: Callable[[AMQPSoftError | None], object]) -> None:
        """The consumer wants messages. Answer: None, and it gets them from then on, nothing before; or why it cannot
        be a consumer: another one is alone, or it cannot be alone itself, or the next message is damaged."""

    @abstractmethod
    def cancel(self, consumer: Subscriber, answer: Callable[[None], object]) -> None:
        """It gets none any more; what it has it may settle. Also while its `consume` is not answered. Answer: None,
        when others may be alone."""

    @abstractmethod
    def credited(self, consumer: Subscriber) -> None:
        """It was found without credit, and may have some now."""

    @abstractmethod
    def get(self, no_ack: bool, answer: Getter) -> None:
        """basic.get of one message. Here, too, the answer may come later, when a read has brought it into memory."""

    @abstractmethod
    def used(self) -> None:
        """Somebody declared it, or asked it for a message: an unused queue with `x-expires` goes."""

    @abstractmethod
    def count(self, answer: Callable[[DeclareCounts | AMQPSoftError], object]) -> None:
        """What is ready, and who consumes, now."""

    @abstractmethod
    def remove(
        self, if_unused: bool, if_empty: bool, take_out: TakeOut, answer: Callable[[int | AMQPSoftError], object]
    ) -> None:
        """It leaves the topology, by `take_out` if this node may say so, unless it has consumers (`if_unused`) or
        ready messages (`if_empty`). Answer: how many ready messages went with it, or what it has."""

    # Facts

    @property
    @abstractmethod
    def arrived_ms(self) -> int:
        """When what it hands out just now came in, in ms since the epoch; 0: it hands out nothing."""

    @property
    @abstractmethod
    def consumer_count(self) -> int:
        """At all nodes."""

    @abstractmethod
    def subscribers(self) -> list[Subscriber]:
        """Its consumers now, a copy, for what tells operators of them; none where its leader is another node."""

    @abstractmethod
    def statistics(self, now_ms: int) -> Statistics:
        """What an operator sees of it."""

    @property
    @abstractmethod
    def exclusive_consumer(self) -> bool:
        """Its consumer is the only one that it may have."""

    @abstractmethod
    def is_active(self, consumer: Subscriber) -> bool:
        """It is not one that waits for a single active consumer to go."""
