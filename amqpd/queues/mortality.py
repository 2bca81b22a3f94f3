"""How messages leave a queue without having been delivered and acknowledged, and how a queue itself ends.

What comes in: deadlines, limits and rejections of one queue. What goes out: messages to bury; wake-up times.
Rules: 1. A message expires when its time is up, wherever in the queue it stands, and never before. With a TTL of 0 it
goes to a consumer that waits, or nowhere. 2. The length limit counts what is ready, after consumers took theirs.
3. What is to be dead-lettered needs its body in memory; until it is read, it counts as unacked, and nobody gets it.
4. Delivery counts are kept for quorum queues only, and only of messages that have come back.
Not here: order and deadlines (`backlog.py`), what a dead letter looks like (`deadletters.py`), where it goes (the
host).

Source: https://www.rabbitmq.com/docs/ttl, /maxlength, /dlx, /quorum-queues#poison-message-handling.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from amqpd.audit import kinds
from amqpd.journal.records import RecoveredQueue
from amqpd.kernel import Run
from amqpd.message.properties import Properties
from amqpd.message.rewriting import with_headers
from amqpd.queues.backlog import Backlog, Piece
from amqpd.queues.deadletters import DELIVERY_LIMIT, EXPIRED, MAXLEN, REJECTED
from amqpd.queues.expiry import INSTANT, RETRY_MS, Bury
from amqpd.queues.fences import blocked, drop_over_limits
from amqpd.queues.moulds import Mould
from amqpd.queues.settings import DROP_HEAD, REJECT_PUBLISH_DLX

if TYPE_CHECKING:
    from amqpd.queues.queue import Queue

# 10 years, RabbitMQ's bound on all times: a later deadline is none that anybody waits for.
TTL_MS_MAX = 315_360_000_000
# What the death of a piece takes, in the unit of `limiting/turns.py`: a policy may make millions too many at once.
PIECE_WORK = 5
# That something expires in a queue, beside what leaves: very many queues may have the same TTL.
EXPIRE_WORK = 30
# Of one stretch that dies so many messages are taken at a time: their bodies may be in as many places.
MESSAGES_MAX = 200
# What the audit log calls it, without a dead letter exchange and with one.
_ALONE = {EXPIRED: kinds.EXPIRED, REJECTED: kinds.REJECTED, DELIVERY_LIMIT: kinds.OVER_DELIVERY_LIMIT}
_DEAD = {EXPIRED: kinds.DEAD_EXPIRED, REJECTED: kinds.DEAD_REJECTED, DELIVERY_LIMIT: kinds.DEAD_DELIVERY_LIMIT}


class Mortality:
    """Of one queue, which hands itself to each call: if it were kept here, only a garbage collection would free them,
    and that stops everybody."""

    def __init__(self, queue: Queue) -> None:
        self.dying: deque[tuple[int, int, str]] | None = None
        """unacked (first, last, reason), waiting for their bodies or for somebody to take them; None for none yet"""
        self._dying_count = 0
        self._burying = False
        """letters are on their way: one that comes back here must not find the queue half done"""
        self.expiring = False
        """more is over than the tick had room for: until that is gone, nothing is delivered, lest it be some of it"""
        self._refused = False
        """the last letter was not taken"""
        self.counts: dict[int, int] = {}
        """how often each message that has come back was delivered"""
        self.moulds: dict[str, Mould] = {}
        """the last dead letter for each reason"""
        self.told_lost_s = 0
        """second in which it was last said that a dead letter was lost"""
        self._counted_below = 0
        """messages that came back before the last restart have smaller numbers"""
        self.used_ms = queue.host.now_ms
        self.settings_changed(queue)

    def settings_changed(self, queue: Queue) -> None:
        settings = queue.settings
        limited = settings.max_length is not None or settings.max_length_bytes is not None
        drops = settings.overflow == DROP_HEAD or (settings.quorum and settings.overflow == REJECT_PUBLISH_DLX)
        self._drops = limited and drops
        queue.refuses = limited and not drops
        self._expires = settings.expires_ms is not None
        queue.backlog.buries = settings.dead_letter_exchange is not None
        if not queue.backlog.buries:
            for lane in queue.backlog.lanes():
                lane.expire_damaged()
        self.always = self._drops or self._expires
        """every dispatch has something to do here"""
        self.used_ms = queue.host.now_ms
        if self._expires:
            self._schedule(queue)

    def recover(self, queue: Queue, found: RecoveredQueue) -> None:
        limit, backlog = queue.settings.delivery_limit, queue.backlog
        for seq, count in found.counts.items():
            if limit is not None and count > limit and isinstance(backlog, Backlog) and backlog.holds(seq):
                backlog.doom(seq)
                self._die(seq, seq, DELIVERY_LIMIT)
            else:
                self.counts[seq] = count
        self._counted_below = max(found.counts, default=-1) + 1

    # Deadlines

    def deadline(self, queue: Queue, properties: Properties, now_ms: int) -> int | None:
        """When a message published now expires, in ms since the epoch; None for never."""
        ttl_ms = queue.settings.message_ttl_ms
        if properties.expiration is not None:
            own_ms = int(properties.expiration)
            if ttl_ms is None or own_ms < ttl_ms:
                ttl_ms = own_ms
        if ttl_ms is None or ttl_ms > TTL_MS_MAX:
            return None
        # `now_ms` is rounded down: one more, so that nothing expires before its time.
        return now_ms + ttl_ms + 1 if ttl_ms else INSTANT

    def before(self, queue: Queue) -> None:
        """What must go before consumers are served. They are not to be while this is `expiring`."""
        now_ms = queue.host.now_ms
        self._expire(queue, now_ms)
        if self.dying:
            self._bury_dying(queue, now_ms)

    def after(self, queue: Queue) -> None:
        """What consumers have left."""
        if self._drops:
            self._drop(queue)
        now_ms = queue.host.now_ms
        if queue.backlog.instants:
            queue.backlog.end_instants(now_ms)
            self._expire(queue, now_ms)
            self._bury_dying(queue, now_ms)
        if queue.damage and blocked(queue):
            self.used_ms = now_ms  # or it would go because of its damage
        if self._expires and not queue.consumers and not queue.getters:
            expires_ms = queue.settings.expires_ms or 0
            if now_ms >= self.used_ms + expires_ms:
                queue.host.log("queue_expired", queue=queue.record.name, vhost=queue.record.vhost)
                queue.host.end_queue(queue)
                return
        self._schedule(queue)

    def _expire(self, queue: Queue, now_ms: int) -> None:
        backlog, host = queue.backlog, queue.host
        if self._burying:
            return
        self.expiring = False
        due_ms = backlog.next_due_ms
        if due_ms is not None and due_ms <= now_ms:
            lost = queue.settings.dead_letter_exchange is None
            bury, cause = (None, kinds.EXPIRED) if lost else (partial(self._bury_expired, queue), kinds.DEAD_EXPIRED)
            self._burying = True
            try:
                gone, work = backlog.expire(now_ms, bury, self._doomed, cause, max(1, host.work_left))
            finally:
                self._burying = False
            queue.facts.expired += gone
            host.work_left -= EXPIRE_WORK + work
            self.prune(queue)
            due_ms = backlog.next_due_ms
            self.expiring = host.work_left <= 0 and due_ms is not None and due_ms <= now_ms

    def _doomed(self, first: int, last: int) -> None:
        self._die(first, last, EXPIRED)

    def _die(self, first: int, last: int, reason: str) -> None:
        if self.dying is None:
            self.dying = deque()
        dying = self.dying
        if dying and dying[-1][1] + 1 == first and dying[-1][2] == reason:
            # One by one and in order mostly.
            dying[-1] = (dying[-1][0], last, reason)
        else:
            dying.append((first, last, reason))
        self._dying_count += last - first + 1

    def _schedule(self, queue: Queue) -> None:
        times = [] if queue.backlog.next_due_ms is None else [queue.backlog.next_due_ms]
        if self._expires and not queue.consumers and not queue.getters:
            times.append(self.used_ms + (queue.settings.expires_ms or 0))
        wake_ms = min(times, default=None)
        # Asking twice for one time costs nothing; a time that has passed without a look must be asked for again.
        if wake_ms is not None:
            queue.host.wake(queue, wake_ms)

    # The length limit

    def room(self, queue: Queue, run: Run) -> int:
        """How many of the run's messages may come in now: what the limits leave, and what waiting consumers would
        take at once."""
        if not queue.refuses:
            return run.count
        if self._left(queue, run.body_size) < run.count and queue.consumers and not self._burying:
            queue.dispatch()
        left = self._left(queue, run.body_size)
        if left < run.count and not queue.backlog.ready and queue.settings.max_length != 0:
            left += queue.consumers.credit(run.count - left)
        return max(0, min(run.count, left))

    def capacity(self, queue: Queue, run: Run) -> int:
        """As `room`, but the queue is not dispatched: a dead letter or a delayed message comes while another queue
        is, and a chain of queues that dispatch each other has no bound (RecursionError). What consumers could take
        counts as taken."""
        settings, count = queue.settings, run.count
        if not queue.refuses:
            return count
        left = self._left(queue, run.body_size)
        if left < count and settings.max_length != 0 and queue.consumers:
            ready = queue.backlog.ready
            credit = queue.consumers.credit(count + ready)
            left = self._left(queue, run.body_size, min(credit, ready)) + max(0, credit - ready)
        return max(0, min(count, left))

    def _left(self, queue: Queue, body_size: int, going: int = 0) -> int:
        """What the limits leave for messages of this size; `going` of those that are ready do not count any more."""
        backlog, settings = queue.backlog, queue.settings
        left = 1 << 62
        if settings.max_length is not None:
            left = settings.max_length - backlog.ready + going
            if settings.at_least_once:
                # As in RabbitMQ: dead letters that nobody takes must not pile up without a bound.
                left -= self._dying_count
        if settings.max_length_bytes is not None and body_size:
            # Of what goes, the sizes are not known: it counts when all goes.
            ready_bytes = 0 if going and going == backlog.ready else backlog.ready_bytes
            left = min(left, (settings.max_length_bytes - ready_bytes) // body_size)
        return left

    def turn_away(self, queue: Queue, run: Run) -> None:
        queue.facts.refused += run.count
        if queue.settings.overflow == REJECT_PUBLISH_DLX and queue.settings.dead_letter_exchange is not None:
            queue.host.bury(queue, run, 0, run.count, MAXLEN)

    def _drop(self, queue: Queue) -> None:
        """Drop from the head until the limits hold."""
        backlog, settings = queue.backlog, queue.settings
        length_max, bytes_max = settings.max_length, settings.max_length_bytes
        while queue.host.work_left > 0:
            queue.host.work_left -= PIECE_WORK
            if length_max is not None and backlog.ready > length_max:
                piece = backlog.take(backlog.ready - length_max)
            elif bytes_max is not None and backlog.ready_bytes > bytes_max:
                piece = backlog.take(backlog.ready, backlog.ready_bytes - bytes_max)
            else:
                return
            if piece is None:
                if not drop_over_limits(queue):
                    return
                continue
            run, low, high, seq, _ = piece
            cause = kinds.DROPPED
            if settings.dead_letter_exchange is not None:
                queue.facts.dead_lettered += queue.host.bury(queue, run, low, high, MAXLEN)
                cause = kinds.DEAD_DROPPED
            self.forget(seq, seq + high - low - 1)
            queue.facts.dropped += backlog.settle(seq, seq + high - low - 1, cause)
        queue.host.again(queue)

    # Rejected and returned

    def reject(self, queue: Queue, first: int, last: int) -> None:
        self.forget(first, last)
        if queue.settings.dead_letter_exchange is None:
            queue.facts.rejected += queue.backlog.settle(first, last, kinds.REJECTED)
        else:
            self._die(first, last, REJECTED)

    def come_back(self, queue: Queue, first: int, last: int) -> None:
        """The unacked messages first..last are ready again; those of a quorum queue that came back too often die."""
        if not queue.settings.quorum:
            queue.backlog.requeue(first, last)
            return
        limit, counts, journal = queue.settings.delivery_limit, self.counts, queue.host.journal
        back = first
        """back..seq-1 are to come back, as one stretch"""
        for seq in range(first, last + 1):
            count = counts.get(seq, 0) + 1
            if limit is None or count <= limit:
                counts[seq] = count
                journal.count(queue.record.id, seq, count)
                continue
            counts.pop(seq, None)
            if back < seq:
                queue.backlog.requeue(back, seq - 1)
            back = seq + 1
            if queue.settings.dead_letter_exchange is None:
                queue.facts.delivery_limit += queue.backlog.settle(seq, seq, kinds.OVER_DELIVERY_LIMIT)
            else:
                # It may have to wait for somebody who takes it, and dies after a restart too.
                journal.count(queue.record.id, seq, count)
                self._die(seq, seq, DELIVERY_LIMIT)
        if back <= last:
            queue.backlog.requeue(back, last)

    def take_counted(self, queue: Queue, limit: int) -> Piece | None:
        """As `Backlog.take`, and messages that have come back say how often they were delivered."""
        backlog, counts = queue.backlog, self.counts
        assert isinstance(backlog, Backlog)
        returned = backlog.returned
        if not returned:
            if backlog.cursor >= self._counted_below:
                return backlog.take(limit)
            # What came back before a restart stands in its place again.
            return self._with_count(backlog.take(1))
        first = returned.first[0]
        count = counts.get(first, 0)
        alike, most = 1, backlog.next_returned(limit)
        while alike < most and counts.get(first + alike, 0) == count:
            alike += 1
        return self._with_count(backlog.take(alike))

    def _with_count(self, piece: Piece | None) -> Piece | None:
        """All messages of the piece have come back equally often."""
        count = 0 if piece is None else self.counts.get(piece[3], 0)
        if piece is None or not count:
            return piece
        run, low, high, seq, redelivered = piece
        counted = with_headers(run.part(low, high), {"x-delivery-count": count})
        return counted, 0, high - low, seq, redelivered

    def forget(self, first: int, last: int) -> None:
        """The messages first..last are settled: nobody asks for their delivery counts any more."""
        counts = self.counts
        if last - first < len(counts):
            for seq in range(first, last + 1):
                counts.pop(seq, None)
        elif counts:
            self.counts = {seq: count for seq, count in counts.items() if not first <= seq <= last}

    def prune(self, queue: Queue) -> None:
        """Forget the delivery counts of what is not there any more."""
        backlog = queue.backlog
        if self.counts and isinstance(backlog, Backlog):
            self.counts = {seq: count for seq, count in self.counts.items() if backlog.holds(seq)}

    def _bury_dying(self, queue: Queue, now_ms: int) -> None:
        if self._burying:
            return
        self._burying = True
        try:
            self._bury_some(queue, now_ms)
        finally:
            self._burying = False

    def _bury_some(self, queue: Queue, now_ms: int) -> None:
        host = queue.host
        while self.dying and host.work_left > 0:
            host.work_left -= PIECE_WORK
            self._refused = False
            if not self._bury_next(queue):
                # Who was refused waits also when the try used up the budget: it would be tried in each tick.
                tried = self._refused or host.work_left > 0
                if tried and all(lane.wanted is None for lane in queue.backlog.lanes()):
                    host.wake(queue, now_ms + RETRY_MS)
                    return
                break
        if self.dying and host.work_left <= 0:
            host.again(queue)

    def _bury_next(self, queue: Queue) -> int:
        """Of the first that are dying, at most MESSAGES_MAX. How many it were; 0 when they have to wait."""
        dying = self.dying
        assert dying is not None
        first, last, reason = dying.popleft()
        end = min(last, first + MESSAGES_MAX - 1)
        bury = self._bury(queue, reason)
        if bury is None:
            count, stopped = queue.backlog.settle(first, end, _ALONE[reason]), end + 1
            self._dying_count -= count
        else:
            count, back, stopped = queue.backlog.bury(first, end, bury, _DEAD[reason])
            self._dying_count -= back
        self.forget(first, stopped - 1)
        if reason == REJECTED:
            queue.facts.rejected += count
        elif reason == EXPIRED:
            queue.facts.expired += count
        else:
            queue.facts.delivery_limit += count
        if stopped <= last:
            dying.appendleft((stopped, last, reason))
        return end - first + 1 if stopped > end else 0

    def _bury(self, queue: Queue, reason: str) -> Bury | None:
        return None if queue.settings.dead_letter_exchange is None else partial(self._bury_as, queue, reason)

    def _bury_expired(self, queue: Queue, run: Run, low: int, high: int) -> int:
        """At once, without its having been among the dying."""
        if queue.host.work_left <= 0:
            return 0
        buried = queue.host.bury(queue, run, low, high, EXPIRED)
        queue.facts.dead_lettered += buried
        return buried

    def _bury_as(self, queue: Queue, reason: str, run: Run, low: int, high: int) -> int:
        if queue.host.work_left <= 0:
            return 0
        buried = queue.host.bury(queue, run, low, high, reason)
        self._refused = buried < high - low
        queue.facts.dead_lettered += buried
        self._dying_count -= buried
        return buried
