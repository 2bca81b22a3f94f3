"""The broker: builds all components, wires them, runs them, and ends them in order.

What comes in: settings, and what asks for the end. What goes out: nothing; `serve` returns after the drain,
or raises the failure that stops the node.
Rules: 1. Ports are bound before the data directory is touched, and listen only when everything is recovered. 2. The
nursery tree mirrors ownership: what fails takes the node with it. 3. The drain: stop accepting, end the face, close
clients with 320, flush the metadata store and the journal. 4. The audit log ends last, when nothing that it records
can happen any more. 5. A start that is to end is broken off where it is, as a crash there would be. 6. All steps of
the end have one bound together, `drain_timeout_s`: clients have half of what is left when they are told, so that
what they leave can be flushed; what a thread does is waited for, in small steps.
Not here: signals and exit codes (`commands/serve.py`), the end of a process that hangs (`process/signals.py`).
"""

from __future__ import annotations

import itertools
import math
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import structlog
import trio

from amqpd.audit.files.log import AuditLog
from amqpd.backup.running import Backups
from amqpd.cluster.place import Place, place_of, require_own_certificate
from amqpd.cluster.runner import ClusterRunner
from amqpd.config import Settings
from amqpd.datadir.disk_reason import disk_reason
from amqpd.datadir.only_one import claimed
from amqpd.datadir.opening import opened
from amqpd.errors import NodeFailure
from amqpd.journal.buffer import JournalBuffer
from amqpd.journal.sqlite.schema import INCARNATION, SOURCE
from amqpd.journal.writer import BacklogReader, JournalWriter
from amqpd.management.assembly import all_commands, behind_of, peer_rows
from amqpd.management.attention.gathering import status_of
from amqpd.management.control import metadata_commands
from amqpd.management.control.socket import ControlServer
from amqpd.management.face import Face
from amqpd.management.figures.node_facts import NodeFacts
from amqpd.management.figures.overview import overview
from amqpd.management.figures.sampling import Sampler, run_measurements
from amqpd.management.metadata.slow_expressions import tell_given_up
from amqpd.management.running import Running
from amqpd.methods import METHODS
from amqpd.node.cluster import Cluster
from amqpd.node.node import Node
from amqpd.node.orphans import done_with
from amqpd.process.alarms import ShortageWatch
from amqpd.process.clock import SteadyClock
from amqpd.process.garbage import collect_garbage
from amqpd.process.memory import return_free_memory
from amqpd.process.node_settings import NODE_NAME, limits_of, server_properties, with_node_name
from amqpd.process.notify import announce_ready, notify_stopping
from amqpd.process.opening import OpenNode, open_node
from amqpd.process.services import BrokerServices
from amqpd.process.signals import Stop
from amqpd.process.spans import Spans, spans_of
from amqpd.process.supervision import supervised
from amqpd.pump import Pump
from amqpd.replication.replica import Write
from amqpd.scrub import scrub_of
from amqpd.security.access import Access
from amqpd.security.authentication.logins import WAIT_MAX_S, Logins
from amqpd.security.sasl import certificate_user
from amqpd.session.handshake import SHUTDOWN
from amqpd.session.ports import ConnectionBase
from amqpd.session.services import Read
from amqpd.topology.metadata.bootstrap import bootstrap
from amqpd.topology.metadata.claiming import claim, take_name
from amqpd.topology.metadata.sync import TopologySync
from amqpd.topology.metadata.tombstones import DROPPED_IN_CLUSTER_MAX, forget_old
from amqpd.topology.state import Topology
from amqpd.transport.listeners import Listener, close_listeners, connections_possible, open_listeners, start_listening
from amqpd.transport.readiness import busy_wait_s
from amqpd.transport.tls import server_context, tell_exposed_key
from amqpd.vocabulary.identity import Identity
from amqpd.vocabulary.journal_numbers import tombstones_of
from amqpd.vocabulary.records import Change, Put

# The pump computes between its system calls, and the journal's thread needs the interpreter a few times in each
# commit: with Python's 5 ms a confirm waits for that several times over. At a tenth of it throughput was the same.
SWITCH_INTERVAL_S = 0.0005
# Of what is left of `drain_timeout_s` when clients are told: most answer at once, and who does not, never will.
CLIENTS_SHARE = 0.5

# At the end, for a store over a network, twice: one that does not answer now has what it lacks from its leases.
STORE_S = 1.0

FIRST_INCARNATION = 1
"""the index of the transaction with which the first start in a data directory begins"""

log = structlog.get_logger(component="broker")


async def serve(settings: Settings, stop: Stop, *, accept_loss: bool = False, face: Face | None = None) -> None:
    """Run a broker until `stop` is asked for, then drain it. `accept_loss`: also on files that have less than they
    once promised. `face`: another way in for operators. Raises StartupError before it accepts, NodeFailure after."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    with stop.start:
        await _run(settings, stop, accept_loss=accept_loss, face=face)
    if stop.start.cancelled_caught:
        log.info("stopped before it served anybody")


async def _run(settings: Settings, stop: Stop, *, accept_loss: bool, face: Face | None) -> None:
    spans = spans_of(settings)
    listeners = open_listeners(settings)
    try:
        if face is not None:
            face.bind()
        tls = server_context(settings.tls) if settings.tls.enabled else None
        tell_exposed_key("tls.key", settings.tls.key or settings.tls.certificate)
        if settings.cluster_store_certificate is not None:
            tell_exposed_key("cluster_store_key", settings.cluster_store_key or settings.cluster_store_certificate)
        place = place_of(settings)
        with _Found(settings) as this:
            async with open_node(settings, accept_loss=accept_loss, found=this.found) as opened_node:
                named = this.settings
                if named is not settings:
                    spans = spans_of(named)
                if place is not None:
                    require_own_certificate(place, named)
                broker = Broker(named, opened_node, place, face, spans)
                await opened(broker.recover(), settings.data_dir)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(opened_node.watch_directory, stop.requested)
                    await broker.run(listeners, tls, stop)
                    nursery.cancel_scope.cancel()
    except BaseException as error:
        if (reason := disk_reason(error, settings.data_dir)) is None:
            raise
        raise NodeFailure(reason) from error
    finally:
        close_listeners(listeners)
        if face is not None:
            face.close()


class _Found(ExitStack):
    """The identity and the name of this node by its disk, claimed: no other process on this machine has them."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = self._given = settings
        """with the name that counts, when the disk was found"""
        self._told: tuple[str, ...] = ()

    def found(self, names: Mapping[str, str]) -> None:
        """What the journal calls itself, read from its file or when it is open; the last word counts. Raises
        StartupError."""
        told = (names["identity"], names.get(NODE_NAME, ""), names.get(INCARNATION, ""))
        if told == self._told:
            return
        self.close()  # a claim on what was read from the file alone
        self.settings = named = with_node_name(self._given, names, self._given.data_dir)
        name = "" if named.cluster_store else named.node_name
        self.enter_context(claimed(names["identity"], named.data_dir, name))
        self._told = told


class Broker:
    """One node, from what is on its disk to its ports."""

    def __init__(
        self, settings: Settings, opened_node: OpenNode, place: Place | None, face: Face | None, spans: Spans | None
    ) -> None:
        self._settings = settings
        self._spans = spans
        self._place = place
        self._face = face
        self._opened = opened_node
        self._pair = pair = opened_node.pair
        self._disk, self._store = pair.disk, pair.store
        self._disk.note(**{NODE_NAME: settings.node_name})  # with the transaction that comes next
        self._topology = Topology()
        patience_s = max(WAIT_MAX_S, 3 * settings.handshake_timeout_s)
        self._logins = Logins(self._topology, settings.loopback_users, patience_s)
        self._services = BrokerServices(self._logins)
        self._connection_numbers = itertools.count(1)

    async def recover(self) -> None:
        """Everything that is on disk, back into the node."""
        recovered = await trio.to_thread.run_sync(self._disk.recover)
        await bootstrap(self._store, self._settings.events.published_in)  # of this incarnation, on several disks too
        self._clock = clock = SteadyClock(self._pair.last_ms)
        index = await self._pair.begin(clock.ms)
        identity = Identity(self._settings.node_name, self._disk.names["identity"], index, SOURCE)
        audit = self._settings.audit.model_copy(update={"node": self._settings.audit_node})
        self._audit = AuditLog(self._opened.directory, audit, clock.us, self._audit_full)
        journal = JournalBuffer(index)
        self._writer = self._make_writer(journal)
        self._cluster = self._make_cluster(journal)
        self.node = Node(
            self._services,
            self._topology,
            Access(self._topology),
            journal,
            limits_of(self._settings),
            METHODS,
            server_properties(self._settings),
            identity,
            self._audit.recorder,
            self._audit.coverage,
            None if self._spans is None else self._spans.tracer(clock.us),
            self._cluster or Cluster(identity.name if self._settings.cluster_store else ""),
        )
        self.node.connection_left = self._connection_left
        self._sync = TopologySync(self._store, self._topology, self._applied, strict=not self._settings.cluster_store)
        self._reader = BacklogReader(self._disk)
        self.node.now_ms = clock.ms()
        self.pump = Pump(
            self.node,
            connections_possible(self._settings),
            lambda: f"c{next(self._connection_numbers)}-{self._services.token()}",
            lambda certificate: certificate_user(certificate, self._settings.tls.login_from),
            self._read,
            self._writer.want_commit,
            clock.ms,
            self._alone,
            busy_wait_s(self._settings.busy_wait_us),
            self._writer.commit_now,
            self._audit.writer.sink.record,
            waits_here=self._cluster is None,
        )
        if self._cluster is not None:
            self._cluster.start(self.node, self.pump.run_effects)
        self.node.recover(recovered)
        await self._sync.start()
        if self._settings.cluster_store:
            await self._claim()
        dropped = await self._store.dropped_queues()
        self.node.recovery_ended(dropped, self._pair.suspect)
        self._tell_of_emptied_queues(index)
        # At a later start, when no journal has anything of it: neither this one nor, in a cluster, another node's.
        done = done_with(dropped, tombstones_of(identity.id, recovered.queues))
        keep = DROPPED_IN_CLUSTER_MAX if self._cluster is not None else 0
        self._forgets = partial(forget_old, self._store, done if len(dropped) > keep else (), keep)
        if self._cluster is None:  # before a virtual host is deleted again: it has the same number
            await self._forgets()
        await self._pair.note()
        await self._store.keep_copies()
        self._audit.begin(self.node, shared=bool(self._settings.cluster_store))
        # Not before: what expired while the broker did not run leaves its queue now, and the books have to see it.
        self.pump.run_effects()
        log.info(
            "recovered",
            vhosts=len(self._topology.vhosts),
            queues=len(self.node.ports),
            messages=sum(queue.ready_count for queue in self.node.queues.values()),
        )

    async def _claim(self) -> None:
        """What the journal has messages of is this node's, before another one takes it. Nodes without links to each
        other never know when all of them have been started: the first one has the rest."""
        node = self.node
        if self._cluster is None:
            await take_name(self._store, node.identity.name, node.identity.id, self._sync.lease)
        ours = node.registry.to_claim() if self._cluster is not None else node.registry.classic_of("")
        if claimed := await claim(self._store, ours, self.node.sources.node):
            puts = [Put(record) for record in claimed]
            self._topology.apply(puts)
            self._applied(puts)
            log.info("queues_claimed", queues=len(claimed))

    def _tell_of_emptied_queues(self, index: int) -> None:
        """The data directory is new, and the cluster has classic queues of this node from before. `index`: with which
        this incarnation of the journal began."""
        if index != FIRST_INCARNATION or not self._settings.cluster_store:
            return
        before = sum(queue.record.durable and not queue.quorum for queue in self.node.queues.values())
        if before:
            log.error(
                "classic queues of this node are empty",
                queues=before,
                reason="this data directory is new: what was in them was in another one, which was emptied, replaced "
                "or not mounted",
                remedy="if that one can be had back, stop this node, put that one in its place, and start it again",
            )

    def _make_writer(self, journal: JournalBuffer) -> JournalWriter:
        return JournalWriter(
            journal,
            self._disk,
            self._durable,
            # A commit found no space; the watch of free space is the disk alarm's other source.
            partial(self._alarm, "disk", source="journal"),
            self._pair.full,
            left_to_caller=lambda: self.pump.takes_commit(),
            cut=self._cut,
            alone=lambda: self._cluster is not None and self._alone(),
            on_unusable=self._unusable,
        )

    def _make_cluster(self, journal: JournalBuffer) -> ClusterRunner | None:
        """None: no other node has a link to this one."""
        if self._place is None:
            return None
        return ClusterRunner(journal, self._disk, self._writer, self._store, self._settings, self._place)

    async def run(self, listeners: list[Listener], tls: Any, stop: Stop) -> None:
        """Accept and serve until `stop`, then drain."""
        if self._cluster is not None and self._cluster.knowledge.matters:
            self.pump.look_current = self._cluster.revisions.revisions.look
        self.node.event_exchange.start(self._settings.events.published_in)
        self._backups = Backups(
            self.node, lambda: self._disk.path.parent, self._settings.disk_free_bytes_min, self._disk.sharing
        )
        self._scrub = scrub_of(self._settings, self.node, self._opened.scan, self._reader, self.pump.run_effects)
        on = Running(self.node, self.pump.run_effects)
        peers = peer_rows(self._cluster)
        commands = all_commands(
            on,
            self._reader,
            self._opened.directory,
            {
                "refresh": self._refresh,
                **metadata_commands.handlers(self._store),
                "status": self._status,
                **(self._cluster.handlers if self._cluster is not None else {}),
                "scrub": self._scrub.asked,
                **self._audit.handlers,
            },
            {**self._backups.streams, **metadata_commands.streams(self._store)},
            self._cluster,
            peers,
        )
        self._alarms = ShortageWatch(self._settings, self._alarm, self.node.disk_space.told, self._opened.free_bytes)
        self._sampler = sampler = Sampler(self.node, lambda: self.node.now_ms, lambda: self._alarms.seen)
        addresses = [(each.host, each.port, each.tls) for each in listeners]
        http = self._face.addresses if self._face is not None else []
        places = (str(self._settings.data_dir), self._settings.config_file)
        facts = NodeFacts(on, self._figures, sampler.of_node, addresses, http, *places)
        parts = (on, self._reader, self._store, self._sync, self._logins, self._figures, addresses, facts, sampler)
        self._behind = behind_of(*parts, commands, self._cluster, peers)
        async with trio.open_nursery() as recording:
            recording.start_soon(supervised, self._audit.run, "audit log", self.node.faults)
            if self._spans is not None:
                recording.start_soon(supervised, self._spans.run, "spans", self.node.faults)
            flushed = await self._serve(ControlServer(commands), listeners, tls, stop)
            recording.cancel_scope.cancel()
        await self._audit.end(flushed, self._stop_by - trio.current_time())
        if self._spans is not None:
            await self._spans.end(self._stop_by)
        log.info("stopped")

    async def _serve(self, control: ControlServer, listeners: list[Listener], tls: Any, stop: Stop) -> bool:
        """True: when it stopped, everything was on disk in time."""
        async with trio.open_nursery() as nursery:
            self._services.start(self._sync, nursery, self.pump.run_effects)
            for task in (self._sync.run, self._writer.run, self._reader.run, self.pump.run, self._backups.run):
                nursery.start_soon(task)
            self._alarms.look()  # so that a broker on a full disk blocks publishers from the first one on
            beside: dict[str, Callable[[], Awaitable[object]]] = {
                "timers": self.pump.run_timers,
                "wakes": self.pump.run_wakes,
                "garbage": partial(collect_garbage, self.node),
                "free memory": return_free_memory,
                "measurements": partial(run_measurements, self.node, self.pump.run_effects),
                "samples": self._sampler.run,
                "expressions": tell_given_up,
                "alarms": self._alarms.run,
                "clock": self._clock.watch,
                "notes of the pair": partial(self._pair.run, self._writer.threads),
                "scrub": self._scrub.run,
                "disks": self._opened.watch_disks,
            }
            if self._cluster is not None:
                # Of the whole cluster they may be many: clients do not wait for that.
                beside["old deletions"] = self._forgets
            if self._behind.peers is not None:
                beside["answers of other nodes"] = self._behind.peers.run
            for name, each in beside.items():
                nursery.start_soon(supervised, each, name, self.node.faults)
            await nursery.start(self._opened.run_control, control)
            if self._cluster is not None:
                await nursery.start(self._cluster.run)
            await trio.lowlevel.checkpoint_if_cancelled()  # from here on a signal asks for a drain
            stop.serves = True
            start_listening(listeners)
            for listener in listeners:
                self.pump.acceptor.add(listener.socket, tls if listener.tls else None)
            if self._face is not None:
                self._face.listen()
                run_face = partial(self._face.run, self._behind)
                nursery.start_soon(supervised, run_face, "http", self.node.faults)
            http = self._face.addresses if self._face is not None else []
            announce_ready(
                node=self.node.identity.name,
                listening=[listener.address for listener in listeners],
                tls=[listener.address for listener in listeners if listener.tls],
                http=http,
                data_dirs=self._settings.directories,
            )
            await stop.requested.wait()
            notify_stopping()
            self._stop_by = trio.current_time() + self._settings.drain_timeout_s
            # Not only when it is its turn: what is converted in a thread is not ended in the middle.
            self._audit.writer.hurry(self._settings.drain_timeout_s)
            stop.on_disk = flushed = await self._drain()
            nursery.cancel_scope.cancel()
        self.pump.close()
        return flushed

    async def _drain(self) -> bool:
        timeout_s = self._settings.drain_timeout_s
        log.info("draining", connections=self.pump.link_count, timeout_s=timeout_s)
        self.node.draining = True
        self.pump.acceptor.stop()
        if self._face is not None:
            # Before anything is flushed: what it was asked to change is in there, or was refused.
            with trio.move_on_at(self._stop_by):
                await self._face.end()
        if self._cluster is not None:
            # Before clients are told to go: they find another leader of their queues at once.
            with trio.move_on_at(self._stop_by):
                await self._cluster.hand_over()
        now = trio.current_time()
        with trio.move_on_at(now + (self._stop_by - now) * CLIENTS_SHARE):
            for connection in list(self.node.connections.values()):
                connection.guard(partial(connection.force_close, SHUTDOWN))
            self.pump.run_effects()
            await self.pump.wait_empty()
        left = self.pump.link_count
        self.pump.end()
        with trio.move_on_at(self._stop_by) as flushing:
            # What the end of connections deleted, then what that, and everything before, left to write.
            shared_s = STORE_S if self._settings.cluster_store else math.inf
            with trio.move_on_after(shared_s) as asking:
                await self._sync.flush()
            await self._writer.flush()
            with trio.move_on_after(shared_s):
                await self._pair.note(self._writer.threads, ends=True)
                await self._store.keep_copies()
        flushed = not (flushing.cancelled_caught or asking.cancelled_caught)
        tell = log.info if flushed else log.warning
        tell("drained", connections_cut=left, flushed=flushed)
        return flushed

    def _alone(self) -> bool:
        """No other task than the one that asks has anything to do, and none waits for a thread: it would not learn
        of that one's end while the pump waits. Except tasks that trio has already begun to go through in this round:
        they are not counted, and get their turn when the one that asks lets go."""
        limiters = (
            self._writer.threads,
            self._reader.threads,
            self._store.threads,
            self._audit.writer.threads,
            trio.to_thread.current_default_thread_limiter(),
        )
        return not (
            any(limiter.borrowed_tokens for limiter in limiters) or trio.lowlevel.current_statistics().tasks_runnable
        )

    # What the other components tell

    def _applied(self, changes: Sequence[Change]) -> None:
        self._pair.applied(self._sync.revision)
        self.node.applied(changes)
        if self._cluster is not None:
            self._cluster.revisions.has_news()
        if not self.node.books.recovering:
            self.pump.run_effects_of_changes(len(changes))

    def _unusable(self, sources: dict[int, str]) -> None:
        assert self._cluster is not None  # there are other nodes' sources in a cluster only
        self._cluster.unusable(sources)

    def _cut(self, index: int, payloads: dict[int, bytes]) -> list[Write]:
        assert self._cluster is not None  # nobody else makes this node the leader of a source
        return self._cluster.cut(index, payloads)

    def _durable(self, index: int) -> None:
        self.node.reported(self.node.journal.lane)
        if self._cluster is not None:
            self._cluster.stored(index)
        self.pump.run_effects()

    def _read(self, reads: list[Read]) -> None:
        for read in reads:
            self._reader.read(
                read.request.queue_id, read.request.first, read.request.last, partial(self._loaded, read)
            )

    def _loaded(self, read: Read, rows: list[Any]) -> None:
        self.node.loaded(read.queue, read.request, rows)
        self.pump.run_effects()

    def _alarm(self, kind: str, on: bool, source: str = "watch") -> None:
        if self.node.alarms.put(kind, source, on, time.time()):
            self.pump.run_effects()

    def _audit_full(self, full: bool) -> None:
        """The audit log cannot be written, and publishers are to wait for it."""
        self._alarm("audit", full, "audit log")

    def _connection_left(self, connection: ConnectionBase) -> None:
        self.node.acts.closed(connection)
        self._audit.counts.left(connection)

    # Commands of the control socket

    async def _refresh(self, _: dict[str, Any]) -> dict[str, Any]:
        with metadata_commands.store_refusals():
            await self._sync.refresh()
        return {"revision": self._sync.revision}

    async def _status(self, _: dict[str, Any]) -> dict[str, Any]:
        clock = {"clock_ahead_s": round(self._clock.ahead_s())}
        found = await status_of(self._behind, self._cluster is None or self._cluster.forwarder is not None)
        incarnation = None if self._cluster is None else self._cluster.incarnation
        # In a cluster it has another number than the journal's, the one that is in the store.
        mine = {} if incarnation is None else {"incarnation": incarnation}
        return {**overview(self.node), **mine, **found, **clock, **self._opened.facts(), **self._side_facts()}

    def _figures(self) -> dict[str, Any]:
        directories = self._opened.directory_rows()
        audit = self._audit.writer.status()
        return {**self._alarms.facts(), "audit": audit, "directories": directories, **self._side_facts()}

    def _side_facts(self) -> dict[str, Any]:
        spans = {} if self._spans is None else {"spans": self._spans.facts()}
        sync = self._sync
        cluster = {} if self._cluster is None else {"cluster": self._cluster.facts(sync.unreadable, sync.is_refused)}
        return {"scrub": self._scrub.facts(), **spans, **cluster}
