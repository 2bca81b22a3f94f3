"""What a queue can say of itself: how much came, how it left, how fast, and how long it stood there.

What comes in: counts, as things happen; the time. What goes out: totals, rates, a histogram, utilisation.
Rules: 1. Always on, so everything is a number that is added to, per piece and not per message. 2. What left the queue
left it in exactly one way: accepted = ready + unacked + all of `LEFT`. 3. Rates and utilisation are those of the last
full sample and what came since, 5 to 10 seconds; somebody calls `sample` once a second until it is `settled`, or an
idle queue would go on to report what it did last.
Not here: depth and bytes (`backlog.py`), who asks (`management/figures/queue_facts.py`).

Source for names: https://www.rabbitmq.com/docs/management, message_stats and consumer_capacity.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any

from amqpd.queues.deadletters import EXPIRED, MAXLEN, REJECTED

SAMPLE_MS = 5_000
# Upper bounds of the histogram's buckets, in ms; the last bucket has none.
TIME_IN_QUEUE_MS = (1, 5, 20, 100, 500, 1_000, 5_000, 30_000, 60_000, 600_000, 3_600_000, 86_400_000)
LEFT = ("acked", "rejected", "expired", "dropped", "delivery_limit", "purged", "withdrawn")
TOTALS = ("accepted", "recovered", "delivered", "redelivered", *LEFT, "dead_lettered", "refused")
WAYS = ("got", "got_nothing", "got_auto_acked", "auto_acked", "acked_by_clients")
"""how messages were taken and acknowledged"""
RATES = ("accepted", "delivered", "redelivered", "acked", "left", "refused", *WAYS)
_NOTHING = (0,) * (1 + len(RATES))


def taken(count: Callable[[str], Any]) -> tuple[Any, ...]:
    """How messages were taken, as RabbitMQ counts: deliveries of any kind; again; acknowledgements by clients; to
    consumers with and without acknowledgement; by basic.get with and without; basic.get in vain. `count` knows each
    of our counters by its name: numbers are whole if its are."""
    delivered, again, acked = count("delivered"), count("redelivered"), count("acked_by_clients")
    got, got_no_ack, in_vain = count("got"), count("got_auto_acked"), count("got_nothing")
    to_no_ack = count("auto_acked")
    return delivered, again, acked, delivered - got - to_no_ack, to_no_ack, got - got_no_ack, got_no_ack, in_vain


class Facts:
    """Counters of one queue since it was made or recovered, and the rates that follow from them."""

    __slots__ = (
        "_before",
        "_looked_ms",
        "_sample",
        "accepted",
        "acked_by_clients",
        "auto_acked",
        "dead_lettered",
        "dead_letters_in",
        "delivered",
        "delivery_limit",
        "dropped",
        "expired",
        "got",
        "got_auto_acked",
        "got_nothing",
        "purged",
        "recovered",
        "redelivered",
        "refused",
        "rejected",
        "sample_due_ms",
        "summed",
        "summed_in",
        "time_in_queue",
        "waiting",
        "waiting_ms",
        "withdrawn",
    )

    def __init__(self, now_ms: int) -> None:
        self.accepted = 0
        """messages taken in, those that were recovered included"""
        self.recovered = 0
        self.delivered = 0
        self.redelivered = 0
        self.got = 0
        """of those delivered, by basic.get"""
        self.got_nothing = 0
        """how often basic.get found the queue empty"""
        self.acked_by_clients = 0
        self.auto_acked = 0
        """by delivery to a consumer without acknowledgement"""
        self.got_auto_acked = 0
        """by basic.get without acknowledgement"""
        self.rejected = 0
        self.expired = 0
        self.dropped = 0
        """over the length limit, from the head"""
        self.delivery_limit = 0
        self.purged = 0
        self.withdrawn = 0
        """by an operator: deleted one by one, or moved to another queue"""
        self.refused = 0
        """publishes not taken, over the length limit"""
        self.dead_lettered = 0
        """of those that left, how many went to a dead letter exchange"""
        self.dead_letters_in = 0
        """of those accepted, how many are dead letters of other queues"""
        self.time_in_queue = [0] * (len(TIME_IN_QUEUE_MS) + 1)
        self.waiting_ms = 0
        """how long messages were ready and no consumer had credit"""
        self.waiting = False
        """something is ready that no consumer could take"""
        self.summed: tuple[int, ...] = ()
        """what of it is in the sums of its node (`node/totals.py`)"""
        self.summed_in: list[int] | None = None
        """in which of them, besides those of the whole node: its virtual host's"""
        self._looked_ms = now_ms
        self._before = self._sample = (now_ms, _NOTHING)
        self.sample_due_ms = now_ms + SAMPLE_MS

    @property
    def acked(self) -> int:
        """By clients, and by delivery without acknowledgement."""
        return self.acked_by_clients + self.auto_acked + self.got_auto_acked

    def begin(self, recovered: int) -> None:
        """This many messages were there at the start."""
        self.accepted = self.recovered = recovered
        self._before = self._sample = (self._sample[0], self._counts())

    def died(self, reason: str, count: int) -> None:
        """They left for this reason (`deadletters.py`)."""
        if reason == REJECTED:
            self.rejected += count
        elif reason == EXPIRED:
            self.expired += count
        elif reason == MAXLEN:
            self.dropped += count
        else:
            self.delivery_limit += count

    def waited(self, count: int, redelivered: bool, waited_ms: int) -> None:
        """This many messages were handed out after this time. (For less than 2 ms, the queue counts itself.)"""
        if redelivered:
            self.redelivered += count
        self.time_in_queue[bisect_left(TIME_IN_QUEUE_MS, waited_ms)] += count

    def waits(self, waiting: bool, now_ms: int) -> None:
        """At the end of a dispatch: whether something is ready that no consumer could take. Need not be called while
        that is so neither before nor now, but when a sample is due."""
        if self.waiting:
            self.waiting_ms += now_ms - self._looked_ms
        self.waiting, self._looked_ms = waiting, now_ms
        if now_ms >= self.sample_due_ms:
            self._take_sample(now_ms)

    def sample(self, now_ms: int) -> None:
        """To be called once a second, whether or not there was anything to do."""
        if now_ms >= self.sample_due_ms:
            self.waits(self.waiting, now_ms)

    @property
    def settled(self) -> bool:
        """Nothing has happened for two samples, and nothing goes on: another one would say the same."""
        return not self.waiting and self._before[1] == self._sample[1] == self._counts()

    def _take_sample(self, now_ms: int) -> None:
        then_ms, counts = self._sample
        # Nobody looked while nothing happened: it had these counts still one sample ago.
        self._before = (max(then_ms, now_ms - 2 * SAMPLE_MS), counts)
        self._sample = (now_ms, self._counts())
        self.sample_due_ms = now_ms + SAMPLE_MS

    def _counts(self) -> tuple[int, ...]:
        return (self.waiting_ms, *(getattr(self, name) for name in RATES))

    def rates(self, now_ms: int) -> dict[str, float]:
        """Messages a second, by the names in `RATES`."""
        self.sample(now_ms)
        begin_ms, (_, *counts) = self._before
        # A queue that was made a moment ago has no rate of a million.
        seconds = max(now_ms - begin_ms, 1000) / 1000
        return {name: (getattr(self, name) - counts[i]) / seconds for i, name in enumerate(RATES)}

    def utilisation(self, now_ms: int) -> float:
        """The share of the time in which the consumers could take at once what was ready (consumer_capacity)."""
        self.sample(now_ms)
        begin_ms, (waited_ms, *_) = self._before
        waiting_ms = self.waiting_ms - waited_ms + (now_ms - self._looked_ms if self.waiting else 0)
        return 1.0 - waiting_ms / max(now_ms - begin_ms, 1)

    def totals(self) -> dict[str, int]:
        """By the names in `TOTALS` and `WAYS`."""
        return {name: getattr(self, name) for name in (*TOTALS, *WAYS)}

    @property
    def left(self) -> int:
        return sum(getattr(self, name) for name in LEFT)
