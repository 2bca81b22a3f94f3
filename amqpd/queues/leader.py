"""A queue at its leader, as the other parts of that node know it.

What comes in: dead letters on their way; what operators repair; what clients of other nodes hold. What goes out: its
settings and delivery counts; as `Paged`, its levels, figures and damage.
Rules: 1. For what looks after the memory, the disk and the books of the queues of its own node, and nothing else:
whatever serves clients knows the port only. 2. It asks for what the node's parts need; what the queue does with it is
its own. 3. What only the leader can judge of conflicts is judged here: who may consume, what may be deleted. 4. What
clients of other nodes hold is theirs by claims (rules 16 and 19 of docs/decisions/remote-protocol.md).
Not here: the queue itself (`queue.py`), what every node may ask (`port.py`), what delayed messages are asked too
(`dispatchable.py`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial

from mypy_extensions import mypyc_attr
from pamqp.exceptions import AMQPAccessRefused, AMQPPreconditionFailed, AMQPSoftError

from amqpd.audit.book import Book
from amqpd.journal.lane import Lane
from amqpd.queues.arguments import described_queue
from amqpd.queues.consumer import Subscriber
from amqpd.queues.dispatchable import LEVELS_LOOK_WORK, Paged
from amqpd.queues.facts import Facts
from amqpd.queues.port import DeclareCounts, QueuePort, TakeOut
from amqpd.queues.settings import QueueSettings
from amqpd.queues.states import SERVED
from amqpd.queues.templates import Template
from amqpd.queues.transit import Transit
from amqpd.vocabulary.records import QueueRecord


@mypyc_attr(allow_interpreted_subclasses=True)
class LeaderQueue(QueuePort, Paged):
    """One queue that this node leads, as the other parts of the node know it."""

    def __init__(
        self, record: QueueRecord, settings: QueueSettings, lane: Lane, audit_level: str | None, now_ms: int
    ) -> None:
        super().__init__(record, settings, lane)
        self.settings = settings
        self.has_levels = settings.max_priority is not None
        """each priority that occurred has messages of its own"""
        if self.has_levels:
            self.look_work = LEVELS_LOOK_WORK
        self.wake_ms = None
        self.facts = Facts(now_ms)
        self.audit_level = audit_level
        self.dead_letter_templates: dict[str, Template[QueuePort]] = {}
        """the last dead letter for each reason"""
        self.dead_letter_lost_told_s = 0
        """second in which the log last said that one was lost"""
        self.dead_letters_wait_told_ms = -1 << 62
        """when the log last said that some wait for a queue that takes none now"""

    @abstractmethod
    def delivery_count(self, seq: int) -> int | None:
        """How often the message was delivered before; None where that is not counted."""

    @abstractmethod
    def arrived(self, transit: Transit) -> None:
        """It is decided what became of messages that died here, and went to queues of other nodes."""

    @abstractmethod
    def book_of(self, seq: int) -> Book | None:
        """Where the message is recorded, whose number there is without the upper bits."""

    # What clients of other nodes hold

    def hold(self, first: int, last: int) -> list[tuple[int, int]]:
        """Those of the messages first..last that are ready are somebody's from now on, as if they had been delivered:
        (first, last) of what there was."""
        return self.messages.hold(first, last) if self.state is SERVED else []

    def give_back(self, first: int, last: int) -> None:
        """As `requeue`, of what no client has seen: it does not count as a delivery."""
        if self.state is SERVED:
            self.backlog.requeue(first, last)

    def mark_redelivered(self, first: int, last: int) -> None:
        """Who gets these messages may get them again."""
        self.messages.mark_redelivered(first, last)

    def forget_redelivered(self) -> None:
        """What was delivered before is known better than the journal knows it, and is told now."""
        self.messages.forget_redelivered()

    def redelivered(self) -> list[tuple[int, int]]:
        """(first, last) of what was delivered before, or may have been; what is settled may be among it."""
        return self.messages.redelivered()

    # Judgements

    def in_use(self, consumer: Subscriber) -> AMQPSoftError | None:
        """Somebody is alone, or the consumer wants to be and cannot. A single active consumer is chosen by the queue,
        so none may be alone with it."""
        alone = consumer.exclusive and (self.single_active_consumer or self.consumer_count)
        if alone or self.exclusive_consumer:
            return AMQPAccessRefused(f"{described_queue(self.record)} in exclusive use")
        return None

    def count(self, answer: Callable[[DeclareCounts | AMQPSoftError], object]) -> None:
        answer(DeclareCounts(self.ready_count, self.consumer_count))

    def remove(
        self, if_unused: bool, if_empty: bool, take_out: TakeOut, answer: Callable[[int | AMQPSoftError], object]
    ) -> None:
        # Methods, and no functions in here: compiled, such functions and what they share hold each other, and a
        # deleted queue would wait for a garbage collection.
        if self._obstacle(if_unused, if_empty):
            self._removed(if_unused, if_empty, answer, False)
        else:
            condition = partial(self._may_go, if_unused, if_empty)
            take_out(condition, partial(self._removed, if_unused, if_empty, answer))

    def _may_go(self, if_unused: bool, if_empty: bool) -> bool:
        return not self._obstacle(if_unused, if_empty)

    def _obstacle(self, if_unused: bool, if_empty: bool) -> str:
        """Why it is not deleted; empty: nothing is against it."""
        if if_unused and self.consumer_count:
            return "in use"
        return "not empty" if if_empty and self.ready_count else ""

    def _removed(
        self, if_unused: bool, if_empty: bool, answer: Callable[[int | AMQPSoftError], object], gone: bool
    ) -> None:
        if gone:
            answer(self.ready_count)
        else:
            obstacle = self._obstacle(if_unused, if_empty) or "in use"
            answer(AMQPPreconditionFailed(f"{described_queue(self.record)} {obstacle}"))
