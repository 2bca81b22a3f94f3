"""How messages leave a queue without having been delivered and acknowledged, and how a queue itself ends.

What comes in: deadlines, limits and rejections of one queue. What goes out: messages to dead-letter; wake-up times.
Rules: 1. A message expires when its time is up, wherever in the queue it stands, and never before. With a TTL of 0 it
goes to a consumer that waits, or nowhere. 2. The length limit counts what is ready, after consumers took theirs.
3. What is to be dead-lettered needs its body in memory; until it is read, it counts as unacked, and nobody gets it.
4. Delivery counts are kept for quorum queues only, and only of messages that have come back,
which say so in `x-delivery-count`. 5. What is dead-lettered to a queue that another node leads stays, unacked, until
that is decided (`transit.py`).
Not here: order and deadlines (`backlog.py`), what a dead letter looks like (`deadletters.py`), where it goes (the
host).

Source: https://www.rabbitmq.com/docs/ttl, /maxlength, /dlx, /quorum-queues#poison-message-handling.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from amqpd.audit import kinds
from amqpd.journal.records import RecoveredQueue
from amqpd.kernel import Run
from amqpd.message.properties import Properties
from amqpd.message.rewriting import with_headers
from amqpd.queues.backlog import INSTANT, Backlog
from amqpd.queues.consumer import Piece
from amqpd.queues.damage import drop_over_limits
from amqpd.queues.deadletters import ALONE, DEAD, DELIVERY_LIMIT, EXPIRED, MAXLEN, REJECTED
from amqpd.queues.expiry import LATER, RETRY_MS
from amqpd.queues.facts import Facts
from amqpd.queues.host import Host
from amqpd.queues.levels import Levels
from amqpd.queues.messages import Messages
from amqpd.queues.settings import DROP_HEAD, REJECT_PUBLISH_DLX, QueueSettings
from amqpd.queues.transit import Names, Transit, Transits, piece_end
from amqpd.queues.turns import ConsumerTurns

# 10 years, RabbitMQ's bound on all times: a later deadline is none that anybody waits for.
TTL_MS_MAX = 315_360_000_000
# What the death of a piece takes, in the unit of `flow/turns.py`: a policy may make millions too many at once.
PIECE_WORK = 5
# That something expires in a queue, beside what leaves: very many queues may have the same TTL.
EXPIRE_WORK = 30
# Of one stretch that dies at most this number of messages is taken at a time: their bodies may be in as many places.
MESSAGES_MAX = 200

Send = Callable[[Run, int, int, str, Transit | None], tuple[int, int]]
"""dead-letters messages low..high-1 of the run for a reason: see `QueueHost.dead_letter`"""
Pending = tuple[int, int, str, Names | None]
"""first, last, reason; the queues that are to have them when others have them already"""


class Removal:
    """Takes messages out of one queue that expired, were rejected or exceed a limit. It does not know the queue:
    if that were kept here, only a garbage collection would free them, and that stops everybody. What is to be
    asked of the host in the queue's name stands in `again` and `wake_ms` until then."""

    def __init__(
        self,
        settings: QueueSettings,
        messages: Messages | Levels,
        backlog: Backlog | Levels,
        consumers: ConsumerTurns,
        facts: Facts,
        host: Host,
    ) -> None:
        self._messages = messages
        self._backlog = backlog
        self._consumers = consumers
        self._facts = facts
        self._host = host
        self.again = False
        """the queue is to be dispatched in the next tick too"""
        self.wake_ms: int | None = None
        """it is to be dispatched then"""
        self.pending: deque[Pending] | None = None
        """unacked, waiting for their bodies or for somebody to take them; None for none yet"""
        self.pending_count = 0
        """messages that died and wait for a queue that takes them, those in transit too"""
        self._transits = Transits()
        self._come_back = 0
        """of what is pending, the first ones: what was in transit, and has to go on or again, in order"""
        self._far = False
        """the last one went to a queue that another node leads: the next ones are pending at once"""
        self._sending = False
        """dead letters are on their way: one that comes back here must not find the queue half done"""
        self.expiring = self.late = False
        """more has expired than the tick had time for: nothing is delivered until that is gone; or it must be read"""
        self._refused = False  # the last dead letter was not taken
        self._retry_ms = 0  # nor is the next one tried before that, however often the queue is dispatched
        self.counts: dict[int, int] = {}
        """how often each message that has come back was delivered"""
        self._counted_below = 0
        """messages that came back before the last restart have smaller numbers"""
        self.used_ms = host.now_ms
        self.refuses = False
        """over a limit the queue does not take a publish, instead of letting older messages go"""
        self.settings = settings
        self.settings_changed(settings)

    def settings_changed(self, settings: QueueSettings) -> None:
        """Look at `wake_ms` then. Begins the time of an unused queue again only when that became another one."""
        expires_before_ms, self.settings = self.settings.expires_ms, settings
        limited = settings.max_length is not None or settings.max_length_bytes is not None
        drops = settings.overflow == DROP_HEAD or (settings.quorum and settings.overflow == REJECT_PUBLISH_DLX)
        self._drops = limited and drops
        self.refuses = limited and not drops
        self._expires = settings.expires_ms is not None
        transfers = settings.dead_letter_exchange is not None
        self._messages.transfers(transfers)
        if not transfers:
            for level in self._messages.levels():
                level.expire_damaged()
        self.always = self._drops or self._expires
        """every dispatch has something to do here"""
        if settings.expires_ms != expires_before_ms:
            self.used_ms = self._host.now_ms
        self._retry_ms = 0
        if self._expires:
            self._schedule(not self._consumers)

    def recover(self, found: RecoveredQueue) -> None:
        """Take over the delivery counts that the journal has."""
        limit, level = self.settings.delivery_limit, self._messages
        for seq, count in found.counts.items():
            if limit is not None and count > limit and isinstance(level, Messages) and level.store.holds(seq):
                level.store.cut_rows(seq, seq)
                level.backlog.begin_leaving(level.store.segments[level.store.index_of(seq)], seq, seq)
                self._die(seq, seq, DELIVERY_LIMIT)
            else:
                self.counts[seq] = count
        self._counted_below = max(found.counts, default=-1) + 1

    # Deadlines

    def deadline(self, properties: Properties, now_ms: int) -> int | None:
        """When a message published now expires, in ms since the epoch; None for never."""
        ttl_ms = self.settings.message_ttl_ms
        if properties.expiration is not None:
            own_ms = int(properties.expiration)
            if ttl_ms is None or own_ms < ttl_ms:
                ttl_ms = own_ms
        if ttl_ms is None or ttl_ms > TTL_MS_MAX:
            return None
        # `now_ms` is rounded down: one more, so that nothing expires before its time.
        return now_ms + ttl_ms + 1 if ttl_ms else INSTANT

    def before(self, send: Send) -> None:
        """What must go before consumers are served. They are not to be while this is `expiring`."""
        now_ms = self._host.now_ms
        self._expire(send, now_ms)
        if self.pending:
            self._send_pending(send, now_ms)

    def after(self, send: Send, idle: bool, blocked: bool) -> bool:
        """What consumers have left. `idle`: nobody consumes, nor waits for a message; `blocked`: by damage. True when
        the queue itself has expired."""
        now_ms = self._host.now_ms
        if self._drops:
            self._drop(send)
            self._send_pending(send, now_ms)
        if self._backlog.instants:
            self._messages.end_instants(now_ms)
            self._expire(send, now_ms)
            self._send_pending(send, now_ms)
        if blocked:
            self.used_ms = now_ms  # or it would go because of its damage
        if self._expires and idle and now_ms >= self.used_ms + (self.settings.expires_ms or 0):
            return True
        self._schedule(idle)
        return False

    def _expire(self, send: Send, now_ms: int) -> None:
        messages, host = self._messages, self._host
        if self._sending:
            return
        self.expiring = self.late = False
        due_ms = messages.next_due_ms
        if due_ms is not None and due_ms <= now_ms:
            sends = self.settings.dead_letter_exchange is not None
            transfer = partial(self._send_expired, send) if sends else None
            cause = kinds.DEAD_EXPIRED if sends else kinds.EXPIRED
            self._sending = True
            try:
                gone, work = messages.expire(now_ms, transfer, self.die_expired, cause, max(1, host.work_left))
            finally:
                self._sending = False
            self._facts.expired += gone
            host.work_left -= EXPIRE_WORK + work
            self.prune()
            due_ms = messages.next_due_ms
            if due_ms is not None and due_ms <= now_ms:
                self.expiring, self.late = host.work_left <= 0, host.work_left > 0
            if self.late:
                host.work_left -= messages.expire_in_line(now_ms, self.die_expired)

    def die_expired(self, first: int, last: int) -> None:
        self._die(first, last, EXPIRED)

    def _die(self, first: int, last: int, reason: str) -> None:
        if self.pending is None:
            self.pending = deque()
        pending = self.pending
        if pending and pending[-1][1] + 1 == first and pending[-1][2:] == (reason, None):
            # One by one and in order mostly.
            pending[-1] = (pending[-1][0], last, reason, None)
        else:
            pending.append((first, last, reason, None))
        self.pending_count += last - first + 1

    def _schedule(self, idle: bool) -> None:
        # Asking twice for one time costs nothing; a time that has passed without a look must be asked for again.
        self._wake(self._messages.next_due_ms)
        if self._expires and idle:
            self._wake(self.used_ms + (self.settings.expires_ms or 0))

    def _wake(self, at_ms: int | None) -> None:
        if at_ms is not None and (self.wake_ms is None or at_ms < self.wake_ms):
            self.wake_ms = at_ms

    # The length limit

    def capacity_after_dispatch(self, run: Run) -> int:
        """How many of the run's messages may come in now: what the limits leave, and what waiting consumers would
        take at once."""
        if not self.refuses:
            return run.count
        left = self._left(run.body_size)
        if left < run.count and not self._backlog.ready and self.settings.max_length != 0:
            left += self._consumers.credit(run.count - left)
        return max(0, min(run.count, left))

    def helps(self, run: Run) -> bool:
        """Not all of the run may come in, and a dispatch may change that."""
        return not self._sending and self.refuses and bool(self._consumers) and self._left(run.body_size) < run.count

    def capacity(self, run: Run) -> int:
        """As `capacity_after_dispatch` without one: a dead letter or a delayed message comes while another queue is
        dispatched, and a chain of these has no bound (RecursionError). What consumers could take counts as taken."""
        left = count = run.count
        if self.refuses:
            left = self._left(run.body_size)
        if left < count and self.settings.max_length != 0 and self._consumers:
            ready = self._backlog.ready
            credit = self._consumers.credit(count + ready)
            left = self._left(run.body_size, min(credit, ready)) + max(0, credit - ready)
        return max(0, min(count, left))

    def capacity_left(self, run: Run) -> int:
        """As `capacity`, when nobody takes anything."""
        return max(0, min(run.count, self._left(run.body_size))) if self.refuses else run.count

    def _left(self, body_size: int, going: int = 0) -> int:
        """What the limits leave for messages of this size; `going` of those that are ready do not count any more."""
        backlog, settings = self._backlog, self.settings
        left = 1 << 62
        if settings.max_length is not None:
            left = settings.max_length - backlog.ready + going
            if settings.at_least_once:
                # As in RabbitMQ: dead letters that nobody takes must not pile up without a bound.
                left -= self.pending_count
        if settings.max_length_bytes is not None and body_size:
            # Of what goes, the sizes are not known: it counts when all goes.
            ready_bytes = 0 if going and going == backlog.ready else backlog.ready_bytes
            left = min(left, (settings.max_length_bytes - ready_bytes) // body_size)
        return left

    def turn_away(self, run: Run, send: Send) -> int:
        """For how many, from the first on, everything is done: the dead letters of the others cannot go now."""
        self._facts.refused += run.count
        dead_letters = self.settings.overflow == REJECT_PUBLISH_DLX and self.settings.dead_letter_exchange is not None
        return send(run, 0, run.count, MAXLEN, None)[0] if dead_letters else run.count

    def _drop(self, send: Send) -> None:
        """Drop from the head until the limits hold."""
        backlog, settings, transfers = self._backlog, self.settings, self.settings.dead_letter_exchange is not None
        length_max, bytes_max = settings.max_length, settings.max_length_bytes
        while self._host.work_left > 0:
            self._host.work_left -= PIECE_WORK
            if length_max is not None and backlog.ready > length_max:
                piece = backlog.take(backlog.ready - length_max, 0, transfers)
            elif bytes_max is not None and backlog.ready_bytes > bytes_max:
                piece = backlog.take(backlog.ready, backlog.ready_bytes - bytes_max, transfers)
            else:
                return
            if piece is None:
                dropped = drop_over_limits(self._messages, settings)
                if not dropped:
                    return
                self._facts.dropped += dropped
                self.prune()
                continue
            run, low, high, seq, _ = piece
            cause, instead = kinds.DROPPED, 0
            if transfers:
                sent = (0, 0) if self._far else send(run, low, high, MAXLEN, None)
                (dead_lettered, instead), cause = sent, kinds.DEAD_DROPPED
                self._facts.dead_lettered += dead_lettered
                if low + dead_lettered < high:
                    # It is not ready any more, so the limit holds; what takes its dead letter is not here at present.
                    self._die(seq + dead_lettered, seq + high - low - 1, MAXLEN)
                    self._wake(self._host.now_ms + RETRY_MS)
                    high = low + dead_lettered
            if low < high:
                self.forget(seq, seq + high - low - 1)
                self._facts.dropped += backlog.settle(seq, seq + high - low - 1, cause, instead)
        self.again = True

    # Rejected and returned

    def reject(self, first: int, last: int) -> None:
        self.forget(first, last)
        if self.settings.dead_letter_exchange is None:
            self._facts.rejected += self._backlog.settle(first, last, kinds.REJECTED)
        else:
            self._die(first, last, REJECTED)

    def come_back(self, first: int, last: int) -> None:
        """The unacked messages first..last are ready again; those of a quorum queue that came back too often die."""
        if not self.settings.quorum:
            self._backlog.requeue(first, last)
            return
        limit, counts, journal = self.settings.delivery_limit, self.counts, self._host.journal
        back = first
        """back..seq-1 are to come back, as one stretch"""
        for seq in range(first, last + 1):
            count = counts.get(seq, 0) + 1
            if limit is None or count <= limit:
                counts[seq] = count
                journal.count(self._messages.queue_id, seq, count)
                continue
            counts.pop(seq, None)
            if back < seq:
                self._backlog.requeue(back, seq - 1)
            back = seq + 1
            if self.settings.dead_letter_exchange is None:
                self._facts.delivery_limit += self._backlog.settle(seq, seq, kinds.OVER_DELIVERY_LIMIT)
            else:
                # It may have to wait for a queue that takes it, and dies after a restart too.
                journal.count(self._messages.queue_id, seq, count)
                self._die(seq, seq, DELIVERY_LIMIT)
        if back <= last:
            self._backlog.requeue(back, last)

    def take_counted(self, limit: int) -> Piece | None:
        """As `Backlog.take`, and messages that have come back say how often they were delivered."""
        backlog, counts = self._backlog, self.counts
        assert isinstance(backlog, Backlog)
        returned = backlog.returned
        if not returned:
            if backlog.store.cursor >= self._counted_below:
                return backlog.take(limit)
            # What came back before a restart stands in its place again.
            return _with_count(backlog.take(1), counts)
        first = returned.first[0]
        count = counts.get(first, 0)
        alike, most = 1, backlog.next_returned(limit)
        while alike < most and counts.get(first + alike, 0) == count:
            alike += 1
        return _with_count(backlog.take(alike), counts)

    def forget(self, first: int, last: int) -> None:
        """The messages first..last are settled: nobody asks for their delivery counts any more."""
        self.counts = without(self.counts, first, last)

    def prune(self) -> None:
        """Forget the delivery counts of what is not there any more."""
        level = self._messages
        if self.counts and isinstance(level, Messages):
            self.counts = {seq: count for seq, count in self.counts.items() if level.store.holds(seq)}

    def _send_pending(self, send: Send, now_ms: int) -> None:
        if self._sending:
            return
        if now_ms < self._retry_ms:
            if self.pending:
                self._wake(self._retry_ms)  # the host forgets it for an earlier time
            return
        self._sending = True
        try:
            self._send_some(send, now_ms)
        finally:
            self._sending = False

    def _send_some(self, send: Send, now_ms: int) -> None:
        host = self._host
        while self.pending and host.work_left > 0 and not self._transits.are_full():
            host.work_left -= PIECE_WORK
            self._refused = False
            if not self._send_next(send):
                if self._transits.are_full():
                    break  # `arrived` goes on
                # What was refused waits, also when the try used up the budget: it would be tried in each tick.
                tried = self._refused or host.work_left > 0
                if tried and all(level.backlog.wanted is None for level in self._messages.levels()):
                    self._retry_ms = now_ms + RETRY_MS
                    self._wake(self._retry_ms)
                    return
                break
        if self.pending and host.work_left <= 0:
            self.again = True

    def _send_next(self, send: Send) -> int:
        """Of the first that are pending, at most MESSAGES_MAX. How many it were; 0 when they have to wait."""
        pending = self.pending
        assert pending
        first, last, reason, names = pending.popleft()
        came_back = self._come_back > 0
        self._come_back -= came_back
        end = min(last, first + MESSAGES_MAX - 1)
        sends = self.settings.dead_letter_exchange is not None
        transfer = partial(self._send_as, send, reason, names) if sends else None
        if transfer is None:
            count, stopped = self._backlog.settle(first, end, ALONE[reason]), end + 1
            self.pending_count -= count
        else:
            count, back, stopped = self._messages.transfer(first, end, transfer, DEAD[reason])
            self.pending_count -= back
        self.forget(first, stopped - 1)
        self._facts.died(reason, count)
        if stopped <= last:
            pending.appendleft((stopped, last, reason, names))
            self._come_back += came_back
        return end - first + 1 if stopped > end else 0

    def _send_expired(self, send: Send, run: Run, low: int, high: int) -> tuple[int, int]:
        """At once: it was not pending."""
        if self._host.work_left <= 0 or self._far:
            return 0, 0
        dead_lettered, instead = send(run, low, high, EXPIRED, None)
        self._facts.dead_lettered += dead_lettered
        return dead_lettered, instead

    def _send_as(
        self, send: Send, reason: str, names: Names | None, run: Run, low: int, high: int
    ) -> tuple[int, int]:
        if self._host.work_left <= 0 or self._transits.are_full():
            return 0, 0
        high = piece_end(run, low, high)
        transit = Transit(self._backlog.transferring, reason, names)
        dead_lettered, instead = send(run, low, high, reason, transit)
        self._refused = dead_lettered < high - low
        self._far = instead == LATER
        if instead == LATER:
            self._transits.begins(transit)
        else:
            self._facts.dead_lettered += dead_lettered
            self.pending_count -= dead_lettered
        return dead_lettered, instead

    def arrived(self, transit: Transit) -> None:
        """It is decided what became of these: they leave, or die once more. The host is to dispatch the queue."""
        reason, pending, facts, publication = transit.reason, self.pending, self._facts, transit.publication
        assert pending is not None
        self._transits.ends(transit)
        for first, last, names in transit.outcome():
            if names == ():
                instead = publication + first - transit.first if publication else 0
                count = self._backlog.settle(first, last, DEAD[reason], instead)
                self.pending_count -= last - first + 1
                facts.died(reason, count)
                facts.dead_lettered += count
            else:
                pending.insert(self._come_back, (first, last, reason, names))
                self._come_back += 1
        if transit.repeats:
            self._retry_ms = self._host.now_ms + RETRY_MS
            self._wake(self._retry_ms)


def without(counts: dict[int, int], first: int, last: int) -> dict[int, int]:
    """The counts, which may be changed for it, without those of first..last."""
    if last - first >= len(counts):
        return {seq: count for seq, count in counts.items() if not first <= seq <= last}
    for seq in range(first, last + 1):
        counts.pop(seq, None)
    return counts


def _with_count(piece: Piece | None, counts: dict[int, int]) -> Piece | None:
    """All messages of the piece have come back equally often."""
    count = 0 if piece is None else counts.get(piece[3], 0)
    if piece is None or not count:
        return piece
    run, low, high, seq, redelivered = piece
    counted = with_headers(run.part(low, high), {"x-delivery-count": count})
    return counted, 0, high - low, seq, redelivered
