"""Messages that expire, are dropped, die and come back: a queue's settings at work; the test moves the clock."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from pamqp import commands, frame

from amqpd import KERNEL
from amqpd.kernel import scan_publishes
from amqpd.node.dispatching import QUEUES_WORK_MAX
from amqpd.node.node import DUE_QUEUES_MAX
from amqpd.publishing import dead_lettering
from amqpd.publishing.dead_lettering import DEAD_LETTER_WORK
from amqpd.queues.backlog import Backlog
from amqpd.queues.deadletters import dead_letter_of
from amqpd.queues.dispatchable import LOOK_WORK
from amqpd.queues.removal import PIECE_WORK
from tests.harness.harness import Client, Harness, publish_bytes


@pytest.fixture
def harness() -> Harness:
    return Harness()


@pytest.fixture
def client(harness: Harness) -> Client:
    return harness.client()


def declare(client: Client, name: str = "q", **arguments: Any) -> None:
    named = {"x-" + key.replace("_", "-"): value for key, value in arguments.items()}
    client.declare(name, durable=True, arguments=named)


def get(client: Client, queue: str = "q") -> Any:
    client.send(commands.Basic.Get(queue=queue, no_ack=True))
    found = client.messages()
    if not found:
        client.expect(commands.Basic.GetEmpty)
        return None
    return found[0]


def later(harness: Harness, ms: int) -> None:
    harness.node.now_ms += ms
    harness.step()


def test_a_message_expires_wherever_it_stands(harness: Harness, client: Client) -> None:
    declare(client)
    for body, expiration in ((b"1", None), (b"2", "50"), (b"3", "200")):
        client.publish(body, "q", expiration=expiration) if expiration else client.publish(body, "q")
    later(harness, 50)
    assert client.declare("q", passive=True).message_count == 3, "not before its time"
    later(harness, 1)
    assert client.declare("q", passive=True).message_count == 2
    assert [get(client).body, get(client).body] == [b"1", b"3"]


def test_the_shorter_of_two_times_holds(harness: Harness, client: Client) -> None:
    declare(client, message_ttl=100)
    client.publish(b"queue", "q", expiration="500")
    client.publish(b"own", "q", expiration="20")
    later(harness, 21)
    assert client.declare("q", passive=True).message_count == 1
    later(harness, 80)
    assert client.declare("q", passive=True).message_count == 0


def test_with_a_ttl_of_0_only_a_waiting_consumer_gets_it(harness: Harness, client: Client) -> None:
    declare(client, message_ttl=0)
    client.publish(b"nobody", "q")
    assert client.declare("q", passive=True).message_count == 0
    client.consume("q")
    client.publish(b"somebody", "q")
    assert client.bodies() == [b"somebody"]


def test_what_is_delivered_does_not_expire_before_it_comes_back(harness: Harness, client: Client) -> None:
    declare(client)
    client.publish(b"x", "q", expiration="10")
    client.send(commands.Basic.Get(queue="q"))
    (message,) = client.messages()
    later(harness, 100)
    assert harness.node.queues["/", "q"].backlog.unacked == 1
    client.send(commands.Basic.Nack(message.tag, False, True))
    assert get(client) is None
    queue = harness.node.queues["/", "q"]
    assert (queue.backlog.ready, queue.backlog.unacked, queue.facts.expired) == (0, 0, 1)


def test_an_expired_message_is_dead_lettered_once_with_its_death(harness: Harness, client: Client) -> None:
    declare(client, "dead")
    declare(client, "q", dead_letter_exchange="", dead_letter_routing_key="dead", message_ttl=1000)
    client.publish(b"x", "q", expiration="10", delivery_mode=2)
    later(harness, 11)
    message = get(client, "dead")
    (death,) = message.properties.headers["x-death"]
    assert {key: value for key, value in death.items() if key != "time"} == {
        "count": 1,
        "reason": "expired",
        "queue": "q",
        "exchange": "",
        "routing-keys": ["q"],
        "original-expiration": "10",
    }
    assert message.properties.expiration is None
    assert message.properties.headers["x-first-death-queue"] == "q"
    assert get(client, "dead") is None
    assert harness.node.queues["/", "q"].facts.dead_lettered == 1


def test_deadlines_survive_a_restart(harness: Harness, client: Client) -> None:
    declare(client)
    client.publish(b"1", "q", expiration="50", delivery_mode=2)
    client.publish(b"2", "q", delivery_mode=2)
    client.publish(b"3", "q", expiration="5000", delivery_mode=2)
    now_ms = harness.node.now_ms
    harness.restart()
    harness.node.now_ms = now_ms + 51
    harness.step()
    client = harness.client()
    assert [get(client).body, get(client).body] == [b"2", b"3"]


def test_drop_head_keeps_the_newest(client: Client) -> None:
    declare(client, max_length=3)
    for n in range(10):
        client.publish(b"%d" % n, "q")
    assert client.declare("q", passive=True).message_count == 3
    assert [get(client).body for _ in range(3)] == [b"7", b"8", b"9"]


def test_max_length_bytes_counts_bodies(client: Client) -> None:
    declare(client, max_length_bytes=100)
    for size in (40, 40, 40, 10):
        client.publish(bytes(size), "q")
    assert [len(get(client).body) for _ in range(3)] == [40, 40, 10]


def test_reject_publish_refuses_what_is_over_the_limit(client: Client) -> None:
    declare(client, max_length=2, overflow="reject-publish")
    client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
    for n in range(4):
        client.publish(b"%d" % n, "q")
    assert [nack.delivery_tag for nack in client.take(commands.Basic.Nack)] == [3, 4]
    acks = client.take(commands.Basic.Ack)
    assert acks[-1].delivery_tag == 2
    assert [get(client).body for _ in range(2)] == [b"0", b"1"]


def test_the_highest_priority_is_served_first(client: Client) -> None:
    declare(client, max_priority=5)
    for priority, body in ((1, b"low"), (9, b"high"), (None, b"none"), (5, b"also high")):
        client.publish(body, "q", priority=priority) if priority else client.publish(body, "q")
    assert [get(client).body for _ in range(4)] == [b"high", b"also high", b"low", b"none"]


def test_priorities_survive_a_restart(harness: Harness, client: Client) -> None:
    declare(client, max_priority=5)
    for priority in (1, 4, 2):
        client.publish(b"%d" % priority, "q", priority=priority, delivery_mode=2)
    harness.restart()
    client = harness.client()
    assert [get(client).body for _ in range(3)] == [b"4", b"2", b"1"]


def test_a_rejected_message_is_dead_lettered(harness: Harness, client: Client) -> None:
    declare(client, "dead")
    declare(client, "q", dead_letter_exchange="", dead_letter_routing_key="dead")
    client.publish(b"x", "q")
    client.consume("q")
    (message,) = client.messages()
    client.send(commands.Basic.Reject(message.tag, False))
    (death,) = get(client, "dead").properties.headers["x-death"]
    assert (death["reason"], death["count"]) == ("rejected", 1)


def test_a_quorum_queue_counts_deliveries_and_gives_up(client: Client) -> None:
    declare(client, "dead")
    declare(client, queue_type="quorum", delivery_limit=2, dead_letter_exchange="", dead_letter_routing_key="dead")
    client.publish(b"x", "q")
    counts = []
    for _ in range(3):
        client.send(commands.Basic.Get(queue="q"))
        (message,) = client.messages()
        counts.append((message.properties.headers or {}).get("x-delivery-count"))
        client.send(commands.Basic.Nack(message.tag, False, True))
    assert counts == [None, 1, 2]
    assert get(client) is None
    assert get(client, "dead").properties.headers["x-death"][0]["reason"] == "delivery_limit"


def test_one_consumer_is_active_and_the_next_takes_over(harness: Harness, client: Client) -> None:
    declare(client, single_active_consumer=True)
    client.consume("q", "first")
    client.consume("q", "second")
    for n in range(3):
        client.publish(b"%d" % n, "q")
    assert {message.method.consumer_tag for message in client.messages()} == {"first"}
    client.call(commands.Basic.Cancel(consumer_tag="first"), commands.Basic.CancelOk)
    client.publish(b"3", "q")
    assert [message.method.consumer_tag for message in client.messages()] == ["second"]


def test_an_unused_queue_expires_and_a_used_one_does_not(harness: Harness, client: Client) -> None:
    declare(client, expires=100)
    later(harness, 99)
    client.declare("q", passive=True)
    later(harness, 99)
    assert ("/", "q") in harness.node.queues
    client.consume("q")
    later(harness, 500)
    assert ("/", "q") in harness.node.queues
    client.call(commands.Basic.Cancel(consumer_tag="t"), commands.Basic.CancelOk)
    later(harness, 100)
    assert ("/", "q") not in harness.node.queues


def test_a_cycle_of_expiry_ends(harness: Harness, client: Client) -> None:
    declare(client, "a", message_ttl=10, dead_letter_exchange="", dead_letter_routing_key="b")
    declare(client, "b", message_ttl=10, dead_letter_exchange="", dead_letter_routing_key="a")
    client.publish(b"x", "a")
    for _ in range(5):
        later(harness, 11)
    assert client.declare("a", passive=True).message_count == 0
    assert client.declare("b", passive=True).message_count == 0


def test_a_delayed_message_comes_in_time_also_after_a_restart(harness: Harness, client: Client) -> None:
    declare(client)
    data = publish_bytes(b"later", "q", delivery_mode=1)
    run = scan_publishes(data, 0, len(data), 1 << 20)
    assert run is not None
    assert harness.node.delay("/", run, 100, None)
    later(harness, 100)
    assert get(client) is None
    now_ms = harness.node.now_ms
    harness.restart()
    harness.node.now_ms = now_ms
    client = harness.client()
    assert get(client) is None
    later(harness, 1)
    assert get(client).body == b"later"
    assert harness.node.delayed["/"].backlog.ready == 0


def test_a_policy_that_makes_many_too_many_does_not_hold_the_others_up(harness: Harness, client: Client) -> None:
    client.declare("q")
    for n in range(35):
        client.publish(bytes(n), "q")
    queue = harness.node.queues["/", "q"]
    queue.apply(queue.record, {"max-length": 0})
    harness.node.to_dispatch.add(queue)
    left = []
    for _ in range(4):
        harness.node.work_left = LOOK_WORK + 10 * PIECE_WORK
        harness.node.tick(fresh=False)
        left.append(queue.backlog.ready)
    assert left == [25, 15, 5, 0]
    assert not harness.node.behind


def test_many_that_were_rejected_are_dead_lettered_piece_by_piece(harness: Harness, client: Client) -> None:
    declare(client, "dead")
    declare(client, dead_letter_exchange="", dead_letter_routing_key="dead")
    client.consume("q")
    for n in range(25):
        client.publish(bytes(n), "q")
    client.connection.receive(frame.marshal(commands.Basic.Nack(0, True, False), 1))
    left = []
    while harness.node.behind:
        harness.node.work_left = 200
        harness.node.tick(fresh=False)
        left.append(harness.node.queues["/", "q"].backlog.unacked)
    portions = [before - after for before, after in pairwise([25, *left])]
    assert len(portions) > 2
    assert max(portions) <= 200 // DEAD_LETTER_WORK + 1
    assert left[-1] == 0
    assert [len(get(client, "dead").body) for _ in range(25)] == list(range(25))


@pytest.mark.parametrize(
    "arguments",
    [
        {"dead_letter_exchange": "", "dead_letter_routing_key": "k" * 256},
        {"dead_letter_exchange": "x" * 256},
    ],
)
def test_an_address_that_no_method_can_hold_is_none(
    harness: Harness, client: Client, arguments: dict[str, str]
) -> None:
    """Its tick would fail, and after a restart the first tick of all."""
    declare(client, message_ttl=10, **arguments)
    client.publish(b"x", "q", delivery_mode=2)
    later(harness, 11)
    assert client.declare("q", passive=True).message_count == 0


def ticks(harness: Harness) -> Iterator[int]:
    """Tick until nothing is to be done; how many dead letters each brought."""
    while True:
        before = sum(queue.facts.dead_lettered for queue in harness.node.queues.values())
        harness.node.tick()
        yield sum(queue.facts.dead_lettered for queue in harness.node.queues.values()) - before
        if not (harness.node.wakes.heap or harness.node.behind):
            return


def test_a_publish_that_dies_twice_in_each_of_ten_places_does_not_hold_the_others_up(
    harness: Harness, client: Client
) -> None:
    """1,022 dead letters of up to ten deaths each."""
    for level in range(10):
        client.call(
            commands.Exchange.Declare(exchange=f"x{level}", exchange_type="fanout"), commands.Exchange.DeclareOk
        )
        for side in "ab":
            name = f"{side}{level}"
            client.declare(name, arguments={"x-message-ttl": 0, "x-dead-letter-exchange": f"x{level + 1}"})
            client.call(commands.Queue.Bind(queue=name, exchange=f"x{level}"), commands.Queue.BindOk)
    client.call(commands.Exchange.Declare(exchange="x10", exchange_type="fanout"), commands.Exchange.DeclareOk)
    client.declare("end")
    client.call(commands.Queue.Bind(queue="end", exchange="x10"), commands.Queue.BindOk)
    client.connection.receive(publish_bytes(b"x", "", "x0"))
    dead_letters = list(ticks(harness))
    assert sum(dead_letters) == 2046
    assert max(dead_letters) <= QUEUES_WORK_MAX // dead_lettering.COPIED_DEAD_LETTER_WORK
    assert client.declare("end", passive=True).message_count == 1024
    assert not harness.bugs


def test_queues_that_fall_due_at_one_instant_have_their_turns(harness: Harness, client: Client) -> None:
    for number in range(DUE_QUEUES_MAX + 10):
        client.declare(f"q{number}", arguments={"x-message-ttl": 100})
        client.connection.receive(publish_bytes(b"x", f"q{number}"))
    harness.step()
    harness.node.now_ms += 101

    def left() -> int:
        return sum(queue.backlog.ready for queue in harness.node.queues.values())

    ticks, before = 0, left()
    while before:
        harness.node.tick()
        ticks += 1
        # Each has its look, and none has them all.
        assert before - DUE_QUEUES_MAX <= left() < before
        before = left()
    assert ticks > 1


@pytest.mark.skipif(KERNEL != "python", reason="counts calls of a method that compiled modules call directly")
def test_what_comes_back_together_is_served_together(harness: Harness, client: Client) -> None:
    """A hundred thousand of a quorum queue's messages one by one would take seconds."""
    declare(client, queue_type="quorum", delivery_limit=2)
    client.connection.receive(publish_bytes(b"x", "q") * 100)
    client.consume("q")
    backlog = harness.node.queues["/", "q"].backlog
    assert isinstance(backlog, Backlog)
    requeued: list[tuple[int, int]] = []
    requeue = backlog.requeue

    def spied(first: int, last: int) -> None:
        requeued.append((first, last))
        requeue(first, last)

    backlog.requeue = spied  # type: ignore[method-assign]
    client.send(commands.Basic.Nack(0, True, True))
    client.send(commands.Basic.Reject(150, True))
    client.send(commands.Basic.Reject(201, True))
    assert requeued == [(0, 99), (49, 49)], "the last one is over its limit"
    client.send(commands.Basic.Nack(0, True, True))
    assert requeued[2:] == [(0, 48), (50, 99)]


def test_a_cycle_ends_for_each_of_some_messages_that_are_alike(harness: Harness, client: Client) -> None:
    """At least once means into a queue that it may go into: where there is none the message is gone."""
    declare(
        client,
        queue_type="quorum",
        dead_letter_exchange="",
        dead_letter_routing_key="q",
        dead_letter_strategy="at-least-once",
        overflow="reject-publish",
    )
    for body in (b"1", b"2", b"3"):
        client.publish(body, "q", expiration="10")
    later(harness, 11)
    assert harness.node.queues["/", "q"].backlog.unacked == 0


def test_where_no_dead_letter_is_like_another_none_is_made_twice(
    harness: Harness, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    original = dead_letter_of
    monkeypatch.setattr(dead_lettering, "dead_letter_of", lambda *args: made.append("") or original(*args))
    declare(client, "dead")
    declare(client, dead_letter_exchange="", dead_letter_routing_key="dead")
    for n in range(20):
        client.publish(b"x", "q", expiration="10", message_id=f"{n:04d}")
    later(harness, 11)
    assert client.declare("dead", passive=True).message_count == 20
    assert len(made) == 21
