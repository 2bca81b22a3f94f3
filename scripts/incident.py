"""Stages an incident on a broker of your own, to see what its pages and commands say of it.

    python scripts/incident.py amqp://guest:guest@127.0.0.1:5672 http://127.0.0.1:15672

Six things go wrong in queues named `incident.*`: nobody consumes a queue; the only consumer of another one stands at
its prefetch; dead letters come; a full queue refuses publishes; messages reach no queue; and after some seconds an
operator's alarm blocks a publisher. It goes on until it is interrupted, and then takes all of it away again.

Not for a broker that others use: the alarm blocks all publishers of its node.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import signal
import time
import urllib.request
from collections.abc import Iterator
from urllib.parse import quote, urlsplit

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError, NackError, UnroutableError

BACKLOG, STUCK, DYING, DEAD_LETTERS, FULL = (
    f"incident.{name}" for name in ("orders", "mail", "invoices", "dead", "small")
)
EXCHANGE, ALARM = "incident.shop", "incident"
QUEUES: dict[str, dict[str, object]] = {
    BACKLOG: {},
    STUCK: {},
    DYING: {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD_LETTERS},
    DEAD_LETTERS: {},
    FULL: {"x-max-length": 10, "x-overflow": "reject-publish"},
}
PREFETCH, BACKLOG_MESSAGES = 10, 1_200


def main() -> None:
    """Until it is interrupted."""
    parser = argparse.ArgumentParser(description="Stages an incident on a broker of your own.")
    parser.add_argument("amqp", nargs="?", default="amqp://guest:guest@127.0.0.1:5672")
    parser.add_argument("http", nargs="?", default="http://127.0.0.1:15672")
    parser.add_argument("--alarm-after", type=float, default=10.0, help="seconds until the alarm; 0: at once")
    parser.add_argument("--quorum", action="store_true", help="quorum queues, for a cluster")
    given = parser.parse_args()
    with staged(given.amqp, given.quorum) as (channel, connections):
        alarm_s = time.monotonic() + given.alarm_after
        while time.monotonic() < alarm_s:
            go_on(channel)
            wait(connections, 1.0)
        print("the alarm is set: the publisher of a new connection is blocked", flush=True)
        # The alarm ends first: while it is on, the broker does not read that this client closes its connection.
        with client(given.amqp) as waiting, alarm(given.http, given.amqp):
            waiting.channel().basic_publish("", BACKLOG, b"it waits")
            while True:
                wait([*connections, waiting], 1.0)


@contextlib.contextmanager
def staged(url: str, quorum: bool) -> Iterator[tuple[BlockingChannel, list[pika.BlockingConnection]]]:
    """The queues, with what is wrong with them; a channel that publishes."""
    publisher, consumers = (
        opened(url, "incident: publisher"),
        opened(url, "incident: consumer that never acknowledges"),
    )
    channel, taking = publisher.channel(), consumers.channel()
    kind = {"x-queue-type": "quorum"} if quorum else {}
    for name, arguments in QUEUES.items():
        channel.queue_declare(name, durable=True, arguments={**arguments, **kind})
    channel.exchange_declare(EXCHANGE, "direct", durable=True)
    channel.confirm_delivery()
    taking.basic_qos(prefetch_count=PREFETCH)
    taking.basic_consume(STUCK, lambda *_: None)
    for number in range(BACKLOG_MESSAGES):
        channel.basic_publish("", BACKLOG, b'{"order": %d}' % number)
    for number in range(5 * PREFETCH):
        channel.basic_publish("", STUCK, b'{"mail": %d}' % number)
    print(f"{len(QUEUES)} queues are there, and something is wrong with each", flush=True)
    try:
        yield channel, [publisher, consumers]
    finally:
        for connection in (publisher, consumers):
            with contextlib.suppress(AMQPError):
                connection.close()
        cleaning = opened(url, "incident: end").channel()
        for name in QUEUES:
            cleaning.queue_delete(name)
        cleaning.exchange_delete(EXCHANGE)
        cleaning.connection.close()
        print("all of it is gone again", flush=True)


def go_on(channel: BlockingChannel) -> None:
    """Refused, dead and unroutable messages, some more of each."""
    for _ in range(20):
        with contextlib.suppress(NackError):
            channel.basic_publish("", FULL, b"one more")
    for mandatory in (False, True):
        with contextlib.suppress(UnroutableError):
            channel.basic_publish(EXCHANGE, "unheard-of", b"where to?", mandatory=mandatory)
    for number in range(3):
        channel.basic_publish("", DYING, b'{"invoice": %d}' % number)
        method, _, _ = channel.basic_get(DYING)
        if method is not None:
            channel.basic_reject(method.delivery_tag, requeue=False)


@contextlib.contextmanager
def alarm(http: str, amqp: str) -> Iterator[None]:
    """An operator's, over the management API."""
    command(http, amqp, "alarm set")
    try:
        yield
    finally:
        command(http, amqp, "alarm clear")


@contextlib.contextmanager
def client(url: str) -> Iterator[pika.BlockingConnection]:
    """One that publishes while the alarm is on: it is told so, and waits."""
    connection = opened(url, "incident: blocked publisher")
    try:
        yield connection
    finally:
        with contextlib.suppress(AMQPError):
            connection.close()


def opened(url: str, name: str) -> pika.BlockingConnection:
    """Without heartbeats: it is watched for as long as somebody likes."""
    parameters = pika.URLParameters(url)
    parameters.heartbeat = 0
    parameters.client_properties = {"connection_name": name}
    return pika.BlockingConnection(parameters)


def wait(connections: list[pika.BlockingConnection], seconds: float) -> None:
    """As long, and answer what the broker says."""
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        for connection in connections:
            connection.process_data_events(seconds / 10)


def command(http: str, amqp: str, name: str) -> None:
    """One of `amqpd --url`, as the user of the address."""
    parts = urlsplit(amqp)
    login = base64.b64encode(f"{parts.username or 'guest'}:{parts.password or 'guest'}".encode()).decode()
    request = urllib.request.Request(
        f"{http}/api/amqpd/control/{quote(name)}",
        json.dumps({"name": ALARM}).encode(),
        {"authorization": f"Basic {login}", "content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        answer.read()


if __name__ == "__main__":
    for each in (signal.SIGINT, signal.SIGTERM):
        # Also where it was begun in the background, which ignores the first one.
        signal.signal(each, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        main()
