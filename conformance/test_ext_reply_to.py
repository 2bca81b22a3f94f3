"""Direct reply-to: requests and replies without a queue.

What comes in and goes out: a requester that consumes amq.rabbitmq.reply-to, a responder that publishes to its name.
Rules: the pseudo-queue belongs to one channel, and is gone with it.
Not here: reply_to with ordinary queues, which the broker does not look at.
"""

from __future__ import annotations

import pika
import pytest

from conformance.extensions import Reader, gone, refused, take
from conformance.rules import differs, rule

PSEUDO = "amq.rabbitmq.reply-to"


class Requester:
    """A channel with a reply consumer, and the queue that its requests go to."""

    def __init__(self, channel, queue: str) -> None:
        self.channel, self.queue = channel, queue
        channel.queue_declare(queue, exclusive=True)
        self.replies = Reader(channel, PSEUDO, auto_ack=True)

    def ask(self, body: bytes = b"?") -> str:
        """The name that the responder sees."""
        properties = pika.BasicProperties(reply_to=PSEUDO, correlation_id="c")
        self.channel.basic_publish("", self.queue, body, properties)
        return take(self.channel, self.queue).properties.reply_to


@pytest.fixture
def requester(channel, unique):
    return Requester(channel, unique("requests"))


@rule(
    "RabbitMQ: direct-reply-to",
    "A request carries a generated name, and what is published to it reaches the requester.",
)
def test_a_request_and_its_reply(connect, requester):
    name = requester.ask()
    assert name.startswith(f"{PSEUDO}.")
    connect().channel().basic_publish("", name, b"!", pika.BasicProperties(correlation_id="c"))
    got = requester.replies.wait(1)[0]
    assert (got.body, got.properties.correlation_id) == (b"!", "c")
    assert (got.method.exchange, got.method.routing_key, got.method.redelivered) == ("", name, False)


@rule("RabbitMQ: direct-reply-to", "A responder may reply often, and each reply arrives in order.")
def test_many_replies(connect, requester):
    name = requester.ask()
    responding = connect().channel()
    for number in range(50):
        responding.basic_publish("", name, str(number).encode())
    requester.replies.wait(50)
    assert requester.replies.bodies == [str(number).encode() for number in range(50)]


@rule(
    "RabbitMQ: direct-reply-to",
    "Every request of a channel carries the same name, another channel has another one.",
)
def test_names_belong_to_channels(connection, requester, unique):
    other = Requester(connection.channel(), unique("others"))
    assert requester.ask() == requester.ask()
    assert other.ask() != requester.ask()


@rule("RabbitMQ: direct-reply-to", "The reply consumer has to be without acknowledgements.")
def test_a_reply_consumer_does_not_acknowledge(connection):
    with refused("PRECONDITION_FAILED - reply consumer cannot acknowledge"):
        Reader(connection.channel(), PSEUDO)


@rule("RabbitMQ: direct-reply-to", "A channel has one reply consumer.")
def test_one_reply_consumer_for_a_channel(requester):
    with refused("PRECONDITION_FAILED - reply consumer already set"):
        Reader(requester.channel, PSEUDO, auto_ack=True)


@rule("RabbitMQ: direct-reply-to", "A request needs a reply consumer on its own channel.")
def test_a_request_needs_a_reply_consumer(connection, requester):
    other = connection.channel()
    with refused("PRECONDITION_FAILED - fast reply consumer does not exist"):
        other.basic_publish("", requester.queue, b"?", pika.BasicProperties(reply_to=PSEUDO))
        other.queue_declare(requester.queue, passive=True)


@rule(
    "RabbitMQ: direct-reply-to",
    "A cancelled reply consumer gets nothing more; a new one can be made, under a new name.",
)
def test_cancelling_a_reply_consumer(connect, requester):
    name = requester.ask()
    requester.channel.basic_cancel(requester.replies.tag)
    responding = connect().channel()
    responding.confirm_delivery()
    responding.basic_publish("", name, b"too late")
    again = Reader(requester.channel, PSEUDO, auto_ack=True)
    requester.replies = again
    second = requester.ask()
    responding.basic_publish("", second, b"in time")
    assert again.wait(1)[0].body == b"in time"
    assert requester.replies.bodies == [b"in time"]


@rule("RabbitMQ: direct-reply-to", "Declaring the generated name tells whether the requester is still there.")
@pytest.mark.parametrize("passive", [False, True], ids=["active", "passive"])
def test_declaring_the_name_tells_of_the_requester(connect, connection, unique, passive):
    leaving = connect()
    name = Requester(leaving.channel(), unique("requests")).ask()
    answer = connection.channel().queue_declare(name, passive=passive).method
    assert (answer.queue, answer.message_count, answer.consumer_count) == (name, 0, 1)
    leaving.close()
    assert gone(connection, name)


@rule("RabbitMQ: direct-reply-to", "The pseudo-queue itself can always be declared.")
def test_declaring_the_pseudo_queue(channel):
    assert channel.queue_declare(PSEUDO, passive=True).method.queue == PSEUDO


@rule("RabbitMQ: direct-reply-to", "A reply that nobody waits for is dropped, and confirmed.")
def test_a_late_reply_is_dropped(connect, unique):
    leaving = connect()
    name = Requester(leaving.channel(), unique("requests")).ask()
    leaving.close()
    responding = connect().channel()
    responding.confirm_delivery()
    responding.basic_publish("", name, b"too late")


@rule("RabbitMQ: direct-reply-to", "Any other reply_to is left as it is.")
@pytest.mark.parametrize("reply_to", ["my.queue", f"{PSEUDO}.made.up", "amq.rabbitmq.reply-to-me"])
def test_other_names_are_left_alone(channel, unique, reply_to):
    channel.queue_declare(unique("q"), exclusive=True)
    channel.basic_publish("", unique("q"), b"?", pika.BasicProperties(reply_to=reply_to))
    assert take(channel, unique("q")).properties.reply_to == reply_to


@rule("RabbitMQ: direct-reply-to", "The prefetch of the channel does not hold replies back.")
def test_replies_know_no_prefetch(connect, channel, unique):
    channel.basic_qos(prefetch_count=1)
    requester = Requester(channel, unique("requests"))
    name = requester.ask()
    responding = connect().channel()
    for _ in range(5):
        responding.basic_publish("", name, b"!")
    requester.replies.wait(5)


@rule(
    "RabbitMQ: direct-reply-to", "A mandatory reply to a requester that is there is not returned, and is confirmed."
)
@differs(on="rabbitmq<4.2", why="a direct reply counted as unroutable, and was returned, until RabbitMQ 4.2")
def test_a_mandatory_reply(connect, requester):
    responding = connect().channel()
    responding.confirm_delivery()
    responding.basic_publish("", requester.ask(), b"!", mandatory=True)
    assert requester.replies.wait(1)[0].body == b"!"
