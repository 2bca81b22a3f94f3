"""Clients of one edge: what they publish, hold and settle, and what they tell the law of it.

What comes in: chance; deliveries, refusals, reports of the lane. What goes out: calls of the edge.
Rules: 1. A client settles what it holds, and nothing else. 2. A consumer's limit is what its prefetch leaves; two of
them may share one. 3. What a client holds is void when its consumer is cancelled by the broker, or its edge has
ended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from amqpd.audit.book import Book
from amqpd.kernel import Run
from amqpd.queues.consumer import Subscriber
from amqpd.queues.port import Got
from amqpd.queues.receipt import Receipt
from amqpd.remote.edge import Edge, EdgeState
from amqpd.remote.subscription import NUMBER_BITS
from tests.remote.simulation.law import LawBroken, Message
from tests.remote.simulation.queue import BODY_BYTES, make_run, name_of

if TYPE_CHECKING:
    from tests.remote.simulation.node import Node

RUN_MAX = 4


class NamedReceipt(Receipt):
    """The receipt of one run, by the names of its messages."""

    def __init__(self, publisher: Publisher, names: list[int], queues: tuple[int, ...]) -> None:
        self.publisher, self.names = publisher, names
        self.bounded = any(publisher.node.world.is_bounded(each) for each in queues)

    def refuse(self, low: int, high: int) -> None:
        for name in self.names[low:high]:
            self.publisher.refuse(name, self.bounded)


class Publisher:
    """A channel in confirm mode."""

    def __init__(self, node: Node, channel: int) -> None:
        self.node, self.channel = node, channel
        self.waiting: list[tuple[int, list[int], tuple[int, ...]]] = []
        """(number of the lane, names, queues)"""
        self.refused: set[int] = set()

    def publish(self, edge: Edge, queues: tuple[int, ...], count: int) -> list[int]:
        names = [self.node.world.name(self.channel) for _ in range(count)]
        run, receipt, number = make_run(names), NamedReceipt(self, names, queues), 0
        for queue in queues:
            number = edge.publish(queue, run, receipt)
        self.waiting.append((number, names, queues))
        return names

    def refuse(self, name: int, is_bounded: bool) -> None:
        edge = self.node.edge
        self.refused.add(name)
        self.node.world.law.refuse(name, is_bounded or self.node.gives_up or not is_alive(edge))
        self.node.count("message refused")

    def reported(self, edge: Edge) -> None:
        while self.waiting and self.waiting[0][0] <= edge.lane.reported:
            _, names, queues = self.waiting.pop(0)
            for name in names:
                if name not in self.refused:
                    self.node.world.law.confirm(name, queues)
                    self.node.count("message confirmed")


class Consumer(Subscriber):
    """A consumer, or one that has got a message by basic.get."""

    def __init__(self, node: Node, queue: int, prefetch: int, no_ack: bool) -> None:
        self.node, self.queue, self.prefetch, self.no_ack = node, queue, prefetch, no_ack
        self.exclusive = self.parked = False
        self.priority = self.unacked = 0
        self.number = 0
        self.held: dict[int, Message] = {}
        """place -> message"""
        self.partner: Consumer | None = None
        """it shares its prefetch with this one"""
        self.share = prefetch
        """of a shared prefetch"""
        self.is_cancelled = self.gets = self.asked = False
        self.wants = 0, 0
        self._last = 0

    def credit(self) -> int:
        raise AssertionError("the edge is told limits")

    def wait_for_credit(self) -> None:
        raise AssertionError("the edge is told limits")

    def limit(self, edge: Edge) -> None:
        """Tell the edge what the prefetch leaves."""
        if self.is_cancelled or self.gets or self.number not in edge._subscriptions:
            return
        received = edge.limits(self.number)[1]
        left = max(self.share - len(self.held), 0)
        if self.partner is not None and not self.partner.is_cancelled:
            # What the partner may still use of the prefetch is the partner's, until lowering is answered.
            left = max(min(left, self.prefetch - len(self.held) - self.partner.in_use(edge)), 0)
        nbytes = (received + (left if self.number % 2 else (left + 1) // 2)) * BODY_BYTES
        self.wants = received + left, nbytes
        edge.limit(self.number, *self.wants)

    def in_use(self, edge: Edge) -> int:
        """What it holds, or may be sent."""
        if self.number not in edge._subscriptions:
            return len(self.held)
        messages, received = edge.limits(self.number)
        return len(self.held) + max(messages - received, 0)

    def deliver(self, run: Run, low: int, high: int, seq: int, redelivered: bool) -> None:
        world, law, queue = self.node.world, self.node.world.law, self.queue
        for i in range(low, high):
            at = seq + i - low
            message = self.node.message_at(at)
            if not redelivered:
                if message[1] <= self._last:
                    raise LawBroken(f"{message} follows number {self._last}, and is not redelivered")
                self._last = message[1]
            law.receives(queue, message[1], name_of(run, i), redelivered)
            if self.no_ack:
                law.settled.add(message)
            else:
                self.held[at] = message
        self.node.count("delivered again" if redelivered else "delivered")
        edge = self.node.edge
        assert edge is not None
        limits = edge._subscriptions[self.number]
        if limits.received > limits.messages or limits.received_bytes > limits.nbytes:
            raise LawBroken(f"more than the credit of subscription {self.number} is delivered")
        if not self.gets and not self.no_ack:
            partner = 0 if self.partner is None or self.partner.is_cancelled else len(self.partner.held)
            if len(self.held) + partner > self.prefetch:
                raise LawBroken(f"{len(self.held) + partner} are held with a prefetch of {self.prefetch}")
        world.look_at_holders()

    def pass_on(self, runs: list[Run], seq: int) -> int:
        raise AssertionError("an edge delivers")

    def record(self, book: Book, first: int, count: int, redelivered: bool, body_bytes: int) -> None:
        pass

    def cancelled(self) -> None:
        self.is_cancelled = True
        self.held.clear()
        self.node.count("consumer cancelled by the broker")

    def got(self, got: object) -> bool:
        self.asked = False
        if isinstance(got, Got):
            run, low, high, seq, redelivered = got.piece
            self.deliver(run, low, high, seq, redelivered)
            self.node.count("got")
        else:
            self.is_cancelled = True
            self.node.count("got nothing")
        return True

    def act(self, edge: Edge, first: int, last: int, how: Callable[[int, int], None]) -> None:
        """Settle places first..last, all of which it holds."""
        for at in range(first, last + 1):
            message = self.held.pop(at)
            if how != edge.requeue and at not in self.node.lost:
                self.node.world.law.settled.add(message)
        how(first, last)


def places(subscription: int) -> range:
    """All places of a subscription."""
    return range(subscription << NUMBER_BITS, (subscription + 1) << NUMBER_BITS)


def is_alive(edge: Edge | None) -> bool:
    return edge is not None and edge.state is not EdgeState.ENDED
