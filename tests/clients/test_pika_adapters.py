"""pika's callback adapters: one and the same program on SelectConnection and on AsyncioConnection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pika
import pytest
from pika.adapters.asyncio_connection import AsyncioConnection

MESSAGES = 200
DEADLINE_S = 120.0


class Pipeline:
    """Declares, publishes with confirms as fast as it may, consumes with acks, closes when all has come."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.confirmed: set[int] = set()
        self.received: list[int] = []
        self.failure: object = None
        self.steps: list[str] = []
        self.connection: Any = None
        self.channel: Any = None

    def on_open(self, connection: Any) -> None:
        self.connection = connection
        connection.ioloop.call_later(DEADLINE_S, lambda: self.stop("deadline"))
        connection.channel(on_open_callback=self.on_channel)

    def on_channel(self, channel: Any) -> None:
        self.steps.append("channel")
        self.channel = channel
        channel.add_on_close_callback(lambda _channel, reason: self.steps.append(f"closed {reason.reply_code}"))
        channel.queue_declare(self.queue, auto_delete=True, callback=self.on_declared)

    def on_declared(self, frame: Any) -> None:
        self.steps.append("declared")
        assert frame.method.queue == self.queue
        self.channel.confirm_delivery(self.on_confirm, callback=self.on_confirm_mode)

    def on_confirm_mode(self, _frame: Any) -> None:
        self.steps.append("confirms")
        self.channel.basic_qos(prefetch_count=10, callback=self.on_qos)

    def on_qos(self, _frame: Any) -> None:
        self.channel.basic_consume(self.queue, self.on_message)
        for number in range(MESSAGES):
            self.channel.basic_publish("", self.queue, b"%d" % number)

    def on_confirm(self, frame: Any) -> None:
        method = frame.method
        if not isinstance(method, pika.spec.Basic.Ack):
            self.stop(f"not confirmed: {method}")
            return
        first = 1 if method.multiple else method.delivery_tag
        self.confirmed.update(range(first, method.delivery_tag + 1))
        self.stop_when_done()

    def on_message(self, channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        self.received.append(int(body))
        channel.basic_ack(method.delivery_tag)
        self.stop_when_done()

    def stop_when_done(self) -> None:
        if len(self.confirmed) == len(self.received) == MESSAGES:
            self.stop(None)

    def stop(self, failure: object) -> None:
        self.failure = failure
        if self.connection.is_open:
            self.connection.close()

    def check(self) -> None:
        assert self.failure is None
        assert self.received == list(range(MESSAGES))
        assert self.confirmed == set(range(1, MESSAGES + 1))
        assert self.steps == ["channel", "declared", "confirms", "closed 200"]


def test_select_connection(broker_url: str, unique: Callable[[str], str]) -> None:
    pipeline = Pipeline(unique("select"))
    connection = pika.SelectConnection(
        pika.URLParameters(broker_url),
        on_open_callback=pipeline.on_open,
        on_open_error_callback=lambda _connection, error: pytest.fail(str(error)),
        on_close_callback=lambda connection, _reason: connection.ioloop.stop(),
    )
    try:
        connection.ioloop.start()
    finally:
        connection.ioloop.close()
    pipeline.check()


def test_asyncio_connection(broker_url: str, unique: Callable[[str], str]) -> None:
    pipeline = Pipeline(unique("asyncio"))

    async def main() -> None:
        closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        AsyncioConnection(
            pika.URLParameters(broker_url),
            on_open_callback=pipeline.on_open,
            on_open_error_callback=lambda _connection, error: closed.set_exception(error),
            on_close_callback=lambda _connection, _reason: closed.set_result(None),
        )
        await closed

    asyncio.run(main())
    pipeline.check()
