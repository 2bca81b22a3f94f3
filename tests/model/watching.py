"""A harness whose node tells a model everything that happens in its queues, in the order in which it happens.

What comes in: calls at the borders of a queue: what enters, what is delivered, what is dead-lettered, each dispatch.
What goes out: the same, to the model.
Rules: nothing is changed or hidden; what is told is what passes, not what the queue thinks of it.
Not here: whether it is right (`broker.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any
from unittest.mock import patch

from pamqp.exceptions import AMQPSoftError

import amqpd.methods.basic
from amqpd.audit.publication import Publication
from amqpd.connection import Connection
from amqpd.journal import buffer
from amqpd.journal.buffer import JournalBuffer
from amqpd.kernel import Run
from amqpd.message.properties import Properties
from amqpd.node.node import Node
from amqpd.queues import agenda, deadlines, removal, segment, sorted_keys, store, timetable
from amqpd.queues.host import Released
from amqpd.queues.leader import LeaderQueue
from amqpd.queues.port import Getter, Got
from amqpd.queues.queue import Queue
from amqpd.queues.receipt import Receipt
from amqpd.queues.transit import Transit
from amqpd.session import unacked
from amqpd.session.consumers import Consumer
from amqpd.vocabulary.limits import Limits
from amqpd.vocabulary.records import QueueRecord
from tests.harness.harness import Client, Harness
from tests.model.broker import Model


def numbers_of(run: Run, low: int, high: int) -> list[int]:
    return [int(run.body(index)[:8]) for index in range(low, high)]


class WatchedNode(Node):
    harness: WatchedHarness

    def make_queue(self, record: QueueRecord, policy: Mapping[str, Any]) -> Queue:
        return WatchedQueue(record, self, policy)

    def dead_letter(
        self, queue: LeaderQueue, run: Run, low: int, high: int, reason: str, transit: Transit | None = None
    ) -> tuple[int, int]:
        numbers, refused = numbers_of(run, low, high), getattr(queue, "turning_away", False)
        dead_letter, name = super().dead_letter, queue.record.name
        deaths = len((self.properties.read(run.properties).headers or {}).get("x-death", ()))
        instead = 0

        def send() -> int:
            nonlocal instead
            taken, instead = dead_letter(queue, run, low, high, reason, transit)
            return taken

        return self.harness.model.dead_lettered(name, numbers, deaths, reason, refused, send), instead

    def release(self, vhost: str, run: Run, transit: Transit | None = None) -> Released:
        model = self.harness.model
        for number in numbers_of(run, 0, run.count):
            model.released(number)
        released = super().release(vhost, run, transit)
        model.refuse_rest(by_client=False)
        return released


class WatchedHarness(Harness):
    node_class = WatchedNode

    def __init__(self, limits: Limits, model: Model) -> None:
        self.model = model
        self.clients: list[Client] = []
        self.getter: Client | None = None
        """who asks for a message now"""
        self.deleting = ""
        """the queue that a client deletes now"""
        super().__init__(limits, automatic=False)
        self.catches_up = True

    def _start(self, journal: JournalBuffer) -> None:
        super()._start(journal)
        self.node.harness = self  # type: ignore[attr-defined]

    def step(self) -> None:
        turns = self.node.turns
        while turns.waiting:
            turns.begin(0)
            turns.next()
        self.model.refuse_rest(by_client=True)
        super().step()

    def commit(self) -> None:
        self.model.commit()
        super().commit()

    def channel_of(self, connection: Connection, number: int) -> tuple[int, int]:
        return next(i for i, client in enumerate(self.clients) if client.connection is connection), number


class WatchedQueue(Queue):
    def __init__(self, record: QueueRecord, host: Any, policy: Mapping[str, Any]) -> None:
        super().__init__(record, host, policy)
        self.harness: WatchedHarness = host.harness
        self.turning_away = False

    @property
    def model(self) -> Model:
        return self.harness.model

    def publish(
        self, run: Run, properties: Properties, publication: Publication | None, receipt: Receipt | None = None
    ) -> bool:
        self.model.entered(self.record.name, numbers_of(run, 0, run.count))
        return super().publish(run, properties, publication, receipt)

    def turn_away(self, run: Run) -> None:
        self.turning_away = True
        try:
            super().turn_away(run)
        finally:
            self.turning_away = False

    def dispatch(self) -> None:
        name = self.record.name
        held = [each for level in self.messages.levels() for each in level.store.segments]
        guessed = any(each.estimated and (not each.whole or each.taken_bytes) for each in held)
        self.model.dispatch_begins(name, guessed)
        super().dispatch()
        if self.removal.pending and any(level.backlog.wanted is not None for level in self.messages.levels()):
            self.model.events["dead letter waits for its body"] += 1
        if any(level.store.agenda.timetable.queue_id for level in self.messages.levels()):
            self.model.events["copies written"] += 1
        left = sum(last - first + 1 for level in self.messages.levels() for first, last in level.backlog.instants)
        self.model.dispatch_ends(name, self.facts.dropped, left)

    def purging(self, answer: Callable[[int | AMQPSoftError], object]) -> Generator[int, None, None]:
        expected = self.model.queues[self.record.name].purge()

        def watched(count: int | AMQPSoftError) -> None:
            assert count == expected, f"{count} purged, {expected} were ready"
            answer(count)

        yield from super().purging(watched)

    def get(self, no_ack: bool, answer: Getter) -> None:
        client = self.harness.getter
        assert client is not None
        channel = client.connection.channels[3]
        ours, queue = self.harness.channel_of(client.connection, 3), self.model.queues[self.record.name]
        queue.used_ms = self.model.now_ms
        queue.getters += 1

        def watched(got: Got | AMQPSoftError | None) -> bool:
            assert not isinstance(got, AMQPSoftError), "nothing is damaged here"
            queue.getters -= 1
            tag = channel.next_tag
            taken = answer(got)
            if got is None:
                assert self.is_deleted or not queue.ready, (
                    f"nothing for who asks {queue.name}, which has {queue.ready}"
                )
                return taken
            run, low, high, _, redelivered = got.piece
            self.model.delivered(queue.name, numbers_of(run, low, high), redelivered, ours, tag, None)
            message, _ = queue.unacked[ours, tag]
            if not taken:
                # Nobody was there any more: it comes back at once.
                del queue.unacked[ours, tag]
                self.model.sent[ours].pop()
                queue.come_back(message)
            elif no_ack:
                queue.ack(ours, tag)
            return taken

        super().get(no_ack, watched)

    def delete(self) -> None:
        name = self.record.name
        if self.harness.deleting != name:
            queue = self.model.queues[name]
            expires_ms = queue.asked.number("expires")
            assert expires_ms is not None, f"{name} is gone"
            assert not queue.consumers, f"{name} is gone, and has consumers"
            assert self.model.now_ms >= queue.used_ms + expires_ms, f"{name} is gone too early"
            self.model.events["queue expired"] += 1
        consumers = self.model.delete(name)
        assert len(consumers) == len(self.consumers)
        super().delete()


class WatchedConsumer(Consumer):
    __slots__ = ()

    def deliver(self, run: Run, low: int, high: int, seq: int, redelivered: bool) -> None:
        harness: WatchedHarness = self.channel.node.harness  # type: ignore[attr-defined]
        tag, numbers = self.channel.next_tag, numbers_of(run, low, high)
        ours = harness.channel_of(self.channel.connection, self.channel.id)
        super().deliver(run, low, high, seq, redelivered)
        harness.model.delivered(self.queue.record.name, numbers, redelivered, ours, tag, self.tag)

    def pass_on(self, runs: list[Run], seq: int) -> int:
        harness: WatchedHarness = self.channel.node.harness  # type: ignore[attr-defined]
        tag, ours = self.channel.next_tag, harness.channel_of(self.channel.connection, self.channel.id)
        sent = super().pass_on(runs, seq)
        for run in runs[:sent]:
            harness.model.delivered(self.queue.record.name, numbers_of(run, 0, run.count), False, ours, tag, self.tag)
            tag += run.count
        return sent


# Bounds that a few small messages never reach; some of them, or what stands behind them is never tried.
BOUNDS: tuple[tuple[ModuleType, str, int], ...] = (
    (segment, "COMPACT_BYTES_MIN", 100),
    (store, "SEGMENT_BYTES_MAX", 500),
    (removal, "MESSAGES_MAX", 3),
    (sorted_keys, "BLOCK_KEYS_MAX", 2),
    (unacked, "BLOCK_ENTRIES_MAX", 2),
    (unacked, "SETTLED_MAX", 1),
    (deadlines, "WALKED_MAX", 2),
    (buffer, "PAGED_BYTES_MAX", 200),
)
COPIES: tuple[tuple[ModuleType, str, int], ...] = (
    (timetable, "BATCH_BYTES", 400),
    (timetable, "ROW_BYTES", 150),
    (timetable, "AHEAD_MS", 10),
    (agenda, "PREPARE_MS", 10),
)
"""with them, what expires must be read first: a slow disk makes it late"""


@contextmanager
def watched(small_bounds: bool = False, copies: bool = False) -> Iterator[None]:
    """Meanwhile, consumers that are made are watched, with or without bounds that a few small messages reach."""
    bounds = (*(BOUNDS if small_bounds else ()), *(COPIES if copies else ()))
    with ExitStack() as stack:
        stack.enter_context(patch.object(amqpd.methods.basic, "Consumer", WatchedConsumer))
        for module, name, value in bounds:
            stack.enter_context(patch.object(module, name, value))
        yield
