"""A queue of this node, as the leader's end of remote queues serves clients of other nodes from it.

What comes in: what `amqpd/remote/leader.py` asks of a queue. What goes out: the same to the queue, which is
dispatched in the tick then.
Rules: 1. What a remote client does with a queue has the effects that it has where the client is here: refusals are
those of `publishing/offering.py`. 2. A fault of the queue takes that queue out of service, and nothing else. 3. A
queue that is not served takes nothing, and what is settled of it is swallowed. 4. What an edge sends was checked by
its node; a run whose properties cannot be read, or ask for what no publisher may ask, is not taken all the same.
Not here: sessions, credit and claims (`amqpd.remote`), which queues there are (`queue_registry.py`), the audit log's
publications: the edge's node has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

from pamqp.exceptions import AMQPSoftError, AMQPSyntaxError

from amqpd.kernel import Mixed, Run
from amqpd.message.properties import Properties
from amqpd.node.ports import NodePort
from amqpd.queues.arguments import crashed
from amqpd.queues.consumer import Subscriber
from amqpd.queues.deadletters import is_dead_letter
from amqpd.queues.port import Getter, Got
from amqpd.queues.queue import Queue
from amqpd.queues.states import SERVED
from amqpd.remote.source import LedQueue

Said = TypeVar("Said")


class JournalledQueue(LedQueue):
    """A queue that this node leads, for clients of other nodes."""

    def __init__(self, node: NodePort, queue: Queue) -> None:
        self._node = node
        self._queue = queue

    # Messages in

    def publish(self, run: Run, redelivered: bool) -> int:
        properties = self._properties(run)
        if properties is None:
            return 0
        return self._asked(partial(self._publish, run, properties, redelivered), 0)

    def keeps(self, run: Run) -> bool:
        queue = self._queue
        if queue.quorum or not queue.record.durable:
            return queue.quorum
        properties = self._properties(run)
        return properties is not None and properties.persistent

    def _publish(self, run: Run, properties: Properties, redelivered: bool) -> int:
        queue = self._queue
        if not run.mixed and is_dead_letter(run):
            queue.facts.dead_letters_in += run.count
        if not queue.may_refuse:
            self._enter(run, properties, redelivered)
            return run.count
        taken = 0
        # What a bound leaves for messages of several sizes is asked for each of them.
        for part in [run.part(i, i + 1) for i in range(run.count)] if run.mixed else [run]:
            space = min(part.count, queue.capacity_after_dispatch(part))
            if space:
                self._enter(part if space == part.count else part.part(0, space), properties, redelivered)
            taken += space
            if space < part.count:
                break
        if taken < run.count:
            self._turn_away(run, taken)
        return taken

    def _enter(self, run: Run, properties: Properties, redelivered: bool) -> None:
        if redelivered:
            self._queue.publish_again(run, properties, None)
        else:
            self._queue.publish(run, properties, None)

    def _turn_away(self, run: Run, taken: int) -> None:
        if not run.mixed and is_dead_letter(run):
            # It may stay where it died, and come again for as long as there is no space: it becomes none of its own.
            self._queue.facts.dead_letters_in -= run.count - taken
            self._queue.facts.refused += run.count - taken
            return
        parts = [run.part(i, i + 1) for i in range(taken, run.count)] if run.mixed else [run.part(taken, run.count)]
        for part in parts:
            self._queue.turn_away(part)

    def _properties(self, run: Run) -> Properties | None:
        """What the queue has to know of them; None: no publisher may ask for that."""
        try:
            found = self._node.properties.read(run.common if isinstance(run, Mixed) else run.properties)
        except AMQPSyntaxError:
            return None
        return None if found.problem else found

    # What is held

    def settle(self, first: int, last: int) -> None:
        self._asked(partial(self._queue.settle, first, last), 0)

    def reject(self, first: int, last: int) -> None:
        self._asked(partial(self._queue.reject, first, last), None)

    def requeue(self, first: int, last: int) -> None:
        self._asked(partial(self._queue.requeue, first, last), None)

    def give_back(self, first: int, last: int) -> None:
        self._asked(partial(self._queue.give_back, first, last), None)

    def hold(self, first: int, last: int) -> list[tuple[int, int]]:
        return self._asked(partial(self._queue.hold, first, last), [])

    def redelivered(self) -> list[tuple[int, int]]:
        return self._asked(self._queue.redelivered, [])

    def mark_redelivered(self, first: int, last: int) -> None:
        self._asked(partial(self._queue.mark_redelivered, first, last), None)

    def forget_redelivered(self) -> None:
        self._asked(self._queue.forget_redelivered, None)

    # Purging

    def purge(self, gone: Callable[[int, bool], object]) -> None:
        self._node.dispatching.later(self._purging(gone))

    def _purging(self, gone: Callable[[int, bool], object]) -> Iterator[None]:
        """As steps for `QueueHost.later`."""
        node, queue = self._node, self._queue
        steps = queue.purging_steps()
        while (step := self._asked(partial(next, steps, None), None)) is not None:
            count, work = step
            gone(count, False)
            node.work_left -= work
            yield
        if not queue.is_away:
            gone(0, True)

    # Consumers

    @property
    def ready_count(self) -> int:
        return self._queue.ready_count

    @property
    def consumer_count(self) -> int:
        return self._queue.consumer_count

    def consume(self, consumer: Subscriber, answer: Callable[[AMQPSoftError | None], object]) -> None:
        queue = self._queue
        if queue.state is not SERVED or not self._asked(partial(self._consume, consumer, answer), False):
            answer(crashed(queue.record))

    def _consume(self, consumer: Subscriber, answer: Callable[[AMQPSoftError | None], object]) -> bool:
        self._queue.consume(consumer, answer)
        return True

    def cancel(self, consumer: Subscriber, answer: Callable[[None], object]) -> None:
        self._asked(partial(self._queue.cancel, consumer, answer), None)
        if self._is_unused:
            # Not in the middle of what an edge has said: its subscriptions end with the queue.
            self._node.dispatching.later(self._ending())

    @property
    def _is_unused(self) -> bool:
        """It is to go with its last consumer, and that has gone."""
        queue = self._queue
        return queue.record.auto_delete and queue.state is SERVED and not queue.consumer_count

    def _ending(self) -> Iterator[None]:
        """As steps for `QueueHost.later`."""
        if self._is_unused:
            self._node.end_queue(self._queue)
        yield

    def credited(self, consumer: Subscriber) -> None:
        self._asked(partial(self._queue.credited, consumer), None)

    def get(self, no_ack: bool, answer: Getter) -> None:
        answered = partial(self._got, answer)
        if self._queue.state is SERVED:
            self._asked(partial(self._queue.get, no_ack, answered), None)
        else:
            answered(None)

    def _got(self, answer: Getter, got: Got | AMQPSoftError | None) -> bool:
        out_of_service = got is None and self._queue.crash_reason is not None
        return answer(crashed(self._queue.record) if out_of_service else got)

    def withhold(self, withholds: bool) -> None:
        """See `Queue.withhold`: while the leader does not deliver, before the claims of living nodes are known."""
        self._asked(partial(self._queue.withhold, withholds), None)

    def _asked(self, question: Callable[[], Said], otherwise: Said) -> Said:
        """What the queue says, which is dispatched then; `otherwise`, when there is a fault in it."""
        node, queue = self._node, self._queue
        try:
            said = question()
        except Exception as error:  # noqa: BLE001 - the queue's; quarantine reports it, or raises it on
            node.quarantine(queue, error)
            return otherwise
        if queue.state is SERVED:
            node.to_dispatch.add(queue)
        return said
