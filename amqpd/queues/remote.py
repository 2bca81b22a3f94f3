"""What has the name of a queue that another node leads, or none at present.

What comes in: what clients ask of a queue. What goes out: refusals, zeros.
Rules: 1. It has no messages, no consumers and no figures, and takes none: a node has one for each queue of all other
nodes, so it is small. 2. Nobody dispatches, samples or audits it.
Not here: who leads it (`amqpd/node/sources.py`), what a client that names it is told (`amqpd/declarations`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

from mypy_extensions import mypyc_attr
from pamqp.exceptions import AMQPSoftError

from amqpd.audit.publication import Publication
from amqpd.journal.lane import Lane
from amqpd.kernel import Run
from amqpd.message.properties import Properties
from amqpd.queues.consumer import Subscriber
from amqpd.queues.damage import QueueDamage
from amqpd.queues.dispatchable import Paged
from amqpd.queues.facts import Facts
from amqpd.queues.port import DeclareCounts, Getter, QueuePort, Receipt, Statistics, TakeOut
from amqpd.queues.settings import PLAIN, QueueSettings, settings_of, type_of
from amqpd.queues.states import QueueState
from amqpd.vocabulary.records import Arguments, QueueRecord


@mypyc_attr(allow_interpreted_subclasses=True)  # a test double is one, too
class RemoteQueue(QueuePort):
    """A queue that this node does not lead: its record, and refusals."""

    def __init__(self, record: QueueRecord, lane: Lane) -> None:
        """`lane`: any, nothing waits for it."""
        super().__init__(record, _known(record.arguments), lane)
        self.is_remote = self.may_refuse = True
        self.state = QueueState.UNREACHED

    def abandoned(self) -> Iterator[Getter]:
        return iter(())

    def capacity_after_dispatch(self, run: Run) -> int:
        return 0

    def capacity(self, run: Run) -> int:
        return 0

    def turn_away(self, run: Run) -> None:
        pass

    def publish(
        self, run: Run, properties: Properties, publication: Publication | None, receipt: Receipt | None = None
    ) -> bool:
        raise AssertionError(f"published to queue '{self.record.name}', which has no capacity here")

    # Of what nobody has from here nothing is left to be settled.

    def settle(self, first: int, last: int) -> int:
        return 0

    def reject(self, first: int, last: int) -> None:
        pass

    def requeue(self, first: int, last: int) -> None:
        pass

    def purging(self, answer: Callable[[int | AMQPSoftError], object]) -> Generator[int, None, None]:
        answer(0)
        yield from ()

    def consume(self, consumer: Subscriber, answer: Callable[[AMQPSoftError | None], object]) -> None:
        raise AssertionError(f"a consumer of queue '{self.record.name}', which is not here")

    def cancel(self, consumer: Subscriber, answer: Callable[[None], object]) -> None:
        answer(None)

    def credited(self, consumer: Subscriber) -> None:
        pass

    def get(self, no_ack: bool, answer: Getter) -> None:
        answer(None)

    def used(self) -> None:
        pass

    def count(self, answer: Callable[[DeclareCounts | AMQPSoftError], object]) -> None:
        answer(DeclareCounts(0, 0))

    def remove(
        self, if_unused: bool, if_empty: bool, take_out: TakeOut, answer: Callable[[int | AMQPSoftError], object]
    ) -> None:
        def removed(_: bool) -> None:
            answer(0)

        take_out(lambda: True, removed)  # with conditions it is refused before

    def dispatch(self) -> None:
        pass  # its leader does it

    @property
    def paged(self) -> Paged | None:
        return None

    @property
    def ready_count(self) -> int:
        return 0

    @property
    def unacked_count(self) -> int:
        return 0

    @property
    def arrived_ms(self) -> int:
        return 0

    @property
    def memory_bytes(self) -> int:
        return 0

    @property
    def consumer_count(self) -> int:
        return 0

    def subscribers(self) -> list[Subscriber]:
        return []

    @property
    def damage_summary(self) -> QueueDamage | None:
        return None

    def statistics(self, now_ms: int) -> Statistics:
        nothing = Facts(now_ms)
        return Statistics(
            settings=settings_of(self.record.arguments, {}),
            ready=0,
            unacked=0,
            ready_bytes=0,
            unacked_bytes=0,
            memory_bytes=0,
            oldest_ms=None,
            consumers=0,
            utilisation=0.0,
            active=None,
            totals=nothing.totals(),
            rates=nothing.rates(now_ms),
            time_in_queue=nothing.time_in_queue,
            dying=0,
        )

    @property
    def exclusive_consumer(self) -> bool:
        return False

    def is_active(self, consumer: Subscriber) -> bool:
        return False


def _known(arguments: Arguments) -> QueueSettings:
    """What others may know of it: very many are made at once."""
    return PLAIN[type_of(arguments)] if len(arguments) <= 1 else settings_of(arguments, {})
