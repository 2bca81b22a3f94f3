"""A queue at its home, as the other parts of that node know it.

What comes in: a look at it before the tick ends; shortage of memory; books of the audit log; what operators repair.
What goes out: its levels, with their segments; wishes to read; figures; damage.
Rules: 1. For what looks after the memory, the disk and the books of the queues of its own node, and nothing else:
whatever serves clients knows the port only. 2. It asks for what the node's parts need; what the queue does with it is
its own. 3. What only the leader can judge of conflicts is judged here: who may consume, what may be deleted.
Not here: the queue itself (`queue.py`), what every node may ask (`port.py`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable

from mypy_extensions import mypyc_attr
from pamqp.exceptions import AMQPAccessRefused, AMQPPreconditionFailed, AMQPSoftError

from amqpd.audit.book import Book
from amqpd.journal.lane import Lane
from amqpd.journal.records import Row
from amqpd.queues.arguments import described_queue
from amqpd.queues.consumer import Subscriber
from amqpd.queues.facts import Facts
from amqpd.queues.fences import Damage
from amqpd.queues.messages import Messages, RowsWanted
from amqpd.queues.port import Counts, QueuePort, TakeOut
from amqpd.queues.settings import QueueSettings
from amqpd.queues.templates import Template
from amqpd.vocabulary.records import QueueRecord


@mypyc_attr(allow_interpreted_subclasses=True)
class HomeQueue(QueuePort):
    """One queue of this node."""

    def __init__(
        self, record: QueueRecord, settings: QueueSettings, lane: Lane, audit_level: str | None, now_ms: int
    ) -> None:
        super().__init__(record, settings, lane)
        self.settings = settings
        self.has_levels = settings.max_priority is not None
        """each priority that occurred has messages of its own"""
        self.wake_ms: int | None = None
        """the host's: when it will look at the queue by itself"""
        self.facts = Facts(now_ms)
        self.audit_level = audit_level
        """its own, by a policy"""
        self.letters = 0
        """dead letters of it that are on their way: it is not dispatched, or it would send ever more"""
        self.letter_templates: dict[str, Template[QueuePort]] = {}
        """the last dead letter for each reason"""
        self.letter_lost_told_s = 0
        """second in which the log last said that one was lost"""
        self.letters_wait_told_ms = -1 << 62
        """when the log last said that some wait for a queue that takes none now"""

    @abstractmethod
    def dispatch(self) -> None:
        """Let go what has expired, hand out what is ready to consumers with credit, keep to the length limit."""

    # Judgements

    def in_use(self, consumer: Subscriber) -> AMQPSoftError | None:
        """Somebody is alone, or the consumer wants to be and cannot. A single active consumer is chosen by the queue,
        so none may be alone with it."""
        alone = consumer.exclusive and (self.single_active_consumer or self.consumer_count)
        if alone or self.exclusive_consumer:
            return AMQPAccessRefused(f"{described_queue(self.record)} in exclusive use")
        return None

    def count(self, answer: Callable[[Counts | AMQPSoftError], object]) -> None:
        answer(Counts(self.ready_count, self.consumer_count))

    def remove(
        self, if_unused: bool, if_empty: bool, take_out: TakeOut, answer: Callable[[int | AMQPSoftError], object]
    ) -> None:
        def obstacle() -> str:
            if if_unused and self.consumer_count:
                return "in use"
            return "not empty" if if_empty and self.ready_count else ""

        def removed(gone: bool) -> None:
            if gone:
                answer(self.ready_count)
            else:
                answer(AMQPPreconditionFailed(f"{described_queue(self.record)} {obstacle() or 'in use'}"))

        if obstacle():
            removed(False)
        else:
            take_out(lambda: not obstacle(), removed)

    # Parts

    @abstractmethod
    def levels(self) -> Iterable[Messages]:
        """Its messages; of a priority queue, those of each priority that occurred."""

    @property
    @abstractmethod
    def released_bytes(self) -> int:
        """What left memory since the start because it was settled."""

    @abstractmethod
    def delivery_count(self, seq: int) -> int | None:
        """How often the message was delivered before; None where that is not counted."""

    @abstractmethod
    def keep_books(self, open_book: Callable[[HomeQueue, Messages], Book] | None) -> None:
        """Record its messages in these books from now on; None: do not."""

    @abstractmethod
    def book_of(self, seq: int) -> Book | None:
        """Where the message is recorded, whose number there is without the upper bits."""

    @abstractmethod
    def withdrawn(self, count: int) -> None:
        """An operator took this many of its messages out."""

    # Between memory and disk

    @abstractmethod
    def next_read(self, space: bool) -> RowsWanted | None:
        """What has to be read now, if anything is; no other read until `loaded` is told of it. Without `space` in
        memory nothing is read ahead: it would have to leave again at once."""

    @abstractmethod
    def shrink(self, bytes_max: int) -> int:
        """Messages leave memory until they take no more than this, in several dispatches if they are many. What it
        took, in the unit of `limiting/turns.py`."""

    @abstractmethod
    def loaded(self, wish: RowsWanted, rows: list[Row]) -> None:
        """The rows that it wished to have read."""

    # Damage

    @abstractmethod
    def damaged(self) -> list[Damage]:
        """What is known to be damaged, in the order of the line."""

    @abstractmethod
    def look_for_damage(self) -> None:
        """After damage may have been found, or have gone, and when consumers have taken what they can: tell it once;
        the consumers of a queue that is blocked are cancelled."""
