"""Random commands on a node against a plain model of one queue.

After every step: conservation (accepted = ready + unacked + settled), prefetch, order; after a restart: nothing that
was confirmed and not settled is lost, nothing that was settled comes back."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from pamqp import base, commands

from amqpd.vocabulary.limits import Limits
from tests.harness.harness import Client, Harness

SMALL = Limits(queue_memory_bytes=2000, backlog_memory_bytes=2000, small_queue_bytes=500)


class QueueModel(RuleBasedStateMachine):
    """`ready` is the model's queue: bodies in order. `unacked` maps (client number, tag) to the body."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = Harness(SMALL, automatic=False)
        self.clients: list[Client] = []
        self.number = 0
        self.ready: list[int] = []
        self.delivered_once: set[int] = set()
        self.unacked: dict[tuple[int, int], int] = {}
        self.settled: set[int] = set()
        self.confirmed: set[int] = set()
        self.published: dict[int, list[int]] = {}
        self.persistent: set[int] = set()
        self.prefetch: dict[int, int] = {}
        self.slow_disk = False
        """reads that were asked for are not answered"""
        self.connect()

    def settle_down(self) -> None:
        """Everything that can happen without time passing on the disk."""
        self.harness.answer()
        if not self.slow_disk:
            self.harness.read()
        self.harness.answer()
        self.collect()

    def connect(self) -> None:
        self.harness.automatic = True
        for number in range(2):
            client = self.harness.client()
            client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
            client.declare("q", durable=True)
            client.channel(2)
            self.clients.append(client)
            self.published[number] = []
            self.prefetch[number] = 0
        self.harness.automatic = False

    def collect(self) -> None:
        delivered = []
        for number, client in enumerate(self.clients):
            client.take(commands.Basic.GetEmpty)
            messages = client.messages()
            bodies = [int(message.body.split()[0]) for message in messages]
            assert bodies == sorted(bodies), "order at one client"
            delivered += [(body, number, message) for body, message in zip(bodies, messages, strict=True)]
            for ack in client.take(commands.Basic.Ack):
                for tag in range(1, ack.delivery_tag + 1) if ack.multiple else [ack.delivery_tag]:
                    self.confirmed.add(self.published[number][tag - 1])
        for body, number, message in sorted(delivered, key=lambda each: each[0]):
            assert body not in self.settled, "came back after it was settled"
            # Nothing that stands before it in the queue was passed over.
            assert self.ready[:1] == [body]
            assert message.redelivered or body not in self.delivered_once
            del self.ready[0]
            self.delivered_once.add(body)
            self.unacked[number, message.tag] = body

    @rule(number=st.integers(0, 1), count=st.integers(1, 12), size=st.integers(0, 300), persistent=st.booleans())
    def publish(self, number: int, count: int, size: int, persistent: bool) -> None:
        client = self.clients[number]
        for _ in range(count):
            self.number += 1
            client.publish(b"%08d %s" % (self.number, bytes(size)), "q", delivery_mode=2 if persistent else 1)
            self.ready.append(self.number)
            self.published[number].append(self.number)
            if persistent:
                self.persistent.add(self.number)
            self.settle_down()

    @rule(number=st.integers(0, 1), prefetch=st.integers(0, 5))
    def consume(self, number: int, prefetch: int) -> None:
        client = self.clients[number]
        if self.prefetch[number] == 0 and not client.connection.channels[2].consumers:
            client.call(commands.Basic.Qos(prefetch_count=prefetch + 1), commands.Basic.QosOk, 2)
            self.prefetch[number] = prefetch + 1
            client.send(commands.Basic.Consume(queue="q", consumer_tag="t", nowait=True), 2)
            self.settle_down()

    @rule(number=st.integers(0, 1))
    def cancel(self, number: int) -> None:
        self.clients[number].send(commands.Basic.Cancel(consumer_tag="t", nowait=True), 2)
        self.prefetch[number] = 0
        self.settle_down()

    @rule(slow=st.booleans())
    def disk(self, slow: bool) -> None:
        self.slow_disk = slow
        self.settle_down()

    @precondition(lambda self: not self.slow_disk)
    @rule(number=st.integers(0, 1))
    def get(self, number: int) -> None:
        self.clients[number].send(commands.Basic.Get(queue="q"), 2)
        self.settle_down()

    @precondition(lambda self: self.unacked)
    @rule(data=st.data(), multiple=st.booleans(), how=st.sampled_from(["ack", "requeue", "reject"]))
    def settle(self, data: st.DataObject, multiple: bool, how: str) -> None:
        number, tag = data.draw(st.sampled_from(sorted(self.unacked)))
        taken = [
            key for key in sorted(self.unacked) if key[0] == number and (key[1] == tag or (multiple and key[1] < tag))
        ]
        bodies = [self.unacked.pop(key) for key in taken]
        if how == "requeue":
            self.ready = sorted(self.ready + bodies)
            method: base.Frame = commands.Basic.Nack(tag, multiple, True)
        else:
            self.settled.update(bodies)
            method = commands.Basic.Ack(tag, multiple) if how == "ack" else commands.Basic.Nack(tag, multiple, False)
        self.clients[number].send(method, 2)
        self.settle_down()

    @rule(number=st.integers(0, 1))
    def purge(self, number: int) -> None:
        self.clients[number].send(commands.Queue.Purge(queue="q", nowait=True), 1)
        self.settled.update(self.ready)
        self.ready = []
        self.settle_down()

    @rule()
    def commit(self) -> None:
        self.harness.commit()
        self.settle_down()

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        self.slow_disk = False
        self.settle_down()
        if clean:
            while self.harness.node.journal.pending:
                self.harness.commit()
                self.settle_down()
        confirmed_left = {b for b in self.confirmed & self.persistent if b not in self.settled}
        self.harness.restart()
        self.harness.automatic = True
        queue = self.harness.node.queues["/", "q"]
        self.clients, self.prefetch = [], {}
        known = set(self.ready) | set(self.unacked.values())
        self.published, self.unacked, old_ready = {}, {}, self.ready
        self.connect()
        self.harness.automatic = True
        drained = self.clients[0]
        found = []
        while True:
            drained.send(commands.Basic.Get(queue="q"), 2)
            messages = drained.messages()
            if not messages:
                break
            found += [int(message.body.split()[0]) for message in messages]
        drained.take(commands.Basic.GetEmpty)
        assert found == sorted(found), "order after a restart"
        assert confirmed_left <= set(found), f"lost {confirmed_left - set(found)}"
        assert set(found) <= known | self.settled, "never published"
        # What was settled may come back when the settling had not reached the disk; not after a clean end.
        if clean:
            assert set(found) == {b for b in known if b in self.persistent}
        drained.send(commands.Basic.Nack(0, True, True), 2)
        self.harness.automatic = False
        self.ready = found
        self.settled -= set(found)
        self.delivered_once = set(found)
        self.confirmed &= set(found)
        assert queue.backlog.ready == len(found)
        del old_ready
        self.settle_down()

    @invariant()
    def holds(self) -> None:
        assert not self.harness.bugs, self.harness.bugs
        backlog = self.harness.node.queues["/", "q"].backlog
        assert backlog.ready == len(self.ready)
        assert backlog.unacked == len(self.unacked)
        left = sum(segment.left for segment in backlog.store.segments)
        assert left == backlog.ready + backlog.unacked
        held = sum(segment.memory_bytes for segment in backlog.store.segments)
        assert held == backlog.store.memory_bytes
        for number, prefetch in self.prefetch.items():
            channel = self.clients[number].connection.channels.get(2)
            if channel is not None:
                assert all(consumer.unacked <= prefetch for consumer in channel.consumers.values())


TestQueueModel = QueueModel.TestCase
TestQueueModel.settings = settings(max_examples=60, stateful_step_count=40)
