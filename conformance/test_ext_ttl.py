"""Time to live: of a queue's messages, of one message, and of what is left when both are given.

What comes in and goes out: messages with a time to live; the moment they leave is never too early.
Rules: 1. Not-before is measured from the publisher's clock before the publish. 2. Never too late is not measured.
3. Where amqpd expires exactly and RabbitMQ only at the head of a queue, the test says so.
Not here: headers of dead letters (`test_ext_dead_letter.py`); queues that expire (`test_ext_expires.py`).
"""

from __future__ import annotations

import time

import pika
import pytest

from conformance.extensions import Reader, bodies, depth, refused, take, wait_until
from conformance.rules import differs, rule

HEAD_ONLY = "RabbitMQ looks at the head of a classic queue only; amqpd expires wherever the message stands"
BODY = b"message"
LONG_MS = "600000"


def expiring(milliseconds: object) -> pika.BasicProperties:
    return pika.BasicProperties(expiration=str(milliseconds))


@pytest.fixture
def channel(channel):
    """In confirm mode: a publish that returned has been in its queue."""
    channel.confirm_delivery()
    return channel


@pytest.fixture
def dying(channel, unique):
    """Declares an exclusive queue whose dead letters come to `<unique>.dead`; returns both names."""

    def declare(**arguments: object) -> tuple[str, str]:
        source, dead = unique("source"), unique("dead")
        channel.queue_declare(dead, exclusive=True)
        routes = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
        channel.queue_declare(source, exclusive=True, arguments={**routes, **arguments})
        return source, dead

    return declare


@rule("RabbitMQ: ttl", "A message leaves its queue when the queue's time to live is over, and not before.")
def test_a_queue_ttl_ends_a_message(channel, dying):
    source, dead = dying(**{"x-message-ttl": 150})
    before = time.monotonic()
    channel.basic_publish("", source, BODY)
    assert take(channel, dead).body == BODY
    assert time.monotonic() - before >= 0.150
    assert depth(channel, source) == 0


@rule("RabbitMQ: ttl", "A message leaves its queue when its own expiration is over, and not before.")
def test_an_expiration_ends_a_message(channel, dying):
    source, dead = dying()
    before = time.monotonic()
    channel.basic_publish("", source, BODY, expiring(150))
    assert take(channel, dead).body == BODY
    assert time.monotonic() - before >= 0.150


@rule("RabbitMQ: ttl", "The lower of the queue's and the message's time to live counts.")
@pytest.mark.parametrize(("ttl", "expiration"), [(100, LONG_MS), (int(LONG_MS), 100)], ids=["queue", "message"])
def test_the_lower_ttl_counts(channel, dying, ttl, expiration):
    source, dead = dying(**{"x-message-ttl": ttl})
    before = time.monotonic()
    channel.basic_publish("", source, BODY, expiring(expiration))
    assert take(channel, dead).body == BODY
    assert time.monotonic() - before >= 0.100


@rule("RabbitMQ: ttl", "An expired message without a dead letter exchange is gone.")
def test_an_expired_message_is_gone(channel, unique):
    channel.queue_declare(unique("q"), exclusive=True, arguments={"x-message-ttl": 20})
    channel.basic_publish("", unique("q"), BODY)
    wait_until(lambda: depth(channel, unique("q")) == 0)
    assert channel.basic_get(unique("q")) == (None, None, None)


@rule("RabbitMQ: ttl", "A time to live of 0 ends what cannot be delivered at once.")
@pytest.mark.parametrize("by", ["queue", "message"])
def test_a_ttl_of_zero_ends_a_message_without_a_consumer(channel, dying, by):
    source, dead = dying(**({"x-message-ttl": 0} if by == "queue" else {}))
    channel.basic_publish("", source, BODY, expiring(0) if by == "message" else None)
    assert take(channel, dead).body == BODY


@rule("RabbitMQ: ttl", "A time to live of 0 delivers to a consumer that is ready.")
@pytest.mark.parametrize("by", ["queue", "message"])
def test_a_ttl_of_zero_delivers_to_a_ready_consumer(channel, dying, by):
    source, dead = dying(**({"x-message-ttl": 0} if by == "queue" else {}))
    reader = Reader(channel, source, auto_ack=True)
    sent = [str(number).encode() for number in range(200)]  # once is no proof: it is a race with the clock
    for body in sent:
        channel.basic_publish("", source, body, expiring(0) if by == "message" else None)
    reader.wait(200)
    assert reader.bodies == sent
    assert depth(channel, dead) == 0


@rule("RabbitMQ: ttl", "A time to live of 0 ends a message when the consumer's prefetch is used up.")
def test_a_ttl_of_zero_and_a_full_consumer(channel, dying):
    source, dead = dying(**{"x-message-ttl": 0})
    channel.basic_qos(prefetch_count=1)
    reader = Reader(channel, source)
    channel.basic_publish("", source, b"taken")
    reader.wait(1)
    channel.basic_publish("", source, b"dead")
    assert take(channel, dead).body == b"dead"
    assert reader.bodies == [b"taken"]


@rule("RabbitMQ: ttl", "Equal times to live end messages in the order in which they were published.")
def test_messages_expire_in_order(channel, dying):
    source, dead = dying(**{"x-message-ttl": 50})
    sent = [f"{number}".encode() for number in range(20)]
    for body in sent:
        channel.basic_publish("", source, body)
    assert bodies(channel, dead, 20) == sent


@rule("RabbitMQ: ttl", "A message with a short expiration at the head leaves, one behind it with a longer one stays.")
def test_the_head_expires_alone(channel, dying):
    source, dead = dying()
    channel.basic_publish("", source, b"short", expiring(30))
    channel.basic_publish("", source, b"long", expiring(LONG_MS))
    assert take(channel, dead).body == b"short"
    assert take(channel, source).body == b"long"


@rule(
    "RabbitMQ: ttl#per-message-ttl-in-publishers",
    "A message with a short expiration behind a longer one leaves in time too.",
)
@differs(on="rabbitmq", why=HEAD_ONLY)
def test_a_message_behind_a_longer_one_expires(channel, dying):
    source, dead = dying()
    channel.basic_publish("", source, b"long", expiring(LONG_MS))
    channel.basic_publish("", source, b"short", expiring(30))
    channel.basic_publish("", source, b"never")
    assert take(channel, dead, within_s=3).body == b"short"  # RabbitMQ waits for the head, ten minutes
    assert bodies(channel, source, 2) == [b"long", b"never"]


@rule(
    "RabbitMQ: ttl#per-message-ttl-in-publishers",
    "Messages leave in the order of their times, not of their publishing.",
)
@differs(on="rabbitmq", why=HEAD_ONLY)
def test_messages_leave_in_the_order_of_their_times(channel, dying):
    source, dead = dying()
    for milliseconds in (900, 500, 100):
        channel.basic_publish("", source, str(milliseconds).encode(), expiring(milliseconds))
    assert bodies(channel, dead, 3) == [b"100", b"500", b"900"]


@rule("RabbitMQ: ttl", "A message that is overdue behind a longer one is never delivered.")
def test_an_overdue_message_is_not_delivered(channel, dying):
    source, _ = dying()
    channel.basic_publish("", source, b"long", expiring(LONG_MS))
    channel.basic_publish("", source, b"short", expiring(30))
    channel.basic_publish("", source, b"last")
    time.sleep(0.1)  # the expiration itself: the message is overdue afterwards, whatever the broker did about it
    assert bodies(channel, source, 2) == [b"long", b"last"]


@rule("RabbitMQ: ttl", "A delivered message does not expire while its consumer has it.")
def test_an_unacknowledged_message_does_not_expire(channel, dying):
    source, dead = dying(**{"x-message-ttl": 200})
    channel.basic_publish("", source, b"held")
    held = take(channel, source, auto_ack=False)
    channel.basic_publish("", source, b"marker")
    assert take(channel, dead).body == b"marker"  # the held one was older, so its time is over too
    assert depth(channel, dead) == 0
    channel.basic_ack(held.method.delivery_tag)
    assert depth(channel, source) == 0


@rule("RabbitMQ: ttl", "A requeued message keeps its original time: when that is over it expires at once.")
@pytest.mark.parametrize("by", ["queue", "message"])
def test_a_requeued_message_keeps_its_time(channel, dying, by):
    source, dead = dying(**({"x-message-ttl": 200} if by == "queue" else {}))
    properties = expiring(200) if by == "message" else None
    channel.basic_publish("", source, b"held", properties)
    held = take(channel, source, auto_ack=False)
    channel.basic_publish("", source, b"marker", properties)
    assert take(channel, dead).body == b"marker"
    channel.basic_nack(held.method.delivery_tag, requeue=True)
    assert take(channel, dead).body == b"held"
    assert depth(channel, source) == 0


@rule("RabbitMQ: ttl", "A message that is requeued before its time is over expires at its time, not later.")
def test_requeueing_does_not_prolong(channel, dying):
    source, dead = dying(**{"x-message-ttl": 300})
    before = time.monotonic()
    channel.basic_publish("", source, BODY)
    for _ in range(2):
        channel.basic_nack(take(channel, source, auto_ack=False).method.delivery_tag, requeue=True)
    assert take(channel, dead).body == BODY
    assert time.monotonic() - before >= 0.300


@rule("RabbitMQ: ttl", "expiration is a whole number of milliseconds from 0 to ten years, as a string.")
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("soon", "no_integer"),
        ("", "no_integer"),
        ("10ms", '{leftover_string,"ms"}'),
        ("1.5", '{leftover_string,".5"}'),
        ("-1", "{value_negative,-1}"),
        ("315360000001", "{value_too_large,315360000001}"),
    ],
)
def test_an_invalid_expiration_is_refused(connection, unique, value, reason):
    channel = connection.channel()
    channel.queue_declare(unique("q"), exclusive=True)
    with refused(f"PRECONDITION_FAILED - invalid expiration '{value}': {reason}"):
        channel.basic_publish("", unique("q"), BODY, expiring(value))
        channel.queue_declare(unique("q"), passive=True)
    assert depth(connection.channel(), unique("q")) == 0


@rule("RabbitMQ: ttl", "The expiration property reaches the consumer unchanged.")
@pytest.mark.parametrize("value", [LONG_MS, "315360000000", "0600000"])
def test_the_expiration_is_delivered(channel, unique, value):
    channel.queue_declare(unique("q"), exclusive=True)
    channel.basic_publish("", unique("q"), BODY, expiring(value))
    assert take(channel, unique("q")).properties.expiration == value


@rule("RabbitMQ: ttl", "Expired messages do not count as ready.")
def test_expired_messages_are_not_counted(channel, unique):
    channel.queue_declare(unique("q"), exclusive=True)
    for _ in range(5):
        channel.basic_publish("", unique("q"), BODY, expiring(20))
    channel.basic_publish("", unique("q"), b"stays")
    wait_until(lambda: depth(channel, unique("q")) == 1)
    assert take(channel, unique("q")).body == b"stays"


@rule("RabbitMQ: ttl", "A quorum queue expires messages at its head too.")
def test_a_quorum_queue_expires_messages(channel, unique):
    queue, dead = unique("quorum"), unique("dead")
    channel.queue_declare(dead, exclusive=True)
    arguments = {"x-queue-type": "quorum", "x-message-ttl": 100, "x-dead-letter-exchange": ""}
    channel.queue_declare(queue, durable=True, arguments={**arguments, "x-dead-letter-routing-key": dead})
    before = time.monotonic()
    channel.basic_publish("", queue, BODY)
    assert take(channel, dead).body == BODY
    assert time.monotonic() - before >= 0.100
