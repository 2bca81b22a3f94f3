"""A queue: its messages, its consumers, and which of them gets what.

What comes in: runs of publishes; consumers with credit; settled, returned and rejected ranges; the time. What goes
out: deliveries, in the order of publication, to the consumers in turn; what dies, to the host.
Rules: 1. Round robin among the consumers that have credit; with little ready it goes message by message, with much
in larger portions, so that a batch costs what a batch should. 2. `dispatch` runs once a tick, not once a publish:
what has expired goes first, then consumers take, and only what they leave counts against the length limit. A caller
that is about to look at the queue calls it too. 3. basic.get goes before consumers when it waits for a read.
4. While it *withholds*, because a new leader waits for claims of what clients of other nodes hold, it takes publishes
and what is settled, and nothing else leaves it: nobody is given anything, nothing expires, dies or is purged.
Not here: the messages themselves (`messages.py`), whose turn it is (`turns.py`), limits and deaths (`removal.py`),
declaration and its arguments (`arguments.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from typing import Any

from mypy_extensions import mypyc_attr
from pamqp.exceptions import AMQPPreconditionFailed, AMQPSoftError

from amqpd.audit.book import Book
from amqpd.audit.kinds import ACKED, AUTO_ACKED
from amqpd.audit.publication import Publication
from amqpd.journal.records import RecoveredQueue
from amqpd.kernel import Run
from amqpd.message.properties import Properties
from amqpd.queues.arguments import described_queue
from amqpd.queues.backlog import Backlog
from amqpd.queues.consumer import Piece, Subscriber, cancelling
from amqpd.queues.damage import FENCED_TOLD_MS, QueueFenced, blocked_at, log_damage
from amqpd.queues.deadletters import MAXLEN
from amqpd.queues.host import QueueHost
from amqpd.queues.leader import LeaderQueue
from amqpd.queues.levels import SEQ_MASK, Levels
from amqpd.queues.messages import READ_AHEAD_SEGMENTS, Messages
from amqpd.queues.port import Getter, Got, Statistics
from amqpd.queues.receipt import Receipt
from amqpd.queues.removal import Removal
from amqpd.queues.settings import settings_of
from amqpd.queues.states import SERVED, QueueState
from amqpd.queues.store import SEQ_BITS
from amqpd.queues.transit import Transit
from amqpd.queues.turns import ConsumerTurns
from amqpd.vocabulary.records import QueueRecord

# The portion of one turn grows to this: large enough for batches, small enough that a slow consumer next to a fast
# one does not hold the others' share.
PORTION_MESSAGES_MAX = 256
# Until more than this is ready for each consumer, turns are message by message, as RabbitMQ's always are.
EXACT_TURNS_MESSAGES = 64
# What a delivery takes, in the unit of `flow/turns.py`, beside its messages.
PIECE_WORK, MESSAGES_A_WORK = 4, 4
# When a queue whose node's leader lease has run out is looked at again.
LEADER_LEASE_LOOK_MS = 50
# A consumer that is found without credit.
PARK_WORK = 2
# With this many messages that are settled together, their segments may be many too: each takes about a microsecond.
SETTLED_MANY = 64


@mypyc_attr(allow_interpreted_subclasses=True)
class Queue(LeaderQueue):
    """A queue at its leader."""

    def __init__(self, record: QueueRecord, host: QueueHost[Queue], policy: Mapping[str, Any]) -> None:
        """`policy` is the definition of its effective policy."""
        settings, lane = settings_of(record.arguments, policy), host.journal.lane_of(record.id)
        super().__init__(record, settings, lane, policy.get("audit"), host.now_ms)
        self.host = host
        self._levels: Levels | None = None
        if self.settings.max_priority is not None:
            self.messages = self.backlog = self._levels = Levels(
                record.id, host.journal, record.durable, self.settings.max_priority
            )
        else:
            level = Messages(record.id, host.journal, record.durable, self.settings.quorum)
            self.messages, self.backlog = level, level.backlog
        self._plain: Backlog | None = None
        """its backlog, while a transient message without a deadline of its own is just the next one"""
        self.consumers = ConsumerTurns(self.settings.single_active_consumer, self.settings.quorum)
        # An empty deque takes 760 bytes, and most queues need none.
        self.getters: deque[tuple[bool, Getter]] | None = None
        self.removal = Removal(self.settings, self.messages, self.backlog, self.consumers, self.facts, host)
        self.reading = self.damage = False
        self.damage_told = 0
        self.withholds = False
        """gives nothing to anybody: what seems to be ready may be held by clients of other nodes"""
        self._purges: list[Callable[[int | AMQPSoftError], object]] = []
        """who asked for one meanwhile"""
        self._settings_applied()

    # Being

    def recover(self, level: int, found: RecoveredQueue) -> None:
        """Take over what the journal has: of the queue, or of one level of a priority queue."""
        if self._levels is not None:
            self._levels.recover(level, found)
        elif not level:
            assert isinstance(self.messages, Messages)
            self.messages.recover(found)
            self.removal.recover(found)
        if self.record.source or self.host.journal.begins:
            # Another leader, or process, may have delivered any of it, also to clients that are still there, and what
            # its log was to say of that it may have lost: it delivers before that is committed.
            first = level << SEQ_BITS
            self.messages.mark_redelivered(first, first + found.next_seq)
        self.facts.begin(self.backlog.ready + self.backlog.unacked)

    def apply(self, record: QueueRecord, policy: Mapping[str, Any]) -> None:
        """Its record or its policy is another one now."""
        self.record = record
        self.settings = settings_of(record.arguments, policy)
        self.know(self.settings)
        self.audit_level = policy.get("audit")
        self.removal.settings_changed(self.settings)
        if self._plain is not None and self._plain.fresh:
            self._plain.take_in()
        self._settings_applied()

    def _settings_applied(self) -> None:
        self.may_refuse = self.removal.refuses or self.state is not SERVED
        self._ask_host()
        self._find_plain()

    def _find_plain(self) -> None:
        backlog, plain = self.backlog, not self.quorum and self.settings.message_ttl_ms is None
        self._plain = backlog if plain and not self.withholds and isinstance(backlog, Backlog) else None

    def withhold(self, withholds: bool) -> None:
        """Whether it gives nothing to anybody from now on. When that ends, it does all that waited."""
        if withholds is self.withholds:
            return
        self.withholds = withholds
        if self._plain is not None and self._plain.fresh:
            self._plain.take_in()
        self._find_plain()
        if not withholds:
            self.used()
            self.host.again(self)
            purges, self._purges = self._purges, []
            for answer in purges:
                self.host.later(self._purging_later(answer))

    def subscribers(self) -> list[Subscriber]:
        return list(self.consumers)

    def book_of(self, seq: int) -> Book | None:
        level = self.messages if self._levels is None else self._levels.level_of(seq)
        assert isinstance(level, Messages)
        return level.store.book

    def used(self) -> None:
        self.removal.used_ms = self.host.now_ms

    def delivery_count(self, seq: int) -> int | None:
        return self.removal.counts.get(seq, 0) if self.quorum else None

    def arrived(self, transit: Transit) -> None:
        if self.state is SERVED:
            self.removal.arrived(transit)
            self._ask_host()
            self.host.again(self)

    def withdrawn(self, count: int) -> None:
        self.facts.withdrawn += count
        self.removal.prune()

    def abandoned(self) -> Iterator[Getter]:
        self._refuse_purges()
        if self.consumers.count:
            self.host.later(cancelling(self.consumers.clear()))
        while self.getters:
            yield self.getters.popleft()[1]

    def delete(self) -> None:
        """The queue left the topology: its consumers are told, its messages are gone."""
        self.enter(QueueState.DELETED)
        self._refuse_purges()
        self.messages.drop()
        while self.getters:
            self.getters.popleft()[1](None)
        if self.consumers.count:
            self.host.later(cancelling(self.consumers.clear()))

    # Messages in

    def capacity_after_dispatch(self, run: Run) -> int:
        if self.state is not SERVED:
            return 0
        if self.withholds:
            return self.removal.capacity_left(run)
        if self.removal.helps(run):
            self.dispatch()
        return self.removal.capacity_after_dispatch(run)

    def capacity(self, run: Run) -> int:
        if self.state is not SERVED:
            return 0
        return self.removal.capacity_left(run) if self.withholds else self.removal.capacity(run)

    def turn_away(self, run: Run) -> None:
        if self.state is not SERVED:
            self.facts.refused += run.count
        else:
            done = self.removal.turn_away(run, partial(self.host.dead_letter, self))
            if done < run.count:
                self.host.keep_dead_letters(self, run, done, run.count, MAXLEN)

    def publish(
        self, run: Run, properties: Properties, publication: Publication | None, receipt: Receipt | None = None
    ) -> bool:
        (count, _, body_bytes, nbytes), plain = run.measures, self._plain
        self.facts.accepted += count
        if (
            plain is not None
            and self.consumers.count
            and properties.expiration is None
            and not (properties.persistent and plain.durable)
        ):
            # A consumer will most likely have it at the end of the tick: until then it needs no place of its own.
            store = plain.store
            if store.book is not None:
                store.book.routed(publication, count, body_bytes // count, False)
            if not plain.fresh:
                plain.fresh_ms = self.host.now_ms
            plain.fresh.append(run)
            plain.ready += count
            plain.ready_bytes += body_bytes
            store.memory_bytes += nbytes
            return False
        now_ms = self.host.now_ms
        if properties.expiration is None and self.settings.message_ttl_ms is None:
            deadline_ms = None
        else:
            deadline_ms = self.removal.deadline(properties, now_ms)
        if self._levels is not None:
            priority = properties.priority
            return self._levels.publish(run, properties.persistent, now_ms, deadline_ms, publication, priority)
        persistent = properties.persistent or self.quorum
        return self.backlog.publish(run, persistent, now_ms, deadline_ms, publication)

    def publish_again(self, run: Run, properties: Properties, publication: Publication | None) -> bool:
        """As `publish`, of what may have been here, and may have been delivered, before."""
        waits = self.publish(run, properties, publication)
        self.messages.mark_newest_redelivered(run.count, properties.priority)
        return waits

    # Settling

    def settle(self, first: int, last: int) -> int:
        if last - first < SETTLED_MANY:
            self._settle(first, last)
            return 0
        finished = self.messages.finished
        self._settle(first, last)
        return self.messages.finished - finished

    def _settle(self, first: int, last: int) -> None:
        if self.state is SERVED:
            if self.removal.counts:
                self.removal.forget(first, last)
            self.facts.acked_by_clients += self.backlog.settle(first, last, ACKED)

    def reject(self, first: int, last: int) -> None:
        if self.state is SERVED:
            self.removal.reject(first, last)

    def requeue(self, first: int, last: int) -> None:
        if self.state is SERVED:
            if self.recorded_share and (book := self.book_of(first)) is not None:
                book.requeued(first & SEQ_MASK, last & SEQ_MASK)
            self.removal.come_back(first, last)

    def purging(self, answer: Callable[[int | AMQPSoftError], object]) -> Generator[int, None, None]:
        if self.withholds:
            self._purges.append(answer)
            return
        gone = 0
        try:
            for count, work in self.purging_steps():
                gone += count
                yield work
        finally:
            answer(gone)

    def purging_steps(self) -> Generator[tuple[int, int], None, None]:
        """As `purging`, of each step how many have left with it, and what it took. Not while it withholds."""
        if not self.is_served:
            return
        for count, work in self.messages.purging():
            self.facts.purged += count
            self.host.again(self)  # what looks at its figures sees that something happened
            yield count, work
            if self.state is not SERVED:
                return
        self.removal.prune()

    def _refuse_purges(self) -> None:
        purges, self._purges = self._purges, []
        for answer in purges:
            answer(AMQPPreconditionFailed(f"{described_queue(self.record)} is gone, or has gone to another node"))

    def _purging_later(self, answer: Callable[[int | AMQPSoftError], object]) -> Generator[None, None, None]:
        """As steps for `QueueHost.later`."""
        for work in self.purging(answer):
            self.host.work_left -= work
            yield

    # Consumers

    @property
    def ready_bytes(self) -> int:
        return self.backlog.ready_bytes

    @property
    def arrived_ms(self) -> int:
        plain = self._plain
        return plain.fresh_ms if plain is not None and plain.fresh else self.backlog.arrived_ms

    def statistics(self, now_ms: int) -> Statistics:
        backlog, facts, consumers = self.backlog, self.facts, self.consumers
        return Statistics(
            self.settings,
            backlog.ready,
            backlog.unacked,
            backlog.ready_bytes,
            backlog.unacked_bytes,
            self.messages.memory_bytes,
            backlog.oldest_ms(),
            consumers.count,
            facts.utilisation(now_ms) if consumers else 0.0,
            consumers.active,
            facts.totals(),
            facts.rates(now_ms),
            facts.time_in_queue,
            self.removal.pending_count,
        )

    @property
    def consumer_count(self) -> int:
        return self.consumers.count

    @property
    def is_consumed(self) -> bool:
        return self.consumers.count > 0

    def is_active(self, consumer: Subscriber) -> bool:
        return self.consumers.active in (None, consumer)

    @property
    def exclusive_consumer(self) -> bool:
        # Such a one is alone.
        sole = self.consumers.sole
        return sole is not None and sole.exclusive

    def consume(self, consumer: Subscriber, answer: Callable[[AMQPSoftError | None], object]) -> None:
        refusal = self._damage_refusal() or self.in_use(consumer)
        if refusal is None:
            self.consumers.add(consumer)
        answer(refusal)

    def credited(self, consumer: Subscriber) -> None:
        self.consumers.restore(consumer)

    def cancel(self, consumer: Subscriber, answer: Callable[[None], object]) -> None:
        active = self.consumers.active
        if self.consumers.remove(consumer):
            self.used()
            self.backlog.mark_delivered(bool(self.consumers))
            if active is not self.consumers.active and self.consumers.active is not None:
                self.host.log("single_active_consumer", queue=self.record.name, vhost=self.record.vhost)
        answer(None)

    def get(self, no_ack: bool, answer: Getter) -> None:
        if self.state is QueueState.MOVED:
            answer(None)  # who has kept it for some turns
            return
        self.used()
        if self.removal.always or self.removal.pending or self.backlog.due or self.backlog.instants:
            self.dispatch()
        if self.getters is None:
            self.getters = deque()
        self.getters.append((no_ack, answer))
        if not self.dead_letters_under_way and not self.removal.expiring and not self.withholds:
            self._serve_getters()

    def dispatch(self) -> None:
        plain = self._plain
        if plain is not None and plain.fresh and self._pass_on(plain):
            return
        if self.withholds:
            return
        if self.dead_letters_under_way:
            self.host.again(self)
            return
        source = self.record.source
        if source and self.single_active_consumer and not self.host.holds_lease(source):
            # Another node may be the leader by now, and deliver to another one.
            self.host.wake(self, self.host.now_ms + LEADER_LEASE_LOOK_MS)
            return
        removal, backlog, facts = self.removal, self.backlog, self.facts
        now_ms = self.host.now_ms
        mortal = bool(removal.always or removal.pending or backlog.due or backlog.instants)
        if mortal:
            removal.before(partial(self.host.dead_letter, self))
            self._ask_host()
            if removal.expiring:
                self.host.again(self)
                return
        if self.getters:
            self._serve_getters()
        waiting = False
        if backlog.ready and self.consumers.gives_way:
            self.consumers.hand_over()
        if backlog.ready and self.consumers.count:
            waiting = self._serve()
        if mortal:
            blocked = self.damage and self.blocked
            expired = removal.after(
                partial(self.host.dead_letter, self), not self.consumers and not self.getters, blocked
            )
            self._ask_host()
            if expired:
                self.host.log("queue_expired", queue=self.record.name, vhost=self.record.vhost)
                self.host.end_queue(self)
        if self.damage:
            self.look_for_damage()
        backlog.mark_delivered(self.consumers.count > 0)
        if waiting or facts.waiting or now_ms >= facts.sample_due_ms:
            facts.waits(waiting, now_ms)

    def _ask_host(self) -> None:
        """What limits and deadlines want of it."""
        removal = self.removal
        if removal.again:
            removal.again = False
            self.host.again(self)
        if removal.wake_ms is not None:
            wake_ms, removal.wake_ms = removal.wake_ms, None
            self.host.wake(self, wake_ms)

    def _pass_on(self, backlog: Backlog) -> bool:
        """What came in since the last dispatch goes to the only consumer, all at once, when nothing else is ready and
        nothing else is to be done: True when that was the whole dispatch. A consumer without acknowledgements gets it
        straight, and it never had a place in the backlog. What does not go this way gets its place now."""
        removal, consumer = self.removal, self.consumers.sole
        special = self.getters or removal.always or removal.pending or removal.counts
        if consumer is None or special or backlog.due or backlog.instants:
            backlog.take_in()
            return False
        facts, store, now_ms = self.facts, backlog.store, self.host.now_ms
        waited_ms, count = now_ms - backlog.fresh_ms, 0
        first, ready_bytes = store.next_seq, backlog.ready_bytes
        if not consumer.no_ack:
            only_fresh = backlog.ready == sum([run.count for run in backlog.fresh])
            if only_fresh and not backlog.leaving and consumer.credit() >= backlog.ready:
                count = backlog.taken_in(consumer.pass_on(backlog.fresh, first))
        elif not store.segments:
            count = backlog.passed_on(consumer.pass_on(backlog.fresh, first))
            facts.auto_acked += count
        if backlog.fresh:
            backlog.take_in()
        if count and store.book is not None:
            consumer.record(store.book, first, count, False, (ready_bytes - backlog.ready_bytes) // count)
        facts.delivered += count
        if waited_ms < 2:
            facts.time_in_queue[0] += count
        else:
            facts.waited(count, False, waited_ms)
        if backlog.ready:
            return False
        if store.journalled:
            backlog.mark_delivered(True)
        if facts.waiting or now_ms >= facts.sample_due_ms:
            facts.waits(False, now_ms)
        return True

    def _serve(self) -> bool:
        """Give to the consumers in turn; True when something is left and none of them has credit."""
        backlog, counts, host, consumers = self.backlog, self.removal.counts, self.host, self.consumers
        while backlog.ready:
            if host.work_left <= 0:
                host.again(self)
                return False
            group = consumers.next_group
            if group is None:
                return consumers.served
            rotation = group.rotation
            consumer, alone = next(iter(rotation)), len(rotation) == 1
            credit = consumer.credit()
            if credit <= 0:
                host.work_left -= PARK_WORK
                consumers.park(group, consumer)
                continue
            if not alone:
                portion = backlog.ready // (EXACT_TURNS_MESSAGES * len(rotation))
                credit = min(credit, max(1, min(PORTION_MESSAGES_MAX, portion)))
            piece = self._take(credit)
            if piece is None:
                return False
            if not alone:
                rotation.move_to_end(consumer)
            run, low, high, seq, redelivered = piece
            host.work_left -= PIECE_WORK + (high - low) // MESSAGES_A_WORK
            consumer.deliver(run, low, high, seq, redelivered)
            if self.recorded_share and (book := self.book_of(seq)) is not None:
                consumer.record(book, seq & SEQ_MASK, high - low, redelivered, run.body_bytes // run.count)
            if consumer.no_ack:
                if counts:
                    self.removal.forget(seq, seq + high - low - 1)
                self.facts.auto_acked += backlog.settle(seq, seq + high - low - 1, AUTO_ACKED)
        return False

    def _take(self, limit: int) -> Piece | None:
        backlog = self.backlog
        if self.removal.late:
            self.messages.expire_returned(self.host.now_ms, self.removal.die_expired)
        piece = self.removal.take_counted(limit) if self.removal.counts else backlog.take(limit)
        if piece is not None:
            count, facts = piece[2] - piece[1], self.facts
            facts.delivered += count
            waited_ms = self.host.now_ms - backlog.arrived_ms
            if waited_ms < 2 and not piece[4]:
                facts.time_in_queue[0] += count
            else:
                facts.waited(count, piece[4], waited_ms)
        return piece

    def _serve_getters(self) -> None:
        backlog, facts = self.backlog, self.facts
        while self.getters:
            piece = self._take(1) if backlog.ready else None
            if piece is None and backlog.ready and not (self.damage and self.blocked):
                return
            no_ack, answer = self.getters.popleft()
            if piece is None:
                answer(self._damage_refusal())
                facts.got_nothing += 1
                continue
            seq = piece[3]
            taken = answer(Got(piece, backlog.ready, self.book_of(seq) if self.recorded_share else None))
            facts.got += 1
            if not taken:
                backlog.requeue(seq, seq)
            elif no_ack and self.state is SERVED:
                if self.removal.counts:
                    self.removal.forget(seq, seq)
                facts.got_auto_acked += backlog.settle(seq, seq, AUTO_ACKED)
        backlog.mark_delivered(bool(self.consumers))

    # Between memory and disk

    @property
    def read_ahead(self) -> int:
        return READ_AHEAD_SEGMENTS if self.consumers or self.getters else 0

    def shrink(self, bytes_max: int) -> int:
        work = self.messages.shrink(bytes_max)
        if self.messages.shrinking:
            self.host.again(self)
        return work

    # Damage

    def _damage_refusal(self) -> QueueFenced | None:
        damage = blocked_at(self.messages) if self.damage else None
        if damage is None:
            return None
        now_ms = self.host.now_ms
        told = now_ms - self.refusal_told_ms < FENCED_TOLD_MS
        if not told:
            self.refusal_told_ms = now_ms
        return QueueFenced(self.record, damage.left, told)

    @property
    def blocked(self) -> bool:
        """The next message is damaged."""
        return self.damage and blocked_at(self.messages) is not None

    def look_for_damage(self) -> None:
        host, record = self.host, self.record
        self.damage_told = log_damage(host, record, self.messages, self.damage_told)
        damaged = self.messages.damaged
        if self.damage and not damaged:
            self.used()
            self.damage_told = 0
            host.log("queue_fence_cleared", queue=record.name, vhost=record.vhost)
        self.damage = damaged
        if self.consumers.count and self.blocked:
            self.used()
            self.backlog.mark_delivered(False)
            host.later(cancelling(self.consumers.clear()))
