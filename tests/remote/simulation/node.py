"""A node with clients: its edge, its connection to the leader, and what it knows of who that is.

What comes in: events of the clock. What goes out: messages; what clients do.
Rules: 1. It attaches again when its link is lost, when another leader is known, and after a while without an answer.
2. When its incarnation has ended at the source, it goes on with another one from the store; its clients too. 3. A
crash ends its clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amqpd.queues.port import Got
from amqpd.remote.edge import Edge, EdgeState
from amqpd.remote.messages import Attached, Deliver, DeliveryRange, Sender
from amqpd.remote.subscription import NUMBER_BITS
from tests.remote.simulation.clients import Consumer, Publisher
from tests.remote.simulation.law import LawBroken, Message
from tests.remote.simulation.network import Connection

if TYPE_CHECKING:
    from tests.remote.simulation.led import Led
    from tests.remote.simulation.world import World

RUN_MAX = 3
PREFETCH_MAX = 40
LATE_ATTACH_MS = 1_500.0
"""up to which one arrives that comes late"""
ANSWER_MS = 400.0
"""without an answer the edge attaches again, over another connection"""


class Node:
    """A node whose clients use the source."""

    def __init__(self, world: World, name: str, latency_ms: float) -> None:
        self.world, self.name, self.latency_ms = world, name, latency_ms
        self.edge: Edge | None = None
        self.knows: Led | None = None
        """the leader that it knows of"""
        self.connection: Connection | None = None
        self.publishers: list[Publisher] = []
        self.consumers: list[Consumer] = []
        self.quiet: Publisher | None = None
        self.messages: dict[int, Message] = {}
        """place -> message, of what arrived"""
        self.lost: set[int] = set()
        """places whose claims were refused"""
        self.expected: int | None = 0
        """ready messages in its quiet queue, behind all operations; None: it cannot tell"""
        self.publishes_only = False
        """its clients do nothing else, and ask of their own queue"""
        self.away_until_ms = 0.0
        """it reaches no leader before"""
        self.gives_up = False
        """its edge is giving publishes up"""
        self.quiet_got: list[Consumer] = []
        """what it got from its quiet queue, and holds"""
        self.doubts = 0
        """how often what was expected became uncertain"""
        self.asks = False
        """its quiet channel waits for the answer to a question"""
        self._attached_ms = 0.0

    def count(self, what: str) -> None:
        self.world.clock.counts[what] += 1

    def begin(self) -> None:
        """A new incarnation at the source."""
        self._note_differences()
        self.edge = Edge(self.name, self.world.next_incarnation(), self.world.bytes_max)
        channel = self.world.next_channel
        self.publishers = [Publisher(self, channel()) for _ in range(2)]
        self.quiet = Publisher(self, channel())
        self.consumers, self.messages, self.lost = [], {}, set()
        self.expected, self.asks, self.quiet_got = None, False, []
        self.connect()

    def crash(self) -> None:
        self.count("edge crashed")
        self._note_differences()
        self.edge = None
        self.consumers, self.quiet_got = [], []
        if self.connection is not None:
            self.world.cut(self.connection)
            self.connection = None

    def _note_differences(self) -> None:
        if self.edge is not None:
            self.world.differences += self.edge.differences

    def doubt(self) -> None:
        """What is in its quiet queue is uncertain, until the next purge."""
        self.expected = None
        self.doubts += 1

    # The link

    def learn(self, led: Led) -> None:
        """The store says who is the leader."""
        if self.knows is None or self.knows.epoch < led.epoch:
            self.knows = led
            if self.edge is not None:
                self.edge.detached()
                self.connect()
            else:
                led.has_nothing(self.name)

    def connect(self) -> None:
        """A new connection; what is on the way over the older one may still arrive there."""
        edge, led = self.edge, self.knows
        if edge is None or led is None or edge.state is EdgeState.ENDED:
            return
        if self.world.clock.now_ms < self.away_until_ms:
            edge.detached()
            return
        edge.attach()
        self._attached_ms = self.world.clock.now_ms
        sender = Sender(self.name, edge.incarnation, edge.session)

        def to_edge(message: Any) -> None:
            if self.edge is edge:
                self.receive(sender.session, message)

        self.connection = Connection(
            self.world.clock, self.latency_ms, lambda message: led.receive(sender, message), to_edge
        )
        led.connections[sender] = self.connection
        if self.world.faults and self.world.clock.chance.random() < self.world.slow_starts:
            self.connection.forward.latency_ms = LATE_ATTACH_MS
            self.count("attach slow")
        self.send()

    def look(self) -> None:
        """Now and then: whether it has to attach again."""
        edge, now_ms = self.edge, self.world.clock.now_ms
        if edge is None or self.knows is None:
            return
        if edge.state is EdgeState.ENDED:
            self.count("incarnation ended, and another one begun")
            self.begin()
        elif edge.state is EdgeState.DETACHED or (
            edge.state is EdgeState.ATTACHING and now_ms > self._attached_ms + ANSWER_MS
        ):
            self.connect()

    def broken(self, connection: Connection) -> None:
        """It hears that its connection is."""
        if self.connection is connection and self.edge is not None:
            self.edge.detached()

    def send(self) -> None:
        """What the edge has to say, and what its publishers hear."""
        edge = self.edge
        if edge is None:
            return
        if self.connection is not None:
            for message in edge.take():
                self.connection.forward.send(message)
        for publisher in (*self.publishers, *([self.quiet] if self.quiet else [])):
            publisher.reported(edge)

    def receive(self, session: int, message: Any) -> None:
        edge = self.edge
        assert edge is not None
        if session == edge.session and edge.state in (EdgeState.ATTACHING, EdgeState.ATTACHED):
            if isinstance(message, Deliver):
                queue = self.world.queue_of.get((self.name, edge.incarnation, message.subscription), 0)
                for i in range(message.high - message.low):
                    at = message.subscription << NUMBER_BITS | (message.number + i)
                    self.messages[at] = queue, message.seq + i
            elif isinstance(message, Attached) and message.epoch >= edge.epoch:
                self._refused(message.refused)
        edge.receive(session, message)
        for consumer in self.consumers:
            consumer.limit(edge)
        self.send()

    def _refused(self, parts: tuple[DeliveryRange, ...]) -> None:
        for part in parts:
            self.count("claim refused")
            for number in range(part.first, part.last + 1):
                self.lost.add(part.subscription << NUMBER_BITS | number)
            # Also of one that its client has settled: that did nothing, and what was published may be there again.
            assert self.edge is not None
            of = self.world.queue_of[self.name, self.edge.incarnation, part.subscription]
            if of == self.world.quiet[self.name]:
                self.doubt()

    def message_at(self, place: int) -> Message:
        return self.messages[place]

    # What clients do

    def act(self) -> None:
        """One of them does something."""
        edge, world = self.edge, self.world
        if edge is None or edge.state is EdgeState.ENDED:
            return
        chance = world.clock.chance
        if self.publishes_only and not world.faults:
            return
        drawn = chance.choices(
            (self._publish, self._settle, self._subscribe, self._cancel, self._get, self._ask, self._move),
            [*world.weights[:1], 0, 0, 0, 0, *world.weights[5:]] if self.publishes_only else world.weights,
        )[0]
        drawn(edge)
        for consumer in self.consumers:
            consumer.limit(edge)
        self.send()

    def _publish(self, edge: Edge) -> None:
        world = self.world
        if edge.lane.lagging:
            self.count("publisher waits")
            return
        chance = world.clock.chance
        queues = tuple(sorted(chance.sample(world.queues, min(chance.choice([1, 1, 2]), len(world.queues)))))
        chance.choice(self.publishers).publish(edge, queues, chance.randint(1, RUN_MAX))
        self.count("published")

    def _settle(self, edge: Edge) -> None:
        chance = self.world.clock.chance
        holding = [each for each in self.consumers if each.held]
        if not holding:
            return
        consumer = chance.choice(holding)
        first = chance.choice(list(consumer.held))
        last = first
        while last + 1 in consumer.held and (chance.random() < 0.6 or not self.world.faults):
            last += 1
        how = chance.choices((edge.settle, edge.requeue, edge.reject), self.world.settling)[0]
        consumer.act(edge, first, last, how)
        self.count(f"settled by {how.__name__}")
        if consumer.gets:
            self.consumers.remove(consumer)

    def _subscribe(self, edge: Edge) -> None:
        chance, world = self.world.clock.chance, self.world
        self.consumers = [each for each in self.consumers if each.held or not each.is_cancelled]
        if sum(not each.gets for each in self.consumers) >= world.consumers_max:
            return
        prefetch, no_ack = chance.randint(1, 5), chance.random() < 0.15
        shares = not no_ack and prefetch > 1 and len(world.queues) > 1 and chance.random() < 0.5
        queues = chance.sample(world.queues, 2 if shares else 1)
        if not world.faults:  # in the end each queue has a large one
            have = {each.queue for each in self.consumers if each.prefetch == PREFETCH_MAX}
            shares, queues = False, [each for each in world.queues if each not in have][:1]
            prefetch, no_ack = PREFETCH_MAX, False
        made = [Consumer(self, queue, prefetch, no_ack) for queue in queues]
        if shares:
            made[0].partner, made[1].partner = made[1], made[0]
            made[0].share, made[1].share = prefetch - 1, 1
        for each in made:
            limit = 1 << 40 if no_ack else each.share
            each.number = edge.subscribe(each.queue, each, limit, limit * 8)
            world.queue_of[self.name, edge.incarnation, each.number] = each.queue
            if no_ack:
                each.share = limit
        self.consumers += made
        self.count("subscribed")

    def _cancel(self, edge: Edge) -> None:
        live = [each for each in self.consumers if not each.is_cancelled and not each.gets]
        if not live:
            return
        consumer, chance = self.world.clock.chance.choice(live), self.world.clock.chance
        consumer.is_cancelled = True
        if chance.random() < 0.5:
            edge.cancel(consumer.number, lambda _: self.count("cancelled"))
        else:
            consumer.held.clear()
            edge.release(consumer.number)
            self.count("released")

    def _get(self, edge: Edge) -> None:
        chance, world = self.world.clock.chance, self.world
        if sum(each.gets for each in self.consumers) >= 2:
            asked = [each for each in self.consumers if each.gets and (each.asked or each.held)]
            if asked and chance.random() < 0.3:
                gone = chance.choice(asked)
                gone.held.clear()
                edge.release(gone.number)
                self.consumers.remove(gone)
                self.count("released a get")
            self.consumers = [each for each in self.consumers if not each.gets or each.asked or each.held]
            return
        consumer = Consumer(self, chance.choice(world.queues), 1, False)
        consumer.gets = consumer.asked = True
        consumer.number = edge.get(consumer.queue, consumer.got)
        world.queue_of[self.name, edge.incarnation, consumer.number] = consumer.queue
        self.consumers.append(consumer)

    def _ask(self, edge: Edge) -> None:
        """Of its own queue, which has no consumers: so what the answer has to be is known."""
        world, chance, quiet = self.world, self.world.clock.chance, self.quiet
        queue = world.quiet[self.name]
        assert quiet is not None
        for _ in range(0 if edge.lane.lagging else chance.randint(1, 3)):
            if self.asks:
                return  # a channel that asks is suspended
            drawn = chance.random()
            if self.quiet_got and drawn < 0.3:
                self._settle_quiet(edge)
            elif drawn < 0.1:
                edge.purge(chance.choice(world.queues), lambda _: None)
            elif drawn < 0.45:
                count = chance.randint(1, 3)
                quiet.publish(edge, (queue,), count)
                self.expected = None if self.expected is None else self.expected + count
            elif drawn < 0.65:
                self.asks = True
                edge.count(queue, self._counts(self.expected, edge))
            elif drawn < 0.8:
                self.asks = True
                consumer = Consumer(self, queue, 1, False)
                consumer.gets = True
                consumer.number = edge.get(queue, self._gets(consumer, self.expected, edge))
                world.queue_of[self.name, edge.incarnation, consumer.number] = queue
            else:
                expected, self.expected = self.expected, 0
                edge.purge(queue, self._purges(expected, edge))

    def _settle_quiet(self, edge: Edge) -> None:
        got = self.quiet_got.pop(0)
        at = next(iter(got.held))
        if self.world.clock.chance.random() < 0.5:
            got.act(edge, at, at, edge.settle)
        else:
            got.act(edge, at, at, edge.requeue)
            if at in self.lost:
                self.doubt()
            self.expected = None if self.expected is None else self.expected + 1

    def _gets(self, consumer: Consumer, expected: int | None, edge: Edge) -> Any:
        doubts = self.doubts

        def answer(got: Any) -> bool:
            if self.edge is not edge or edge.state is EdgeState.ENDED:
                return False
            self.asks = False
            sure = expected is not None and self.world.faults and self.doubts == doubts
            if sure and isinstance(got, Got) != (expected != 0):
                raise LawBroken(f"a get finds {got}, and {expected} are there")
            consumer.got(got)
            if isinstance(got, Got):
                self.quiet_got.append(consumer)
                self.expected = None if self.expected is None else self.expected - 1
            return True

        return answer

    def _counts(self, expected: int | None, edge: Edge) -> Any:
        doubts = self.doubts

        def answer(counts: Any) -> None:
            if self.edge is edge:
                self.asks = False
            self.count("question answered")
            sure = expected is not None and self.world.faults and self.doubts == doubts
            if counts is not None and sure and counts.ready != expected and self.edge is edge:
                raise LawBroken(f"{counts.ready} are counted, and {expected} are there")

        return answer

    def _purges(self, expected: int | None, edge: Edge) -> Any:
        doubts = self.doubts

        def answer(count: int) -> None:
            if edge.state is EdgeState.ENDED or self.edge is not edge:
                return
            self.count("purged")
            sure = expected is not None and self.world.faults and self.doubts == doubts
            if sure and count != expected:
                raise LawBroken(f"{count} were purged, and {expected} were there")

        return answer

    def _move(self, edge: Edge) -> None:
        """A shared prefetch is divided otherwise."""
        shared = [each for each in self.consumers if each.partner is not None and not each.is_cancelled]
        if shared:
            consumer = self.world.clock.chance.choice(shared)
            other = consumer.partner
            assert other is not None
            consumer.share, other.share = other.share, consumer.share
            for each in (consumer, other):
                each.limit(edge)
            self.count("shared prefetch moved")
