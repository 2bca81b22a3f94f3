"""The node: everything that connections share, and what happens at the end of a tick.

What comes in: applied changes of the topology, durable numbers of the journal, rows that were read back, alarms.
What goes out: deliveries and confirms (into connections), changes to make and rows to read (to the shell).
Rules: 1. Pure: what needs a clock, a disk or chance is asked of `Services`. 2. `tick` runs after each batch of
input, and does once what the batch made necessary: dispatch, confirms. 3. A queue's machine exists exactly while its
record is in the topology.
Not here: sockets (`pump.py`), the disk (`journal/`), building all this (`broker.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

from mypy_extensions import mypyc_attr

from amqpd.audit.acts import Acts
from amqpd.audit.coverage.audited import Audited
from amqpd.audit.coverage.coverage import Coverage
from amqpd.audit.publication import Publication
from amqpd.audit.recorder import Recorder
from amqpd.events.exchange import EventExchange
from amqpd.faults import Faults
from amqpd.flow.alarms import Alarms
from amqpd.flow.client_counters import ClientCounters
from amqpd.flow.congestion import Congestion, MemoryShares
from amqpd.flow.disk_space import DiskSpace
from amqpd.flow.leader_moves import MOVED, LeaderMoves
from amqpd.flow.quotas import Quotas
from amqpd.flow.turns import Turns
from amqpd.journal.buffer import JournalBuffer
from amqpd.journal.lane import Lane, Lanes
from amqpd.journal.records import Recovered, Row
from amqpd.kernel import Run
from amqpd.message.properties import PropertiesReader
from amqpd.node.changes import Changes
from amqpd.node.cluster import LOCAL, Cluster
from amqpd.node.dispatching import QUEUES_WORK_MAX, Dispatching
from amqpd.node.orphans import Orphans
from amqpd.node.ports import NodePort
from amqpd.node.quarantine import quarantine
from amqpd.node.queue_ports import QueuePorts
from amqpd.node.queue_registry import QueueRegistry
from amqpd.node.remote_sessions import RemoteSessions
from amqpd.node.sources import ServedSources
from amqpd.node.totals import Totals
from amqpd.node.wakes import Wakes
from amqpd.publishing import dead_lettering, history_replay, releasing
from amqpd.publishing.firehose import Firehose
from amqpd.publishing.histories import Histories
from amqpd.publishing.replies import Replies, process_part
from amqpd.publishing.routes import Routes
from amqpd.publishing.unroutable import Unroutable
from amqpd.queues.delayed import DelayedMessages
from amqpd.queues.dispatchable import Dispatchable, Paged
from amqpd.queues.host import Released
from amqpd.queues.leader import LeaderQueue
from amqpd.queues.messages import RowsWanted
from amqpd.queues.port import QueuePort
from amqpd.queues.queue import Queue
from amqpd.queues.to_dispatch import ToDispatch
from amqpd.queues.transit import Transit
from amqpd.remote.edges import RemoteEdges
from amqpd.security.access import Access
from amqpd.session.credit import Waking
from amqpd.session.durability import Durability
from amqpd.session.holds import Holds
from amqpd.session.intake import unblocking
from amqpd.session.outboxes import Outboxes
from amqpd.session.ports import ChannelBase, ConnectionBase
from amqpd.session.services import Read, Services
from amqpd.topology.policies import policies_changed
from amqpd.topology.state import Topology
from amqpd.tracing.tracer import SentRange, Tracer
from amqpd.vocabulary.audit_levels import OFF
from amqpd.vocabulary.client import Client
from amqpd.vocabulary.identity import Identity
from amqpd.vocabulary.limits import Limits
from amqpd.vocabulary.records import BindingRecord, Change, Delete, Key, Put, QueueRecord

# Of the queues that fall due at one instant, at most this number are looked at in one tick.
DUE_QUEUES_MAX: Final = 1_000

CUT_OFF: Final = "a majority of the nodes that keep a queue has not answered: connect to another node"

Handlers = Mapping[type, Callable[[Any, Any], None]]
"""what does each method, by its class: called with the channel and the method"""


@mypyc_attr(allow_interpreted_subclasses=True)  # tests watch it from below
class Node(NodePort):
    """The parts that connections share, held together, and the end of a tick."""

    def __init__(
        self,
        services: Services,
        topology: Topology,
        access: Access,
        journal: JournalBuffer,
        limits: Limits,
        methods: Handlers,
        server_properties: Mapping[str, Any],
        identity: Identity,
        audit: Recorder | None = None,
        books: Coverage | None = None,
        tracer: Tracer | None = None,
        cluster: Cluster | None = None,
    ) -> None:
        self.services = services
        self.topology = topology
        self.access = access
        self.journal = journal
        self.audit = Recorder(lambda: self.now_ms * 1000) if audit is None else audit
        self.books = Coverage(self.audit, OFF) if books is None else books
        self.tracer = tracer
        self.acts = Acts(self.audit)
        self.connection_left: Callable[[ConnectionBase], None] = self.acts.closed
        self.limits = limits
        self.methods = methods
        self.server_properties = server_properties
        self.identity = identity
        self.greetings: dict[str, bytes] = {}  # the frames of connection.start, by the mechanisms that they offer
        self.properties = PropertiesReader()
        self.token, self.new_queue_id, self.chance = services.token, services.queue_id, services.chance
        self.queues, self.remote, self.active, self.delayed = {}, {}, {}, {}
        self.cluster = Cluster() if cluster is None else cluster
        self.sources = ServedSources(self.cluster)
        self.edges = _edges_of(self)
        self.ports = QueuePorts(
            self.queues, self.remote, self.sources.serving, lambda key: self.registry.begin_queue(key)
        )
        self.connections: dict[str, ConnectionBase] = {}
        self.broken: dict[ConnectionBase, None] = {}  # see `Connection.contain_later`
        self.events = self.event_exchange = EventExchange(self)
        self.alarms = Alarms(self._unblock, self.event_exchange.alarm)
        self.cut_off_lanes: frozenset[Lane] = frozenset()  # of sources of which no majority answers
        self.draining, self.ended = False, 0  # ended: connections that are no more, since the start
        self.totals = Totals()
        self.now_ms = 0  # since the epoch, as the shell told last; never goes back within a run
        self.work_left = QUEUES_WORK_MAX  # see `QueueHost`
        self.to_dispatch = ToDispatch()
        self.dispatching = Dispatching(self)
        self.waking, self.wakes = Waking(), Wakes()
        # A set that keeps its order: equal input gives equal output.
        self.touched: dict[ConnectionBase, None] = {}
        self.faults = Faults(services.bug, self.log)
        self.durability = Durability(journal.lane, journal.unwritten, self.faults)
        self.orphans = Orphans(self)
        self.registry = QueueRegistry(self, self.orphans)
        self.remote_sessions = RemoteSessions(self, self.registry)
        self.disk_space = DiskSpace(journal, self.log)
        self.congestion = Congestion()
        self.client_counters = ClientCounters(limits, topology, self.ports, identity.name)
        self.quotas = Quotas(topology, self.log)
        self.shares = MemoryShares(limits, self.queues)
        self.turns = Turns(self.quotas.waiting)
        self.leader_moves = LeaderMoves(self.cluster.is_moving, self.sources.serving, self.turns)
        self.changes = Changes(topology, services, self.client_counters, self.acts, self.turns, self.cluster)
        self.holds = Holds(journal, self.turns)
        self.routes, self.outboxes = Routes(topology), Outboxes(limits)
        self.replies = Replies(services.token, self._process_part)
        self.unroutable, self.histories = Unroutable(), Histories(topology, self._give_history)
        self.firehose = Firehose(self)

    # Start

    def recover(self, recovered: Recovered) -> None:
        """Queues that appear from now on take over what the journal has of them, until `recovery_ended`."""
        self.registry.recover(recovered)
        self.remote_sessions.recovers(recovered.marks_of(LOCAL))
        self.books.recovering = True

    def recovery_ended(self, dropped: Collection[int] = (), suspect: bool = False) -> None:
        """What is in the journal and in no queue is parked (`orphans.py`), or dropped when `dropped` has the queue's
        id: its deletion is recorded. `suspect`: the metadata are older than the journal, so exchanges may be missing,
        and delayed messages are parked too."""
        self.registry.recovery_ended(dropped, suspect)
        self.books.recovered(self.audited())

    def paged(self) -> list[Paged]:
        return [*self.queues.values(), *self.delayed.values()]

    def audited(self) -> list[Audited]:
        return [*self.queues.values(), *self.delayed.values(), *self.orphans]

    # The topology

    def applied(self, changes: Sequence[Change]) -> None:
        """The topology has just changed so: make and end the machines of queues, tell connections."""
        self.quotas.applied(changes, self.now_ms)
        if not self.registry.recovering:
            self.acts.of_changes(changes)
        for change in changes:
            # First of all: nothing that waits in a connection may go on in a virtual host that is gone.
            if isinstance(change, Delete) and change.key[0] in ("vhost", "user"):
                for connection in list(self.connections.values()):
                    connection.guard(partial(connection.removed, change.key[0], change.key[1]))
        for change in changes:
            if isinstance(change, Put):
                if isinstance(change.record, QueueRecord):
                    self.registry.put(change.record)
            elif change.key[0] == "queue":
                self._remove(change.key)
            elif change.key[0] == "vhost":
                self._empty_vhost(change.key[1])
        self.remote_sessions.metadata_applied()
        self.histories.applied(changes)
        self.unroutable.applied(changes)
        self.routes.traffic.applied(changes)
        self.firehose.applied(changes)
        for vhost in policies_changed(changes):
            for (of, _), queue in list(self.queues.items()):
                if of == vhost:
                    self.registry.apply(queue, queue.record)

    @property
    def makes_queues(self) -> bool:
        return len(self.registry.beginning) > 0

    def queues_named(self, vhost: str, names: Iterable[str]) -> tuple[QueuePort, ...]:
        ports = self.ports
        return tuple(queue for name in names if (queue := ports.get((vhost, name))) is not None)

    def serves(self, vhost: str, name: str) -> bool:
        queue = self.queues.get((vhost, name))
        return queue is not None and queue.is_served

    def make_queue(self, record: QueueRecord, policy: Mapping[str, Any]) -> Queue:
        return Queue(record, self, policy)

    def make_delayed(self, vhost: str, number: int) -> DelayedMessages:
        return DelayedMessages(vhost, number, self, self.release)

    def owned_queues(self, connection_id: str) -> Sequence[QueuePort]:
        return self.registry.owned(connection_id)

    def quarantine(self, queue: Dispatchable, error: Exception) -> None:
        quarantine(self, queue, error)

    def _empty_vhost(self, name: str) -> None:
        """Another process that deletes a virtual host deletes what it sees in it: not what is transient here."""
        if (store := self.delayed.pop(name, None)) is not None:
            self.registry.end(store)
        left: list[Change] = [Delete(record.key) for record in self.topology.leftovers(name, self.sources.node)]
        if left:
            self.changes.submit(left, lambda _: None)

    def end_queue(self, queue: QueuePort, by: Client | None = None) -> None:
        """The queue ends by its own rules (auto-delete, exclusive, x-expires): for clients it is gone at once, and
        its record follows. A later declaration of the name comes behind that in the store. A queue that this node
        does not lead is left to its leader."""
        if self.queues.get((queue.record.vhost, queue.record.name)) is queue:
            self.changes.remove(queue.record, lambda _: None, by=by)
            self._remove(queue.record.key)
            self.topology.forget_routes()

    def _remove(self, key: Key) -> None:
        """The queue is gone; its remote consumers are told, too."""
        name = key[1], key[2]
        gone = self.queues.get(name) or self.remote.get(name)
        self.registry.remove(key)
        if gone is not None and self.remote_sessions.leaders:
            self.remote_sessions.queue_gone(gone.record)

    def consumer_gone(self, queue: QueuePort, by: Client) -> None:
        """A consumer of this client left: an auto-delete queue goes with its last one (section 1.7.2.1)."""
        self.to_dispatch.add(queue)
        if queue.record.auto_delete and not queue.consumer_count:
            self.end_queue(queue, by)

    # Messages

    def source_begins(self, source: int, recovered: Recovered, handed: bytes = b"") -> None:
        """This node leads the source, which has these messages. `handed`: what the leader before has passed of
        clients of other nodes (`RemoteSessions.handed`)."""
        self.registry.source_begins(source, recovered)
        self.topology.forget_routes()
        self.remote_sessions.source_begins(source, recovered.marks_of(source), handed)
        self.leader_moves.look(self.now_ms)

    def source_ends(self, source: int, lane: Lane) -> None:
        """It is the leader no more. What was published and waits for the source's lane may be committed by the next
        leader, or may not: those clients have to ask again, over another connection."""
        self.registry.source_ends(source)
        self.remote_sessions.source_ends(source)
        self.topology.forget_routes()
        self.durability.abandon(lane)
        reason = CUT_OFF if lane in self.cut_off_lanes else MOVED
        for connection in list(self.connections.values()):
            if _awaits(connection, lane) or (lane in self.cut_off_lanes and _publishes(connection, lane)):
                connection.guard(partial(connection.force_close, reason))

    def cut_off(self, lanes: Collection[Lane]) -> None:
        """No majority answers for the sources of these lanes, and of no others: clients that wait for one are told
        that, and those that wait no more are told so. New clients of their queues are refused."""
        self.cut_off_lanes = frozenset(lanes)
        for connection in list(self.connections.values()):
            waits = any(_awaits(connection, lane) or _publishes(connection, lane) for lane in self.cut_off_lanes)
            if waits != connection.intake.cut_off:
                connection.guard(partial(connection.intake.set_cut_off, waits))

    def source_stops(self, source: int) -> None:
        """Another node is to be its leader: nothing more comes into its queues here, or out of them. What was handed
        to the lane is safe when that says so."""
        self.remote_sessions.source_stops(source)
        self.registry.source_ends(source)
        self.remote_sessions.source_ends(source)
        self.topology.forget_routes()

    def reported(self, lane: Lane) -> None:
        """More of what was handed to the lane is safe."""
        self.to_dispatch.add_all(self.congestion.queues)
        self.durability.reported(lane)
        if self.remote_sessions.leaders and lane.journalled:
            self.remote_sessions.reported(lane)

    def loaded(self, queue: Paged, request: RowsWanted, rows: list[Row]) -> None:
        """Rows that were read for the queue, which had asked for them."""
        try:
            queue.loaded(request, rows)
            if queue.is_served:
                self.to_dispatch.add(queue)
        except Exception as error:  # noqa: BLE001 - the queue's; quarantine reports it, or raises it on
            self.quarantine(queue, error)

    def tick(self, fresh: bool = True) -> list[Read]:
        """What the input and the time since the last tick made necessary, as far as the budget reaches: a `fresh`
        one, or the rest of the last one's. Call it again soon while `behind`. What must be read from disk now."""
        reads: list[Read] = []
        if self.audit.active:
            self.audit.later()
        if len(self.queues) <= self.shares.queues_each_tick_max:
            self.shares.share = None
        if fresh:
            self.work_left = QUEUES_WORK_MAX
        if self.wakes.heap:
            self.to_dispatch.add_all(islice(self.wakes.due(self.now_ms), DUE_QUEUES_MAX))
        if self.quotas.waiting:
            self.quotas.look(self.now_ms)
        if self.holds.waiting:
            self.holds.look()
        if self.registry.beginning:
            self.registry.begin_some()
        self.dispatching.run(reads)
        if self.edges.dirty or self.remote_sessions.leaders.dirty:
            self.remote_sessions.exchange()
        if self.journal.unwritten.news:
            self.durability.settled(self.journal.drop_settled())
        if self.durability.due:
            self.durability.flush_due()
        while self.broken:
            self.broken.popitem()[0].end_broken()
        return reads

    @property
    def behind(self) -> bool:
        """There is more to do than the budget allowed."""
        return self.dispatching.behind or bool(
            self.to_dispatch or self.waking or self.registry.beginning or self.edges.dirty
        )

    def dispatch(self, queue: QueuePort) -> None:
        """At once: somebody is about to look at it."""
        if queue.is_served:
            try:
                queue.dispatch()
            except Exception as error:  # noqa: BLE001 - the queue's; quarantine reports it, or raises it on
                self.quarantine(queue, error)

    # Delays

    def delay(self, vhost: str, run: Run, delay_ms: int, publication: Publication | None) -> Lanes | None:
        return self.registry.delay(vhost, run, delay_ms, publication)

    def release(self, vhost: str, run: Run, transit: Transit | None = None) -> Released:
        return releasing.release(self, self.delayed.get(vhost), vhost, run, transit)

    def _give_history(self, binding: BindingRecord, runs: tuple[Run, ...]) -> None:
        self.dispatching.carry_out(history_replay.replay(self, binding, runs), None)

    # What queues ask of their host

    def trace(self, channel: ChannelBase, queue: QueuePort, sent: SentRange) -> None:
        if channel.traced:
            self.firehose.delivered(channel, queue, sent)
        if self.tracer is not None:
            known = channel.deliveries = {} if channel.deliveries is None else channel.deliveries
            of = (channel.connection, queue.record.name, queue.arrived_ms)
            self.work_left -= self.tracer.delivered(*of, sent, known)

    def trace_publish(self, channel: ChannelBase, run: Run, keys: Sequence[str], queues: Sequence[QueuePort]) -> None:
        self.firehose.published(channel, run, keys, queues)

    def again(self, queue: Dispatchable) -> None:
        self.to_dispatch.add(queue)

    def later(self, steps: Iterator[None]) -> None:
        self.dispatching.later(steps)

    def wake(self, queue: Paged, at_ms: int) -> None:
        self.wakes.ask(queue, at_ms)

    def _process_part(self) -> str:
        """This process, in the names that it gives out for replies."""
        return process_part(self.identity.name, self.cluster.incarnation or 0)

    def holds_lease(self, source: int) -> bool:
        return self.cluster.holds_lease(source)

    def dead_letter(
        self, queue: LeaderQueue, run: Run, low: int, high: int, reason: str, transit: Transit | None = None
    ) -> tuple[int, int]:
        gone = dead_lettering.dead_letter(self, queue, run, low, high, reason, transit)
        is_again = transit is not None and transit.names is not None
        if self.tracer is not None and queue.dead_letters and gone[0] and not is_again:
            self.work_left -= self.tracer.dead_lettered(queue.record, run, low, low + gone[0], reason)
        return gone

    def keep_dead_letters(self, queue: LeaderQueue, run: Run, low: int, high: int, reason: str) -> None:
        dead_lettering.keep_dead_letters(self, queue, run, low, high, reason)

    # Memory and shortage

    def measure(self) -> None:
        """Called every `congestion.MEASURE_S`."""
        self.shares.share = None
        self.to_dispatch.add_all(self.congestion.measure())

    def _unblock(self) -> None:
        self.later(unblocking(list(self.connections.values())))

    def log(self, event: str, **fields: Any) -> None:
        self.services.log(event, fields)


def _edges_of(node: Node) -> RemoteEdges:
    cluster, serving = node.cluster, node.sources.serving

    def led_in(source: int) -> int:
        return node.journal.led_sources[source].epoch if source in serving else 0

    return RemoteEdges(cluster.node, cluster.sessions, lambda: node.now_ms, node.reported, led_in)


def _awaits(connection: ConnectionBase, lane: Lane) -> bool:
    """A confirm of it does."""
    return any(each.confirms is not None and each.confirms.awaits(lane) for each in connection.channels.values())


def _publishes(connection: ConnectionBase, lane: Lane) -> bool:
    """It published to a queue of the lane, and waits."""
    return any(queue.lane is lane for queue in connection.intake.congested)
