"""A hand-over: what one leader of a source passes to the next beside the log.

What comes in: a leader that stops, or one that begins with what was passed. What goes out: `SessionHandOver`, or what
the new leader knows by it.
Rules (19 of docs/decisions/remote-protocol.md): 1. It ends the sessions. 2. It passes what is not in the log: marks
of operations that wrote nothing, session numbers, subscriptions, who holds which message under which number, and what
was delivered before. 3. The new leader need not wait for claims, except for those that the old one still waited for.
4. It is of one position of the log; with any other it is void, and the new leader takes over as from a lost one.
Not here: how leaders are chosen (`amqpd.cluster`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from amqpd.journal.operation_marks import Marks
from amqpd.remote.held import Held, Range
from amqpd.remote.incarnation import RemoteIncarnation
from amqpd.remote.leader import ALL_MESSAGES, CLAIM_WAIT_MS, LEASE_MS, Leader
from amqpd.remote.messages import Sender
from amqpd.remote.source import HandedIncarnation, HandedSubscription, LedQueue, SessionHandOver, SourceLog
from amqpd.remote.subscriber import RemoteSubscriber


def hand_over(leader: Leader, position: int) -> tuple[SessionHandOver, list[Sender]]:
    """The leader stops: what it passes, and the sessions that have ended. `position`: the last entry of its log,
    which nothing follows any more."""
    leader.holds_lease = False
    passed, ended = [], []
    for incarnation in leader.incarnations.values():
        if incarnation.attached:
            ended.append(incarnation.sender)
        subscriptions = [
            HandedSubscription(each.number, each.queue_id, each.is_get, tuple(each.held), tuple(each.gives_way))
            for each in incarnation.subscribers.values()
        ]
        passed.append(
            HandedIncarnation(incarnation.member, incarnation.mark, incarnation.session, tuple(subscriptions))
        )
    redelivered = {number: tuple(queue.redelivered()) for number, queue in leader.queues.items()}
    waits_for = frozenset(leader.waits_for)
    return SessionHandOver(position, tuple(passed), waits_for, leader.wait_ends_ms, redelivered), ended


def taken_over(
    epoch: int,
    log: SourceLog,
    marks: Marks,
    queues: Mapping[int, LedQueue],
    members: Iterable[str],
    now_ms: float,
    handed: SessionHandOver | None = None,
    position: int = 0,
    claim_wait_ms: float = CLAIM_WAIT_MS,
    lease_ms: float = LEASE_MS,
    first: int | None = None,
) -> Leader:
    """The leader of a new epoch. `position`: the last entry of the log that it won with; `first`: see `Leader`."""
    leader = Leader(epoch, log, marks, queues, members, now_ms, claim_wait_ms, lease_ms, first)
    if handed is None or handed.position != position:
        for queue in queues.values():
            queue.mark_redelivered(0, ALL_MESSAGES)
        return leader
    leader.waits_for &= handed.waits_for
    leader.wait_ends_ms = handed.wait_ends_ms
    for number, ranges in handed.redelivered.items():
        found = leader.queues.get(number)
        if found is not None:
            found.forget_redelivered()
            for first, last in ranges:
                found.mark_redelivered(first, last)
    for each in handed.incarnations:
        _take(leader, each, now_ms)
    return leader


def _take(leader: Leader, handed: HandedIncarnation, now_ms: float) -> None:
    incarnation = leader.incarnations.get(handed.member)
    if incarnation is None:
        forwarder, number = handed.member
        if number <= leader.ended.get(forwarder, 0) or any(each == forwarder for each, _ in leader.incarnations):
            return  # the log knows better: it has ended, or another one lives
        incarnation = leader.incarnations[handed.member] = RemoteIncarnation(handed.member, leader.out, now_ms)
    incarnation.session = handed.session
    incarnation.mark = max(incarnation.mark, handed.mark)
    leader.log.force()
    incarnation.gathered(leader.log.position)
    for each in handed.subscriptions:
        queue = leader.queues.get(each.queue)
        if queue is not None:
            subscriber = incarnation.subscriber(each.number, each.queue, queue, each.is_get)
            _hold(subscriber, subscriber.held, each.held)
            _hold(subscriber, subscriber.gives_way, each.giving)
            incarnation.subscribers[each.number] = subscriber


def _hold(subscriber: RemoteSubscriber, held: Held, ranges: Iterable[Range]) -> None:
    for each in ranges:
        for first, last in subscriber.queue.hold(each.seq, each.last_seq):
            held.add(each.number + first - each.seq, first, last - first + 1)
            subscriber.unacked += last - first + 1
