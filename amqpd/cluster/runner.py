"""Runs a forwarder's place in the cluster: links, the store's half, reads of the own disk, the beat.

What comes in: settings, the journal and its disk, the node. What goes out: sources that the node serves.
Rules: 1. Everything that changes the forwarder's state happens on the loop, in one call; what takes time is a task
that comes back with its result. 2. After each call the node settles what that made necessary.
Not here: what the forwarder does (`forwarder.py` and below), sockets (`links/`), the store (`directory.py`).
"""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import structlog
import trio

from amqpd import __version__
from amqpd.cluster.copies import HomeLink
from amqpd.cluster.directory import Directory, drawn_generation
from amqpd.cluster.forwarder import Forwarder
from amqpd.cluster.links.link import Link
from amqpd.cluster.links.links import Links
from amqpd.cluster.links.sockets import bind
from amqpd.cluster.links.tls import LinkTls, link_tls
from amqpd.cluster.records import SOURCES, MemberRecord
from amqpd.cluster.roster import Changed
from amqpd.cluster.shell import OwnLog, Shell
from amqpd.config import Settings
from amqpd.journal.buffer import FULL_BYTES
from amqpd.journal.lane import Lane
from amqpd.journal.records import Recovered
from amqpd.journal.sqlite.disk import SqliteDisk
from amqpd.journal.sqlite.schema import SOURCE
from amqpd.journal.writer import JournalWriter
from amqpd.node.node import Node
from amqpd.replication import seal as seals
from amqpd.replication.entry import LogEntry, Position
from amqpd.replication.log import Log
from amqpd.replication.messages import FROM_ACCEPTOR, VERSION, Hello, Message
from amqpd.replication.receiver import State
from amqpd.replication.replica import Replica, Replicas, Write
from amqpd.replication.take_over import SourceRecord
from amqpd.topology.metadata.store import MetadataStore, StoreUnreached
from amqpd.vocabulary.endpoint import Endpoint, parse_endpoint
from amqpd.vocabulary.store_address import parse_store_address

BEATS = 20
"""in a lease time"""
WANT_S = 10.0
"""how long a declaration waits for a source to be served here"""
HAND_OVER_S = 1.0
STORE_AGAIN_S = 0.5
FETCH_BYTES_MAX = 1 << 20
PART_S = 0.005
"""between two parts of a state: of some hundred kB"""
GENERATION, LIFE = "generation", "life"
"""what the generation of the disk, and the last life on it, are called among the journal's names"""

log = structlog.get_logger(component="cluster")


class Place(NamedTuple):
    """Where this node listens for others; bound, and not listening yet."""

    listeners: list[socket.socket]
    reached_at: Endpoint
    tls: LinkTls | None


def place_of(settings: Settings) -> Place | None:
    """None: it is in no cluster. Raises StartupError."""
    reached_at = settings.cluster_address
    if reached_at is None:
        return None
    tls = None
    if settings.cluster_tls_ca is not None and settings.cluster_tls_certificate is not None:
        tls = link_tls(settings.cluster_tls_ca, settings.cluster_tls_certificate, settings.cluster_tls_key)
    listeners = bind([parse_endpoint(settings.cluster_listen)])
    if not reached_at.port:
        reached_at = Endpoint(reached_at.host, listeners[0].getsockname()[1])
    return Place(listeners, reached_at, tls)


class ClusterRunner(Shell):
    """Of one process."""

    def __init__(
        self,
        node: Node,
        disk: SqliteDisk,
        writer: JournalWriter,
        store: MetadataStore,
        settle: Callable[[], None],
        settings: Settings,
        place: Place,
    ) -> None:
        self._node = node
        self._disk = disk
        self._writer = writer
        self._settle = settle
        self._settings = settings
        self._place = place
        self._directory = Directory(store, self._me(), self._changed, lease_s=settings.cluster_lease_s)
        self.forwarder: Forwarder | None = None
        """None until this is a member"""
        self._dialed: dict[str, Link] = {}
        self._incoming: dict[Link, HomeLink] = {}
        self._paused: set[Link] = set()
        """of these, those that nothing is read from for now"""
        self._wants: list[tuple[float, Callable[[bool], None]]] = []
        self._members: dict[str, int] = {}
        self._news = trio.Event()
        """something has happened"""
        self._links: Links
        self._nursery: trio.Nursery
        self._reads = trio.CapacityLimiter(1)
        """reads of the own disk"""
        node.sources.clustered = True
        node.sources.home_of = self._home_of
        node.sources.want = self._want

    def _me(self) -> MemberRecord:
        settings = self._settings
        life = max(self._disk.head(SOURCE).epoch, int(self._disk.names.get(LIFE) or 0) + 1)
        generation = int(self._disk.names.get(GENERATION) or drawn_generation())
        host, port = self._place.reached_at
        return MemberRecord(
            *(settings.node_name, life, generation, host, port),
            *(settings.cluster_label, settings.cluster_region, __version__),
        )

    def _home_of(self, source: int) -> str:
        record = self._directory.records.get(source)
        return record.home.forwarder if record is not None else ""

    @property
    def _forwarder(self) -> Forwarder:
        assert self.forwarder is not None
        return self.forwarder

    # Shell

    @property
    def now_s(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def send(self, peer: str, message: Message) -> None:
        link = self._dialed.get(peer)
        if link is not None:
            link.send(message)

    def swap(self, record: SourceRecord, answered: Callable[[SourceRecord | None], None]) -> None:
        async def swapping() -> None:
            try:
                found = await self._directory.swap(record)
            except StoreUnreached as error:
                log.warning("the metadata store does not answer", source=record.source, reason=str(error))
                await trio.sleep(STORE_AGAIN_S)  # it may be asked for again at once
                found = None
            self._do(partial(answered, found))

        self._nursery.start_soon(swapping)

    def read_log(self, source: int, after: Position, answered: Callable[[list[LogEntry]], None]) -> None:
        self._read(partial(self._disk.log_entries, source, after, FETCH_BYTES_MAX), answered)

    def read_own(self, source: int, answered: Callable[[OwnLog], None]) -> None:
        base = self._forwarder.base_of(source)

        def read() -> OwnLog:
            return OwnLog(self._disk.log_entries(source, base, 1 << 62), self._disk.head(source).reserved)

        self._read(read, answered)

    def read_state(self, state: State, sends: Callable[[State], bool]) -> None:
        async def reading() -> None:
            parts = self._disk.state_parts(state.source, state.after, state.base)
            part, first = await self._next(parts), True
            while part is not None:
                following = await self._next(parts)
                if not sends(replace(state, part=part, first=first, last=following is None)):
                    break
                part, first = following, False
                # Not faster than the connection takes them, and what else there is to be sent goes in between.
                await trio.sleep(PART_S)
            self._settle()

        self._nursery.start_soon(reading)

    async def _next(self, parts: Iterator[bytes]) -> bytes | None:
        return await trio.to_thread.run_sync(next, parts, None, limiter=self._reads)

    def served(self, source: int) -> None:
        async def recovering() -> None:
            recovered = await trio.to_thread.run_sync(self._disk.recovered_of, [source], limiter=self._reads)
            self._do(partial(self._serve, source, recovered))

        self._nursery.start_soon(recovering)

    def _serve(self, source: int, recovered: Recovered) -> None:
        if source in self._forwarder.homes.sources:
            self._node.source_begins(source, recovered)
            log.info("source served", source=source, queues=len(recovered.queues))
            wants, self._wants = self._wants, []
            for _, answer in wants:
                answer(True)

    def ended(self, source: int, lane: Lane) -> None:
        log.info("source ended", source=source)
        self._node.source_ends(source, lane)

    def log(self, event: str, **fields: Any) -> None:
        log.info(event, **fields)

    def _read(self, read: Callable[[], Any], answered: Callable[[Any], None]) -> None:
        async def reading() -> None:
            self._do(partial(answered, await trio.to_thread.run_sync(read, limiter=self._reads)))

        self._nursery.start_soon(reading)

    def _do(self, what: Callable[[], None]) -> None:
        what()
        self._settle()
        self._news.set()
        self._news = trio.Event()

    # The journal

    def stored(self, index: int) -> None:
        """See `Forwarder.stored`."""
        if self.forwarder is not None:
            self.forwarder.stored(index)
        if self._paused and self._node.journal.gathered_bytes <= FULL_BYTES:
            for link in self._paused:
                link.resume()
            self._paused.clear()

    def cut(self, index: int, payloads: dict[int, bytes]) -> list[Write]:
        """See `Homes.cut`."""
        return self._forwarder.homes.cut(index, payloads)

    # Links

    def dialed(self, link: Link) -> None:
        """See `LinkEvents`."""
        peer = link.peer
        self._dialed[peer.forwarder] = link
        self._do(partial(self._forwarder.dialed, peer.forwarder, peer.life, peer.generation))

    def lost(self, link: Link, why: str) -> None:
        """See `LinkEvents`."""
        name = link.peer.forwarder
        if self._dialed.get(name) is link:
            del self._dialed[name]
            self._do(partial(self._forwarder.lost, name))

    def refused(self, name: str) -> None:
        """See `LinkEvents`."""
        self._forwarder.refused(name)

    def accepted(self, link: Link) -> None:
        """See `LinkEvents`."""
        incoming = self._incoming[link] = HomeLink(
            link.peer.forwarder, link.peer.life, link.send, partial(self._close, link)
        )
        self._forwarder.accepted(incoming)

    def left(self, link: Link) -> None:
        """See `LinkEvents`."""
        self._paused.discard(link)
        self._forwarder.left(self._incoming.pop(link))

    def received(self, link: Link, message: Message) -> None:
        """See `LinkEvents`."""
        if type(message) in FROM_ACCEPTOR:
            if self._dialed.get(link.peer.forwarder) is link:
                self._do(partial(self._forwarder.answered, link.peer.forwarder, message))
        elif link in self._incoming:
            self._do(partial(self._forwarder.asked, self._incoming[link], message))
            if self._node.journal.gathered_bytes > FULL_BYTES and link not in self._paused:
                # Its home sends more than this disk takes.
                self._paused.add(link)
                link.pause()

    def _close(self, link: Link, why: str) -> None:
        log.warning("a link is closed", peer=link.peer.forwarder, reason=why)
        link.close(why)

    # The store

    def _changed(self, _: Changed) -> None:
        if self.forwarder is None:
            return
        members = self._directory.members
        lives = {name: member.life for name, member in members.items()}
        self.forwarder.members_are(lives, self._members)
        self._members = lives
        me = self._directory.me.name
        self._links.peers_are({name: (each.host, each.port) for name, each in members.items() if name != me})
        for record in self._directory.records.values():
            self.forwarder.record_is(record)
        self._settle()

    def _want(self, answer: Callable[[bool], None]) -> None:
        """See `Sources.want`."""
        self._wants.append((self.now_s + WANT_S, answer))
        if len(self._wants) == 1:
            self._nursery.start_soon(self._find_source)

    def _new_set(self) -> tuple[str, ...]:
        """This forwarder and others that live."""
        me = self._directory.me.name
        others = sorted(name for name in self._directory.members if name != me)
        count = min(self._settings.cluster_copies, len(others) + 1)
        return tuple(sorted([me, *random.sample(others, count - 1)]))

    async def _find_source(self) -> None:
        """One that nobody has had yet."""
        members = self._new_set()
        generations = tuple(self._directory.members[name].generation for name in members)
        taken = self._directory.records
        free = [number for number in range(1, SOURCES + 1) if number not in taken]
        if not free:
            return
        record = SourceRecord(random.choice(free), seals.NONE, members, generations)
        try:
            created = await self._directory.swap(record)
        except StoreUnreached as error:
            log.warning("the metadata store does not answer", source=record.source, reason=str(error))
            return
        if created is not None:
            self._forwarder.record_is(created)
            self._do(partial(self._forwarder.take_over, created))

    # Tasks

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled. Raises StartupError before it has started."""
        settings, directory = self._settings, self._directory
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await nursery.start(directory.run)
            me = directory.me
            # Before anything is acknowledged: what the store counts is this disk.
            names = {GENERATION: str(me.generation), LIFE: str(me.life)}
            await trio.to_thread.run_sync(partial(self._disk.set_names, **names), limiter=self._writer.threads)
            self.forwarder = Forwarder(
                *(me.name, me.life, me.generation, self, self._node.journal, _replicas(self._disk)),
                *(settings.cluster_lease_s, random.random, self._node.reported),
                fast_takeover=settings.fast_takeover,
            )
            cluster = parse_store_address(settings.cluster_store).name
            hello = Hello(VERSION, cluster, me.name, me.life, me.generation)
            self._links = Links(hello, self, self._place.listeners, self._place.tls)
            await nursery.start(self._links.run)
            self._changed(Changed())
            nursery.start_soon(self._beats)
            task_status.started()

    async def hand_over(self) -> None:
        """Before the end: what is under way is committed, and the peers know that this node is no home any more, so
        that another one need not wait for its reign to end. What does not answer within `HAND_OVER_S` is not waited
        for."""
        if self.forwarder is None:
            return
        homes = self.forwarder.homes
        with trio.move_on_after(HAND_OVER_S):
            while any(lane.home.committed < lane.home.number for lane in homes.lanes.values()):
                await self._news.wait()
        self.forwarder.leave()
        self._settle()
        with trio.move_on_after(HAND_OVER_S):
            while any(link.out_bytes for link in self._dialed.values()):
                await self._news.wait()

    async def _beats(self) -> None:
        while True:
            await trio.sleep(self._settings.cluster_lease_s / BEATS)
            self._do(self._forwarder.beat)
            now_s = self.now_s
            late = [answer for until_s, answer in self._wants if until_s <= now_s]
            self._wants = [each for each in self._wants if each[0] > now_s]
            for answer in late:
                self._do(partial(answer, False))


def _replicas(disk: SqliteDisk) -> Replicas:
    """Of all sources: one of which the disk has nothing is empty."""
    found = {each.source: each for each in disk.replicas()}
    return Replicas(
        Replica(source, Log(found[source].base, found[source].tail), found[source].seal)
        if source in found
        else Replica(source, Log((0, 0)))
        for source in range(1, SOURCES + 1)
    )
