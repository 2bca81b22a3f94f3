"""A plain queue at its leader: what `LedQueue` asks for, and nothing more.

What comes in: runs, consumers, ranges. What goes out: deliveries; records for the log.
Rules: 1. Ready messages are in the order of their numbers; one that comes back goes to its place. 2. Consumers take
turns. 3. With a bound it refuses what does not fit (reject-publish). 4. A purge may take several steps.
Not here: expiry, priorities, dead letters: `amqpd.queues.queue` is to stand in this place.
"""

from __future__ import annotations

import random
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from struct import Struct

from pamqp import commands, frame, header

from amqpd.kernel import Run
from amqpd.queues.consumer import Subscriber
from amqpd.queues.port import Getter, Got
from amqpd.remote.source import LedQueue
from tests.remote.simulation.log import Contents, Enqueued, LeaderLog, Returned, Settled

BODY_BYTES = 8
PIECE_MAX = 4
NO_BOUND = 1 << 40


_METHOD = frame.marshal(commands.Basic.Publish(exchange="", routing_key="q"), 1)
_PROPERTIES = commands.Basic.Properties(delivery_mode=2)
_HEADER = frame.marshal(header.ContentHeader(body_size=BODY_BYTES, properties=_PROPERTIES), 1)
_BODY = Struct(">BHIQB")
_BYTES = len(_METHOD) + len(_HEADER) + _BODY.size


def make_run(names: list[int]) -> Run:
    """A run of messages whose bodies are their names."""
    data = b"".join([_METHOD + _HEADER + _BODY.pack(3, 1, BODY_BYTES, name, 0xCE) for name in names])
    return Run(data, 0, _BYTES, len(names), len(_METHOD), len(_HEADER), BODY_BYTES, 1)


def name_of(run: Run, i: int) -> int:
    return int.from_bytes(run.body(i), "big")


class PlainQueue(LedQueue):
    """One queue, as its leader has it."""

    def __init__(
        self, number: int, log: LeaderLog, found: Contents, first: int, bound: int, chance: random.Random
    ) -> None:
        """`first`: the first sequence number that this leader gives. `bound`: of ready messages."""
        self.number, self.log, self.next, self.bound, self.chance = number, log, first, bound, chance
        self.runs: dict[int, tuple[Run, int]] = {
            seq: (make_run([name]), 0) for seq, name in found.live[number].items()
        }
        """of those that are there: where the message is"""
        self.ready = sorted(self.runs)
        self.counts = {seq: count for (queue, seq), count in found.counts.items() if queue == number}
        self.delivered: set[int] = set()
        self.consumers: list[Subscriber] = []
        self.purges: list[Iterator[bool]] = []
        """under way"""

    # Messages in

    def publish(self, run: Run, redelivered: bool) -> int:
        count = max(0, min(run.count, self.bound - len(self.ready)))
        for i in range(count):
            seq, self.next = self.next, self.next + 1
            self.runs[seq] = run, i
            self.ready.append(seq)
            if redelivered:
                self.delivered.add(seq)
            self.log.append(Enqueued(self.number, seq, name_of(run, i)))
        return count

    # What is held

    def settle(self, first: int, last: int) -> None:
        self._unready(first, last)
        for seq in range(first, last + 1):
            self.runs.pop(seq, None)
        self.log.append(Settled(self.number, first, last, False))

    def reject(self, first: int, last: int) -> None:
        self.settle(first, last)

    def requeue(self, first: int, last: int) -> None:
        for seq in range(first, last + 1):
            if seq in self.runs:
                self.counts[seq] = self.counts.get(seq, 0) + 1
                self.log.append(Returned(self.number, seq, self.counts[seq]))
        self.give_back(first, last)

    def give_back(self, first: int, last: int) -> None:
        self._unready(first, last)
        for seq in range(first, last + 1):
            if seq in self.runs:
                self.delivered.add(seq)
                insort(self.ready, seq)

    def hold(self, first: int, last: int) -> list[tuple[int, int]]:
        low, found = bisect_left(self.ready, first), list[tuple[int, int]]()
        high = bisect_left(self.ready, last + 1)
        for seq in self.ready[low:high]:
            if found and found[-1][1] + 1 == seq:
                found[-1] = found[-1][0], seq
            else:
                found.append((seq, seq))
        del self.ready[low:high]
        return found

    def _unready(self, first: int, last: int) -> None:
        low, high = bisect_left(self.ready, first), bisect_left(self.ready, last + 1)
        if low != high:
            raise AssertionError(
                f"queue {self.number}: {self.ready[low:high]} are ready, and are settled or returned"
            )

    def purge(self, gone: Callable[[int, bool], object]) -> None:
        steps = self._purging(gone)
        if next(steps, False):
            self.purges.append(steps)

    def step(self) -> None:
        """Purges go on."""
        self.purges = [steps for steps in self.purges if next(steps, False)]

    def delete(self) -> None:
        """Nothing is left of it, nor of what is under way."""
        self.ready.clear()
        self.step()

    def _purging(self, gone: Callable[[int, bool], object]) -> Iterator[bool]:
        at_once, below = self.chance.choice([1, 3, NO_BOUND]), self.next
        while True:
            part = self.ready[: min(at_once, bisect_left(self.ready, below))]
            if not part:
                gone(0, True)
                return
            self.purge_some(part)
            gone(len(part), False)
            if at_once < NO_BOUND:
                yield True

    def purge_some(self, part: list[int]) -> None:
        """A step of a purge: these messages, the first that are ready."""
        del self.ready[: len(part)]
        for seq in part:
            del self.runs[seq]
            self.log.append(Settled(self.number, seq, seq, True))

    @property
    def ready_count(self) -> int:
        return len(self.ready)

    @property
    def consumer_count(self) -> int:
        return len(self.consumers)

    def redelivered(self) -> list[tuple[int, int]]:
        return [(seq, seq) for seq in sorted(self.delivered & self.runs.keys())]

    def mark_redelivered(self, first: int, last: int) -> None:
        self.delivered.update(seq for seq in self.runs if first <= seq <= last)

    def forget_redelivered(self) -> None:
        self.delivered.clear()

    # Consumers

    def consume(self, consumer: Subscriber, answer: Callable[..., object]) -> None:
        self.consumers.append(consumer)
        answer(None)

    def cancel(self, consumer: Subscriber, answer: Callable[[None], object]) -> None:
        self.consumers.remove(consumer)
        answer(None)

    def credited(self, consumer: Subscriber) -> None:
        consumer.parked = False

    def get(self, no_ack: bool, answer: Getter) -> None:
        if not self.ready:
            answer(None)
            return
        seq = self.ready.pop(0)
        run, i = self.runs[seq]
        redelivered = seq in self.delivered
        self.delivered.add(seq)
        if not answer(Got((run, i, i + 1, seq, redelivered), len(self.ready), None)):
            insort(self.ready, seq)

    def dispatch(self) -> None:
        """To consumers in turn, in pieces of any size."""
        while self.ready:
            consumer = next((each for each in self.consumers if not each.parked), None)
            if consumer is None:
                return
            credit = consumer.credit()
            if credit <= 0:
                consumer.parked = True
                consumer.wait_for_credit()
                continue
            self.consumers.remove(consumer)
            self.consumers.append(consumer)
            run, low, high, seq, redelivered = self._take(min(credit, self.chance.randint(1, PIECE_MAX)))
            consumer.deliver(run, low, high, seq, redelivered)

    def _take(self, limit: int) -> tuple[Run, int, int, int, bool]:
        seq = self.ready[0]
        run, low = self.runs[seq]
        redelivered, count = seq in self.delivered, 1
        while (
            count < limit
            and count < len(self.ready)
            and self.ready[count] == seq + count
            and self.runs[seq + count] == (run, low + count)
            and ((seq + count) in self.delivered) == redelivered
        ):
            count += 1
        del self.ready[:count]
        self.delivered.update(range(seq, seq + count))
        return run, low, low + count, seq, redelivered
