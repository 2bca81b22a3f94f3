"""Steps that the tests of RabbitMQ's extensions share.

What comes in and goes out: channels and names; messages, refusals, counts.
Rules: 1. Every wait is for an event, under one generous deadline; nothing asserts that something was fast.
2. That nothing more comes is never waited for: a later message that takes the same way is (`in_order`).
Not here: fixtures (`conftest.py`), rules and differences (`rules.py`), frames (`wire`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

DEADLINE_S = 60.0
PAUSE_S = 0.01
CODES = {
    "ACCESS_REFUSED": 403,
    "NOT_FOUND": 404,
    "RESOURCE_LOCKED": 405,
    "PRECONDITION_FAILED": 406,
    "COMMAND_INVALID": 503,
    "NOT_ALLOWED": 530,
    "NOT_IMPLEMENTED": 540,
}


class Got(NamedTuple):
    method: Any
    properties: pika.BasicProperties
    body: bytes

    @property
    def headers(self) -> dict[str, Any]:
        return dict(self.properties.headers or {})

    @property
    def deaths(self) -> list[dict[str, Any]]:
        return list(self.headers.get("x-death", []))


@contextmanager
def refused(text: str) -> Iterator[None]:
    """The broker closes the channel (or the connection) with exactly this text, and the code that its name means."""
    closed = (pika.exceptions.ChannelClosedByBroker, pika.exceptions.ConnectionClosedByBroker)
    with pytest.raises(closed) as caught:
        yield
    assert (caught.value.reply_text, caught.value.reply_code) == (text, CODES[text.split(" ", 1)[0]])


def named(broker: Any, kind: str, name: str) -> str:
    """As RabbitMQ names a thing in its texts: `queue 'q' in vhost '/'`."""
    return f"{kind} '{name}' in vhost '{pika.URLParameters(broker.url).virtual_host}'"


def wait_until(happened: Callable[[], bool], what: str = "that", *, pause_s: float = PAUSE_S) -> None:
    """Looks again and again; fails at the deadline."""
    end = time.monotonic() + DEADLINE_S
    while not happened():
        assert time.monotonic() < end, f"{what} did not happen within {DEADLINE_S} s"
        time.sleep(pause_s)


def take(channel: BlockingChannel, queue: str, *, auto_ack: bool = True, within_s: float = DEADLINE_S) -> Got:
    """The next message of the queue, as soon as there is one."""
    end = time.monotonic() + within_s
    while True:
        method, properties, body = channel.basic_get(queue, auto_ack=auto_ack)
        if method is not None:
            return Got(method, properties, body)
        assert time.monotonic() < end, f"no message in {queue!r} within {within_s} s"
        time.sleep(PAUSE_S)


def bodies(channel: BlockingChannel, queue: str, count: int) -> list[bytes]:
    """The bodies of the next `count` messages, in the order in which they come."""
    return [take(channel, queue).body for _ in range(count)]


def depth(channel: BlockingChannel, queue: str) -> int:
    """Ready messages, as declare-ok tells them. It may be asked ahead of publishes that are not confirmed yet."""
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def consumers(channel: BlockingChannel, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.consumer_count)


def gone(connection: pika.BlockingConnection, queue: str) -> bool:
    """Whether the queue does not exist (any more)."""
    looking = connection.channel()
    try:
        looking.queue_declare(queue, passive=True)
    except pika.exceptions.ChannelClosedByBroker as error:
        if error.reply_code != CODES["NOT_FOUND"]:
            raise
        return True
    looking.close()
    return False


def reachable(connection: pika.BlockingConnection, queue: str) -> bool:
    """Whether the default exchange finds the queue: a look that is no use of it, but leaves a message in it."""
    asking = connection.channel()
    asking.confirm_delivery()
    try:
        asking.basic_publish("", queue, b"anybody there?", mandatory=True)
    except pika.exceptions.UnroutableError:
        return False
    finally:
        if asking.is_open:
            asking.close()
    return True


class Reader:
    """One consumer that keeps what it was given."""

    def __init__(self, channel: BlockingChannel, queue: str, **options: Any) -> None:
        self.channel = channel
        self.queue = queue
        self.got: list[Got] = []
        self.cancelled = False
        channel.add_on_cancel_callback(self._on_cancel)
        self.tag = channel.basic_consume(queue, self._on_message, **options)

    def _on_message(self, _: object, method: Any, properties: pika.BasicProperties, body: bytes) -> None:
        self.got.append(Got(method, properties, body))

    def _on_cancel(self, frame: Any) -> None:
        if frame.method.consumer_tag == self.tag:
            self.cancelled = True

    @property
    def bodies(self) -> list[bytes]:
        return [got.body for got in self.got]

    def wait(self, count: int, *, within_s: float = DEADLINE_S) -> list[Got]:
        """Until it was given this many messages altogether."""
        self.wait_for(lambda: len(self.got) >= count, f"delivery {count}", within_s=within_s)
        return self.got

    def wait_for(self, happened: Callable[[], bool], what: str, *, within_s: float = DEADLINE_S) -> None:
        end = time.monotonic() + within_s
        while not happened():
            assert time.monotonic() < end, (
                f"{what} from {self.queue!r} did not come within {within_s} s; got {self.bodies}"
            )
            self.channel.connection.process_data_events(PAUSE_S)

    def settle(self) -> list[bytes]:
        """What it has, after a round trip to the queue: what was delivered before that is here."""
        self.channel.queue_declare(self.queue, passive=True)
        self.channel.connection.process_data_events(0)
        return self.bodies

    def ack(self, index: int = -1) -> None:
        self.channel.basic_ack(self.got[index].method.delivery_tag)
