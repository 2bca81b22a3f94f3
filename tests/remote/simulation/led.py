"""A leader of the source, as one process: the leader's end, its queues, its part of the log, its sessions.

What comes in: messages of edges; that entries are committed; the time. What goes out: messages; what the law is to
see of them.
Rules: 1. Queues are dispatched when something came in, plain ones only while the leader's end says so. 2. A leader
that has ended, and does not know it, has no leader lease: what it writes is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amqpd.remote.handing import taken_over
from amqpd.remote.leader import Leader
from amqpd.remote.messages import Attached, Deliver, FromEdge, FromLeader, Sender
from amqpd.remote.source import SessionHandOver
from tests.remote.simulation.durable import DurableQueue, LeadingNode
from tests.remote.simulation.judged import Judged
from tests.remote.simulation.log import Contents, LeaderLog
from tests.remote.simulation.network import Connection
from tests.remote.simulation.queue import PlainQueue

if TYPE_CHECKING:
    from tests.remote.simulation.world import World

EPOCH_NUMBERS = 1 << 20
"""sequence numbers of one epoch: no number is given twice"""


class Led:
    """One leader of the source."""

    def __init__(self, world: World, epoch: int, handed: SessionHandOver | None) -> None:
        self.world, self.epoch = world, epoch
        log, clock = world.log, world.clock
        queues = [each for each in world.all_queues if each not in world.law.gone]
        contents, position = log.contents(world.all_queues), log.last
        self.log = LeaderLog(log, epoch)
        self.node: LeadingNode | None = None
        self.queues: dict[int, Any] = {
            number: self._queue(number, contents, epoch * EPOCH_NUMBERS) for number in queues
        }
        self.connections: dict[Sender, Connection] = {}
        self.has_ended = False
        """its process has"""
        self.leader: Leader = taken_over(
            epoch,
            self.log,
            contents.marks,
            self.queues,
            world.members,
            clock.now_ms,
            handed,
            position,
            lease_ms=world.lease_ms,
        )
        if handed is not None:
            clock.counts["handed over" if handed.position == position else "hand-over cut off"] += 1
        world.bugs.led(self)
        is_whole = handed is not None and handed.position == position
        self.judged = Judged(self, handed if is_whole else None)

    def _queue(self, number: int, contents: Contents, first: int) -> PlainQueue | DurableQueue:
        world = self.world
        if not world.is_durable:
            return PlainQueue(number, self.log, contents, first, world.bounds[number], world.clock.chance)
        if self.node is None:
            self.node = LeadingNode(self)
            self.log.take = self.node.take
        return DurableQueue(self.node, number, self.log, contents, first, world.bounds[number])

    @property
    def is_current(self) -> bool:
        return self.world.led is self

    def receive(self, sender: Sender, message: FromEdge) -> None:
        if not self.has_ended:
            self.judged.heard(sender, message)
            self.leader.receive(sender, message, self.world.clock.now_ms)
            self.judged.done(sender, message)
        self.run()

    def lost(self, sender: Sender) -> None:
        """It hears that the connection of this session is broken."""
        self.leader.lost(sender, self.world.clock.now_ms)
        self.judged.detached(sender)
        self.run()

    def has_nothing(self, forwarder: str) -> None:
        """It says so."""
        self.judged.waits_for.discard(forwarder)
        self.leader.has_nothing(forwarder)
        self.run()

    def membership(self) -> None:
        """The store has other members now."""
        self.judged.waits_for &= self.world.members
        self.leader.membership(self.world.members)
        self.run()

    def tick(self) -> None:
        for queue in list(self.queues.values()):
            if queue.purges:
                self.world.clock.counts["purge in steps"] += 1
            queue.step()
        self.leader.tick(self.world.clock.now_ms)
        self.run()
        self.judged.tick()

    def run(self) -> None:
        """After each input."""
        leader = self.leader
        while not self.has_ended:
            if leader.delivers or self.world.is_durable:
                for number in leader.queues:
                    self.queues[number].dispatch()
            out = leader.take()
            if not out:
                return
            for sender, message in out:
                self._send(sender, message)

    def _send(self, sender: Sender, message: FromLeader) -> None:
        world = self.world
        self.judged.told(sender, message)
        if isinstance(message, Deliver):
            queue = world.queue_of[sender.forwarder, sender.incarnation, message.subscription]
            for seq in range(message.seq, message.seq + message.high - message.low):
                world.law.sends(self.epoch, queue, seq)
            if world.clock.chance.random() < world.drops:
                world.clock.counts["delivery dropped"] += 1
                return
        elif isinstance(message, Attached):
            world.clock.counts["attached"] += 1
        connection = self.connections.get(sender)
        if connection is not None:
            connection.backward.send(message)
