"""Looking into the queues of a running broker, and repairing them, on the command line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pika
import pytest
from click.testing import CliRunner, Result

from amqpd.commands.messages import message

from .address import HOST, address_text
from .broker_process import BrokerProcess

Command = Callable[..., Result]
Listed = Callable[..., list[dict[str, Any]]]
PERSISTENT = pika.BasicProperties(delivery_mode=2)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(
        tmp_path_factory.mktemp("messages") / "data",
        environment={"AMQPD_QUEUE_MEMORY_BYTES": "65536"},
    )
    try:
        broker.start()
        yield broker
        assert broker.terminate() == 0
        assert "Traceback" not in broker.log
    finally:
        broker.close()


@pytest.fixture
def command(broker: BrokerProcess) -> Command:
    """In this process: a new one takes most of a second."""

    def run(*words: str, code: int = 0) -> Result:
        settings = SimpleNamespace(data_dir=broker.data_dir)
        done = CliRunner().invoke(message, words, obj=settings)
        assert done.exit_code == code, (done.output, done.exception)
        return done

    return run


@pytest.fixture
def listed(command: Command) -> Listed:
    def run(*words: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(command("list", *words, "--json").stdout)
        return rows

    return run


@pytest.fixture
def channel(broker: BrokerProcess) -> Iterator[Any]:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


def bodies(channel: Any, queue: str) -> list[bytes]:
    found = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append(got[2])
    return found


def test_messages_are_listed_as_they_are_and_nobody_notices(channel: Any, listed: Listed, command: Command) -> None:
    channel.queue_declare("look", durable=True)
    properties = pika.BasicProperties(
        message_id="m1", expiration="60000", headers={"tenant": "old", "n": 7, "deep": {"er": [True, None]}}
    )
    channel.basic_publish("", "look", b"text \xc3\xa9", properties)
    channel.basic_publish("amq.fanout", "nowhere", b"")
    channel.queue_bind("look", "amq.fanout")
    channel.basic_publish("amq.fanout", "some.key", b"\xff\x00" * 50, PERSISTENT)
    first, second = listed("look", "--body", "10")
    assert (first["id"], first["position"], first["state"], first["redelivered"]) == (0, 1, "ready", False)
    assert (first["exchange"], first["routing_key"]) == ("", "look")
    assert first["properties"] == {
        "message_id": "m1",
        "expiration": "60000",
        "headers": {"tenant": "old", "n": 7, "deep": {"er": [True, None]}},
    }
    assert (first["payload"], first["payload_encoding"], first["payload_bytes"]) == ("text é", "string", 7)
    assert 59 < first["expires_in_s"] + first["age_s"] < 61
    assert (second["exchange"], second["routing_key"], second["id"]) == ("amq.fanout", "some.key", 1)
    assert (second["payload"], second["payload_encoding"]) == ("ff00" * 5, "hex")
    assert (second["payload_truncated"], second["properties"]) == (True, {"delivery_mode": 2})
    assert [row["id"] for row in listed("look", "--header", "n=7")] == [0]
    assert [row["id"] for row in listed("look", "--header", "tenant")] == [0]
    assert listed("look", "--header", "n=8") == listed("look", "--message-id", "m2") == []
    assert [row["position"] for row in listed("look", "--from", "2")] == [2]
    assert [row["id"] for row in listed("look", "--id", "1-5")] == [1]
    text = command("list", "look").stdout
    assert "message_id=m1" in text
    assert "0xff00" in text
    method, _, _ = channel.basic_get("look")
    assert not method.redelivered
    [unacked] = listed("look", "--state", "unacked")
    assert (unacked["id"], unacked["position"], unacked["state"]) == (0, None, "unacked")
    assert (unacked["channel"], unacked["consumer_tag"]) == (1, None)
    assert unacked["connection"].startswith(address_text((HOST, 0))[:-1])
    assert "(1) basic.get" in command("list", "look", "--state", "unacked").stdout
    assert [row["state"] for row in listed("look", "--state", "all")] == ["unacked", "ready"]
    assert "there is no queue 'none'" in command("list", "none", code=1).stderr


def test_a_large_backlog_is_found_deleted_and_moved_without_loading_it(
    listed: Listed, command: Command, broker: BrokerProcess
) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        for name in ("deep", "parked"):
            channel.queue_declare(name, durable=True)
        for number in range(3000):
            headers = {"tenant": "old"} if number % 1000 == 500 else None
            properties = pika.BasicProperties(delivery_mode=2, headers=headers)
            channel.basic_publish("", "deep", b"%05d" % number + bytes(500), properties)
    rows = listed("deep", "--header", "tenant=old", "--body", "5")
    assert [(row["id"], row["position"], row["payload"]) for row in rows] == [
        (500, 501, "00500"),
        (1500, 1501, "01500"),
        (2500, 2501, "02500"),
    ]
    assert [row["payload"] for row in listed("deep", "--from", "1234", "--count", "2", "--body", "5")] == [
        "01233",
        "01234",
    ]
    would = command("delete", "deep", "--header", "tenant=old").stdout
    assert would == "3 messages (ids 500 to 2500) would be deleted; --yes does it\n"
    assert len(listed("deep", "--header", "tenant=old")) == 3
    assert command("move", "deep", "parked", "--header", "tenant=old", "--yes").stdout.startswith("moved 3 messages")
    assert command("delete", "deep", "--id", "700-2100").stdout.startswith("1,400 messages")
    assert command("delete", "deep", "--id", "700-2100", "--yes").stdout.startswith("deleted 1,400 messages")
    assert command("move", "deep", "parked", "--from", "2", "--count", "100", "--yes").stdout == (
        "moved 100 messages (ids 1 to 100)\n"
    )
    # A thread of its own writes the log.
    assert f"uid={os.getuid()}" in broker.wait_log("messages moved by an operator")
    broker.kill()
    broker.start()
    left = [row["id"] for row in listed("deep", "--count", "5000", "--body", "0")]
    assert left == [0, *range(101, 500), *range(501, 700), *range(2101, 2500), *range(2501, 3000)]
    moved = [int(row["payload"]) for row in listed("parked", "--count", "5000", "--body", "5")]
    assert moved == [500, 1500, 2500, *range(1, 101)]


def test_a_move_ends_where_the_other_queue_is_full(channel: Any, command: Command) -> None:
    channel.queue_declare("source")
    channel.queue_declare("small", arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    for number in range(5):
        channel.basic_publish("", "source", b"%d" % number)
    done = command("move", "source", "small", "--all", "--yes", code=1)
    assert done.stdout == "moved 2 messages (ids 0 to 1)\n"
    assert "the queue 'small' takes no more" in done.stderr
    assert bodies(channel, "source") == [b"2", b"3", b"4"]
    assert bodies(channel, "small") == [b"0", b"1"]


def test_what_is_meant_must_be_said(command: Command, channel: Any) -> None:
    channel.queue_declare("careful")
    channel.basic_publish("", "careful", b"x")
    assert "say which messages" in command("delete", "careful", "--yes", code=2).stderr
    assert "say which messages" in command("delete", "careful", "--all", "--id", "0", code=2).stderr
    assert "neither an id nor two" in command("delete", "careful", "--id", "x", code=2).stderr
    assert "5-2 is no range" in command("delete", "careful", "--id", "5-2", code=1).stderr
    assert "name another one" in command("move", "careful", "careful", "--all", code=1).stderr
    assert "no queue 'gone'" in command("move", "careful", "gone", "--all", code=1).stderr
    assert "1 message (id 0) would be deleted" in command("delete", "careful", "--all").stdout
    assert command("delete", "careful", "--all", "--yes").stdout == "deleted 1 message (id 0)\n"
    assert command("delete", "careful", "--all", "--yes").stdout == "deleted no message\n"
