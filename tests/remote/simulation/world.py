"""All that there is in one run: nodes, the leader, the log, the store's word of who lives and who leads.

What comes in: what was drawn for the run. What goes out: events. Rules: 1. Only the current leader's entries become
part of the log. 2. Nodes hear of a leader some time after it began.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from itertools import count

from amqpd.journal.operation_marks import Member
from amqpd.remote.edge import EdgeState
from amqpd.remote.handing import hand_over
from amqpd.remote.operations import UNDECIDED_BYTES_MAX
from amqpd.remote.source import SessionHandOver
from tests.remote.simulation.bugs import NoBug
from tests.remote.simulation.law import Law, Message
from tests.remote.simulation.led import Led
from tests.remote.simulation.log import Contents, EpochBegins, Log
from tests.remote.simulation.network import Connection
from tests.remote.simulation.node import Node
from tests.remote.simulation.queue import NO_BOUND
from tests.replication.simulation.clock import Clock


class World:
    """One source, its leader, and nodes with clients of it."""

    def __init__(self, clock: Clock, bugs: NoBug, is_durable: bool = False) -> None:
        """`is_durable`: its queues are those of the node (`durable.py`)."""
        self.is_durable = is_durable
        self.clock, self.bugs, self.law, self.log = clock, bugs, Law(), Log()
        chance = random.Random(f"world of {clock.seed}")
        names = list("abc"[: chance.choice([2, 2, 3])])
        self.queues = list(range(1, chance.choice([1, 2, 3]) + 1))
        """those with consumers"""
        self.quiet = {name: 10 + i for i, name in enumerate(names)}
        """of each node one that nobody else uses"""
        self.bounds = {each: chance.choice([NO_BOUND, NO_BOUND, NO_BOUND, 3, 8]) for each in self.queues}
        self.bounds.update(dict.fromkeys(self.quiet.values(), NO_BOUND))
        self.all_queues = sorted(self.bounds)
        self.lease_ms = chance.choice([400, 1500])
        self.commit_ms = chance.choice([3, 10, 60])
        self.learn_ms = chance.choice([5, 60, 900])
        self.drops = chance.choice([0, 0, 0, 0.02])
        """deliveries that are lost with nothing behind them: no link does that, and the audit finds it"""
        self.bytes_max = chance.choice([UNDECIDED_BYTES_MAX, UNDECIDED_BYTES_MAX, 3000])
        self.consumers_max = chance.choice([1, 2, 4])
        settles = chance.choice([0.7, 3, 8])
        cancels, gets, asks = chance.choice([0, 0.5, 1.5]), chance.choice([0, 1]), chance.choice([0, 1])
        self.weights = [6, settles, 2, cancels, gets, asks, 1]
        """of what clients do: publish, settle, subscribe, cancel, get, ask, move a shared prefetch"""
        self.settling = chance.choice([[6, 1, 0.5], [1, 1, 0.1], [6, 0.1, 0]])
        self.slow_starts = chance.choice([0, 0, 0.2])
        """how often an Attach takes so long that its edge gives it up"""
        self.members = set(names) | {"z"}
        """whose memberships live; z has nothing of the source"""
        self.nodes = {name: Node(self, name, chance.choice([2, 8, 8, 30, 150])) for name in names}
        for name in names[1:]:
            self.nodes[name].publishes_only = chance.random() < 0.25
        self.led: Led | None = None
        self.old: list[Led] = []
        """leaders that have ended, and do not know it"""
        self.epoch = 0
        self.waited: tuple[set[str], float] = set(), 0.0
        """for whom the leader waited that was moved last, and until when"""
        self.away_before: dict[Member, float] = {}
        """who had no session there, and since when; 0: had one"""
        self.queue_of: dict[tuple[str, int, int], int] = {}
        """forwarder, incarnation and subscription -> queue"""
        self.channel_of: dict[int, int] = {}
        """name of a message -> channel"""
        self.applied = Contents({queue: {} for queue in self.all_queues})
        """of the committed sequence"""
        self.stalled_until_ms = 0.0
        """no majority answers before"""
        self.faults = True
        self.differences = 0
        """between both ledgers, of edges and leaders that have ended"""
        for attribute, value in bugs.drawn.items():
            setattr(self, attribute, value)
        self._names, self._channels, self._incarnations = count(1), count(1), count(1)

    def next_channel(self) -> int:
        return next(self._channels)

    def next_incarnation(self) -> int:
        """From the store."""
        return next(self._incarnations)

    def name(self, channel: int) -> int:
        name = next(self._names)
        self.channel_of[name] = channel
        return name

    def is_bounded(self, queue: int) -> bool:
        return self.bounds[queue] != NO_BOUND

    # Leaders

    def lead(self, handed: SessionHandOver | None = None) -> None:
        """A new leader, with what is left of the log."""
        if self.led is not None:
            return
        self.epoch += 1
        led = self.led = Led(self, self.epoch, handed)
        self.clock.counts["leader began"] += 1
        for node in self.nodes.values():
            self.clock.after(0, self.learn_ms, partial(node.learn, led))
        self.clock.after(0, self.learn_ms, partial(led.has_nothing, "z"))
        self._cut(led)
        self._tick(led)

    def lose_leader(self) -> None:
        """It has ended: any part of its tail is lost with it."""
        led, chance = self.led, self.clock.chance
        if led is None:
            return
        self._ended(led)
        kept = chance.randint(0, len(self.log.tail))
        if kept < len(self.log.tail):
            self.clock.counts["leader lost with a part of its tail"] += 1
        else:
            self.clock.counts["leader lost, and its tail kept"] += 1
        del self.log.tail[kept:]
        if chance.random() < 0.3:
            # It is cut off from the others, not from edges.
            led.leader.lease(False, self.clock.now_ms)
            led.run()
            self.old.append(led)
            self.clock.counts["old leader that is reached"] += 1
        else:
            led.has_ended = True
            for connection in led.connections.values():
                self.cut(connection)
        self.stalled_until_ms = 0
        self.clock.after(5, 400, self.lead)

    def move_leader(self) -> None:
        """A planned move: the next leader has all of the log, unless it is cut off half way."""
        led, chance = self.led, self.clock.chance
        if led is None:
            return
        led.run()
        led.log.cut()
        self.waited = set(led.judged.waits_for), led.judged.wait_ends_ms
        self.away_before = dict(led.judged.away)
        handed, _ = hand_over(led.leader, self.log.last)
        self._ended(led)
        led.has_ended = True
        for connection in led.connections.values():
            self.cut(connection)
        if chance.random() < 0.25 and self.log.tail:
            del self.log.tail[chance.randint(0, len(self.log.tail) - 1) :]
        elif chance.random() < 0.1:
            handed = SessionHandOver(-1, (), frozenset(), 0, {})
        self.clock.after(1, 30, partial(self.lead, handed))

    def _ended(self, led: Led) -> None:
        self.led = None
        self.differences += led.leader.differences

    def _cut(self, led: Led) -> None:
        """The journal's group commits, one after the other."""
        if led.is_current:
            if led.log.cut():
                self.clock.after(1, self.commit_ms, partial(self._commit, led, led.log.next - 1))
            self.clock.after(1, 4, partial(self._cut, led))

    def _commit(self, led: Led, position: int) -> None:
        """A majority has this entry, and all before it."""
        if not led.is_current or position <= led.leader.committed_position:
            return
        if self.clock.now_ms < self.stalled_until_ms:
            self.clock.at(self.stalled_until_ms, partial(self._commit, led, position))
            return
        tail = self.log.tail
        while tail and tail[0].position <= position:
            entry = tail.pop(0)
            self.log.committed.append(entry)
            if led.node is not None and entry.epoch == led.epoch and entry.transaction is not None:
                led.node.committed(entry.transaction)
            for record in entry.records:
                self.law.commit(record, self.channel_of)
                self.applied.apply(record)
                if isinstance(record, EpochBegins):
                    self.clock.counts["epoch committed"] += 1
        led.leader.committed(position)
        led.run()

    def _tick(self, led: Led) -> None:
        if led.is_current:
            led.tick()
            if self.clock.chance.random() < 0.3:
                led.leader.audit()
                led.run()
            self.clock.after(20, 40, partial(self._tick, led))

    # Links

    def cut(self, connection: Connection) -> None:
        """Each end hears of it by itself."""
        connection.cut()
        self._hears(connection)

    def _hears(self, connection: Connection) -> None:
        for node in self.nodes.values():
            if node.connection is connection:
                self.clock.after(1, 50, partial(node.broken, connection))
        for led in (self.led, *self.old):
            if led is not None:
                for sender, each in led.connections.items():
                    if each is connection:
                        self.clock.after(1, 300, partial(led.lost, sender))

    def one_way(self, connection: Connection) -> None:
        """Nothing more in one direction; after a while both ends hear of it."""
        self.clock.chance.choice([connection.forward, connection.backward]).works = False
        self.clock.after(50, 600, partial(self.cut, connection))

    # What clients hold

    def valid(self, node: Node) -> bool:
        """Its session is attached at the current leader."""
        edge, led = node.edge, self.led
        if edge is None or led is None or edge.state is not EdgeState.ATTACHED:
            return False
        found = led.leader.incarnations.get((node.name, edge.incarnation))
        return found is not None and found.attached and found.session == edge.session

    def holders(self) -> Iterator[tuple[Message, str]]:
        for node in self.nodes.values():
            if self.valid(node):
                for consumer in (*node.consumers, *node.quiet_got):
                    for at, message in consumer.held.items():
                        if at not in node.lost:
                            yield message, f"subscription {consumer.number} of {node.name}"

    def look_at_holders(self) -> None:
        self.law.holders(self.holders())

    def held_in(self, queue: int, forwarders: set[str]) -> dict[int, list[str]]:
        """Number -> who holds it, of these nodes, which may still attach."""
        found: dict[int, list[str]] = {}
        for node in self.nodes.values():
            for consumer in (*node.consumers, *node.quiet_got):
                for at, (of, seq) in consumer.held.items():
                    if of == queue and node.name in forwarders and at not in node.lost:
                        found.setdefault(seq, []).append(node.name)
        return found
