"""A batch does what its messages would one after the other: two nodes get the same publishes, one of them cut so that
they come in batches, and both answer, deliver, store and lose the same."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pamqp import commands

from amqpd import KERNEL
from amqpd.kernel import Mixed
from amqpd.publishing import batches
from amqpd.vocabulary.limits import Limits
from tests.harness.harness import Client, Harness, Message, publish_bytes, vars_of

# name, whether durable, arguments
QUEUES: dict[str, tuple[bool, dict[str, Any]]] = {
    "durable": (True, {}),
    "transient": (False, {}),
    "short": (True, {"x-max-length": 5, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}),
    "small": (True, {"x-max-length-bytes": 300}),
    "dies": (True, {"x-message-ttl": 0, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}),
    "priorities": (True, {"x-max-priority": 3}),
    "quorum": (True, {"x-queue-type": "quorum", "x-delivery-limit": 5}),
    "refuses": (True, {"x-max-length": 4, "x-overflow": "reject-publish"}),
    "dead": (True, {}),
}
KEYS = [f"k{number}" for number in range(8)]


class Scene:
    """A node with the queues, its publisher and its consumer."""

    def __init__(self, bindings: list[tuple[str, str]], confirms: bool, limits: Limits | None = None) -> None:
        self.harness = Harness(limits)
        self.publisher = self.harness.client()
        self.consumer = self.harness.client()
        self.outcomes: dict[int, str] = {}
        """of publishes, by their number"""
        self.first_unconfirmed = 1
        self.publisher.call(
            commands.Exchange.Declare(exchange="x", exchange_type="topic"), commands.Exchange.DeclareOk
        )
        for name, (durable, arguments) in QUEUES.items():
            self.publisher.declare(name, durable=durable, arguments=arguments)
        for queue, key in bindings:
            self.publisher.call(
                commands.Queue.Bind(queue=queue, exchange="x", routing_key=key), commands.Queue.BindOk
            )
        if confirms:
            self.publisher.call(commands.Confirm.Select(), commands.Confirm.SelectOk)

    def consume(self, queues: set[str], prefetch: int, no_ack: bool) -> None:
        self.consumer.call(commands.Basic.Qos(prefetch_count=prefetch), commands.Basic.QosOk)
        for queue in sorted(queues):
            self.consumer.consume(queue, f"of {queue}", no_ack=no_ack)

    def publish(self, pieces: list[bytes]) -> None:
        """In one tick."""
        for piece in pieces:
            self.publisher.connection.receive(piece)
        self.harness.step()

    def said(self) -> dict[str, list[Any]]:
        """What either client was told since this was last asked: of each consumer, and all else, in order. Which of
        two queues is served first is nobody's promise, nor is how many are confirmed at once."""
        told: dict[str, list[Any]] = {}
        for client in (self.publisher, self.consumer):
            client.collect()
            for _, value in client.inbox:
                if isinstance(value, commands.Basic.Ack | commands.Basic.Nack):
                    self.confirmed(value)
                    continue
                by = getattr(value.method, "consumer_tag", "") if isinstance(value, Message) else ""
                told.setdefault(by, []).append(form(value))
            client.inbox = []
        return told

    def confirmed(self, value: Any) -> None:
        tag = value.delivery_tag
        for each in range(self.first_unconfirmed, tag + 1) if value.multiple else (tag,):
            if value.multiple and each in self.outcomes:
                continue
            assert each not in self.outcomes
            self.outcomes[each] = value.name
        while self.first_unconfirmed in self.outcomes:
            self.first_unconfirmed += 1

    def drained(self) -> dict[tuple[str, str], list[Any]]:
        """What is in the queues that are left, by queue and where it died before."""
        found: dict[tuple[str, str], list[Any]] = {}
        for queue in self.harness.topology.vhosts["/"].queues:
            while True:
                self.publisher.send(commands.Basic.Get(queue=queue, no_ack=True))
                (got,) = self.publisher.take(Message | commands.Basic.GetEmpty)
                if not isinstance(got, Message):
                    break
                died = (got.properties.headers or {}).get("x-first-death-queue", "")
                found.setdefault((queue, died), []).append(form(got))
        return found


def form(value: Any) -> Any:
    if isinstance(value, Message):
        method = vars_of(value.method)
        # Of one channel, whatever queues it comes from; and how many are behind it.
        tag, count = method.pop("delivery_tag", None), method.pop("message_count", None)
        assert tag or count is not None or "reply_code" in method
        headers = dict(value.properties.headers or {})
        for death in headers.get("x-death", []):
            death.pop("time")
        return value.method.name, method, headers, value.properties.message_id, value.body
    return value.name, vars_of(value)


def messages(random: Random, count: int) -> list[bytes]:
    frames = []
    common = random.choice(({}, {"delivery_mode": 2}, {"delivery_mode": 2, "priority": 1}, {"expiration": "0"}))
    for number in range(count):
        if random.random() < 0.1:
            common = random.choice(({}, {"delivery_mode": 2}, {"priority": random.randint(0, 5)}))
        properties: dict[str, Any] = {**common, "message_id": f"m{number}"}
        if random.random() < 0.4:
            properties["headers"] = {"number": number, "text": "t" * random.randint(0, 20)}
        if random.random() < 0.05:
            properties["headers"] = {"CC": [random.choice(KEYS)]}
        exchange, key = ("x", random.choice(KEYS)) if random.random() < 0.9 else ("", random.choice(list(QUEUES)))
        body = b"%d " % number * random.choice((0, 1, 1, 4, 30))
        frames += [publish_bytes(body, key, exchange, 1, random.random() < 0.1, **properties)] * random.choice(
            (1, 1, 3)
        )
    return frames


def cut(random: Random, data: bytes) -> list[bytes]:
    """Into a few pieces, anywhere."""
    places = sorted({0, len(data), *(random.randrange(len(data)) for _ in range(random.choice((0, 0, 1, 4))))})
    return [data[low:high] for low, high in pairwise(places)]


bindings = st.lists(st.tuples(st.sampled_from(sorted(QUEUES)), st.sampled_from([*KEYS, "#", "*"])), max_size=14)


@settings(deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(
    bindings=bindings,
    confirms=st.booleans(),
    consumed=st.sets(st.sampled_from(sorted(QUEUES))),
    prefetch=st.sampled_from([0, 1, 3, 50]),
    no_ack=st.booleans(),
    seed=st.integers(0, 2**32),
    restarts=st.booleans(),
)
def test_a_batch_does_what_its_messages_would(
    bindings: list[tuple[str, str]],
    confirms: bool,
    consumed: set[str],
    prefetch: int,
    no_ack: bool,
    seed: int,
    restarts: bool,
) -> None:
    random = Random(seed)
    together, apart = Scene(bindings, confirms), Scene(bindings, confirms)
    for scene in (together, apart):
        scene.consume(consumed - {"dead"}, prefetch, no_ack)
    assert together.said() == apart.said()
    for _ in range(random.choice((1, 2, 4))):
        frames = messages(random, random.choice((2, 10, 60)))
        together.publish(cut(random, b"".join(frames)))
        apart.publish(frames)
        assert together.said() == apart.said()
        if not no_ack and random.random() < 0.7:
            settle = random.choice(
                (
                    commands.Basic.Ack(delivery_tag=0, multiple=True),
                    commands.Basic.Nack(delivery_tag=0, multiple=True, requeue=True),
                    commands.Basic.Nack(delivery_tag=0, multiple=True, requeue=False),
                )
            )
            for scene in (together, apart):
                scene.consumer.send(settle)
            assert together.said() == apart.said()
    for scene in (together, apart):
        for queue in scene.harness.node.queues.values():
            assert queue.ready_bytes >= 0
        if restarts:
            scene.harness.restart()
            scene.publisher, scene.consumer = scene.harness.client(), scene.harness.client()
        else:
            scene.consumer.lose()
    assert together.drained() == apart.drained()
    assert together.outcomes == apart.outcomes
    assert (together.first_unconfirmed == len(together.outcomes) + 1) or not confirms
    for scene in (together, apart):
        assert scene.harness.bugs == []
        for queue in scene.harness.node.queues.values():
            assert (queue.ready_bytes, queue.memory_bytes, queue.unacked_count) == (0, 0, 0)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """(messages, whether they were taken together) of each batch that came."""
    if KERNEL != "python":
        pytest.skip("what a compiled module calls cannot be replaced")
    found: list[tuple[int, bool]] = []
    publish: Callable[..., bool] = batches.publish_batch

    def watched(node: Any, channel: Any, batch: Mixed) -> bool:
        answer = publish(node, channel, batch)
        found.append((batch.count, answer))
        return answer

    monkeypatch.setattr(batches, "publish_batch", watched)
    return found


def differing(count: int, key: str = "durable", exchange: str = "", **properties: Any) -> bytes:
    return b"".join(
        publish_bytes(b"%d" % number, key, exchange, message_id=f"m{number}", **properties) for number in range(count)
    )


def bodies(client: Client) -> list[bytes]:
    return [message.body for message in client.messages()]


def test_messages_with_ids_of_their_own_go_together(taken: list[tuple[int, bool]]) -> None:
    scene = Scene([], True)
    scene.consume({"durable"}, 0, True)
    scene.said()
    scene.publish([differing(30, delivery_mode=2)])
    assert taken == [(30, True)]
    assert bodies(scene.consumer) == [b"%d" % number for number in range(30)]
    (ack,) = scene.publisher.take(commands.Basic.Ack)
    assert (ack.delivery_tag, ack.multiple) == (30, True)


def test_a_new_key_is_looked_up_for_the_batch_that_has_it(taken: list[tuple[int, bool]]) -> None:
    scene = Scene([("durable", "#")], False)
    data = b"".join(publish_bytes(b"x", f"order.{number}", "x", message_id="m") for number in range(50))
    scene.publish([data])
    assert taken == [(50, True)]
    assert len(scene.publisher.connection.routes.known) == 50


def test_an_exchange_that_is_not_there_is_told_at_its_message(taken: list[tuple[int, bool]]) -> None:
    scene = Scene([], True)
    scene.said()
    scene.publish([differing(3) + publish_bytes(b"x", "k", "missing") + differing(4)])
    assert taken[0] == (8, False)
    (close,) = scene.publisher.take(commands.Channel.Close)
    assert (close.reply_code, close.class_id, close.method_id) == (404, 60, 40)
    assert [(ack.delivery_tag, ack.multiple) for ack in scene.publisher.take(commands.Basic.Ack)][-1][0] == 3
    scene.publisher.send(commands.Channel.CloseOk())
    scene.publisher.channel(2)
    assert (
        scene.publisher.call(
            commands.Queue.Declare(queue="durable", passive=True), commands.Queue.DeclareOk, 2
        ).message_count
        == 3
    )


def test_a_message_that_is_too_large_is_told_at_its_message(taken: list[tuple[int, bool]]) -> None:
    scene = Scene([], False, Limits(message_bytes_max=100))
    scene.publish([differing(2) + publish_bytes(bytes(101), "durable", message_id="m") + differing(2)])
    assert taken[0] == (5, False)
    (close,) = scene.publisher.take(commands.Channel.Close)
    assert close.reply_code == 406
    assert not taken[0][1]


@pytest.mark.parametrize("key", ["nowhere", "refuses"])
def test_what_no_queue_takes_goes_message_by_message(taken: list[tuple[int, bool]], key: str) -> None:
    scene = Scene([], True)
    scene.said()
    scene.publish([differing(6, key)])
    assert taken == [(6, False)]
    assert bool(scene.publisher.take(commands.Basic.Nack)) == (key == "refuses")


def test_a_batch_of_a_transaction_is_held_for_it(taken: list[tuple[int, bool]]) -> None:
    scene = Scene([], False)
    scene.publisher.call(commands.Tx.Select(), commands.Tx.SelectOk)
    scene.publish([differing(6)])
    assert taken == []
    passive = commands.Queue.Declare(queue="durable", passive=True)
    assert scene.consumer.call(passive, commands.Queue.DeclareOk).message_count == 0
    scene.publisher.call(commands.Tx.Commit(), commands.Tx.CommitOk)
    assert scene.consumer.call(passive, commands.Queue.DeclareOk).message_count == 6


def test_copies_that_may_be_larger_than_the_disk_are_asked_for_one_by_one(taken: list[tuple[int, bool]]) -> None:
    """Most keys lead to one queue, and the messages of one to many: together they are what counts."""
    scene = Scene([], True)
    for number in range(100):
        scene.publisher.declare(f"copy{number}", durable=True)
        scene.publisher.call(
            commands.Queue.Bind(queue=f"copy{number}", exchange="x", routing_key="many"), commands.Queue.BindOk
        )
    scene.publisher.call(
        commands.Queue.Bind(queue="durable", exchange="x", routing_key="one.*"), commands.Queue.BindOk
    )
    scene.said()
    large = [publish_bytes(bytes(15_000 + n), "many", "x", message_id="m", delivery_mode=2) for n in range(10)]
    small = [publish_bytes(b"x", f"one.{n}", "x", message_id="m", delivery_mode=2) for n in range(200)]
    scene.publish([b"".join(large + small)])
    assert taken[0] == (210, False)
