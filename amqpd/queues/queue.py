"""A queue: its messages, its consumers, and who gets what.

What comes in: runs of publishes; consumers with credit; settled and returned ranges. What goes out: deliveries, in
the order of publication, to the consumers in turn.
Rules: 1. Round robin among the consumers that have credit; with little ready it goes message by message, with much
in larger portions, so that a batch costs what a batch should. 2. `dispatch` runs once a tick, not once a publish.
3. basic.get goes before consumers when it waits for a read.
Not here: the messages themselves (`backlog.py`), declaration and its arguments (`declarations.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from amqpd.journal.buffer import JournalBuffer
from amqpd.kernel import Run
from amqpd.properties import Properties
from amqpd.queues.backlog import Backlog, Piece
from amqpd.queues.consumer import Subscriber
from amqpd.topology.records import QueueRecord

# The portion of one turn grows to this: large enough for batches, small enough that a slow consumer next to a fast
# one does not hold the others' share.
PORTION_MESSAGES_MAX = 256
# Until more than this is ready for each consumer, turns are message by message, as RabbitMQ's always are.
EXACT_TURNS_MESSAGES = 64
# How far ahead of the deliveries the journal's mark of what was delivered is set, while there are consumers: the mark
# must be on disk before a delivery goes out that it should cover, and a commit takes some thousand deliveries' time.
MARK_AHEAD_MESSAGES = 65_536
# Read ahead while the cursor is so near to what is on disk only: one being delivered, one coming.
READ_AHEAD_SEGMENTS = 3

Getter = Callable[[Piece | None], bool]
"""takes one message, or None for an empty queue; False when nobody is there any more to take it"""


class Queue:
    def __init__(self, record: QueueRecord, journal: JournalBuffer) -> None:
        self.record = record
        self.backlog = Backlog(record.id, journal, record.durable)
        self.journal = journal
        self.consumers: deque[Subscriber] = deque()
        self.getters: deque[tuple[bool, Getter]] = deque()
        self.deleted = False
        self.refuses = False
        """over a limit it does not take a publish, instead of letting older messages go"""
        self.reading = False
        """a read of this queue is under way"""
        self._marked = 0

    @property
    def exclusive_consumer(self) -> bool:
        # Such a one is alone.
        return bool(self.consumers) and self.consumers[0].exclusive

    def room(self, run: Run) -> int:
        """How many of the run's messages may come in now; asked only while `refuses`."""
        return run.count

    def publish(self, run: Run, properties: Properties) -> bool:
        """Accept the run; True when its confirm must wait for the journal."""
        return self.backlog.publish(run, properties.persistent)

    def consume(self, consumer: Subscriber) -> None:
        self.consumers.append(consumer)

    def cancel(self, consumer: Subscriber) -> None:
        if consumer in self.consumers:
            self.consumers.remove(consumer)
            self._mark_delivered()

    def get(self, no_ack: bool, answer: Getter) -> None:
        """basic.get: `answer` is called with one message, or None when the queue is empty; at once, or when a read
        has brought the message into memory."""
        self.getters.append((no_ack, answer))
        self._serve_getters()

    def settle(self, first: int, last: int) -> None:
        if not self.deleted:
            self.backlog.settle(first, last)

    def requeue(self, first: int, last: int) -> None:
        if not self.deleted:
            self.backlog.requeue(first, last)

    def purge(self) -> int:
        return self.backlog.purge()

    def dispatch(self) -> None:
        """Hand out what is ready to whoever has credit."""
        if self.getters:
            self._serve_getters()
        backlog, consumers = self.backlog, self.consumers
        without = 0
        while backlog.ready and without < len(consumers):
            consumer = consumers[0]
            credit = consumer.credit()
            if credit <= 0:
                without += 1
                consumers.rotate(-1)
                continue
            piece = backlog.take(min(credit, self._portion()))
            if piece is None:
                break
            without = 0
            if len(consumers) > 1:
                consumers.rotate(-1)
            self._hand_out(consumer, piece)
        self._mark_delivered()

    def _portion(self) -> int:
        count = len(self.consumers)
        if count == 1:
            return self.backlog.ready
        return max(1, min(PORTION_MESSAGES_MAX, self.backlog.ready // (EXACT_TURNS_MESSAGES * count)))

    def _hand_out(self, consumer: Subscriber, piece: Piece) -> None:
        run, low, high, seq, redelivered = piece
        consumer.deliver(run, low, high, seq, redelivered)
        if consumer.no_ack:
            self.backlog.settle(seq, seq + high - low - 1)

    def _serve_getters(self) -> None:
        backlog = self.backlog
        while self.getters:
            piece = backlog.take(1) if backlog.ready else None
            if piece is None and backlog.ready:
                return
            no_ack, answer = self.getters.popleft()
            taken = answer(piece)
            if piece is not None and not taken:
                backlog.requeue(piece[3], piece[3])
            elif piece is not None and no_ack:
                backlog.settle(piece[3], piece[3])
        self._mark_delivered()

    def _mark_delivered(self) -> None:
        """Let the journal know how far deliveries may have come, so that a restart can tell what is redelivered. The
        mark runs ahead; when there are no consumers any more, also at a shutdown, it goes back to what is true, never
        below what an earlier run had delivered."""
        backlog = self.backlog
        if not backlog.journalled:
            return
        cursor = backlog.cursor
        ahead = MARK_AHEAD_MESSAGES if self.consumers else 0
        mark = max(cursor + ahead, backlog.redelivered_below)
        if cursor > self._marked - ahead // 2 or (not ahead and mark < self._marked):
            self._marked = mark
            self.journal.delivered(self.record.id, self._marked)

    def next_read(self, room: bool) -> tuple[int, int] | None:
        """The first and last sequence number of what has to be read now, if anything and if no read is under way.
        Without `room` in memory nothing is read ahead: it would have to leave again at once."""
        if self.reading or self.deleted or not (self.consumers or self.getters):
            return None
        return self.backlog.next_read(READ_AHEAD_SEGMENTS if room else 0)

    def delete(self) -> None:
        """The queue left the topology: its consumers are told, its messages are gone."""
        self.deleted = True
        self.journal.drop(self.record.id)
        self.backlog.forget()
        while self.getters:
            self.getters.popleft()[1](None)
        consumers, self.consumers = self.consumers, deque()
        for consumer in consumers:
            consumer.cancelled()
