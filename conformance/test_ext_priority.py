"""Priority queues: which message comes first, and what priority means together with other things.

What comes in and goes out: messages with priorities into a queue with x-max-priority; the order in which they leave.
Rules: everything is published before anything is taken, so the order is the queue's alone.
Not here: priorities of consumers (`test_ext_consumers.py`).
"""

from __future__ import annotations

import pika
import pytest

from conformance.extensions import Reader, bodies, depth, take, wait_until
from conformance.rules import differs, rule

LOW_AND_HIGH = {"x-max-priority": 10}


@pytest.fixture
def channel(channel):
    """In confirm mode: a publish that returned is in its queue."""
    channel.confirm_delivery()
    return channel


def publish(channel, queue: str, priority: int | None, body: bytes | None = None, **properties: object) -> None:
    given = pika.BasicProperties(priority=priority, **properties)
    channel.basic_publish("", queue, str(priority).encode() if body is None else body, given)


@pytest.fixture
def queue(channel, unique):
    def declare(**arguments: object) -> str:
        channel.queue_declare(unique("q"), exclusive=True, arguments={**LOW_AND_HIGH, **arguments})
        return unique("q")

    return declare


@rule("RabbitMQ: priority", "Higher priorities leave first.")
def test_higher_priorities_come_first(channel, queue):
    name = queue()
    for priority in (3, 9, 1, 10, 0, 5):
        publish(channel, name, priority)
    assert bodies(channel, name, 6) == [b"10", b"9", b"5", b"3", b"1", b"0"]


@rule("RabbitMQ: priority", "Messages of the same priority leave in the order in which they came.")
def test_equal_priorities_keep_their_order(channel, queue):
    name = queue()
    for number in range(12):
        publish(channel, name, number % 3, f"{number % 3}:{number}".encode())
    assert bodies(channel, name, 12) == [
        f"{priority}:{number}".encode() for priority in (2, 1, 0) for number in range(priority, 12, 3)
    ]


@rule("RabbitMQ: priority", "A message without a priority has priority 0.")
def test_no_priority_is_zero(channel, queue):
    name = queue()
    publish(channel, name, None, b"none")
    publish(channel, name, 0, b"zero")
    publish(channel, name, 1, b"one")
    assert bodies(channel, name, 3) == [b"one", b"none", b"zero"]


@rule("RabbitMQ: priority", "A priority above the queue's maximum counts as the maximum, and is delivered as it was.")
def test_priorities_above_the_maximum_count_as_it(channel, queue):
    name = queue(**{"x-max-priority": 2})
    publish(channel, name, 2, b"at")
    publish(channel, name, 255, b"above")
    publish(channel, name, 1, b"below")
    got = [take(channel, name) for _ in range(3)]
    assert [message.body for message in got] == [b"at", b"above", b"below"]
    assert [message.properties.priority for message in got] == [2, 255, 1]


@rule("RabbitMQ: priority", "A queue without x-max-priority keeps to the order of publishing.")
def test_without_the_argument_priorities_do_nothing(channel, unique):
    channel.queue_declare(unique("q"), exclusive=True)
    for priority in (1, 9, 5):
        publish(channel, unique("q"), priority)
    assert bodies(channel, unique("q"), 3) == [b"1", b"9", b"5"]


@rule("RabbitMQ: priority", "A maximum of 0 leaves one priority only.")
def test_a_maximum_of_zero(channel, queue):
    name = queue(**{"x-max-priority": 0})
    for priority in (1, 9, 5):
        publish(channel, name, priority)
    assert bodies(channel, name, 3) == [b"1", b"9", b"5"]


@rule("RabbitMQ: priority", "All 255 priorities work.")
def test_all_priorities(channel, queue):
    name = queue(**{"x-max-priority": 255})
    for priority in range(256):
        publish(channel, name, priority)
    assert bodies(channel, name, 256) == [str(priority).encode() for priority in range(255, -1, -1)]


@rule("RabbitMQ: priority", "A requeued message goes back to its place within its priority.")
def test_a_requeued_message_goes_to_its_place(channel, queue):
    name = queue()
    for priority, body in ((5, b"5a"), (5, b"5b"), (1, b"1a")):
        publish(channel, name, priority, body)
    held = take(channel, name, auto_ack=False)
    publish(channel, name, 7)
    channel.basic_nack(held.method.delivery_tag, requeue=True)
    got = [take(channel, name) for _ in range(4)]
    assert [message.body for message in got] == [b"7", b"5a", b"5b", b"1a"]
    assert [message.method.redelivered for message in got] == [False, True, False, False]


@rule("RabbitMQ: priority", "A consumer is given what it was given: a higher priority does not overtake it.")
def test_prefetched_messages_are_not_overtaken(channel, queue):
    name = queue()
    for number in range(4):
        publish(channel, name, 0, str(number).encode())
    channel.basic_qos(prefetch_count=2)
    reader = Reader(channel, name)
    reader.wait(2)
    publish(channel, name, 9, b"high")
    assert reader.settle() == [b"0", b"1"]
    reader.ack(0)
    reader.wait(3)
    assert reader.bodies == [b"0", b"1", b"high"]


@rule("RabbitMQ: priority", "declare-ok counts the messages of all priorities; a purge takes all.")
def test_counting_and_purging(channel, queue):
    name = queue()
    for priority in range(10):
        publish(channel, name, priority)
    assert depth(channel, name) == 10
    assert channel.queue_purge(name).method.message_count == 10
    assert depth(channel, name) == 0


@rule(
    "RabbitMQ: priority#interaction-with-other-features",
    "A length limit drops from the head: the highest priority goes first.",
)
def test_a_length_limit_drops_the_head(channel, queue):
    name = queue(**{"x-max-length": 2})
    for priority in (1, 9, 5):
        publish(channel, name, priority)
    assert depth(channel, name) == 2
    left = bodies(channel, name, 2)
    assert left == [b"5", b"1"]


@rule("RabbitMQ: priority#interaction-with-other-features", "Low priorities expire behind high ones that stay.")
@differs(on="rabbitmq", why="RabbitMQ looks at the head of each priority; amqpd expires wherever the message stands")
def test_low_priorities_expire_behind_high_ones(channel, queue, unique):
    channel.queue_declare(unique("dead"), exclusive=True)
    name = queue(**{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": unique("dead")})
    publish(channel, name, 1, b"stays, low")
    publish(channel, name, 1, b"expires", expiration="30")
    publish(channel, name, 9, b"stays, high")
    assert take(channel, unique("dead"), within_s=3).body == b"expires"  # RabbitMQ waits for the head
    assert bodies(channel, name, 2) == [b"stays, high", b"stays, low"]


@rule("RabbitMQ: priority", "Durable messages keep their priorities and order together with transient ones.")
def test_delivery_modes_do_not_matter(channel, unique):
    channel.queue_declare(unique("q"), durable=True, arguments=LOW_AND_HIGH)
    for number in range(8):
        publish(channel, unique("q"), number // 4, str(number).encode(), delivery_mode=number % 2 + 1)
    assert bodies(channel, unique("q"), 8) == [b"4", b"5", b"6", b"7", b"0", b"1", b"2", b"3"]


@rule("RabbitMQ: dlx", "A dead letter keeps its priority in the next queue.")
def test_a_dead_letter_keeps_its_priority(channel, queue, unique):
    channel.queue_declare(unique("dead"), exclusive=True, arguments=LOW_AND_HIGH)
    routes = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": unique("dead")}
    channel.queue_declare(unique("source"), exclusive=True, arguments=routes)
    for priority in (1, 9):
        publish(channel, unique("source"), priority)
    for _ in range(2):
        tag = take(channel, unique("source"), auto_ack=False).method.delivery_tag
        channel.basic_reject(tag, requeue=False)
    wait_until(lambda: depth(channel, unique("dead")) == 2)
    assert bodies(channel, unique("dead"), 2) == [b"9", b"1"]
