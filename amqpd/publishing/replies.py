"""Direct reply-to: requesters that wait for replies on a channel, and replies that go straight there.

What comes in: consumers of the pseudo-queue; runs that are published to the names given out. What goes out:
deliveries into the requester's outbox.
Rules: 1. A name is given out once, cannot be guessed, and is known only in one virtual host; it ends with its
consumer. It says which node's process gave it out (`process_part`): another node can tell whose it is. 2. Nothing is
kept: a reply is delivered at once, or dropped and counted while the requester's connection does not take what it has.
RabbitMQ knows no such bound; a client that replies could fill its memory. 3. A name that is not known is a queue that
is not there.
Not here: the checks of basic.consume (`methods/basic.py`), writing the name into a request (`publish.py`).

Source: https://www.rabbitmq.com/docs/direct-reply-to; rabbit_volatile_queue.erl.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable

from amqpd.kernel import Run, delivery_pieces
from amqpd.message.properties import REPLY_TO
from amqpd.session.ports import ChannelBase

PREFIX = REPLY_TO + "."
# RabbitMQ's names are this, the base64 of a process, a dot, and the base64 of 16 random octets; tests of clients look
# at that.


def process_part(node: str, incarnation: int) -> str:
    """The part of a name that says which process gave it out: the base64 of node and incarnation. A node's name has
    at most 100 characters of ASCII, and no colon, so a whole name is shorter than a short string may be."""
    return b64encode(f"{node}:{incarnation}".encode()).decode()


class ReplyConsumer:
    """A channel's consumer of replies; `name` is what its requests carry in reply_to."""

    __slots__ = ("channel", "name", "tag", "tag_bytes")

    def __init__(self, channel: ChannelBase, tag: str, name: str) -> None:
        self.channel = channel
        self.tag = tag
        encoded = tag.encode()
        self.tag_bytes = bytes((len(encoded),)) + encoded
        self.name = name

    def deliver(self, run: Run) -> bool:
        """Send all messages of the run; False when the connection has no space for them."""
        channel, connection = self.channel, self.channel.connection
        if connection.outbox_full:
            return False
        tag = channel.next_tag
        channel.next_tag = tag + run.count
        connection.write_pieces(
            delivery_pieces(run, 0, run.count, channel.id, self.tag_bytes, tag, False, connection.frame_max)
        )
        return True


class Replies:
    """The reply consumers of the node."""

    def __init__(self, token: Callable[[], str], process: Callable[[], str]) -> None:
        """`token` gives names that cannot be guessed; `process`: the `process_part` of this one."""
        self._token = token
        self._process = process
        self._consumers: dict[tuple[str, str], ReplyConsumer] = {}
        self.delivered = 0
        self.dropped = 0

    def open(self, channel: ChannelBase, tag: str) -> ReplyConsumer:
        consumer = ReplyConsumer(channel, tag, f"{PREFIX}{self._process()}.{self._token()}==")
        self._consumers[channel.connection.vhost, consumer.name] = consumer
        return consumer

    def close(self, consumer: ReplyConsumer) -> None:
        self._consumers.pop((consumer.channel.connection.vhost, consumer.name), None)

    def find(self, vhost: str, name: str) -> ReplyConsumer | None:
        """The requester that was given the name, if it still waits."""
        return self._consumers.get((vhost, name))

    def is_open(self, consumer: ReplyConsumer) -> bool:
        """Whether its channel still consumes replies."""
        return self.find(consumer.channel.connection.vhost, consumer.name) is consumer

    def deliver(self, consumer: ReplyConsumer, run: Run) -> None:
        if consumer.deliver(run):
            self.delivered += run.count
        else:
            self.dropped += run.count
