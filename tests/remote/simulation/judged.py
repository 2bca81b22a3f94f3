"""What the law sees of one leader: who may still claim in time, who is away, what is passed over, told and purged.

What comes in: what the leader is told, and what it says. What goes out: LawBroken.
Rules: 1. It knows by itself, from what went over links, who has attached; it does not ask the leader. 2. A claim is
in time while the leader still has to wait for somebody, or within a lease of the end of the edge's session here.
Not here: the law of messages (`law.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amqpd.journal.operation_marks import Member
from amqpd.remote.incarnation import RemoteIncarnation
from amqpd.remote.leader import CLAIM_WAIT_MS
from amqpd.remote.messages import Attach, Attached, Counted, DeliveryRange, FromEdge, Operations, Sender, SessionEnded
from amqpd.remote.source import SessionHandOver
from amqpd.remote.subscription import NUMBER_BITS
from tests.remote.simulation.durable import DurableQueue
from tests.remote.simulation.law import LawBroken
from tests.remote.simulation.queue import PlainQueue

if TYPE_CHECKING:
    from tests.remote.simulation.led import Led

LATE_MS = 100.0
"""from when something is due to when a tick has done it"""


class Judged:
    """One leader, as the law sees it."""

    def __init__(self, led: Led, handed: SessionHandOver | None) -> None:
        """`handed`: what it was passed, if that counts."""
        world = led.world
        self.led, self.world = led, world
        self.waits_for = set(world.members) | set(world.nodes)
        self.wait_ends_ms = world.clock.now_ms + CLAIM_WAIT_MS
        self.away: dict[Member, float] = {}
        """since when it has no session here"""
        self._may_deliver_ms = self.wait_ends_ms
        self._began_ms = world.clock.now_ms
        self._in_time: set[Sender] = set()
        if handed is not None:
            self.waits_for, self.wait_ends_ms = world.waited
            self._may_deliver_ms = max(self.wait_ends_ms, world.clock.now_ms)
            # One that was away at the last leader is away since then: its lease may have run out there.
            now_ms = world.clock.now_ms
            since = {member: at or now_ms for member, at in world.away_before.items()}
            self.away = {each.member: since[each.member] for each in handed.incarnations if each.member in since}
        self.waits_for &= world.members
        self._judge_returns()
        for queue in led.queues.values():
            self._judge_purges(queue)

    @property
    def waits(self) -> bool:
        return bool(self.waits_for) and self.world.clock.now_ms < self.wait_ends_ms

    def heard(self, sender: Sender, message: FromEdge) -> None:
        """An edge says this; the leader does not know it yet."""
        if isinstance(message, Attach):
            member, now_ms = (sender.forwarder, sender.incarnation), self.world.clock.now_ms
            since = self.away.get(member)
            attached = member in self.away and since == 0
            if self.waits or attached or (since is not None and now_ms < since + self.world.lease_ms):
                self._in_time.add(sender)

    def done(self, sender: Sender, message: FromEdge) -> None:
        """The leader knows it."""
        found = self.led.leader.incarnations.get((sender.forwarder, sender.incarnation))
        if found is None or found.session != sender.session or not found.attached or found.inbox:
            return
        older = [
            each for each in self.led.leader.incarnations if each[0] == sender.forwarder and each[1] < found.member[1]
        ]
        if older:
            raise LawBroken(f"{sender} is attached, and older incarnations are there: {older}")
        decided = message.decided if isinstance(message, Operations | Attach) else 0
        if any(each.number <= decided for each in found._outcomes):
            raise LawBroken(f"outcomes up to {decided} were heard, and are kept: {found._outcomes}")

    def attached(self, sender: Sender, message: Attached) -> None:
        """The leader has answered."""
        self.waits_for.discard(sender.forwarder)
        self.away[sender.forwarder, sender.incarnation] = 0
        for part in message.refused:
            self._refused(sender, part)

    def detached(self, sender: Sender) -> None:
        """The session has ended here."""
        member = sender.forwarder, sender.incarnation
        found = self.led.leader.incarnations.get(member)
        if found is not None and not found.attached and self.away.get(member) == 0:
            self.away[member] = self.world.clock.now_ms

    def told(self, sender: Sender, message: object) -> None:
        if isinstance(message, Attached):
            self.attached(sender, message)
        elif isinstance(message, SessionEnded):
            self.detached(sender)
        elif isinstance(message, Counted) and message.ready >= 0 and self.waits:
            raise LawBroken(f"{message.ready} are counted while {self.waits_for} may hold some of them")

    def _refused(self, sender: Sender, part: DeliveryRange) -> None:
        world, law = self.world, self.world.law
        node = world.nodes[sender.forwarder]
        for number in range(part.first, part.last + 1):
            at = part.subscription << NUMBER_BITS | number
            known = (sender.forwarder, sender.incarnation, at) in law.refused_claims
            law.refused_claims.add((sender.forwarder, sender.incarnation, at))
            message = node.messages.get(at)
            held = any(at in each.held for each in (*node.consumers, *node.quiet_got))
            if sender not in self._in_time or known or message is None or not held or message in law.settled:
                continue
            there = message[0] in self.led.queues and message[1] in self.led.queues[message[0]].runs
            others = [
                other.name
                for other in world.nodes.values()
                for each in (*other.consumers, *other.quiet_got)
                if any(of == message and (other is not node or place != at) for place, of in each.held.items())
            ]
            if there and not others:
                raise LawBroken(f"{message} is held by a client of {node.name}, whose claim came in time")

    def tick(self) -> None:
        """Now and then."""
        now_ms = self.world.clock.now_ms
        if self.led.epoch not in self.world.law.epochs:
            self._may_deliver_ms = max(self.wait_ends_ms, now_ms)
        elif now_ms > self._may_deliver_ms + LATE_MS and not self.led.leader.delivers:
            raise LawBroken(f"the leader of epoch {self.led.epoch} does not deliver, {now_ms:.0f} ms")
        for member, since in self.away.items():
            found = self.led.leader.incarnations.get(member)
            # What it was passed, a leader keeps for a lease of its own: times of two machines do not compare.
            if not since or found is None or now_ms <= max(since, self._began_ms) + self.world.lease_ms + LATE_MS:
                continue
            if any(each.held or each.gives_way for each in found.subscribers.values()):
                raise LawBroken(f"{member} has no session since {since:.0f} ms, and holds messages")

    def _judge_returns(self) -> None:
        """What an incarnation held that has ended may have been had."""
        requeue_all = self.led.leader._requeue_all

        def judged(incarnation: RemoteIncarnation) -> None:
            for subscriber in incarnation.subscribers.values():
                for each in (*subscriber.held, *subscriber.gives_way):
                    for seq in range(each.seq, each.last_seq + 1):
                        self.world.law.returns[subscriber.queue_id, seq] += 1
            if incarnation.subscribers:
                self.world.clock.counts["held requeued after a lease or an end"] += 1
            requeue_all(incarnation)

        self.led.leader._requeue_all = judged  # type: ignore[method-assign]

    def _judge_purges(self, queue: PlainQueue | DurableQueue) -> None:
        purge_some = queue.purge_some

        def judged(part: list[int]) -> None:
            held = self.world.held_in(queue.number, self.waits_for) if self.waits else {}
            for seq in part:
                self.world.law.purges(queue.number, seq, held.get(seq, ()))
            purge_some(part)

        queue.purge_some = judged  # type: ignore[method-assign]
