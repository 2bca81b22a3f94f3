"""A queue that another node leads, as everything at this node reaches it: what is asked of it goes to its leader.

What comes in: what clients ask of a queue (`QueuePort`). What goes out: the same to the edge of its source; answers,
when the leader has given them.
Rules: 1. A node has one of these for each queue of all other nodes, so it is small: it has no messages, and consumers
only while there are some. 2. While its source is not reached (`RemoteEdges.reaches`) it is away: it takes nothing,
and clients that name it are refused before they ask anything. 3. Its confirms wait for the lane of its source's edge.
4. Positions of messages are places (`subscription.py`). 5. Nobody dispatches, samples or audits it here.
Not here: who leads it (`amqpd/node/sources.py`), what a client that names one that is away is told
(`amqpd/declarations`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import partial

from pamqp.exceptions import AMQPNotFound, AMQPPreconditionFailed, AMQPSoftError

from amqpd.audit.publication import Publication
from amqpd.journal.lane import Lane
from amqpd.kernel import Run
from amqpd.message.properties import Properties
from amqpd.queues.arguments import described_queue
from amqpd.queues.consumer import Subscriber
from amqpd.queues.damage import QueueDamage
from amqpd.queues.dispatchable import Paged
from amqpd.queues.facts import Facts
from amqpd.queues.port import DeclareCounts, Getter, Got, QueuePort, Statistics, TakeOut
from amqpd.queues.receipt import Receipt
from amqpd.queues.settings import PLAIN, QueueSettings, settings_of, type_of
from amqpd.queues.states import AWAY, QueueState
from amqpd.remote.consumer import EdgeConsumer
from amqpd.remote.edge import Edge
from amqpd.remote.edge_source import EdgeSource
from amqpd.remote.edges import RemoteEdges
from amqpd.remote.endings import refusal_of
from amqpd.remote.links import RemoteSource
from amqpd.remote.messages import SubscriptionEnded
from amqpd.vocabulary.records import Arguments, QueueRecord


class RemoteQueue(QueuePort):
    """A queue that this node does not lead: its record, and the way to its leader."""

    __slots__ = ("_consumers", "_edges")  # a node has one for each queue of all others

    def __init__(self, record: QueueRecord, lane: Lane, edges: RemoteEdges) -> None:
        """`lane`: any, until it is used for the first time."""
        super().__init__(record, _known(record.arguments), lane)
        self.is_remote = self.may_refuse = True
        self.state = QueueState.UNREACHED
        self._edges = edges
        self._consumers: dict[Subscriber, tuple[EdgeSource, EdgeConsumer]] | None = None

    @property
    def is_away(self) -> bool:
        return self.state in AWAY and not self._edges.reaches(RemoteSource.of_record(self.record))

    def _source(self) -> EdgeSource:
        of = self._edges.of(RemoteSource.of_record(self.record))
        self.lane = of.edge.lane
        return of

    def abandoned(self) -> Iterator[Getter]:
        return iter(())

    # Messages in

    def capacity_after_dispatch(self, run: Run) -> int:
        return self.capacity(run)

    def capacity(self, run: Run) -> int:
        return 0 if self.is_away or self.is_deleted else run.count

    def turn_away(self, run: Run) -> None:
        pass  # what its leader has no space for, that turns away

    def publish(
        self, run: Run, properties: Properties, publication: Publication | None, receipt: Receipt | None = None
    ) -> bool:
        record = self.record
        is_transient = not record.source and not (record.durable and properties.persistent)
        self._source().edge.publish(record.id, run, receipt, is_transient=is_transient)
        return True

    # Settling

    def settle(self, first: int, last: int) -> int:
        self._settling(first).settle(first, last)
        return 0

    def reject(self, first: int, last: int) -> None:
        self._settling(first).reject(first, last)

    def requeue(self, first: int, last: int) -> None:
        self._settling(first).requeue(first, last)

    def _settling(self, first: int) -> Edge:
        of = self._source()
        of.credit_given_back(first)
        return of.edge

    def purging(self, answer: Callable[[int | AMQPSoftError], object]) -> Generator[int, None, None]:
        if self.is_away:
            answer(0)
        else:
            self._source().edge.purge(self.record.id, answer)
        yield from ()

    # Consumers

    def consume(self, consumer: Subscriber, answer: Callable[[AMQPSoftError | None], object]) -> None:
        of = self._source()
        if self._consumers is None:
            self._consumers = {}
        answered = partial(self._consumed, consumer, answer)
        self._consumers[consumer] = of, of.consume(self.record.id, consumer, answered, self._forget)

    def _consumed(
        self,
        consumer: Subscriber,
        answer: Callable[[AMQPSoftError | None], object],
        ended: SubscriptionEnded | AMQPSoftError | None,
    ) -> None:
        if ended is None:
            answer(None)
        else:
            self._forget(consumer)
            answer(ended if isinstance(ended, AMQPSoftError) else refusal_of(self.record, ended))

    def _unknown(self) -> AMQPNotFound:
        record = self.record
        return AMQPNotFound(f"no queue '{record.name}' in vhost '{record.vhost}'")

    def _forget(self, consumer: Subscriber) -> None:
        """Its leader has ended its subscription, or refused it."""
        if self._consumers is not None:
            self._consumers.pop(consumer, None)

    def cancel(self, consumer: Subscriber, answer: Callable[[None], object]) -> None:
        found = self._consumers.pop(consumer, None) if self._consumers else None
        if found is None:
            answer(None)
            return
        of, remote = found
        self._edges.dirty[of] = None
        of.cancel(remote, answer)

    def credited(self, consumer: Subscriber) -> None:
        found = self._consumers.get(consumer) if self._consumers else None
        if found is not None:
            self._edges.dirty[found[0]] = None
            found[1].credited()

    def get(self, no_ack: bool, answer: Getter) -> None:
        if self.is_away:
            answer(None)
        else:
            self._source().get(self.record.id, no_ack, partial(self._got, answer))

    def _got(self, answer: Getter, got: Got | SubscriptionEnded | AMQPSoftError | None) -> bool:
        return answer(refusal_of(self.record, got) if isinstance(got, SubscriptionEnded) else got)

    def used(self) -> None:
        pass  # its leader sees what is asked of it

    def count(self, answer: Callable[[DeclareCounts | AMQPSoftError], object]) -> None:
        if self.is_away:
            answer(DeclareCounts(0, 0))  # it has just been declared, to be led by a node that is not reached yet
        else:
            self._source().edge.count(self.record.id, partial(self._counted, answer))

    def _counted(
        self,
        answer: Callable[[DeclareCounts | AMQPSoftError], object],
        counts: DeclareCounts | AMQPSoftError | None,
    ) -> None:
        answer(self._unknown() if counts is None else counts)

    def remove(
        self, if_unused: bool, if_empty: bool, take_out: TakeOut, answer: Callable[[int | AMQPSoftError], object]
    ) -> None:
        def counted(counts: DeclareCounts | AMQPSoftError | None) -> None:
            if isinstance(counts, AMQPSoftError):
                answer(counts)
                return
            found = counts or DeclareCounts(0, 0)
            obstacle = "in use" if if_unused and found.consumers else "not empty" if if_empty and found.ready else ""
            if obstacle:
                answer(AMQPPreconditionFailed(f"{described_queue(self.record)} {obstacle}"))
            else:
                take_out(lambda: True, partial(_removed, answer, found.ready))

        if self.is_away:
            counted(None)  # it can be deleted all the same; with conditions it is refused before
        else:
            self._source().edge.count(self.record.id, counted)

    def dispatch(self) -> None:
        pass  # its leader does it

    # Facts

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
        return len(self._consumers or ())

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


def _removed(answer: Callable[[int | AMQPSoftError], object], ready: int, _: bool) -> None:
    answer(ready)


def _known(arguments: Arguments) -> QueueSettings:
    """What others may know of it: very many are made at once."""
    return PLAIN[type_of(arguments)] if len(arguments) <= 1 else settings_of(arguments, {})
