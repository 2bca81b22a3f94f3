"""A broker with everything recorded, stopped, killed and changed while it runs; what the files say then."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pika
import pika.exceptions
import pytest
from pamqp import commands

from tests.audit.reading import Row, finish_spool, only, rows_below, told
from tests.clients.address import address_text, client_host
from tests.clients.broker_process import REPOSITORY, BrokerProcess
from tests.clients.wire import Wire, publish_bytes


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path / "data", environment={"AMQPD_AUDIT_LEVEL": "full", "AMQPD_AUDIT_NODE": "n"})
    try:
        yield broker
        assert "Traceback" not in broker.log
    finally:
        broker.close()


def rows(broker: BrokerProcess) -> list[Row]:
    return rows_below(broker.data_dir / "audit" / "events")


def command(broker: BrokerProcess, *words: str) -> None:
    line = [sys.executable, "-m", "amqpd", *words, "--data-dir", str(broker.data_dir)]
    subprocess.run(line, check=True, cwd=REPOSITORY, env=broker.child_environment(), capture_output=True)


def publish(channel: pika.adapters.blocking_connection.BlockingChannel, count: int) -> None:
    channel.confirm_delivery()
    for number in range(count):
        properties = pika.BasicProperties(delivery_mode=2, message_id=f"m{number}")
        channel.basic_publish("", "orders", b"body", properties)


def connection_name(connection: pika.BlockingConnection) -> str:
    """As the broker calls it."""
    socket = connection._impl._transport._sock
    return " -> ".join(address_text(end) for end in (socket.getsockname(), socket.getpeername()))


def test_after_a_stop_the_files_say_what_happened(broker: BrokerProcess) -> None:
    broker.start()
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("orders", durable=True)
        publish(channel, 3)
        method, _, _ = channel.basic_get("orders")
        assert method is not None
        channel.basic_ack(method.delivery_tag)
        channel.queue_declare("orders", passive=True)
        name = connection_name(connection)
    assert broker.terminate() == 0
    found = rows(broker)
    assert [row["number"] for row in found] == list(range(1, len(found) + 1))
    assert {(row["node"], row["incarnation"]) for row in found} == {("n", 1)}
    acts = only(found, "connection_opened", "queue_declared", "connection_closed")
    assert told(acts, "event", "user", "connection", "address", "vhost") == [
        (event, "guest", name, client_host(), "/")
        for event in ("connection_opened", "queue_declared", "connection_closed")
    ]
    events = ("published", "routed", "confirmed")
    assert told(only(found, *events), "event", "publication", "confirm_tag", "message_id") == [
        (event, number + 1, number + 1, None if event == "confirmed" else f"m{number}")
        for number in range(3)
        for event in events
    ]
    out = only(found, "delivered", "acked")
    assert told(out, "event", "queue", "first", "count", "user") == [
        ("delivered", "orders", 0, 1, "guest"),
        ("acked", "orders", 0, 1, None),
    ]
    assert [row["event"] for row in found[:1] + found[-3:]] == ["started", "standing", "standing", "stopped"]
    assert json.loads(found[-1]["detail"]) == {"flushed": True}
    assert told(found[-3:-1], "reason", "first", "count", "detail") == [("stopped", 3, 0, "1"), (None, 1, 2, None)]
    assert list((broker.data_dir / "audit" / "spool").iterdir()) == []


@pytest.mark.slow
def test_a_stop_that_had_no_time_for_the_journal_says_so(broker: BrokerProcess) -> None:
    """What the log tells of may be undone then, as by a kill."""
    broker.environment["AMQPD_DRAIN_TIMEOUT_S"] = "0"
    broker.start()
    broker.terminate()
    del broker.environment["AMQPD_DRAIN_TIMEOUT_S"]
    broker.start()
    assert broker.terminate() == 0
    assert [(row["incarnation"], json.loads(row["detail"])) for row in only(rows(broker), "stopped")] == [
        (1, {"flushed": False}),
        (2, {"flushed": True}),
    ]


@pytest.mark.slow
def test_after_a_kill_confirmed_messages_have_their_events(broker: BrokerProcess) -> None:
    broker.start()
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.queue_declare("orders", durable=True)
    publish(channel, 5)
    broker.kill()
    with contextlib.suppress(pika.exceptions.AMQPError):
        connection.close()
    assert rows(broker) == []
    broker.start()
    assert broker.terminate() == 0
    found = rows(broker)
    first = [row for row in found if row["incarnation"] == 1]
    assert sum(row["count"] for row in only(first, "confirmed")) == 5
    assert sum(row["count"] for row in only(first, "routed")) == 5
    second = [row for row in found if row["incarnation"] == 2]
    started = [json.loads(row["detail"]) for row in only(found, "started")]
    assert [each["orderly"] for each in started] == [True, False]
    assert not only(found, "gap"), "a kill loses nothing"
    assert told(only(second, "standing"), "reason", "epoch", "first", "count") == [
        *(("recovered", 2, 5, 0), (None, 1, 0, 5)),
        *(("stopped", 2, 5, 0), (None, 1, 0, 5)),
    ]
    broker.start()
    assert broker.terminate() == 0
    (third,) = (json.loads(row["detail"]) for row in only(rows(broker), "started") if row["incarnation"] == 3)
    assert third["orderly"]


@pytest.mark.slow
def test_a_policy_begins_and_survives_starts(broker: BrokerProcess) -> None:
    broker.environment["AMQPD_AUDIT_LEVEL"] = "counts"
    broker.start()
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("orders", durable=True)
        publish(channel, 2)
        command(broker, "policy", "set", "/", "recorded", "^orders", '{"audit": "full"}')
        publish(channel, 1)
    broker.kill()
    broker.start()
    assert broker.terminate() == 0
    found = rows(broker)
    events = ("standing", "routed")
    first = only((row for row in found if row["incarnation"] == 1), *events)
    assert told(first, "event", "reason", "first", "count", "detail") == [
        ("standing", "level", 2, 0, "1"),
        ("standing", None, 0, 2, None),
        ("routed", None, 2, 1, None),
    ]
    second = only((row for row in found if row["incarnation"] == 2), *events)
    assert told(second, "reason", "epoch", "first", "count") == [
        *(("recovered", 2, 3, 0), (None, 1, 0, 3)),
        *(("stopped", 2, 3, 0), (None, 1, 0, 3)),
    ]
    (policy,) = only(found, "policy_put")
    assert (policy["object"], policy["user"]) == ("policy recorded", "rmq-cli")


@pytest.mark.slow
def test_what_expired_while_nobody_ran_leaves_its_queue_in_the_books(broker: BrokerProcess) -> None:
    broker.start()
    with (
        contextlib.suppress(pika.exceptions.AMQPError),
        pika.BlockingConnection(pika.URLParameters(broker.url)) as connection,
    ):
        channel = connection.channel()
        channel.queue_declare("orders", durable=True)
        channel.confirm_delivery()
        # Its time is up before a broker can be there again, or already before the kill.
        for body, expiration in ((b"stays", None), (b"goes", "100")):
            properties = pika.BasicProperties(delivery_mode=2, expiration=expiration)
            channel.basic_publish("", "orders", body, properties)
        broker.kill()
    broker.start()
    assert broker.terminate() == 0
    expired = only(rows(broker), "expired")
    assert told(expired, "queue", "first", "epoch", "count") == [("orders", 1, 1, 1)]


def test_a_stop_in_the_middle_of_things_loses_no_row_and_makes_no_gap(broker: BrokerProcess) -> None:
    """Messages expire, one every other millisecond, until nothing is recorded any more and while files are made."""
    count = 5_000
    broker.environment["AMQPD_DRAIN_TIMEOUT_S"] = "4"  # the client does not answer, for half of it
    broker.start()
    with Wire(broker.port) as wire:
        wire.open()
        wire.open_channel()
        wire.call(commands.Queue.Declare(queue="orders", durable=True), channel=1)
        for number in range(20):
            wire.call(commands.Queue.Declare(queue=f"mine.{number}", exclusive=True), channel=1)
        for number in range(count):
            properties = commands.Basic.Properties(delivery_mode=2, expiration=str(2 * number))
            wire.send_bytes(publish_bytes(1, "", "orders", b"body", properties))
        wire.call(commands.Queue.Declare(queue="orders", passive=True), channel=1)
        assert broker.terminate() == 0
    assert "cannot be written" not in broker.log
    # What the time was too short to make files of, the next start does.
    finish_spool(broker.data_dir / "audit")
    found = rows(broker)
    assert [row["number"] for row in found] == list(range(1, len(found) + 1))
    assert found[-1]["event"] == "stopped"
    assert len(only(found, "queue_deleted")) == 20
    assert sum(row["count"] for row in only(found, "routed")) == count
    expired = sum(row["count"] for row in only(found, "expired"))
    last_anchor = max(row["number"] for row in only(found, "standing") if row["reason"] == "stopped")
    assert expired + sum(row["count"] for row in found[last_anchor:-1]) == count
    broker.start()
    assert broker.terminate() == 0
    assert list((broker.data_dir / "audit" / "spool").glob("n-1-*")) == []
    assert only(rows(broker), "gap") == []
