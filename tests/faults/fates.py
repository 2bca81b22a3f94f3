"""Queues whose messages may leave by another door: what is published to them, where it may come out, and when.

What comes in: nothing. What goes out: `FATES`; publishers and consumers that play them.
Rules: 1. What a message is (expiration, delay, priority, whether its consumer rejects it) follows from its sequence
number, so histories need not hold it. 2. A message with a dead letter queue comes out there or in its own queue. 3. A
message that expires without a dead letter exchange may come out nowhere; its neighbours, which do not expire, must.
4. Times are wall-clock: the publisher's before it sends, the receiver's after it has received.
Not here: the judgement (`checker.py`), sockets (`workload.py`), waiting until all is at rest (`drain.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pamqp import commands

from .history import History, PublisherHistory, QueueHistory

LIFE_MS_MAX = 1500
"""No expiration and no delay is longer, so that everything is over soon after the last publish."""


def any_incarnation(sequence: int) -> int:
    """Neighbours have expirations far apart, all different for a second and a half."""
    return 1 + sequence * 611 % LIFE_MS_MAX


@dataclass(frozen=True)
class Fate:
    """A queue, and its publisher `to-<queue>`. `life_ms`, `delay_ms`, `priority` are of a sequence number; `reasons`
    those for which messages may be in the dead letter queue. `verdict` is the consumer's, and None is no consumer:
    given a sequence number and the redelivered flag "ack", "reject" (dead-lettered) or "requeue"."""

    queue: str
    arguments: dict[str, Any] = field(default_factory=dict)
    reason: str = ""
    life_ms: Callable[[int], int | None] | None = None
    expiration: bool = True
    delay_ms: Callable[[int], int] | None = None
    priority: Callable[[int], int] | None = None
    verdict: Callable[[int, bool], str] | None = None
    dead_letters_in_order: bool = True

    @property
    def dead(self) -> str:
        """The dead letter queue, if it has one."""
        return f"{self.queue}.dead" if self.reason else ""

    @property
    def publisher(self) -> str:
        return f"to-{self.queue}"

    def properties(self, sequence: int) -> commands.Basic.Properties:
        life_ms = self.life_ms(sequence) if self.life_ms and self.expiration else None
        return commands.Basic.Properties(
            delivery_mode=2,
            expiration=None if life_ms is None else str(life_ms),
            headers=None if self.delay_ms is None else {"x-delay": self.delay_ms(sequence)},
            priority=None if self.priority is None else self.priority(sequence),
        )

    def declared(self) -> dict[str, Any]:
        """The arguments of the queue."""
        dead_letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": self.dead} if self.dead else {}
        return self.arguments | dead_letters

    def rank(self, sequence: int) -> int:
        """The level of the priority queue."""
        assert self.priority is not None
        return min(self.priority(sequence), self.arguments["x-max-priority"])


FATES = [
    Fate("ttl", {"x-message-ttl": 300}, "expired", lambda _: 300, expiration=False),
    Fate("expiring", {}, "expired", any_incarnation, verdict=lambda *_: "ack", dead_letters_in_order=False),
    Fate("fleeting", {}, "", lambda sequence: None if sequence % 2 else any_incarnation(sequence)),
    Fate("short", {"x-max-length": 300}, "maxlen"),
    Fate("judged", {}, "rejected", verdict=lambda sequence, _: "ack" if sequence % 3 else "reject"),
    Fate(
        "limited",
        {"x-queue-type": "quorum", "x-delivery-limit": 2},
        "delivery_limit",
        verdict=lambda sequence, _: "ack" if sequence % 5 else "requeue",
        dead_letters_in_order=False,
    ),
    Fate("ranked", {"x-max-priority": 5}, priority=lambda sequence: sequence % 7, verdict=lambda *_: "ack"),
    Fate("delayed", {}, delay_ms=any_incarnation),
]


def add_fates(history: History) -> None:
    """Their publishers and queues; sources before dead letter queues, so that they are drained first."""
    for fate in FATES:
        publisher = PublisherHistory(fate.publisher, (fate.queue,), dead=fate.dead)
        if fate.life_ms is not None and not fate.dead:
            publisher.may_vanish = _expires(fate.life_ms)
        history.publishers[fate.publisher] = publisher
        queue = history.queues[fate.queue] = QueueHistory(fate.queue)
        if fate.priority is not None:
            queue.lane_of = queue.rank_of = fate.rank
        if fate.delay_ms is not None:
            queue.lane_of = None
            queue.earliest_ms = _earliest(publisher, fate.delay_ms)
            queue.counted_as = "delayed"
    for fate in FATES:
        if fate.dead:
            dead_letters = history.queues[fate.dead] = QueueHistory(
                fate.dead, dead_letters_of=fate.queue, reason=fate.reason
            )
            dead_letters.counted_as = f"dead-lettered ({fate.reason}, {fate.queue})"
            if not fate.dead_letters_in_order:
                dead_letters.lane_of = None
            if fate.life_ms is not None:
                dead_letters.earliest_ms = _earliest(history.publishers[fate.publisher], fate.life_ms)


def _expires(life_ms: Callable[[int], int | None]) -> Callable[[int], bool]:
    return lambda sequence: life_ms(sequence) is not None


def _earliest(publisher: PublisherHistory, after_ms: Callable[[int], int | None]) -> Callable[[int], int]:
    return lambda sequence: publisher.sent_ms[sequence] + (after_ms(sequence) or 0)
