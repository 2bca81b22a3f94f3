"""Messages that nobody was promised anything of, beside a load: transient, without confirms, into a durable queue.

What comes in: a port. What goes out: a context in which they flow, with acknowledgements and without, until the
broker is killed.
Rule: what becomes of them is the audit log's to tell; nobody counts here.
Not here: what has to survive (`workload.py`).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pika
from pika.exceptions import AMQPError

from tests.clients import address

QUEUES = {"unpromised.acked": False, "unpromised.auto": True}
"""-> its consumer acknowledges nothing"""
# A publisher looks at what comes in from its socket so often: the connection's end, mostly.
PUBLISHED_AT_ONCE = 200


@contextlib.contextmanager
def unpromised(port: int) -> Iterator[None]:
    """They flow. Leave it after the kill: the connection's end is the end of a flow."""
    url = f"{address.url(port)}?heartbeat=0"
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        for queue in QUEUES:
            connection.channel().queue_declare(queue, durable=True)
    threads = [threading.Thread(target=_publish, args=(url, queue), name=f"to {queue}") for queue in QUEUES]
    begun = {queue: threading.Event() for queue in QUEUES}
    for queue, auto in QUEUES.items():
        threads.append(threading.Thread(target=_consume, args=(url, queue, auto, begun[queue]), name=f"from {queue}"))
    for thread in threads:
        thread.start()
    try:
        for queue, event in begun.items():
            assert event.wait(120), f"nothing came from {queue}"
        yield
    finally:
        for thread in threads:
            thread.join(120)
            assert not thread.is_alive(), thread.name


def _publish(url: str, queue: str) -> None:
    with contextlib.suppress(AMQPError, OSError):
        connection = pika.BlockingConnection(pika.URLParameters(url))
        channel = connection.channel()
        while True:
            for _ in range(PUBLISHED_AT_ONCE):
                channel.basic_publish("", queue, b"may be lost")
            connection.process_data_events(0)


def _consume(url: str, queue: str, auto: bool, begun: threading.Event) -> None:
    with contextlib.suppress(AMQPError, OSError):
        channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
        channel.basic_qos(prefetch_count=500)
        for method, _, _ in channel.consume(queue, auto_ack=auto):
            begun.set()
            if not auto and method.delivery_tag % 50 == 0:
                channel.basic_ack(method.delivery_tag, multiple=True)
