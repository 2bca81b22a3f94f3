"""Watch over the queues and exchanges of this node: which of them may need somebody.

What comes in: queues to which something happened, as the sampler looks at them; questions. What goes out: facts of
the last minutes, for a user or for all.
Rules: 1. Only queues to which something happened are looked at (`look`), each five seconds at most; those in which
messages wait, or that refused some, or to which dead letters came, are remembered, and no others: an idle queue
without messages costs nothing. 2. Questions walk over what is remembered, in steps, and what was found is kept a
hundred times as long as it took. 3. Of each virtual host and kind the `EACH_MAX` facts that matter most are kept, and
how many there are: what is told is bounded, however many queues there are. 4. What has grown counts for `RECENT_MS`
after it grew last. 5. Damage and bugs are looked for in all queues: the scrub finds it in idle ones. A counter
(`Growth`, `Still`) is as large for a year as for a minute.
Not here: who asks the other nodes (`gathering.py`), sentences (`needs.py`), a queue's state
(`figures/conditions.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from heapq import nlargest

import trio

from amqpd.management.attention.facts import (
    BLOCKED,
    BROKEN,
    CUT_OFF,
    DAMAGED,
    DEAD_LETTERS,
    EACH_MAX,
    JOURNAL,
    MORE,
    NO_CONSUMERS,
    PREFETCH,
    REFUSING,
    UNROUTABLE,
    Fact,
)
from amqpd.management.figures.conditions import held_by_prefetch
from amqpd.management.figures.totals import KEPT_FROM, KEPT_S_EACH, KEPT_S_MAX
from amqpd.management.pacing import WalkPace
from amqpd.node.node import Node
from amqpd.publishing.unroutable import UnroutableOutcome
from amqpd.queues.leader import LeaderQueue
from amqpd.queues.port import QueuePort
from amqpd.security.access import Access

RECENT_MS = 600_000
"""Growth counts for so long; how much it was is told of the last five to ten minutes."""


class Growth:
    """A counter that begins at 0."""

    __slots__ = ("_before", "_since", "_value", "last_ms")

    def __init__(self, now_ms: int) -> None:
        self._before = self._since = (now_ms, 0)
        self._value = 0
        self.last_ms = 0
        """when it was seen to have grown last"""

    def look(self, now_ms: int, value: int) -> None:
        """It has this value now."""
        if now_ms - self._since[0] >= RECENT_MS // 2:
            stale = now_ms - self._since[0] >= RECENT_MS
            self._before = (now_ms, self._value) if stale else self._since
            self._since = (now_ms, self._value)
        if value != self._value:
            self._value, self.last_ms = value, now_ms

    def is_recent(self, now_ms: int) -> bool:
        """It has grown within `RECENT_MS`."""
        return self.last_ms > 0 and now_ms - self.last_ms < RECENT_MS

    def recent(self, now_ms: int) -> int:
        """How much it grew lately; 0 when it stood still for `RECENT_MS`."""
        return self._value - self._before[1] if self.is_recent(now_ms) else 0


class Still:
    """The time for which a counter has had the same value."""

    __slots__ = ("_since_ms", "_value")

    def __init__(self, now_ms: int, value: int) -> None:
        self._since_ms, self._value = now_ms, value

    def look(self, now_ms: int, value: int) -> None:
        """It has this value now."""
        if value != self._value:
            self._since_ms, self._value = now_ms, value

    def still_ms(self, now_ms: int) -> int:
        """As of the last look."""
        return now_ms - self._since_ms


PATIENCE_MS = 10_000
"""A consumer that acknowledges nothing for so long, a queue of which nobody takes anything, and a full journal, are
told of."""
FORGET_MS = 60_000
"""Queues that are gone are let go of this often."""
TOLD = (UnroutableOutcome.DROPPED, UnroutableOutcome.RETURNED, UnroutableOutcome.NACKED)
"""of what reached no queue; what was routed elsewhere by a policy is well"""


class _Seen:
    """One queue: what it had done at the last looks."""

    __slots__ = ("acked", "dead_letters", "delivered", "refused")

    def __init__(self, now_ms: int, queue: LeaderQueue) -> None:
        self.acked = Still(now_ms, queue.facts.acked)
        self.delivered = Still(now_ms, queue.facts.delivered)
        self.refused = Growth(now_ms)
        self.dead_letters = Growth(now_ms)

    def look(self, now_ms: int, queue: LeaderQueue) -> None:
        facts = queue.facts
        self.acked.look(now_ms, facts.acked)
        self.delivered.look(now_ms, facts.delivered)
        self.refused.look(now_ms, facts.refused)
        self.dead_letters.look(now_ms, facts.dead_letters_in)


@dataclass
class _OfKind:
    """The facts of one kind in one virtual host: how many there are, and those that weigh most."""

    count: int = 0
    facts: list[Fact] = field(default_factory=list)

    def add(self, fact: Fact) -> None:
        self.count += 1
        self.facts.append(fact)
        if len(self.facts) > 4 * EACH_MAX:
            self.facts = most(self.facts)


Found = dict[str, dict[str, _OfKind]]
"""by virtual host and kind"""


class AttentionWatch:
    """Watches the queues and exchanges of one node for facts that may need an operator's attention."""

    def __init__(self, node: Node, clock_ms: Callable[[], int]) -> None:
        """`clock_ms`: since the epoch, never going back."""
        self._node = node
        self._clock_ms = clock_ms
        self._queues: dict[LeaderQueue, _Seen] = {}
        self._exchanges: dict[tuple[str, str], dict[UnroutableOutcome, Growth]] = {}
        self._forgot_ms = clock_ms()
        self._making = trio.Lock()
        self._kept: tuple[Found, Counter[str]] | None = None
        """facts; blocked connections by user"""
        self._until_s = 0.0
        self._full_since_ms: int | None = None
        """since when the journal was full at each look"""

    # For the sampler

    def look(self, queue: LeaderQueue) -> None:
        """Something happened to the queue since the last look."""
        seen = self._queues.get(queue)
        if seen is None:
            if not _is_remarkable(queue):
                return
            seen = self._queues[queue] = _Seen(self._clock_ms(), queue)
        seen.look(self._clock_ms(), queue)

    def _knows(self, queue: LeaderQueue) -> bool:
        return self._node.queues.get((queue.record.vhost, queue.record.name)) is queue

    async def look_around(self) -> None:
        """After all queues were looked at: at exchanges, and at what is gone."""
        now_ms, unroutable = self._clock_ms(), self._node.unroutable
        if not self._node.journal.full:
            self._full_since_ms = None
        elif self._full_since_ms is None:
            self._full_since_ms = now_ms
        for vhost, exchange in unroutable.take_touched():
            growths = self._exchanges.setdefault((vhost, exchange), {each: Growth(now_ms) for each in TOLD})
            counts = unroutable.of_exchange(vhost, exchange)
            for outcome, growth in growths.items():
                growth.look(now_ms, counts[outcome])
        if now_ms - self._forgot_ms >= FORGET_MS:
            self._forgot_ms = now_ms
            await self._forget(now_ms)

    async def _forget(self, now_ms: int) -> None:
        pace = WalkPace()
        for queue in list(self._queues):
            await pace.step()
            if not _is_remarkable(queue) or not self._knows(queue):
                self._queues.pop(queue, None)
        for key, growths in list(self._exchanges.items()):
            await pace.step()
            if not any(growth.is_recent(now_ms) for growth in growths.values()):
                del self._exchanges[key]

    # Questions

    async def facts(self, user: str | None, enters: Callable[[str], bool]) -> list[Fact]:
        """Those of all virtual hosts that `enters` says; of connections all, or the user's own."""
        found, blocked = await self._looked_up()
        pace, of_kinds = WalkPace(), dict[str, _OfKind]()
        for vhost, kinds in found.items():
            await pace.step()
            if not enters(vhost):
                continue
            for kind, some in kinds.items():
                together = of_kinds.setdefault(kind, _OfKind())
                for fact in most(some.facts):
                    together.add(fact)
                together.count += some.count - min(len(some.facts), EACH_MAX)
        facts = list[Fact]()
        for kind, some in of_kinds.items():
            told = most(some.facts)
            facts += map(self._with_age, told) if kind == NO_CONSUMERS else told
            if some.count > len(told):
                facts.append(Fact(MORE, "", kind, {"count": some.count - len(told)}))
        connections = blocked.total() if user is None else blocked[user]
        if connections:
            facts.append(Fact(BLOCKED, "", "", {"connections": connections}))
        if user is None:
            facts += self._of_journal()
        if user is None and (sources := self._node.cluster.cut_off_count()):
            facts.append(Fact(CUT_OFF, "", "", {"sources": sources}))
        return facts

    def _of_journal(self) -> Iterator[Fact]:
        """A journal that is full for a moment is the way of a disk that has much to do."""
        reason, since_ms = self._node.journal.full_because, self._full_since_ms
        if reason is not None and since_ms is not None:
            full_ms = self._clock_ms() - since_ms
            if full_ms >= PATIENCE_MS:
                yield Fact(JOURNAL, "", reason, {"seconds": _seconds(full_ms)})

    def _with_age(self, fact: Fact) -> Fact:
        """Of the oldest message, which takes longer to find: for what is told only."""
        queue, now_ms = self._node.queues.get((fact.vhost, fact.name)), self._clock_ms()
        oldest_ms = None if queue is None else queue.statistics(now_ms).oldest_ms
        age = {} if oldest_ms is None else {"oldest_s": _seconds(now_ms - oldest_ms)}
        return fact._replace(numbers={**fact.numbers, **age})

    async def _looked_up(self) -> tuple[Found, Counter[str]]:
        async with self._making:
            if self._kept is None or trio.current_time() >= self._until_s:
                self._kept, looked_at = await self._made()
                seconds = min(looked_at * KEPT_S_EACH, KEPT_S_MAX) if looked_at >= KEPT_FROM else 0.0
                self._until_s = trio.current_time() + seconds
            return self._kept

    async def _made(self) -> tuple[tuple[Found, Counter[str]], int]:
        """And how many things were looked at."""
        node, pace, found, now_ms = self._node, WalkPace(), Found(), self._clock_ms()
        queues, connections = list(self._queues.items()), list(node.connections.values())
        for queue, seen in queues:
            await pace.step()
            record = queue.record
            if queue.is_served and self._knows(queue):
                for kind, numbers in _of_queue(queue, seen, now_ms):
                    _add(found, Fact(kind, record.vhost, record.name, numbers))
        everything = list(node.queues.values())
        for port in everything:
            await pace.step()
            for kind, numbers in _stopped(port):
                _add(found, Fact(kind, port.record.vhost, port.record.name, numbers))
        for (vhost, exchange), growths in list(self._exchanges.items()):
            await pace.step()
            numbers = {outcome.value: growth.recent(now_ms) for outcome, growth in growths.items()}
            if any(numbers.values()):
                last_ms = max(growth.last_ms for growth in growths.values())
                _add(found, Fact(UNROUTABLE, vhost, exchange, {**numbers, "last_s": _seconds(now_ms - last_ms)}))
        blocked = Counter[str]()
        for connection in connections:
            await pace.step()
            if connection.intake.blocked:
                blocked[connection.user] += 1
        return (found, blocked), len(queues) + len(everything) + len(connections)


def entered_by(access: Access, user: str | None) -> Callable[[str], bool]:
    """Of which virtual hosts the user is told; None: of all."""
    return (lambda vhost: True) if user is None else partial(access.may_enter, user)


def most(facts: list[Fact]) -> list[Fact]:
    """The `EACH_MAX` that matter most, of one kind."""
    return nlargest(EACH_MAX, facts, key=lambda fact: (fact.weight, fact.vhost, fact.name))


def _add(found: Found, fact: Fact) -> None:
    found.setdefault(fact.vhost, {}).setdefault(fact.kind, _OfKind()).add(fact)


def _is_remarkable(queue: LeaderQueue) -> bool:
    return bool(queue.ready_count or queue.facts.refused or queue.facts.dead_letters_in)


def _stopped(queue: QueuePort) -> Iterator[tuple[str, dict[str, float]]]:
    if queue.crash_reason is not None:
        yield BROKEN, {}
    elif (damage := queue.damage_summary) is not None:
        yield DAMAGED, {"first": damage.first, "last": damage.last, "messages": damage.messages}


def _of_queue(queue: LeaderQueue, seen: _Seen, now_ms: int) -> list[tuple[str, dict[str, float]]]:
    found: list[tuple[str, dict[str, float]]] = []
    ready, consumers = queue.ready_count, queue.consumer_count
    came, refused = seen.dead_letters.recent(now_ms), seen.refused.recent(now_ms)
    if came and ready:
        last_s = _seconds(now_ms - seen.dead_letters.last_ms)
        found.append((DEAD_LETTERS, {"came": came, "last_s": last_s, "ready": ready, "consumers": consumers}))
    elif ready and not consumers and not refused and seen.delivered.still_ms(now_ms) >= PATIENCE_MS:
        found.append((NO_CONSUMERS, {"ready": ready}))
    if ready and consumers and queue.facts.waiting and seen.acked.still_ms(now_ms) >= PATIENCE_MS:
        held = held_by_prefetch(queue)
        if held:
            unacked, idle_s = queue.unacked_count, _seconds(seen.acked.still_ms(now_ms))
            numbers = {"ready": ready, "consumers": consumers, "unacked": unacked, "idle_s": idle_s}
            found.append((PREFETCH, dict(numbers)))
    if refused:
        bounds = {"max_length": queue.settings.max_length, "max_length_bytes": queue.settings.max_length_bytes}
        last_s = _seconds(now_ms - seen.refused.last_ms)
        said = {name: bound for name, bound in bounds.items() if bound is not None}
        found.append((REFUSING, {"refused": refused, "last_s": last_s, "consumers": consumers, **said}))
    return found


def _seconds(ms: int) -> int:
    return max(0, ms) // 1000
