"""The random machine of `tests/model` with its log: each incarnation's rows, and what really happened beside them.

What comes in: commands. What goes out: for each incarnation of the node, its rows and a `Truth`, to the ledger.
Rules: 1. The truth is known by the numbers in the messages' bodies, and from the other side: what the model was told.
2. An incarnation ends with anchors, also when the node is killed: what stands in its queues then must be what the log
   says.
Not here: adding up (`ledger.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pamqp import commands

from amqpd.audit.coverage.anchors import anchor
from amqpd.audit.coverage.coverage import Coverage
from amqpd.audit.epochs import Epochs, Eras
from amqpd.audit.kinds import ANCHOR_RECOVERED, ANCHOR_STOPPED
from amqpd.audit.publication import Publication
from amqpd.audit.recorder import Recorder
from amqpd.journal.buffer import JournalBuffer
from amqpd.kernel import Run
from amqpd.message.properties import Properties
from amqpd.message.rewriting import run_names
from amqpd.queues.delayed import DelayedMessages
from amqpd.queues.queue import Queue
from amqpd.queues.receipt import Receipt
from amqpd.vocabulary.audit_levels import FULL, Level
from amqpd.vocabulary.limits import Limits
from amqpd.vocabulary.records import QueueRecord
from tests.audit.ledger import Ledger, Truth
from tests.audit.reading import rows_in
from tests.harness.harness import Client
from tests.model.broker import Model
from tests.model.machine import PUBLISHING, Machine
from tests.model.queues import ClientChannel
from tests.model.watching import WatchedHarness, WatchedNode, WatchedQueue, numbers_of

FACTS = ("accepted", "acked", "expired", "dropped", "rejected", "delivery_limit", "purged", "dead_lettered")


class AuditedModel(Model):
    """It also keeps what was delivered, in its order."""

    def __init__(self) -> None:
        super().__init__()
        self.truth = Truth()

    def delivered(
        self, name: str, numbers: list[int], redelivered: bool, channel: ClientChannel, tag: int, tag_name: str | None
    ) -> None:
        super().delivered(name, numbers, redelivered, channel, tag, tag_name)
        if tag_name is not None:
            # Who gets may be gone when it comes.
            self.truth.delivered += [(name, number, redelivered, tag_name) for number in numbers]


class AuditedQueue(WatchedQueue):
    def publish(
        self, run: Run, properties: Properties, publication: Publication | None, receipt: Receipt | None = None
    ) -> bool:
        with entering(self, numbers_of(run, 0, run.count)):
            return super().publish(run, properties, publication, receipt)


@contextmanager
def entering(queue: Queue | DelayedMessages, numbers: list[int]) -> Iterator[None]:
    """Meanwhile the messages with these numbers in their bodies come into the queue."""
    before = {
        level.queue_id: level.store.book.next for level in queue.messages.levels() if level.store.book is not None
    }
    yield
    harness: AuditedHarness = queue.host.harness  # type: ignore[attr-defined]
    entered = 0
    for level in queue.messages.levels():
        assert level.store.book is not None
        for first in range(before.get(level.queue_id, 0), level.store.book.next):
            key = (level.queue_id, harness.recorder.incarnation, first)
            assert key not in harness.truth.entered, f"{key} is given out twice"
            harness.truth.entered[key] = numbers[entered]
            entered += 1
    assert entered == len(numbers)


class AuditedNode(WatchedNode):
    def make_queue(self, record: QueueRecord, policy: Mapping[str, Any]) -> Queue:
        return AuditedQueue(record, self, policy)


class AuditedHarness(WatchedHarness):
    node_class = AuditedNode
    level: Level = FULL
    clean = False
    """the next end of the node is an orderly one"""

    def __init__(self, limits: Limits, model: Model) -> None:
        assert isinstance(model, AuditedModel)
        self.truth = model.truth
        self.recorder = Recorder(lambda: 0)
        self.eras: dict[int, Eras] = {}
        self.ledger = Ledger(self.level, self.truth)
        super().__init__(limits, model)

    def _start(self, journal: JournalBuffer) -> None:
        super()._start(journal)
        self.recorder = self.node.audit

    def audit(self) -> tuple[Recorder | None, Coverage | None]:
        recorder = Recorder(lambda: 1_000_000 + self.node.now_ms * 1000)
        recorder.incarnation = self.recorder.incarnation + 1
        return recorder, Coverage(recorder, self.level, None, Epochs(recorder.incarnation, self.eras))

    def restart(self) -> None:
        self.end_incarnation()
        super().restart()
        self.eras = self.node.books.kept_eras
        self.anchor_all(ANCHOR_RECOVERED)

    def end_incarnation(self) -> None:
        """Everything that happened until now is held against the truth."""
        self.anchor_all(ANCHOR_STOPPED)
        self.truth.facts = {queue.record.id: facts_of(queue) for queue in self.node.queues.values()}
        self.ledger.add(rows_in([self.recorder.buffer.take()], self.recorder.incarnation), self.clean)
        self.recorder.buffer.begin_file()

    def anchor_all(self, kind: int) -> None:
        for queue in self.node.audited():
            anchor(self.recorder, queue, kind)


class SampledHarness(AuditedHarness):
    """Half of it."""

    level = Level("sample(0.5)", True, False, 1 << 31)


def facts_of(queue: Queue) -> Mapping[str, int]:
    facts = Counter({fact: getattr(queue.facts, fact) for fact in FACTS})
    facts["stands"] = queue.backlog.ready + queue.backlog.unacked
    return facts


class AuditedMachine(Machine):
    model_class = AuditedModel
    harness_class = AuditedHarness
    model: AuditedModel
    harness: AuditedHarness

    def new_client(self) -> Client:
        client = super().new_client()
        # As peers have ports.
        client.connection.name = client.connection.id
        return client

    def put_off(self, run: Run, delay_ms: int, publication: Publication | None = None) -> None:
        """As a client's publish would: it is recorded, and enters the store of delayed messages."""
        node, audit = self.harness.node, self.harness.recorder
        publication = audit.begin_own("/", *run_names(run), "test", 1, node.properties.read(run.properties))
        with entering(node.registry.delayed("/"), numbers_of(run, 0, 1)):
            super().put_off(run, delay_ms, publication)
        audit.end(publication, run.body_size, True)

    def confirmed(self, number: int, answer: commands.Basic.Ack | commands.Basic.Nack) -> None:
        before = set(self.answered[number])
        super().confirmed(number, answer)
        connection = self.harness.clients[number].connection.name
        for tag, kind in self.answered[number].items():
            if tag not in before:
                key = (self.harness.recorder.incarnation, connection, PUBLISHING, tag)
                self.model.truth.told[key] = (kind, self.publishes[number][tag - 1])

    def restart(self, clean: bool) -> None:
        self.harness.clean = clean
        super().restart(clean)

    def drain(self) -> None:
        self.harness.end_incarnation()
        super().drain()
        self.harness.clean = True
        self.harness.end_incarnation()
