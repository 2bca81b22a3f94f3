"""A flipped byte of a stored body, from the disk to a client: what is before it comes, the queue stops, another queue
goes on, and what an operator does about it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest

from amqpd.journal.sqlite.database import JOURNAL

from .broker_process import REPOSITORY, BrokerProcess

MESSAGES, HIT = 40, 23
SIZE = 30_000
"""a row of the journal is one message, since each is confirmed before the next one comes"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path / "data")
    try:
        broker.start()
        yield broker
        assert broker.terminate() == 0
        assert "Traceback" not in broker.log
    finally:
        broker.close()


def body(number: int) -> bytes:
    return b"message %04d " % number + bytes([number]) * SIZE


def flip(data_dir: Path) -> None:
    """One bit of the middle of one body."""
    file = data_dir / JOURNAL
    content = bytearray(file.read_bytes())
    at = content.index(bytes([HIT]) * 3000) + 1500
    content[at] ^= 0x04
    file.write_bytes(content)


def run(broker: BrokerProcess, *words: str) -> str:
    line = [sys.executable, "-m", "amqpd", *words, "--data-dir", str(broker.data_dir)]
    done = subprocess.run(line, cwd=REPOSITORY, env=broker.child_environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def consumed(broker: BrokerProcess, queue: str, count: int) -> list[int]:
    """What comes until the server cancels the consumer, or this many have come."""
    numbers: list[int] = []
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        # The iterator ends by itself when the consumer is cancelled.
        for method, _, content in channel.consume(queue, inactivity_timeout=60):
            assert method is not None, "nothing came for a minute"
            number = int(content.split()[1])
            assert content == body(number)
            channel.basic_ack(method.delivery_tag)
            numbers.append(number)
            if len(numbers) == count:
                channel.cancel()
                break
    return numbers


@pytest.mark.slow
def test_a_flipped_byte_stops_its_queue_until_an_operator_sets_the_message_aside(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        persistent = pika.BasicProperties(delivery_mode=2)
        for queue in ("orders", "others"):
            channel.queue_declare(queue, durable=True)
        for number in range(MESSAGES):
            channel.basic_publish("", "orders", body(number), persistent)
        channel.basic_publish("", "others", body(MESSAGES), persistent)
    assert broker.terminate() == 0
    flip(broker.data_dir)
    broker.start()

    assert consumed(broker, "orders", MESSAGES) == list(range(HIT))
    assert consumed(broker, "others", 1) == [MESSAGES]
    for _ in range(3):
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
                connection.channel().basic_consume("orders", lambda *_: None)
            assert closed.value.reply_code == 406
            assert f"messages {HIT}..{HIT} of queue 'orders' in vhost '/' are damaged" in closed.value.reply_text
    assert broker.log.count("queue_fenced") == 1
    [row] = [row for row in json.loads(run(broker, "queue", "list", "--json")) if row["name"] == "orders"]
    assert (row["state"], row["fenced"]["first"], row["messages_ready"]) == ("fenced", HIT, MESSAGES - HIT)
    assert "orders in /" in run(broker, "status")
    assert f"messages {HIT} to {HIT}" in run(broker, "queue", "show", "orders")

    exported = tmp_path / "row"
    run(broker, "message", "export", "orders", "--to", str(exported))
    assert sum(a != b for a, b in zip(exported.read_bytes()[-SIZE - 1 : -1], body(HIT)[-SIZE:], strict=True)) == 1
    assert "would be set aside" in run(broker, "message", "quarantine", "orders")
    assert "set aside 1 message" in run(broker, "message", "quarantine", "orders", "--yes")
    [kept] = (broker.data_dir / "quarantine").glob("*.row")
    assert kept.read_bytes() == exported.read_bytes()
    facts: dict[str, Any] = json.loads(kept.with_suffix(".json").read_bytes())
    assert (facts["queue"], facts["first_id"]) == ("orders", HIT)
    rest = list(range(HIT + 1, MESSAGES))
    assert consumed(broker, "orders", len(rest)) == rest
    assert "queue_fence_cleared" in broker.log
