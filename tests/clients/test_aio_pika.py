"""aio-pika: robust connections, confirms, iterators, transactions and its RPC pattern."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import aio_pika
import pika
import pytest
from aio_pika.exceptions import ChannelNotFoundEntity, DeliveryError
from aio_pika.patterns import RPC, Master

DEADLINE_S = 120.0


def run(program: Awaitable[None]) -> None:
    async def with_deadline() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await program

    asyncio.run(with_deadline())


def test_publish_confirm_and_iterate(broker_url: str, unique: Callable[[str], str]) -> None:
    async def program() -> None:
        connection = await aio_pika.connect_robust(broker_url)
        async with connection:
            channel = await connection.channel(publisher_confirms=True)
            await channel.set_qos(prefetch_count=20)
            queue = await channel.declare_queue(unique("queue"), durable=True)
            mode = aio_pika.DeliveryMode.PERSISTENT
            for number in range(100):
                message = aio_pika.Message(b"%d" % number, delivery_mode=mode, headers={"number": number})
                await channel.default_exchange.publish(message, queue.name, mandatory=True)
            got = []
            async with queue.iterator() as messages:
                async for incoming in messages:
                    async with incoming.process():
                        got.append((int(incoming.body), incoming.headers["number"], incoming.redelivered))
                    if len(got) == 100:
                        break
            assert got == [(number, number, False) for number in range(100)]
            assert (await channel.declare_queue(queue.name, passive=True)).declaration_result.message_count == 0
            await queue.delete()

    run(program())


def test_properties_of_all_types(broker_url: str) -> None:
    moment = datetime(2024, 2, 29, 12, 30, 1, tzinfo=UTC)
    headers = {
        "int": -5,
        "big": 2**40,
        "float": 1.5,
        "text": "snö",
        "bytes": bytearray(b"\xff\x00"),
        "true": True,
        "none": None,
        "list": [1, "two", {"three": [4.5]}],
        "table": {"a": {"b": "c"}},
        "time": moment,
    }

    async def program() -> None:
        connection = await aio_pika.connect(broker_url)
        async with connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(exclusive=True)
            message = aio_pika.Message(
                b"",
                headers=headers,
                content_type="application/json",
                content_encoding="gzip",
                priority=3,
                correlation_id="c",
                reply_to="r",
                expiration=60,
                message_id="m",
                timestamp=moment,
                type="t",
                user_id="guest",
                app_id="a",
            )
            await channel.default_exchange.publish(message, queue.name)
            got = await queue.get(timeout=DEADLINE_S, no_ack=True)
            assert got is not None
            assert got.body == b""
            assert got.headers == headers
            for name in ("content_type", "content_encoding", "priority", "correlation_id", "reply_to"):
                assert getattr(got, name) == getattr(message, name), name
            for name in ("expiration", "message_id", "timestamp", "type", "user_id", "app_id"):
                assert getattr(got, name) == getattr(message, name), name

    run(program())


def test_a_returned_message_raises(broker_url: str, unique: Callable[[str], str]) -> None:
    async def program() -> None:
        connection = await aio_pika.connect(broker_url)
        async with connection:
            channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
            with pytest.raises(DeliveryError) as caught:
                await channel.default_exchange.publish(aio_pika.Message(b"x"), unique("nobody"))
            assert caught.value.frame.reply_code == 312
            # The channel goes on.
            queue = await channel.declare_queue(exclusive=True)
            await channel.default_exchange.publish(aio_pika.Message(b"x"), queue.name)

    run(program())


def test_transactions(broker_url: str) -> None:
    async def program() -> None:
        connection = await aio_pika.connect(broker_url)
        async with connection:
            channel = await connection.channel(publisher_confirms=False)
            queue = await channel.declare_queue(exclusive=True)
            try:
                async with channel.transaction():
                    await channel.default_exchange.publish(aio_pika.Message(b"no"), queue.name)
                    raise ZeroDivisionError
            except ZeroDivisionError:
                pass  # the transaction was rolled back
            async with channel.transaction():
                await channel.default_exchange.publish(aio_pika.Message(b"yes"), queue.name)
            got = await queue.get(timeout=DEADLINE_S, no_ack=True)
            assert got is not None
            assert got.body == b"yes"
            assert await queue.get(fail=False, no_ack=True) is None

    run(program())


def test_a_channel_error_carries_the_brokers_words(broker_url: str, unique: Callable[[str], str]) -> None:
    name = unique("missing")

    async def program() -> None:
        connection = await aio_pika.connect(broker_url)
        async with connection:
            channel = await connection.channel()
            with pytest.raises(ChannelNotFoundEntity, match=f"NOT_FOUND - no queue '{name}' in vhost '/'"):
                await channel.declare_queue(name, passive=True)
            assert not connection.is_closed

    run(program())


def test_rpc_pattern(broker_url: str, unique: Callable[[str], str]) -> None:
    method = unique("multiply")

    async def multiply(*, x: int, y: int) -> int:
        if x < 0:
            raise ValueError("negative")
        return x * y

    async def program() -> None:
        server, client = await aio_pika.connect_robust(broker_url), await aio_pika.connect_robust(broker_url)
        async with server, client:
            serving = await RPC.create(await server.channel())
            await serving.register(method, multiply, auto_delete=True)
            asking = await RPC.create(await client.channel())
            answers = await asyncio.gather(*(asking.call(method, {"x": number, "y": 2}) for number in range(50)))
            assert answers == [number * 2 for number in range(50)]
            with pytest.raises(ValueError, match="negative"):
                await asking.call(method, {"x": -1, "y": 2})
            await asking.close()
            await serving.close()

    run(program())


def test_master_worker_pattern(broker_url: str, unique: Callable[[str], str]) -> None:
    task = unique("task")

    async def program() -> None:
        connection = await aio_pika.connect_robust(broker_url)
        async with connection:
            done: list[int] = []
            finished = asyncio.Event()

            async def work(*, number: int) -> None:
                done.append(number)
                if len(done) == 30:
                    finished.set()

            master = Master(await connection.channel())
            worker = await master.create_worker(task, work, auto_delete=True)
            for number in range(30):
                await master.create_task(task, {"number": number})
            await finished.wait()
            assert sorted(done) == list(range(30))
            await worker.close()

    run(program())


def test_a_robust_connection_comes_back_with_its_consumers(broker_url: str, unique: Callable[[str], str]) -> None:
    """Its connection is closed by the broker (540 is a connection error); then it reconnects by itself,
    declares its queue again, and its consumer gets what is published after that."""
    name = unique("robust")

    async def program() -> None:
        connection = await aio_pika.connect_robust(broker_url, reconnect_interval=0.05)
        got: asyncio.Queue[bytes] = asyncio.Queue()
        back = asyncio.Event()
        async with connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(name, auto_delete=False)

            async def on_message(message: aio_pika.abc.AbstractIncomingMessage) -> None:
                await got.put(message.body)
                await message.ack()

            await queue.consume(on_message)
            connection.reconnect_callbacks.add(lambda *_: back.set())
            publish(broker_url, name, b"before")
            assert await got.get() == b"before"
            # A channel below the robust layer, or that would repeat the mistake at every reconnect.
            assert connection.transport is not None
            breaking = await connection.transport.connection.channel()
            with pytest.raises(aio_pika.exceptions.AMQPError, match="NOT_IMPLEMENTED"):
                await breaking.basic_qos(prefetch_size=1)
            await back.wait()
            publish(broker_url, name, b"after")
            assert await got.get() == b"after"
            await queue.delete(if_unused=False, if_empty=False)

    run(program())


def publish(url: str, queue: str, body: bytes) -> None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        connection.channel().basic_publish("", queue, body)
