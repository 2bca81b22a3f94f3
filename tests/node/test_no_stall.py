"""Whatever clients do, a message that is ready and a consumer that has credit do not wait beside each other.

Random commands on two queues and four channels, with an outbox that fills and a queue that pages. After each step
everything that can happen by itself has happened; then for each queue: nothing ready, or nobody has credit. Also:
what consumers hold adds up, and no limit of prefetch is passed."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from pamqp import base, commands, frame

from amqpd.channels import Channel
from amqpd.vocabulary.limits import Limits
from tests.harness.examples import EXAMPLES
from tests.harness.harness import Client, Harness, publish_bytes

SMALL = Limits(outbox_bytes_max=3000, queue_memory_bytes=4000, backlog_memory_bytes=6000, small_queue_bytes=500)
Basic = commands.Basic
QUEUES = ("durable", "transient")
places = st.tuples(st.integers(0, 1), st.integers(1, 2))


class NoStall(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.harness = Harness(SMALL)
        self.clients: list[Client] = [self.connect(), self.connect()]
        self.tags = 0
        self.declare()
        # Something is under way from the start: short runs find the most.
        for number, queue in enumerate(QUEUES):
            self.consume((number, 1), queue, 2, False)
            self.publish(number, queue, 12, 60, 2)
            self.publish(number, queue, 1, 2500, 2)

    def connect(self) -> Client:
        client = self.harness.client()
        client.channel(2)
        return client

    def declare(self) -> None:
        for name in QUEUES:
            self.clients[0].declare(name, durable=name == "durable")
            self.clients[0].collect()

    def channel(self, place: tuple[int, int]) -> Channel:
        return self.clients[place[0]].connection.channels[place[1]]

    def send(self, place: tuple[int, int], method: base.Frame) -> None:
        """What comes back stays in the outbox, as if the client did not read."""
        self.clients[place[0]].connection.receive(frame.marshal(method, place[1]))
        self.settle()

    def settle(self) -> None:
        self.harness.step()
        for _ in range(40):
            if not (self.harness.node.to_dispatch or self.harness.reads or self.harness.node.journal.pending):
                return
            self.harness.step()
        raise AssertionError("it never comes to rest")

    def some_tag(self, data: st.DataObject, place: tuple[int, int]) -> int | None:
        unacked = self.channel(place).unacked
        tags = [entry.tag + i for entry in unacked for i in range(entry.size)]
        return data.draw(st.sampled_from(tags)) if tags else None

    @rule(
        number=st.integers(0, 1),
        queue=st.sampled_from(QUEUES),
        count=st.integers(1, 20),
        size=st.sampled_from([1, 60, 400, 2500]),
        mode=st.integers(1, 2),
    )
    def publish(self, number: int, queue: str, count: int, size: int, mode: int) -> None:
        data = publish_bytes(bytes(size), queue, delivery_mode=mode) * count
        self.clients[number].connection.receive(data)
        self.settle()

    @rule(place=places, queue=st.sampled_from(QUEUES), prefetch=st.integers(0, 3), no_ack=st.booleans())
    def consume(self, place: tuple[int, int], queue: str, prefetch: int, no_ack: bool) -> None:
        self.tags += 1
        self.send(place, Basic.Qos(prefetch_count=prefetch))
        self.send(place, Basic.Consume(queue=queue, consumer_tag=f"t{self.tags}", no_ack=no_ack))

    @rule(place=places, data=st.data())
    def cancel(self, place: tuple[int, int], data: st.DataObject) -> None:
        consumers = sorted(self.channel(place).consumers)
        if consumers:
            self.send(place, Basic.Cancel(data.draw(st.sampled_from(consumers))))

    @rule(place=places, data=st.data(), multiple=st.booleans(), how=st.sampled_from("anr"))
    def settle_some(self, place: tuple[int, int], data: st.DataObject, multiple: bool, how: str) -> None:
        tag = self.some_tag(data, place)
        if tag is not None:
            method = {
                "a": Basic.Ack(tag, multiple),
                "n": Basic.Nack(tag, multiple, True),
                "r": Basic.Reject(tag, False),
            }[how]
            self.send(place, method)

    @rule(place=places)
    def ack_all(self, place: tuple[int, int]) -> None:
        self.send(place, Basic.Ack(0, True))

    @rule(place=places)
    def recover(self, place: tuple[int, int]) -> None:
        self.send(place, Basic.Recover(True))

    @rule(place=places, queue=st.sampled_from(QUEUES), no_ack=st.booleans())
    def get(self, place: tuple[int, int], queue: str, no_ack: bool) -> None:
        self.send(place, Basic.Get(queue=queue, no_ack=no_ack))

    @rule(place=places, count=st.integers(0, 4))
    def share_prefetch(self, place: tuple[int, int], count: int) -> None:
        self.send(place, Basic.Qos(prefetch_count=count, global_=True))

    @rule(place=places)
    def flow(self, place: tuple[int, int]) -> None:
        self.send(place, commands.Channel.Flow(True))

    @rule(number=st.integers(0, 1), part=st.sampled_from([0.0, 0.4, 0.7]))
    def the_client_reads(self, number: int, part: float) -> None:
        connection = self.clients[number].connection
        left = int(sum(map(len, connection.outbox)) * part)
        connection.outbox = [bytes(left)] if left else []
        connection.sent(left)
        self.settle()

    @rule(queue=st.sampled_from(QUEUES))
    def purge(self, queue: str) -> None:
        self.send((0, 1), commands.Queue.Purge(queue=queue))

    @rule(queue=st.sampled_from(QUEUES))
    def delete(self, queue: str) -> None:
        self.send((1, 1), commands.Queue.Delete(queue=queue))
        self.send((0, 1), commands.Queue.Declare(queue=queue, durable=queue == "durable"))

    @rule(place=places)
    def close_channel(self, place: tuple[int, int]) -> None:
        self.send(place, commands.Channel.Close(200, "", 0, 0))
        self.send(place, commands.Channel.Open())

    @rule(number=st.integers(0, 1))
    def lose(self, number: int) -> None:
        self.clients[number].connection.lost()
        self.settle()
        self.clients[number] = self.connect()

    @invariant()
    def nothing_waits_for_nothing(self) -> None:
        assert not self.harness.bugs, self.harness.bugs
        for queue in self.harness.node.queues.values():
            ready = queue.backlog.ready
            idle = [consumer for consumer in queue.consumers if consumer.credit() > 0]
            assert not (ready and idle), (queue.record.name, ready, [vars_of(each) for each in idle])
            assert not queue.getters
            assert sum(segment.left for segment in queue.backlog.store.segments) == ready + queue.backlog.unacked

    @invariant()
    def what_consumers_hold_adds_up(self) -> None:
        held: dict[object, int] = {}
        for client in self.clients:
            for channel in client.connection.channels.values():
                unacked = channel.unacked
                entries = list(unacked)
                assert unacked.count == sum(entry.size for entry in entries)
                assert channel.consumed == sum(entry.size for entry in entries if entry.consumer is not None)
                for consumer in channel.consumers.values():
                    own = sum(entry.size for entry in entries if entry.consumer is consumer)
                    assert consumer.unacked == own
                    assert not consumer.prefetch or own <= consumer.prefetch
                for entry in entries:
                    if not entry.queue.is_deleted:
                        held[entry.queue] = held.get(entry.queue, 0) + entry.size
        for queue in self.harness.node.queues.values():
            assert queue.backlog.unacked == held.get(queue, 0)


def vars_of(consumer: object) -> dict[str, object]:
    return {name: getattr(consumer, name) for name in ("tag", "prefetch", "unacked", "no_ack")}


TestNoStall = NoStall.TestCase
TestNoStall.settings = settings(max_examples=2 * EXAMPLES, stateful_step_count=30)


def filled(limits: Limits | None = None) -> tuple[Harness, Client]:
    """Twenty messages of 400 bytes in `transient`; the client has declared it and consumes nothing yet."""
    harness = Harness(limits)
    client = harness.client()
    client.declare("transient")
    for _ in range(20):
        client.publish(bytes(400), "transient")
    return harness, client


def test_an_outbox_that_is_read_again_goes_on() -> None:
    harness, client = filled(SMALL)
    client.connection.receive(frame.marshal(Basic.Consume(queue="transient", consumer_tag="t", no_ack=True), 1))
    harness.step()
    queue = harness.node.queues["/", "transient"]
    left = queue.backlog.ready
    assert client.connection.outbox_full
    assert 0 < left < 20
    client.collect()
    harness.step()
    assert queue.backlog.ready < left


def test_a_shared_prefetch_that_is_raised_or_lifted_goes_on() -> None:
    changes = {
        Basic.Qos(prefetch_count=3, global_=True): 2,
        Basic.Qos(global_=True): 19,
        Basic.Qos(prefetch_count=3): 19,
    }
    for change, more in changes.items():
        _, client = filled()
        client.call(Basic.Qos(prefetch_count=1, global_=True), Basic.QosOk)
        client.consume("transient")
        assert len(client.messages()) == 1
        client.call(change, Basic.QosOk)
        assert len(client.messages()) == more


def test_what_another_connection_gives_back_goes_to_whoever_waits() -> None:
    harness, client = filled()
    client.call(Basic.Qos(prefetch_count=20), Basic.QosOk)
    client.consume("transient")
    assert len(client.messages()) == 20
    other = harness.client()
    other.consume("transient")
    assert not other.messages()
    client.send(Basic.Cancel("t"))
    client.send(Basic.Nack(3, True, True))
    other.collect()
    assert len(other.messages()) == 3
    client.lose()
    assert len(other.messages()) == 17
