"""Runs a forwarder's place in the cluster: links, the store's half, reads of the own disk, the beat.

What comes in: settings, the journal and its disk; then the node. What goes out: the cluster, as the node asks it;
sources that the node serves.
Rules: 1. Everything that changes the forwarder's state happens on the loop, in one call; what takes time is a task
that comes back with its result. 2. After each call the node acts on what that made necessary. 3. It is made before
the node, which is given it; `start` gives it the node before anything is asked.
Not here: what the forwarder does (`forwarder.py` and below), sockets (`links/`), the store (`directory.py`), what
goes over data links (`data_links.py`).
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import structlog
import trio

from amqpd import __version__
from amqpd.cluster import incarnations
from amqpd.cluster.data_links import DataLinks
from amqpd.cluster.deleted_queues import Deletions, drop_deleted
from amqpd.cluster.directory import Directory
from amqpd.cluster.forgotten_starts import forgotten_start_sentence, recent_starts
from amqpd.cluster.forwarder import Forwarder
from amqpd.cluster.led_replica_set import SourceLeadership
from amqpd.cluster.link_reports import LinkReports
from amqpd.cluster.log_events import LogEvents
from amqpd.cluster.overview import store_sentences, unreadable_rows
from amqpd.cluster.own_disk import OwnDisk, replicas_of
from amqpd.cluster.place import Place
from amqpd.cluster.queries import Queries
from amqpd.cluster.records import DesiredSetRecord, MemberRecord, source_of_key
from amqpd.cluster.revision_runner import RevisionRunner
from amqpd.cluster.roster import Changed, Roster
from amqpd.cluster.search import SourceSearch
from amqpd.cluster.sessions import Sessions
from amqpd.cluster.shell import LeaderLink, OwnLog, ProcessIdentity, Shell
from amqpd.cluster.unclaimed_queues import UnclaimedQueues
from amqpd.cluster.view import NodeClusterView
from amqpd.config import Settings
from amqpd.journal.buffer import JournalBuffer
from amqpd.journal.lane import Lane
from amqpd.journal.records import Recovered
from amqpd.journal.sqlite.node_disk import NodeDisk
from amqpd.journal.writer import JournalWriter
from amqpd.node.cluster import Cluster, WantedSource
from amqpd.node.node import Node
from amqpd.peers.entry import LogEntry, Position
from amqpd.peers.links.link import PeerLink
from amqpd.peers.links.links import Links
from amqpd.peers.messages import FROM_ACCEPTOR, Hello, Message, Page, Query, SnapshotPart
from amqpd.peers.versions import HAS_DATA_LINKS, HIGHEST
from amqpd.replication.replica import Write
from amqpd.replication.take_over import SourceRecord
from amqpd.topology.metadata.store import MetadataStore, StoreUnavailable, StoreUnreached
from amqpd.vocabulary.store_address import parse_store_address

BEATS = 20
"""in a lease time"""
GATHERED_BYTES_MAX = 64 << 20
"""Of what leaders have sent while one transaction is on its way to the disk: then they are not heard until it is on
it. As much as a link may have to send."""
STORE_AGAIN_S = 0.5
HAND_OVER_S = 1.0
"""for each step of the end that waits for others"""

log = structlog.get_logger(component="cluster")


class ClusterRunner(Shell, Cluster):
    """Runs one process's part in the cluster: its links, swaps in the store, reads of the disk, and its beat."""

    def __init__(
        self,
        journal: JournalBuffer,
        disk: NodeDisk,
        writer: JournalWriter,
        store: MetadataStore,
        settings: Settings,
        place: Place,
    ) -> None:
        super().__init__(settings.node_name)
        self._journal = journal
        self._deletions = Deletions(store)
        self._disk = disk
        self._writer = writer
        self._store = store
        self._own = OwnDisk(disk, journal, writer)
        self._settings = settings
        self._place = place
        keep = partial(incarnations.keep, disk, writer.threads)
        claim = incarnations.of(disk)
        self._directory = Directory(store, self._me(), claim, keep, self._changed, lease_s=settings.cluster_lease_s)
        self._events = LogEvents(_write, lambda: self.now_s)
        self.forwarder: Forwarder | None = None
        """None until this is a member"""
        self._dialed: dict[str, PeerLink] = {}
        self._incoming: dict[PeerLink, LeaderLink] = {}
        self.queries = Queries(self._dialed, lambda *task: self._nursery.start_soon(*task))
        """what operators ask of other nodes"""
        self._link_reports = LinkReports(
            self._directory, settings.cluster_lease_s, lambda task: self._nursery.start_soon(task)
        )
        self.data_links = DataLinks(self._do, lambda: journal.full, self._data_link_closed, BEATS)
        """what sessions of remote queues go over"""
        self.sessions = self._sessions = Sessions(self.node, self.data_links, self, settings.cluster_remote_queues)
        self.revisions = RevisionRunner(settings, store, self._directory, self._do)
        self.data_links.revisions = self.knowledge = self.revisions.revisions
        self._paused: set[PeerLink] = set()
        """their leaders have sent more than the disk takes"""
        self._members: dict[str, int] = {}
        self._news: trio.Event | None = None
        """somebody waits until something has happened"""
        self._links: Links
        self._nursery: trio.Nursery
        self._node: Node
        self._run_effects: Callable[[], None]
        self.search: SourceSearch
        self._unclaimed_queues = UnclaimedQueues()

    def start(self, node: Node, run_effects: Callable[[], None]) -> None:
        """`run_effects` has the node act on what a call made necessary."""
        self._node = node
        self._run_effects = run_effects
        self._sessions.start(node)
        self.revisions.start(node)
        self.search = SourceSearch(
            self._directory,
            self._settings.cluster_copies,
            lambda: self.now_s,
            lambda task: self._nursery.start_soon(task),
            lambda source: source in self._forwarder.led_sources.sources,
            self._created,
            node.sources,
            lambda: self._link_reports.linkage,
            self._dialed.__contains__,
        )

    # Cluster

    @property
    def replicates(self) -> bool:
        return True

    def is_member(self, node: str) -> bool:
        return node in self._roster_seen().members

    def leader_of(self, source: int) -> str:
        return self._directory.roster.leader_of_source(source)

    def is_moving(self, source: int) -> bool:
        return self.forwarder is not None and self.forwarder.is_moving(source)

    def holds_lease(self, source: int) -> bool:
        return self.forwarder is not None and self.forwarder.led_sources.holds_lease(source)

    def isolation(self) -> str:
        return self._link_reports.isolated

    def cut_off_count(self) -> int:
        led_sources = None if self.forwarder is None else self.forwarder.led_sources
        return 0 if led_sources is None else len(led_sources.cut_off) + len(led_sources.given_up)

    def source_for(self, wanted: WantedSource) -> int:
        return self.search.choose(wanted)

    def want_source(self, wanted: WantedSource, answer: Callable[[bool], None]) -> None:
        self.search.want(wanted, answer)

    def report_unknown_queues(self, source: int) -> None:
        own = self._forwarder.led_sources.sources.get(source)

        def is_leader() -> bool:
            return own is not None and self._forwarder.led_sources.sources.get(source) is own

        self._nursery.start_soon(drop_deleted, self._deletions, self._node, source, is_leader, self._run_effects)

    def report_remote_queue(self, node: str) -> None:
        self._unclaimed_queues.look()

    def _me(self) -> MemberRecord:
        settings = self._settings
        host, port = self._place.reached_at
        return MemberRecord(
            settings.node_name, 0, 0, host, port, settings.cluster_label, settings.cluster_region, __version__
        )

    @property
    def _forwarder(self) -> Forwarder:
        assert self.forwarder is not None
        return self.forwarder

    # Shell

    @property
    def now_s(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    @property
    def revision(self) -> int:
        return self._directory.roster.revision

    @property
    def heard_revision(self) -> int:
        return self._directory.roster.heard_revision

    def catch_up_with_store(self) -> None:
        async def refreshing() -> None:
            try:
                with trio.move_on_after(self._settings.cluster_lease_s):
                    await self._directory.refresh()
            except StoreUnavailable as error:
                log.warning("the metadata store does not answer", reason=str(error))

        self._nursery.start_soon(refreshing)

    def send(self, peer: str, message: Message) -> None:
        link = self._dialed.get(peer)
        if link is not None:
            link.send(message)

    def swap(self, record: SourceRecord, answered: Callable[[SourceRecord | None], None]) -> None:
        async def swapping() -> None:
            try:
                found = await self._directory.swaps.swap(record)
            except StoreUnreached as error:
                self._forwarder.counters.swaps_unanswered += 1
                self.log("swap_unanswered", source=record.source, reason=str(error))
                await trio.sleep(STORE_AGAIN_S)  # it may be asked for again at once
                found = None
            self._do(partial(answered, found))

        self._nursery.start_soon(swapping)

    def read_log(self, source: int, after: Position, answered: Callable[[list[LogEntry]], None]) -> None:
        self._answer(partial(self._own.log_entries, source, after), answered)

    def read_own(self, source: int, answered: Callable[[OwnLog], None]) -> None:
        self._answer(partial(self._own.own_log, source, self._forwarder.base_of(source)), answered)

    def read_state(
        self,
        link: str | LeaderLink,
        state: SnapshotPart,
        sends: Callable[[SnapshotPart], bool],
        failed: Callable[[], None],
    ) -> None:
        self._nursery.start_soon(self._own.send_state, state, sends, failed, partial(self._wait_capacity, link))

    async def _wait_capacity(self, taker: str | LeaderLink) -> None:
        """Returns when the link takes more."""
        if isinstance(taker, str):
            link = self._dialed.get(taker)
        else:
            link = next((link for link, incoming in self._incoming.items() if incoming is taker), None)
        if link is not None:
            await link.wait_capacity()

    def served(self, source: int) -> None:
        own = self._forwarder.led_sources.sources[source]
        self._answer(partial(self._own.queues_of, source), partial(self._serve, source, own))

    def _serve(self, source: int, own: SourceLeadership, recovered: Recovered) -> None:
        # Of another epoch of this forwarder, what was read is out of date.
        if self._forwarder.led_sources.sources.get(source) is own and not self._forwarder.stops(source):
            self._node.source_begins(source, recovered, own.take_handed())
            lasted_s = self.now_s - own.begun_s
            self.log(
                "source_served",
                source=source,
                epoch=own.vote.epoch,
                queues=self._node.sources.queues[source],
                duration_ms=round(lasted_s * 1000),
            )
            self._look_for_sources()

    def _look_for_sources(self) -> None:
        for answer in self.search.look():
            answer(True)

    def ended(self, source: int, lane: Lane) -> None:
        self._node.source_ends(source, lane)

    def cut_off(self, lanes: list[Lane]) -> None:
        self._node.cut_off(lanes)

    def stops(self, source: int) -> None:
        log.info("source stops, to be handed over", source=source)
        self._node.source_stops(source)

    def handed_sessions(self, source: int) -> bytes:
        return self._node.remote_sessions.handed(source)

    def put_desired_set(self, desired_set: DesiredSetRecord) -> None:
        self._nursery.start_soon(self._directory.swaps.desire, desired_set)

    def drop_desired_set(self, desired_set: DesiredSetRecord) -> None:
        self._nursery.start_soon(partial(self._directory.swaps.desire, desired_set, drop=True))

    def log(self, event: str, **fields: Any) -> None:
        self._events.log(event, fields)

    def _answer(self, ask: Callable[[], Awaitable[Any]], answered: Callable[[Any], None]) -> None:
        async def asking() -> None:
            self._do(partial(answered, await ask()))

        self._nursery.start_soon(asking)

    def _do(self, what: Callable[[], None]) -> None:
        what()
        self._run_effects()
        if self._news is not None:
            self._news.set()
            self._news = None

    def facts(self, unreadable: Sequence[str] = (), store_silent: bool = False) -> dict[str, Any]:
        """For an operator (`statistics.py`), which nodes are members, and what in the store cannot be read; without
        any before this is one. `unreadable`: sentences about the topology; `store_silent`: the store does not
        answer."""
        if self.forwarder is None:
            return {}
        roster = self._roster_seen()
        damage = [*(row["says"] for row in unreadable_rows(roster)), *unreadable]
        replaced = self._directory.store_replaced
        return {
            "members": sorted(roster.members),
            "unreadable": damage,
            "store_silent": not replaced and (store_silent or self._directory.silent_s > 0),
            "store_replaced": [replaced] if replaced else [],
            **self.forwarder.statistics().facts(),
            **self.data_links.facts(),
            **self._sessions.figures(),
        }

    @property
    def incarnation(self) -> int | None:
        return None if self.forwarder is None else self._directory.me.incarnation

    def view(self) -> NodeClusterView:
        """As of now. Only of a member."""
        roster, copies, directory = self._roster_seen(), self._settings.cluster_copies, self._directory
        lapsed = roster.members.keys() - directory.roster.members.keys()
        of_store = store_sentences(directory.silent_s, lapsed, directory.store_replaced)
        linkage, link_state = self._link_reports.linkage, self._link_state
        classic = self._node.registry.other_nodes()
        of_data = [*self.data_links.sentences(), *self._sessions.sentences()]
        return NodeClusterView(
            self._forwarder, roster, copies, linkage, link_state, _now_ms(), of_store, classic, of_data
        )

    def _roster_seen(self) -> Roster:
        """As the store has it; while that is silent, and shortly after, with those whose leases ran out and to which
        this node has a link."""
        directory = self._directory
        roster = directory.roster
        return roster.with_linked({directory.me.name, *self._dialed}) if directory.is_doubtful else roster

    def _link_state(self, name: str) -> str:
        if name in self._dialed:
            return "there is a link to it, over which nothing came in time"
        trouble = self._links.troubles.get(name)
        return (
            f"there is no link to it now: {trouble.reason}" if trouble is not None else "there is no link to it yet"
        )

    @property
    def handlers(self) -> dict[str, Callable[[Any], Awaitable[dict[str, Any]]]]:
        """What the control socket can be asked of the cluster."""

        async def facts(_: Any) -> dict[str, Any]:
            return self.view().quorum_facts()

        return {"quorum facts": facts}

    # The journal

    def stored(self, index: int) -> None:
        """The journal's transactions up to this one are on the own disk."""
        self._own.stored()
        paused, self._paused = self._paused, set()
        for link in paused:
            link.resume()
        self.data_links.look_at_journal()
        if self.forwarder is not None:
            self.forwarder.stored(index)

    def unusable(self, sources: Mapping[int, str]) -> None:
        """What the disk has left out of what leaders sent. Between two transactions: the disk has what it has."""
        found = replicas_of(self._disk)
        for source, reason in sources.items():
            self._forwarder.unusable(found[source], reason)

    def cut(self, index: int, payloads: dict[int, bytes]) -> list[Write]:
        """What the lanes have of this transaction is sent to the peers; what the own disk gets of it."""
        return self._forwarder.led_sources.cut(index, payloads)

    # Links (`LinkEvents`)

    def dialed(self, link: PeerLink) -> None:
        peer = link.peer
        self._dialed[peer.forwarder] = link
        self.revisions.linked(peer.forwarder, link.version)
        self._do(partial(self._forwarder.dialed, peer.forwarder, peer.incarnation, peer.generation, link.version))

    def lost(self, link: PeerLink, why: str) -> None:
        name = link.peer.forwarder
        if self._dialed.get(name) is link:
            del self._dialed[name]
            self._forwarder.counters.links_lost += 1
            self.queries.lost(link)
            self._do(partial(self._forwarder.lost, name))

    def refused(self, name: str) -> None:
        self._forwarder.refused(name)

    def accepted(self, link: PeerLink) -> None:
        incoming = self._incoming[link] = LeaderLink(
            link.peer.forwarder, link.peer.incarnation, link.send, partial(self._close, link)
        )
        self.revisions.linked(link.peer.forwarder, link.version)
        self._forwarder.accepted(incoming)

    def left(self, link: PeerLink) -> None:
        self._paused.discard(link)
        self._forwarder.left(self._incoming.pop(link))

    def received(self, link: PeerLink, message: Message) -> None:
        if isinstance(message, Page):
            self.queries.answered(link, message)
        elif isinstance(message, Query):
            self.queries.asked(link, message)
        elif type(message) in FROM_ACCEPTOR:
            if self._dialed.get(link.peer.forwarder) is link:
                self._do(partial(self._forwarder.answered, link.peer.forwarder, message))
        elif link in self._incoming:
            self._do(partial(self._forwarder.asked, self._incoming[link], message))
            if self._journal.writes_bytes > GATHERED_BYTES_MAX:
                self._paused.add(link)
                link.pause()

    def _knows(self, name: str) -> bool:
        """The store has a forwarder of this name."""
        return name in self._directory.roster.members or name in self._directory.roster.known

    def knows_sessions(self, name: str) -> bool:
        """The node has said over a link that it knows sessions of remote queues."""
        return self.revisions.versions.get(name, 0) >= HAS_DATA_LINKS

    def may_mark(self, source: int) -> bool:
        """All copies of the source read what a leader writes of remote clients (`peers/versions.py`)."""
        own = self._forwarder.led_sources.sources.get(source)
        return own is None or own.replica_set.version >= HAS_DATA_LINKS

    def _close(self, link: PeerLink, why: str) -> None:
        self._forwarder.counters.links_closed += 1
        self.log("link_closed", peer=link.peer.forwarder, reason=why)
        link.close(why)

    def _data_link_closed(self, peer: str, why: str) -> None:
        self.log("link_closed", peer=peer, reason=why, purpose="data")

    # The store

    def _changed(self, changed: Changed) -> None:
        self._unclaimed_queues.look()
        if self.forwarder is None:
            return
        members = self._directory.roster.members
        now = {name: member.incarnation for name, member in members.items()}
        self.forwarder.members_are(now, self._members)
        self._members = now
        self._links.peers_are(self._directory.roster.addresses)
        self.forwarder.desired_sets_are(self._directory.roster.desired_sets)
        for source in changed.sources & self._directory.roster.records.keys():
            self.forwarder.note_record(self._directory.roster.records[source])
        for source in changed.sources - self._directory.roster.records.keys():
            self.forwarder.record_gone(source)
        for key in changed.unreadable & self._directory.roster.unreadable.keys():
            if source := source_of_key(key):
                self.forwarder.record_unreadable(source, self._directory.roster.unreadable[key])
        for each in recent_starts(self._directory.roster, _now_ms()):
            if each.name in changed.forgotten_starts and each.starts == 1:
                self.log("forgotten_asks", says=forgotten_start_sentence(each))
        self._sessions.roster_changed(self._directory.roster)
        self.revisions.roster_changed(self._directory.roster)
        self._look_for_sources()
        self._run_effects()

    def _created(self, record: SourceRecord) -> None:
        self._forwarder.note_record(record)
        self._do(partial(self._forwarder.take_over, record))

    # Tasks

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled. Raises StartupError before it has started."""
        settings, directory = self._settings, self._directory
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await nursery.start(directory.run)
            me = directory.me
            self.forwarder = Forwarder(
                ProcessIdentity(me.name, me.incarnation, me.generation),
                self,
                self._journal,
                replicas_of(self._disk),
                settings.cluster_lease_s,
                random.random,
                self._node.reported,
                fast_takeover=settings.fast_takeover,
                spreads=settings.cluster_rebalance,
            )
            cluster = parse_store_address(settings.cluster_store).name
            hello = Hello(HIGHEST, cluster, me.name, me.incarnation, me.generation)
            listeners, trust = self._place.listeners, self._place.trust
            self._links = Links(hello, self, listeners, trust, knows=self._knows, data_events=self.data_links)
            self.data_links.begin(self._links)
            await nursery.start(self.revisions.run)
            await nursery.start(self._links.run)
            unreadable = frozenset(directory.roster.unreadable)
            self._changed(Changed(sources=frozenset(directory.roster.records), unreadable=unreadable))
            self._do(self._node.remote_sessions.local_source_begins)
            nursery.start_soon(self._beats)
            task_status.started()

    async def _something(self) -> None:
        """Has happened."""
        if self._news is None:
            self._news = trio.Event()
        await self._news.wait()

    async def hand_over(self) -> None:
        """Before the end: queues stop and what is under way is committed, then peers and the store know that this
        node is no leader any more. What does not answer in time is not waited for: the next leaders wait for this
        one's leader lease to end then, as after a loss."""
        forwarder = self.forwarder
        if forwarder is None:
            return
        forwarder.stop_sources()
        self._run_effects()
        with trio.move_on_after(HAND_OVER_S):
            while not forwarder.is_settled:
                await self._something()
        forwarder.leave()
        self._run_effects()
        with trio.move_on_after(HAND_OVER_S):
            while not forwarder.has_left or any(link.out_bytes for link in self._dialed.values()):
                await self._something()
        with trio.move_on_after(HAND_OVER_S):
            await incarnations.end(self._disk, self._directory, self._writer.threads)

    async def _beats(self) -> None:
        while True:
            await trio.sleep(self._settings.cluster_lease_s / BEATS)
            self._look_at_links()
            self.data_links.beat()
            self._do(self.revisions.revisions.beat)
            self._do(self._beat)
            self._events.beat()
            for answer in self.search.late():
                self._do(partial(answer, False))
            self._do(self._look_for_sources)
            if self._unclaimed_queues.begins():
                self._nursery.start_soon(
                    self._unclaimed_queues.claim_share, self._node, self._store, self._directory.roster
                )

    def _beat(self) -> None:
        self._forwarder.beat()
        self._node.leader_moves.look(self._node.now_ms)
        self._node.remote_sessions.beat()

    def _look_at_links(self) -> None:
        before = self._link_reports.linkage
        if not self._link_reports.beat(self._dialed, self._links.troubles, self.now_s):
            return
        me, linkage = self._directory.me.name, self._link_reports.linkage
        self._forwarder.isolated = linkage.isolated
        for name in sorted(linkage.isolated - before.isolated):
            event = "isolated" if name == me else "member_isolated"
            self.log(event, member=name, reason=linkage.why(name), do=linkage.way_out(name))
        for name in sorted(before.isolated - linkage.isolated):
            self.log("isolated_no_more", member=name)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _write(level: str, event: str, fields: dict[str, Any]) -> None:
    getattr(log, level)(event, **fields)
