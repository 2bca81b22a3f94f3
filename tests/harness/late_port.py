"""A remote queue in a test: what it is asked waits until the test answers, as a leader far away would.

What comes in: whatever a node does with a queue; the test's answers. What goes out: questions in their order, what is
only told, deliveries.
Rules: it promises what `queues/port.py` says, and nothing more: it answers each question once, it delivers nothing
before a consumer is taken nor after it is cancelled. A question that is not answered stands in `asked`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any, NamedTuple

from pamqp.exceptions import AMQPSoftError

from amqpd.audit.publication import Publication
from amqpd.journal.lane import Lane
from amqpd.kernel import Run, scan_publishes
from amqpd.message.properties import Properties
from amqpd.queues.consumer import Subscriber
from amqpd.queues.port import DeclareCounts, Getter, Got, TakeOut
from amqpd.queues.receipt import Receipt
from amqpd.queues.states import QueueState
from amqpd.remote.edges import RemoteEdges
from amqpd.remote.links import NoSessions
from amqpd.remote.queue import RemoteQueue
from amqpd.vocabulary.records import Put, QueueRecord
from tests.harness.harness import Harness, publish_bytes


class RemoteLane(Lane):
    """A lane that reports when the test says so."""

    def __init__(self) -> None:
        super().__init__(1, 0)
        self.journalled = False
        self.forced = 0
        """how often somebody asked for a report"""

    def force(self) -> None:
        self.forced += 1


def no_edges() -> RemoteEdges:
    """Of a node that is alone: it reaches no source."""
    return RemoteEdges("", NoSessions(), lambda: 0, lambda lane: None, lambda source: 0)


class Asked(NamedTuple):
    """One question that is not answered yet."""

    kind: str
    answer: Callable[[Any], object]
    details: tuple[Any, ...] = ()


class LatePort(RemoteQueue):
    """A queue that another node leads, which is the test."""

    def __init__(self, record: QueueRecord) -> None:
        self.far = RemoteLane()
        super().__init__(record, self.far, no_edges())
        self.state = QueueState.SERVED
        self.asked: list[Asked] = []
        self.told: list[tuple[Any, ...]] = []
        """what is only said: what was settled, by which consumer something is not wanted any more"""
        self.taken: dict[Subscriber, None] = {}
        """consumers that were taken and not cancelled"""
        self._seq = 0
        self.space = 1 << 30
        """messages that it takes when they are offered"""
        self.took: list[tuple[Run, Receipt | None]] = []
        """runs, in their order"""
        self.before_publish: Callable[[], None] = lambda: None

    def refuse(self, number: int, low: int, high: int) -> None:
        """Of the run that it took as this one, it refuses these messages after all."""
        receipt = self.took[number][1]
        assert receipt is not None
        receipt.refuse(low, high)

    def report(self, harness: Harness) -> None:
        """All that was handed to it until now is decided."""
        self.far.reported, self.far.gathering = self.far.gathering, self.far.gathering + 1
        harness.node.reported(self.far)
        harness.step()

    def answer(self, kind: str, value: object) -> object:
        """Answer the question that was asked first, which is of this kind. What the asker says to that."""
        found = self.asked.pop(0)
        assert found.kind == kind
        if kind == "consume" and value is None and ("cancel", *found.details) not in self.told:
            self.taken[found.details[0]] = None
        return found.answer(value)

    def message(self, data: bytes = b"far") -> tuple[Run, int, int, int, bool]:
        """As a piece of it, the next one of the queue."""
        published = publish_bytes(data, self.record.name)
        run = scan_publishes(published, 0, len(published), 1 << 20)
        assert isinstance(run, Run)
        self._seq += 1
        return run, 0, 1, self._seq - 1, False

    def got(self, ready: int = 0) -> Got:
        """The answer to a basic.get that finds a message."""
        return Got(self.message(), ready, None)

    def deliver(self, consumer: Subscriber, data: bytes = b"far") -> None:
        assert consumer in self.taken
        consumer.deliver(*self.message(data))

    # The port

    def capacity(self, run: Run) -> int:
        return self.space

    def capacity_after_dispatch(self, run: Run) -> int:
        return self.space

    def publish(
        self, run: Run, properties: Properties, publication: Publication | None, receipt: Receipt | None = None
    ) -> bool:
        self.before_publish()
        self.took.append((run, receipt))
        return True

    def consume(self, consumer: Subscriber, answer: Callable[[AMQPSoftError | None], object]) -> None:
        self.asked.append(Asked("consume", answer, (consumer,)))

    def cancel(self, consumer: Subscriber, answer: Callable[[None], object]) -> None:
        self.told.append(("cancel", consumer))
        self.taken.pop(consumer, None)
        self.asked.append(Asked("cancel", answer, (consumer,)))

    def get(self, no_ack: bool, answer: Getter) -> None:
        self.asked.append(Asked("get", answer, (no_ack,)))

    def count(self, answer: Callable[[DeclareCounts | AMQPSoftError], object]) -> None:
        self.asked.append(Asked("count", answer))

    def purging(self, answer: Callable[[int | AMQPSoftError], object]) -> Generator[int, None, None]:
        self.asked.append(Asked("purge", answer))
        yield from ()

    def remove(
        self, if_unused: bool, if_empty: bool, take_out: TakeOut, answer: Callable[[int | AMQPSoftError], object]
    ) -> None:
        self.asked.append(Asked("remove", answer, (if_unused, if_empty)))

    def settle(self, first: int, last: int) -> int:
        self.told.append(("settle", first, last))
        return 0

    def reject(self, first: int, last: int) -> None:
        self.told.append(("reject", first, last))

    def requeue(self, first: int, last: int) -> None:
        self.told.append(("requeue", first, last))


def late_port(harness: Harness, name: str = "late", **changes: Any) -> LatePort:
    """A classic queue of node "b", which the node of the harness reaches."""
    node = harness.node
    node.sources.node = "a"
    record = replace(QueueRecord("/", name, (1 << 40) + (len(node.ports) << 8), durable=True, node="b"), **changes)
    port = LatePort(record)
    harness._apply([Put(record)])
    assert isinstance(node.remote["/", name], RemoteQueue)
    node.remote["/", name] = port
    return port
