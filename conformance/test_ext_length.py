"""Length limits: what leaves or is refused when a queue is full.

What comes in and goes out: queues of a few messages or bytes; what is left, what was nacked.
Rules: 1. Only ready messages count. 2. A refusal is shown by a nack, its absence by an ack: both are events.
Not here: the x-death of what is dropped (`test_ext_dead_letter.py`).
"""

from __future__ import annotations

import pika
import pika.exceptions
import pytest

from conformance.extensions import Reader, bodies, depth, refused, take, wait_until
from conformance.rules import rule

REJECT = {"x-overflow": "reject-publish"}


@pytest.fixture
def channel(channel):
    """In confirm mode: a publish that returned has been through its queues, so their depth is what it will be."""
    channel.confirm_delivery()
    return channel


def fill(channel, queue: str, count: int) -> None:
    for number in range(count):
        channel.basic_publish("", queue, str(number).encode())


@rule("RabbitMQ: maxlength", "A full queue drops its oldest message for a new one.")
@pytest.mark.parametrize("arguments", [{}, {"x-overflow": "drop-head"}], ids=["default", "drop-head"])
def test_the_oldest_message_is_dropped(channel, unique, arguments):
    channel.queue_declare(unique("q"), exclusive=True, arguments={"x-max-length": 3, **arguments})
    fill(channel, unique("q"), 10)
    assert depth(channel, unique("q")) == 3
    assert bodies(channel, unique("q"), 3) == [b"7", b"8", b"9"]


@rule("RabbitMQ: maxlength", "x-max-length-bytes counts the bytes of the bodies, not of properties and headers.")
def test_the_bytes_of_bodies_count(channel, unique):
    channel.queue_declare(unique("q"), exclusive=True, arguments={"x-max-length-bytes": 10})
    properties = pika.BasicProperties(headers={"large": "x" * 1000})
    for body in (b"1aaaa", b"2bbbb", b"3cccc"):
        channel.basic_publish("", unique("q"), body, properties)
    assert depth(channel, unique("q")) == 2
    assert bodies(channel, unique("q"), 2) == [b"2bbbb", b"3cccc"]


@rule("RabbitMQ: maxlength", "A message that is larger than the whole limit is dropped too.")
def test_a_message_beyond_the_limit_is_dropped(channel, unique):
    channel.queue_declare(unique("q"), exclusive=True, arguments={"x-max-length-bytes": 10})
    channel.basic_publish("", unique("q"), b"small")
    channel.basic_publish("", unique("q"), b"x" * 11)
    wait_until(lambda: depth(channel, unique("q")) == 0)


@rule("RabbitMQ: maxlength", "Empty bodies count as messages, and as no bytes.")
def test_empty_bodies(channel, unique):
    channel.queue_declare(unique("q"), exclusive=True, arguments={"x-max-length": 2, "x-max-length-bytes": 0})
    for _ in range(3):
        channel.basic_publish("", unique("q"), b"")
    assert depth(channel, unique("q")) == 2


@rule("RabbitMQ: maxlength", "Whichever of two limits is reached first counts.")
@pytest.mark.parametrize(("length", "size"), [(2, 1000), (1000, 2)], ids=["length", "bytes"])
def test_the_lower_limit_counts(channel, unique, length, size):
    arguments = {"x-max-length": length, "x-max-length-bytes": size}
    channel.queue_declare(unique("q"), exclusive=True, arguments=arguments)
    fill(channel, unique("q"), 5)
    assert bodies(channel, unique("q"), 2) == [b"3", b"4"]


@rule("RabbitMQ: maxlength", "Messages that consumers hold do not count.")
def test_unacknowledged_messages_do_not_count(channel, unique):
    channel.queue_declare(unique("q"), exclusive=True, arguments={"x-max-length": 2})
    fill(channel, unique("q"), 2)
    held = [take(channel, unique("q"), auto_ack=False) for _ in range(2)]
    for body in (b"a", b"b"):
        channel.basic_publish("", unique("q"), body)
    assert depth(channel, unique("q")) == 2
    assert [got.body for got in held] == [b"0", b"1"]
    assert bodies(channel, unique("q"), 2) == [b"a", b"b"]


@rule("RabbitMQ: maxlength", "What comes back into a full queue makes it drop its head: the oldest, which came back.")
def test_requeueing_into_a_full_queue(channel, unique):
    channel.queue_declare(unique("q"), exclusive=True, arguments={"x-max-length": 2})
    fill(channel, unique("q"), 2)
    tag = [take(channel, unique("q"), auto_ack=False) for _ in range(2)][-1].method.delivery_tag
    for body in (b"a", b"b"):
        channel.basic_publish("", unique("q"), body)
    assert depth(channel, unique("q")) == 2
    channel.basic_nack(tag, multiple=True, requeue=True)
    channel.basic_publish("", unique("q"), b"c")
    assert depth(channel, unique("q")) == 2
    assert bodies(channel, unique("q"), 2) == [b"b", b"c"]


@rule("RabbitMQ: maxlength", "A limit of 0 still hands a message to a consumer that is ready.")
def test_a_limit_of_zero_and_a_consumer(channel, unique):
    channel.queue_declare(unique("q"), exclusive=True, arguments={"x-max-length": 0})
    channel.basic_publish("", unique("q"), b"dropped")
    reader = Reader(channel, unique("q"), auto_ack=True)
    channel.basic_publish("", unique("q"), b"delivered")
    reader.wait(1)
    assert reader.bodies == [b"delivered"]


@rule(
    "RabbitMQ: maxlength",
    "reject-publish and reject-publish-dlx refuse the new message with basic.nack and keep the old ones.",
)
@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_a_full_queue_nacks(channel, unique, overflow):
    channel.queue_declare(unique("q"), exclusive=True, arguments={"x-max-length": 2, "x-overflow": overflow})
    fill(channel, unique("q"), 2)
    with pytest.raises(pika.exceptions.NackError):
        channel.basic_publish("", unique("q"), b"refused")
    take(channel, unique("q"))
    channel.basic_publish("", unique("q"), b"fits again")
    assert bodies(channel, unique("q"), 2) == [b"1", b"fits again"]


@rule(
    "RabbitMQ: maxlength",
    "reject-publish by bytes refuses the message that would not fit, and lets a smaller one in.",
)
def test_reject_publish_by_bytes(channel, unique):
    arguments = {"x-max-length-bytes": 10, **REJECT}
    channel.queue_declare(unique("q"), exclusive=True, arguments=arguments)
    channel.basic_publish("", unique("q"), b"123456")
    with pytest.raises(pika.exceptions.NackError):
        channel.basic_publish("", unique("q"), b"78901")
    channel.basic_publish("", unique("q"), b"7890")
    assert bodies(channel, unique("q"), 2) == [b"123456", b"7890"]


@rule("RabbitMQ: maxlength", "Without confirms a refused message is dropped in silence.")
def test_without_confirms_a_refusal_is_silent(connection, unique):
    channel = connection.channel()
    channel.queue_declare(unique("q"), exclusive=True, arguments={"x-max-length": 1, **REJECT})
    fill(channel, unique("q"), 3)
    assert take(channel, unique("q")).body == b"0"
    assert channel.basic_get(unique("q")) == (None, None, None)


@rule("RabbitMQ: maxlength", "One full queue of several makes a nack; the other queues keep their copies.")
def test_one_full_queue_of_two(channel, unique):
    channel.exchange_declare(unique("ex"), "fanout", auto_delete=True)
    channel.queue_declare(unique("full"), exclusive=True, arguments={"x-max-length": 0, **REJECT})
    channel.queue_declare(unique("free"), exclusive=True)
    for queue in (unique("full"), unique("free")):
        channel.queue_bind(queue, unique("ex"))
    with pytest.raises(pika.exceptions.NackError):
        channel.basic_publish(unique("ex"), "", b"x")
    assert take(channel, unique("free")).body == b"x"


@rule("RabbitMQ: maxlength", "reject-publish alone does not dead-letter what it refuses.")
def test_reject_publish_does_not_dead_letter(connection, unique):
    channel = connection.channel()
    channel.queue_declare(unique("dead"), exclusive=True)
    routes = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": unique("dead")}
    channel.queue_declare(unique("q"), exclusive=True, arguments={"x-max-length": 1, **REJECT, **routes})
    fill(channel, unique("q"), 2)
    channel.basic_reject(take(channel, unique("q"), auto_ack=False).method.delivery_tag, requeue=False)
    assert take(channel, unique("dead")).headers["x-first-death-reason"] == "rejected"
    assert depth(channel, unique("dead")) == 0


@rule("RabbitMQ: maxlength", "A transaction with a refused message fails at its commit.")
def test_a_refusal_in_a_transaction(connection, unique):
    channel = connection.channel()
    channel.queue_declare(unique("q"), exclusive=True, arguments={"x-max-length": 1, **REJECT})
    channel.tx_select()
    fill(channel, unique("q"), 2)
    with refused("PRECONDITION_FAILED - partial tx completion"):
        channel.tx_commit()


@rule("RabbitMQ: quorum-queues", "A quorum queue drops its head, or refuses, as it was told.")
def test_a_quorum_queue_is_limited(channel, unique):
    quorum = {"x-queue-type": "quorum", "x-max-length": 3}
    channel.queue_declare(unique("drop"), durable=True, arguments=quorum)
    channel.queue_declare(unique("refuse"), durable=True, arguments={**quorum, **REJECT})
    fill(channel, unique("drop"), 10)
    wait_until(lambda: depth(channel, unique("drop")) == 3)
    assert bodies(channel, unique("drop"), 3) == [b"7", b"8", b"9"]

    def publish_100() -> None:
        fill(channel, unique("refuse"), 100)

    with pytest.raises(pika.exceptions.NackError):  # a soft limit: a few more may be let in
        publish_100()
    assert take(channel, unique("refuse")).body == b"0"
