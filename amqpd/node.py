"""The node: everything that connections share, and what happens at the end of a tick.

What comes in: applied changes of the topology, durable numbers of the journal, rows that were read back, alarms.
What goes out: deliveries and confirms (into connections), changes to make and rows to read (to the shell).
Rules: 1. Pure: what needs a clock, a disk or chance is asked of `Services`. 2. `tick` runs after each batch of
input, and does once what the batch made necessary: dispatch, confirms. 3. A queue's machine exists exactly while its
record is in the topology.
Not here: sockets (`pump.py`), the disk (`journal/`), building all this (`broker.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from mypy_extensions import mypyc_attr

from amqpd import dead_lettering, routing
from amqpd.audit.acts import Acts
from amqpd.audit.levels import OFF
from amqpd.audit.recorder import Recorder
from amqpd.audit.rooms import Rooms
from amqpd.congestion import Congestion
from amqpd.histories import Histories
from amqpd.journal.buffer import JournalBuffer
from amqpd.journal.records import Recovered, Row
from amqpd.kernel import Run
from amqpd.limiting.census import Census
from amqpd.limiting.quotas import Quotas
from amqpd.limiting.turns import Turns
from amqpd.limits import Limits
from amqpd.memory_shares import MemoryShares
from amqpd.properties import Properties, PropertiesReader
from amqpd.queues.backlog import Backlog
from amqpd.queues.delayed import DelayedMessages, delayed_id
from amqpd.queues.queue import Queue
from amqpd.queues.settings import PRIORITY_MAX, type_of
from amqpd.queues.timetable import Timetable
from amqpd.replies import Replies
from amqpd.security.access import Access
from amqpd.states import State
from amqpd.topology.order import ChangeOrder, Removable
from amqpd.topology.policies import policies_changed
from amqpd.topology.records import BindingRecord, Change, Delete, Key, Put, QueueRecord
from amqpd.topology.state import Topology
from amqpd.unroutable import Unroutable
from amqpd.wakes import Wakes
from amqpd.world import Read, Resume, Services

if TYPE_CHECKING:
    from amqpd.channels import Channel
    from amqpd.connection import Connection

# While more than this waits for the writer, publishers are not read: it is some tens of milliseconds of any disk.
JOURNAL_BYTES_MAX = 32 * 1024 * 1024

# So many dead letters go out in one tick, some ten milliseconds of work; the rest in the next ones, and connections
# are served between them: one publish may die its way through hundreds of queues, doubled in each. What a letter
# counts is in `dead_lettering.py`.
LETTERS_MAX = 2_000
# Of the queues that fall due at one instant, so many are looked at in one tick.
DUE_QUEUES_MAX = 1_000


Handlers = Mapping[type, Callable[["Channel", Any], None]]


@mypyc_attr(allow_interpreted_subclasses=True)  # tests watch it from below
class Node:
    def __init__(
        self,
        services: Services,
        topology: Topology,
        access: Access,
        journal: JournalBuffer,
        limits: Limits,
        methods: Handlers,
        server_properties: Mapping[str, Any],
        audit: Recorder | None = None,
        books: Rooms | None = None,
    ) -> None:
        self.services = services
        self.topology = topology
        self.access = access
        self.journal = journal
        self.audit = Recorder(lambda: self.now_ms * 1000) if audit is None else audit
        self.books = Rooms(self.audit, OFF) if books is None else books
        self.acts = Acts(self.audit)
        self.acting: Connection | None = None  # whose method is being carried out
        self.connection_left: Callable[[Connection], None] = self.acts.closed
        self.limits = limits
        self.methods = methods
        self.server_properties = server_properties
        self.greetings: dict[str, bytes] = {}
        """the frames of connection.start, by the mechanisms that they offer"""
        self.properties = PropertiesReader()
        self.token = services.token
        self.new_queue_id = services.queue_id
        self.chance = services.chance
        self.queues: dict[tuple[str, str], Queue] = {}
        self.connections: dict[str, Connection] = {}
        self._owned: dict[str, dict[Queue, None]] = {}  # exclusive queues by the connection that owns them
        self.alarms: set[str] = set()
        self.draining = False
        self.ended = 0  # connections and queues that are no more, since the start
        self.now_ms = 0  # since the epoch, as the shell told last; never goes back within a run
        self.letters_left = LETTERS_MAX  # see `QueueHost`
        # Sets that keep their order: equal input gives equal output.
        self.dirty: dict[Queue, None] = {}
        self.touched: dict[Connection, None] = {}
        self.confirms_due: dict[Channel, None] = {}
        self.confirm_waiters: dict[Channel, None] = {}
        self._durable_waiters: list[tuple[int, Callable[[], None]]] = []
        self._recovered: Recovered | None = None
        self.congestion = Congestion()
        self.census = Census(self)
        self.quotas = Quotas(topology)
        self._shares = MemoryShares(limits, self.queues)
        self._order = ChangeOrder(topology, self.submit)
        self.turns = Turns()
        self.wakes = Wakes()
        self.delayed: dict[str, DelayedMessages] = {}
        """by virtual host; made when it is needed"""
        self.routes = routing.Routes()
        self.replies = Replies()
        self.unroutable = Unroutable()
        self.histories = Histories(self)

    # Start

    def recover(self, recovered: Recovered) -> None:
        """Queues that appear from now on take over what the journal has of them. Call `recovery_ended` after the
        topology was loaded."""
        self._recovered = recovered
        self.books.recovering = True

    def recovery_ended(self) -> None:
        """What is in the journal and in no queue belonged to deleted ones."""
        assert self._recovered is not None
        known = {lane.queue_id for queue in self.queues.values() for lane in queue.backlog.lanes()}
        for vhost in self.topology.vhosts:
            found = self._recovered.queues.get(delayed_id(vhost))
            if found is not None:
                self._delayed_of(vhost).recover(0, found)
                known.add(delayed_id(vhost))
        for queue_id in self._recovered.queues:
            if queue_id not in known:
                self.journal.drop(queue_id)
        self._recovered = None
        self.books.recovered(self.audited())

    def audited(self) -> list[Queue]:
        """All that messages stand in."""
        return [*self.queues.values(), *self.delayed.values()]

    # The topology

    def submit(self, changes: Sequence[Change], resume: Resume, requires: Iterable[Key] = ()) -> None:
        """See `Services.submit`. What is put into a virtual host requires that it still exists."""
        vhosts = {change.record.key[1] for change in changes if isinstance(change, Put)}
        if self.acting is not None:
            resume = self.acts.expect(changes, self.acting, resume)
        self.services.submit(changes, resume, [*requires, *(("vhost", name) for name in vhosts)])

    def bind(self, binding: BindingRecord, resume: Resume) -> None:
        """See `ChangeOrder.bind`."""
        self._order.bind(binding, resume)

    def remove(self, record: Removable, resume: Resume, condition: Callable[[], bool] = lambda: True) -> None:
        """See `ChangeOrder.remove`."""
        self._order.remove(record, resume, condition)

    def applied(self, changes: Sequence[Change]) -> None:
        """The topology has just changed so: make and end the machines of queues, tell connections."""
        self.quotas.applied(changes, self.now_ms)
        if self._recovered is None:
            self.acts.of_changes(changes)
        for change in changes:
            # First of all: nothing that waits in a connection may go on in a virtual host that is gone.
            if isinstance(change, Delete) and change.key[0] in ("vhost", "user"):
                for connection in list(self.connections.values()):
                    connection.removed(change.key[0], change.key[1])
        for change in changes:
            if isinstance(change, Put):
                if isinstance(change.record, QueueRecord):
                    self._put_queue(change.record)
            elif change.key[0] == "queue":
                self._remove_queue(change.key)
            elif change.key[0] == "vhost":
                self._empty_vhost(change.key[1])
        self.histories.applied(changes)
        self.unroutable.applied(changes)
        for vhost in policies_changed(changes):
            for (of, _), queue in self.queues.items():
                if of == vhost:
                    queue.apply(queue.record, self._policy_of(queue.record))
                    self.books.look_at(queue)
                    self.dirty[queue] = None

    def _policy_of(self, record: QueueRecord) -> Mapping[str, Any]:
        if record.vhost not in self.topology.vhosts:
            return {}
        kind = type_of(record.arguments)
        return self.topology.policy_of("queue", record.vhost, record.name, kind).definition

    def _put_queue(self, record: QueueRecord) -> None:
        key = (record.vhost, record.name)
        queue = self.queues.get(key)
        if queue is not None and queue.record.id == record.id:
            queue.apply(record, self._policy_of(record))
            self.books.look_at(queue)
            return
        if queue is not None:
            # Another process made a durable queue of this name, which did not know of a transient one here.
            self._remove_queue(record.key)
        queue = self.queues[key] = self.make_queue(record)
        self._recover_queue(queue)
        self.books.look_at(queue)
        if record.owner is not None:
            self._owned.setdefault(record.owner, {})[queue] = None
            owner = self.connections.get(record.owner)
            if owner is None or owner.state is not State.RUNNING:
                # The connection went while its declaration was on the way.
                self.end_queue(queue)

    def make_queue(self, record: QueueRecord) -> Queue:
        return Queue(record, self, self._policy_of(record))

    def _recover_queue(self, queue: Queue) -> None:
        if self._recovered is None:
            return
        # A priority queue's levels have the numbers behind its own.
        levels = PRIORITY_MAX if queue.settings.max_priority is not None else 0
        for level in range(levels + 1):
            found = self._recovered.queues.get(queue.record.id + level)
            if found is not None:
                queue.recover(level, found)
        self.dirty[queue] = None

    def _delayed_of(self, vhost: str) -> DelayedMessages:
        store = self.delayed.get(vhost)
        if store is None:
            store = self.delayed[vhost] = DelayedMessages(vhost, self, self._release)
            self.books.look_at(store)
        self.dirty[store] = None
        return store

    def owned_queues(self, connection_id: str) -> list[Queue]:
        return list(self._owned.get(connection_id, ()))

    def _remove_queue(self, key: Key) -> None:
        queue = self.queues.pop((key[1], key[2]), None)
        if queue is not None:
            owned = self._owned.get(queue.record.owner or "")
            if owned is not None:
                owned.pop(queue, None)
                if not owned:
                    del self._owned[queue.record.owner or ""]
            self.dirty.pop(queue, None)
            self.congestion.forget(queue)
            queue.delete()
            self.books.gone(queue)
            self.ended += 1

    def _empty_vhost(self, name: str) -> None:
        """Who deletes a vhost deletes what it can see in it; what is transient here it cannot."""
        if (store := self.delayed.pop(name, None)) is not None:
            store.delete()
            self.books.gone(store)
        left: list[Change] = [Delete(record.key) for record in self.topology.leftovers(name)]
        if left:
            self.submit(left, lambda _: None)

    def delete_queue(self, queue: Queue, resume: Resume) -> None:
        """Remove the queue, if it is not gone yet; see `ChangeOrder.remove`."""
        self.remove(queue.record, resume)

    def end_queue(self, queue: Queue) -> None:
        """The queue's time is over by its own rules (auto-delete, exclusive): for clients it is gone at once, and its
        record follows. Whoever declares the name anew comes behind that in the store."""
        if not queue.deleted:
            self.delete_queue(queue, lambda _: None)
            self._remove_queue(queue.record.key)
            self.topology.forget_routes()

    def consumer_gone(self, queue: Queue) -> None:
        """A consumer left: an auto-delete queue goes with its last one (section 1.7.2.1)."""
        self.dirty[queue] = None
        if queue.record.auto_delete and not queue.consumers:
            self.end_queue(queue)

    # Messages

    def when_durable(self, done: Callable[[], None]) -> None:
        """Call `done` when all that was handed to the journal until now is on disk."""
        self.journal.force()
        self._durable_waiters.append((self.journal.index, done))

    def durable(self, index: int) -> None:
        """The journal's transactions up to `index` are on disk."""
        self.dirty.update(dict.fromkeys(self.congestion.queues))
        waiters, self.confirm_waiters = self.confirm_waiters, {}
        for channel in waiters:
            if channel.confirms is not None:
                self.confirms_due[channel] = None
                if not channel.confirms.durable(index):
                    self.confirm_waiters[channel] = None
        while self._durable_waiters and self._durable_waiters[0][0] <= index:
            self._durable_waiters.pop(0)[1]()

    def loaded(self, queue: Queue, lane: Backlog | Timetable, first: int, rows: list[Row]) -> None:
        """Rows that were read for the queue, from the message `first` of `lane` on. Raises JournalDamaged."""
        queue.reading = False
        if not queue.deleted:
            lane.loaded(first, rows)
            self.dirty[queue] = None

    def flush_confirms(self, channel: Channel) -> None:
        self.confirms_due.pop(channel, None)
        channel.flush_confirms()

    def tick(self) -> list[Read]:
        """Everything that the input and the time since the last tick made necessary. What must be read from disk
        now."""
        reads: list[Read] = []
        self.acting = None
        if self.audit.active:
            self.audit.later()
        self._shares.share = None
        self.letters_left = LETTERS_MAX
        if self.wakes.heap:
            self.dirty.update(dict.fromkeys(islice(self.wakes.due(self.now_ms), DUE_QUEUES_MAX)))
        if self.quotas.waiting:
            self.quotas.look(self.now_ms)
        while self.dirty:
            dirty, self.dirty = self.dirty, {}
            for queue in dirty:
                if queue.deleted:
                    continue
                queue.dispatch()
                backlog = queue.backlog
                if not (backlog.memory_bytes or backlog.ready or backlog.unacked or self.congestion.queues):
                    continue
                limit = self._shares.of(queue)
                wanted = queue.next_read(backlog.memory_bytes < limit // 2)
                if wanted is not None:
                    queue.reading = True
                    reads.append(Read(queue, *wanted))
                if self.congestion.update(queue, limit):
                    backlog.shrink(limit // 2)
        if self.confirms_due:
            due, self.confirms_due = self.confirms_due, {}
            for channel in due:
                channel.flush_confirms()
        return reads

    # Delays

    def delay(self, vhost: str, run: Run, properties: Properties, delay_ms: int) -> bool:
        """Publish the run when so much time is over; True: its confirm must wait for the journal."""
        return self._delayed_of(vhost).delay(run, delay_ms)

    def _release(self, vhost: str, run: Run) -> None:
        routing.release(self, vhost, run)

    # What queues ask of their host

    def wake(self, queue: Queue, at_ms: int) -> None:
        """See `QueueHost.wake`."""
        self.wakes.ask(queue, at_ms)

    def bury(self, queue: Queue, run: Run, low: int, high: int, reason: str) -> int:
        """See `QueueHost.bury`."""
        return dead_lettering.bury(self, queue, run, low, high, reason)

    # Memory

    def measure(self) -> None:
        """Called every `congestion.MEASURE_S`."""
        self.dirty.update(dict.fromkeys(self.congestion.measure()))

    @property
    def journal_full(self) -> bool:
        return self.journal.gathered_bytes > JOURNAL_BYTES_MAX

    # Alarms

    def set_alarm(self, kind: str, on: bool) -> None:
        """Memory or disk is short, or no longer (https://www.rabbitmq.com/docs/alarms)."""
        if on:
            self.alarms.add(kind)
        else:
            self.alarms.discard(kind)
            if not self.alarms:
                for connection in list(self.connections.values()):
                    connection.intake.unblock()

    def log(self, event: str, **fields: Any) -> None:
        self.services.log(event, fields)
