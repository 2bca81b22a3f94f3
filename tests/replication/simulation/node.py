"""One forwarder: the modules of `amqpd.replication`, wired as the shell wires them.

Rules: 1. What a module hands out to be written is queued at once, and answers go out when it is on the disk. 2. A
crash leaves the disk, and nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from amqpd.replication.entry import START, BrokenConnection, Frame
from amqpd.replication.home import HomeLane
from amqpd.replication.receiver import Answer, Missed, Opening, Receiver, State
from amqpd.replication.reign import Reign, SealDelay
from amqpd.replication.replica import Completed, Replicas, Undone, Write
from amqpd.replication.seal import Seal
from amqpd.replication.take_over import SourceRecord
from tests.replication.simulation.disk import AnyWrite, Based, SimulatedDisk, source_of
from tests.replication.simulation.network import Connection
from tests.replication.simulation.taking_over import TakeOvers

if TYPE_CHECKING:
    from tests.replication.simulation.cluster import Cluster

Members = tuple[str, ...]
LEASE_MS = 100


class Hello(NamedTuple):
    """What both ends of a connection say first."""

    life: int
    generation: int
    """of the disk"""


class Ended(NamedTuple):
    """A home is not the home any more."""

    source: int
    epoch: int


Message = Opening | Frame | Missed | State | Ended | int
"""of a home to a peer; a number says what is committed"""


class Link:
    """A connection from a home to a peer, and the one that answers come back by."""

    def __init__(self, home: str, life: int, peer: str) -> None:
        self.life = life
        self.generation = 0
        """of the peer's disk; 0: it has not said hello"""
        self.there = Connection(home, peer)
        self.back = Connection(peer, home)
        self.receivers: dict[Members, Receiver] = {}
        self.broken = False
        """the peer has closed it"""
        self.admitting: set[int] = set()
        """sources of which the store is asked to name the peer's disk"""

    def close(self) -> None:
        self.there.open = self.back.open = False


class Node:
    def __init__(self, name: str, cluster: Cluster, disk: SimulatedDisk) -> None:
        self.name = name
        self.cluster = cluster
        self.disk = disk
        self.life = 0
        self.up = False
        self.stopped = False
        """nothing of it runs (SIGSTOP): what comes waits"""
        self._waits: deque[Callable[[], None]] = deque()

    def boot(self) -> None:
        """From what is on the disk."""
        self.life += 1
        self.up = True
        self.index = self.disk.index
        self.disk.start()
        self.replicas = Replicas(kept.replica(source) for source, kept in self.disk.kept.items())
        self.memory = {source: kept.copy() for source, kept in self.disk.kept.items()}
        """as the disk will be"""
        for source, kept in self.memory.items():
            kept.committed = partial(self.cluster.law.committed, self.name, source)
            self.cluster.law.stands(self.name, source, kept)
        self.homes: dict[int, tuple[Seal, HomeLane]] = {}
        self.records: dict[int, SourceRecord] = {}
        """of these, as the store had them last"""
        self.lanes: dict[Members, HomeLane] = {}
        self.links: dict[str, Link] = {}
        self.take_overs = TakeOvers(self)
        self.begins: dict[int, int] = {}
        """source -> number of the first frame of its epoch: it serves when that is committed"""
        self.gathered: dict[int, list[bytes]] = {}
        self.waiting: dict[int, deque[tuple[int, bytes]]] = {}
        """source -> number of its frame, and value"""
        self.writing = False
        self.reigns: dict[Members, Reign] = {}
        self.incoming: set[Link] = set()
        """connections of homes, as far as it is not known here that they are gone"""
        self.seal_delay = SealDelay(LEASE_MS, self.cluster.clock.now_ms)
        self.gone: dict[str, int] = {}
        """forwarder -> the last of its lives that is known to have ended"""

    def stop(self) -> None:
        self.stopped = True

    def go_on(self) -> None:
        """SIGCONT: all that has come, in order, and other things between."""
        self.stopped = False
        self._next_waiting()

    def _next_waiting(self) -> None:
        if self._waits and not self.stopped:
            self._waits.popleft()()
            self.cluster.clock.after(0, 0.2, self._next_waiting)

    def run(self, what: Callable[[], None]) -> None:
        """Now, or when it goes on."""
        if self.stopped or self._waits:
            self._waits.append(what)
        else:
            what()

    def crash(self) -> None:
        self.up = self.stopped = False
        self._waits.clear()
        self.disk.crash()
        for link in self.links.values():
            self._close(link)
        self.cluster.crashed(self)

    # --- the disk

    def write(self, writes: list[Write], then: Callable[[], None], index: int = 0) -> None:
        for write in writes:
            self.cluster.clock.counts["tail undone"] += isinstance(write, Undone)
            kept = self.memory[source_of(write)]
            kept.apply(write)
            if isinstance(write, Completed):
                self.cluster.clock.counts["caught up by state"] += 1
                self.cluster.law.stands(self.name, write.source, kept)
        bases: list[AnyWrite] = []
        for replica in self.replicas:
            source, base = replica.source, replica.log.base
            if base != self.memory[source].base:
                bases.append(Based(source, base))
                self.memory[source].apply(bases[-1])
        self.disk.submit([*writes, *bases], self.of_this_life(then), index)

    def of_this_life(self, then: Callable[[], None]) -> Callable[[], None]:
        life = self.life
        return lambda: self.run(lambda: then() if self.up and self.life == life else None)

    # --- the home's end

    def publish(self, source: int, value: bytes) -> None:
        self.gathered.setdefault(source, []).append(value)

    def settle(self, source: int) -> None:
        """Some that are published and committed."""
        rows, chance = list(self.memory[source].rows), self.cluster.clock.chance
        for value in chance.sample(rows, min(len(rows), chance.choice([1, 1, 2, 20]))):
            self.publish(source, b"-" + value)

    def tick(self) -> None:
        """Cut what has gathered, if the last transaction is on the disk."""
        if self.writing or not self.gathered:
            return
        gathered, self.gathered = self.gathered, {}
        number = self.index = self.index + 1
        writes: list[Write] = []
        frames: list[tuple[Members, Frame]] = []
        for members, lane in self.lanes.items():
            payloads = {}
            for source in [source for source in gathered if source in lane.sources]:
                if self.replicas[source].seal == self.homes[source][0]:
                    payloads[source] = b" ".join(gathered.pop(source))
                else:
                    self.dethroned(source)
            if payloads:
                frame = lane.cut(number, payloads)
                frames.append((members, frame))
                for entry in frame.entries:
                    self.replicas[entry.source].take(self.homes[entry.source][0], entry, writes)
                    values = [value for value in entry.payload.split() if not value.startswith(b"-")]
                    if values:
                        self.waiting.setdefault(entry.source, deque()).extend((number, value) for value in values)
        for source, values in gathered.items():
            for value in values:
                if not value.startswith(b"-"):
                    self.cluster.law.refuse(source, value)
        self.writing = True
        self.write(writes, lambda: self._stored(number), number)
        for members, frame in frames:
            self.cluster.clock.counts["frame"] += 1
            for peer in list(self.lanes[members].peers):
                self._send(members, peer, frame)

    def _stored(self, number: int) -> None:
        self.writing = False
        for members, lane in self.lanes.items():
            lane.is_stored(number)
            self._look(members)

    def _look(self, members: Members) -> None:
        """What is committed by now, and whose home this is not any more."""
        lane = self.lanes[members]
        for source in list(lane.fenced):
            self.dethroned(source)
        self.cluster.clock.counts["source left out"] += bool(lane.left_out)
        for source in lane.sources:
            waiting, committed = self.waiting.get(source), lane.committed_of(source)
            while waiting and waiting[0][0] <= committed:
                self.cluster.law.confirm(source, waiting.popleft()[1])
                self.cluster.clock.counts["confirmed"] += 1
            if waiting is not None and not waiting:
                del self.waiting[source]
            seal, log = self.homes[source][0], self.replicas[source].log
            if self.replicas[source].seal == seal:
                log.commit((seal.epoch, committed))

    def deliver(self, source: int) -> None:
        """To an exclusive consumer."""
        home = self.homes.get(source)
        if home is not None:
            seal, lane = home
            members = next(each for each, other in self.lanes.items() if other is lane)
            if lane.committed_of(source) < self.begins[source] or self.replicas[source].seal != seal:
                return
            uncounted = self.cluster.bugs.keeps_no_reign(lane, source)
            if self.reigns[members].holds(self.cluster.clock.now_ms, uncounted):
                self.cluster.clock.counts["delivered"] += 1
                if not self.cluster.fast_takeover:
                    self.cluster.law.deliver(source, seal.epoch)

    def dethroned(self, source: int) -> None:
        self.cluster.clock.counts["home fenced"] += 1
        seal, lane = self.homes.pop(source)
        lane.end(source)
        members = next(each for each, other in self.lanes.items() if other is lane)
        for peer in lane.peers:
            self._send(members, peer, Ended(source, seal.epoch))
        self.records.pop(source, None)
        self.waiting.pop(source, None)

    def tell_committed(self) -> None:
        """To all peers, when there is nothing else to send; and to the own disk."""
        for members, lane in self.lanes.items():
            for peer in lane.peers:
                self._send(members, peer, lane.committed)
        self.write([], lambda: None)

    def connected(self, peer: str) -> None:
        self.disconnected(peer)
        link, there = Link(self.name, self.life, peer), self.cluster.nodes[peer]
        self.links[peer] = link
        hello = Hello(self.life, self.disk.generation)
        self.cluster.network.send(link.there, lambda: there.run(lambda: there.called(link, self, hello)))

    def called(self, link: Link, home: Node, hello: Hello) -> None:
        """At the peer."""
        if self.up:
            self.ended(home.name, hello.life - 1)
            mine = Hello(self.life, self.disk.generation)
            self.cluster.network.send(link.back, lambda: home.run(lambda: home.greeted(link, self.name, mine)))

    def greeted(self, link: Link, peer: str, hello: Hello) -> None:
        if self.up and self.links.get(peer) is link:
            self.ended(peer, hello.life - 1)
            link.generation = hello.generation
            for members, lane in self.lanes.items():
                if peer in members:
                    self._send(members, peer, lane.open(peer, self._uncounted(peer)))

    def ended(self, forwarder: str, life: int) -> None:
        """This life of the forwarder is gone, and all before it."""
        self.gone[forwarder] = max(life, self.gone.get(forwarder, 0))

    def _close(self, link: Link) -> None:
        """The other end notices later."""
        link.close()
        there = self.cluster.nodes[link.there.ends[1]]
        self.cluster.clock.after(0, 50, there.of_this_life(lambda: there.lost(link)))

    def _uncounted(self, peer: str) -> list[int]:
        """Sources for which the peer's disk is not admitted, as this home knows their records."""
        generation = self.links[peer].generation
        return [source for source, record in self.records.items() if not record.counts(peer, generation)]

    def _admit(self, members: Members, peer: str) -> None:
        """What the peer has been caught up with."""
        lane, generation = self.lanes[members], self.links[peer].generation
        for source in lane.admissible(peer) - self.links[peer].admitting:
            self.links[peer].admitting.add(source)
            record = self.records[source]
            link = self.links[peer]
            new = self.cluster.bugs.admits(record, peer, generation)
            self.cluster.store.swap(new, self._admitted(link, lane, peer, source, new))

    def _admitted(
        self, link: Link, lane: HomeLane, peer: str, source: int, asked: SourceRecord
    ) -> Callable[[SourceRecord | None], None]:
        def answered(record: SourceRecord | None) -> None:
            link.admitting.discard(source)
            if record is not None:
                self.cluster.admitted(peer, source, asked)
            if record is not None and source in self.homes and self.homes[source][0] == asked.home:
                self.records[source] = record
                if self.links.get(peer) is link:
                    self.cluster.clock.counts["disk admitted"] += 1
                    lane.admit(peer, source)

        alive = self.of_this_life
        return lambda record: alive(lambda: answered(record))()

    def disconnected(self, peer: str) -> None:
        if peer in self.links:
            self._close(self.links.pop(peer))
            for members, lane in self.lanes.items():
                self.cluster.clock.counts["state given up"] += lane.transfers_given_up
                lane.transfers_given_up = 0
                lane.close(peer)
                self.reigns[members].closed(peer)

    def _send(self, members: Members, peer: str, what: Message) -> None:
        link, there, sent_ms = self.links[peer], self.cluster.nodes[peer], self.cluster.clock.now_ms
        what = self.cluster.network.damaged(what)
        self.cluster.network.send(
            link.there, lambda: there.run(lambda: there.received(link, members, self, what, sent_ms))
        )

    def _send_state(self, members: Members, peer: str, source: int) -> None:
        lane, (seal, _) = self.lanes[members], self.homes[source]
        base = self.replicas[source].log.commit((seal.epoch, lane.committed_of(source)))
        after = lane.peer_base(peer, source)
        self.write([], lambda: None)
        self.cluster.clock.counts["state that is a difference"] += after > START
        transfer = lane.sends_state(peer, source, base)
        state = State(source, transfer, base, b"", True, False, after)
        self._send_parts(self.links[peer], members, peer, state, self.memory[source].state_parts(after))

    def _send_parts(self, link: Link, members: Members, peer: str, state: State, parts: list[bytes]) -> None:
        """One now, the others later: what else there is for the peer goes between them."""
        if self.links.get(peer) is link and self.lanes[members].sends(peer, state.source, state.transfer):
            part, *left = parts
            self._send(members, peer, replace(state, part=part, last=not left))
            if left:
                later = partial(self._send_parts, link, members, peer, replace(state, first=False), left)
                self.cluster.clock.after(0.2, 4, self.of_this_life(later))

    def answered(self, link: Link, members: Members, peer: str, answer: Answer, sent_ms: float) -> None:
        if not self.up or self.links.get(peer) is not link:
            return
        self.reigns[members].answered(peer, self.cluster.bugs.counted_from(self, sent_ms))
        if answer.lacks:
            self.cluster.clock.counts["peer lacks entries"] += 1
        if answer.contradicted:
            self.cluster.contradicted(peer, answer.contradicted)
        missed, behind = self.lanes[members].answered(peer, answer)
        self.cluster.clock.counts["sent again"] += len(missed)
        for each in missed:
            self._send(members, peer, each)
        for source in behind:
            self._send_state(members, peer, source)
        self._admit(members, peer)
        self._look(members)

    # --- the peer's end

    def received(self, link: Link, members: Members, home: Node, what: Message, sent_ms: float) -> None:
        if not self.up or link.broken:
            return
        receiver = link.receivers.get(members)
        if receiver is None:
            receiver = link.receivers[members] = Receiver(home.name, link.life, self.replicas)
        writes: list[Write] = []
        self.incoming.add(link)
        self.cluster.bugs.answer_made(self, link)
        if isinstance(what, Ended):
            receiver.ended(*what)
            return
        try:
            answer = _taken(receiver, what, writes)
        except BrokenConnection:
            self.cluster.clock.counts["damage noticed on the way"] += 1
            self.write(writes, lambda: None)
            link.broken = True
            link.close()
            self.lost(link)
        else:
            self.cluster.bugs.answers(self, writes, lambda: self._reply(link, members, home, answer, sent_ms))

    def _reply(self, link: Link, members: Members, home: Node, answer: Answer, sent_ms: float) -> None:
        self.cluster.bugs.answer_goes(self, link)
        self.cluster.network.send(
            link.back, lambda: home.run(lambda: home.answered(link, members, self.name, answer, sent_ms))
        )

    def lost(self, link: Link) -> None:
        """It notices that a connection of a home is gone."""
        if link in self.incoming:
            self.incoming.discard(link)
            sources = [item for receiver in link.receivers.values() for item in receiver.sources.items()]
            self.seal_delay.closed(link, sources, self.cluster.clock.now_ms)

    def reign(self, record: SourceRecord) -> None:
        """It is the home from now on."""
        source, seal, members = record.source, record.home, record.members
        if source in self.homes:
            self.dethroned(source)
        self.records[source] = record
        lane = self.lanes.get(members)
        if lane is None:
            lane = self.lanes[members] = HomeLane(
                members,
                self.index,
                self.cluster.kept_bytes_max,
                self.cluster.behind_bytes_max,
                self.cluster.missed_bytes_max,
            )
            self.reigns[members] = Reign(LEASE_MS, len(members))
            for peer, link in self.links.items():
                if peer in members and link.generation:
                    self._send(members, peer, lane.open(peer, self._uncounted(peer)))
        self.homes[source] = seal, lane
        log, kept = self.replicas[source].log, self.memory[source]
        self.cluster.law.stands(self.name, source, kept)
        tail = kept.entries_after(log.base)
        uncounted = [peer for peer in lane.peers if source in self._uncounted(peer)]
        opening = lane.begin(source, seal.epoch, log.base, tail, uncounted)
        for peer in lane.peers:
            self._send(members, peer, opening)
        self.begins[source] = self.index + 1
        self.gathered.setdefault(source, []).insert(0, b"")


def _taken(receiver: Receiver, what: Opening | Frame | Missed | State | int, writes: list[Write]) -> Answer:
    if isinstance(what, int):
        return receiver.told(what, writes)
    if isinstance(what, Opening):
        return receiver.open(what, writes)
    if isinstance(what, Frame):
        return receiver.receive(what, writes)
    if isinstance(what, State):
        return receiver.replace(what, writes)
    return receiver.repair(what, writes)
