"""What an operator sees of a running broker, and does to it, on the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest
from pamqp import commands

from .address import TLS, address_text, connection_name
from .broker_process import REPOSITORY, BrokerProcess
from .wire import Wire, described, publish_bytes

Basic, Confirm, Connection, Queue = commands.Basic, commands.Confirm, commands.Connection, commands.Queue
Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    arguments = ["--server-product", "RabbitMQ", "--server-version", "3.13.7"]
    broker = BrokerProcess(tmp_path_factory.mktemp("operations") / "data", arguments=arguments)
    try:
        broker.start()
        yield broker
        assert broker.terminate() == 0
        assert "Traceback" not in broker.log
    finally:
        broker.close()


@pytest.fixture
def command(broker: BrokerProcess) -> Command:
    def run(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "amqpd", *words, "--data-dir", str(broker.data_dir)]
        done = subprocess.run(
            line, cwd=REPOSITORY, env=broker.child_environment(), capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stderr
        return done

    return run


@pytest.fixture
def listed(command: Command) -> Callable[..., list[dict[str, Any]]]:
    def run(*words: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(command(*words, "--json").stdout)
        return rows

    return run


Listed = Callable[..., list[dict[str, Any]]]


def connected(broker: BrokerProcess) -> Wire:
    wire = Wire(broker.port)
    wire.open()
    wire.open_channel()
    return wire


def forced(wire: Wire) -> str:
    close = wire.read_method()[1]
    assert isinstance(close, Connection.Close), described(close)
    assert close.reply_code == 320
    wire.send(Connection.CloseOk())
    assert wire.at_end()
    return str(close.reply_text)


def test_clients_are_told_the_product_that_was_set(broker: BrokerProcess) -> None:
    with connected(broker) as wire:
        assert (wire.server_properties["product"], wire.server_properties["version"]) == ("RabbitMQ", "3.13.7")


def test_connections_are_listed_with_their_client_properties(
    broker: BrokerProcess, listed: Listed, command: Command
) -> None:
    parameters = pika.URLParameters(broker.url)
    parameters.client_properties = {"connection_name": "shop-7", "nested": {"list": [1, "zwei", None]}}
    with pika.BlockingConnection(parameters) as connection, connected(broker):
        connection.channel()
        connection.channel()
        [row] = [row for row in listed("connection", "list") if row["channels"] == 2]
        own = connection._impl._transport._sock.getsockname()
        assert row["client_properties"]["connection_name"] == "shop-7"
        assert row["client_properties"]["nested"] == {"list": [1, "zwei", None]}
        assert row["client_properties"]["product"] == "Pika Python Client Library"
        assert (row["user"], row["vhost"], row["state"], row["tls"]) == ("guest", "/", "running", TLS)
        assert row["peer"] == address_text(own)
        assert row["bytes_in"] > 200
        assert row["bytes_out"] > 200
        assert row["connected_at"].endswith("+00:00")
        text = command("connection", "list").stdout
        assert text.startswith("id")
        assert "shop-7" in text
        assert listed("connection", "list", "--user", "nobody") == []
        assert listed("connection", "list", "--vhost", "elsewhere") == []


def test_a_connection_is_closed_by_id_with_a_reason(broker: BrokerProcess, listed: Listed, command: Command) -> None:
    with connected(broker) as wire, connected(broker) as other:
        name = connection_name(wire.socket)
        [row] = [row for row in listed("connection", "list") if row["name"] == name]
        done = command("connection", "close", row["id"], "--reason", "stuck since noon")
        assert done.stdout == "closed 1 connection\n"
        assert forced(wire) == "CONNECTION_FORCED - stuck since noon"
        assert "there is no connection" in command("connection", "close", row["id"], code=1).stderr
        assert isinstance(other.call(Basic.Qos(prefetch_count=1), channel=1), Basic.QosOk)
        name = connection_name(other.socket)
        command("connection", "close", name)
        assert forced(other) == "CONNECTION_FORCED - closed by an operator"


@pytest.mark.slow
def test_connections_are_closed_by_user_by_vhost_and_all(broker: BrokerProcess, command: Command) -> None:
    for words in (["--user", "guest"], ["--vhost", "/"], ["--all"]):
        with connected(broker) as wire, connected(broker) as other:
            assert command("connection", "close", "--user", "nobody").stdout == "closed 0 connections\n"
            assert command("connection", "close", *words).stdout == "closed 2 connections\n"
            assert forced(wire) == forced(other) == "CONNECTION_FORCED - closed by an operator"
    assert "say which connections" in command("connection", "close", code=2).stderr
    assert "say which connections" in command("connection", "close", "x", "--all", code=2).stderr


@pytest.mark.slow
def test_an_operators_alarm_blocks_publishers_until_it_is_cleared(
    broker: BrokerProcess, listed: Listed, command: Command
) -> None:
    with connected(broker) as wire:
        wire.call(Queue.Declare(queue="q", auto_delete=True), channel=1)
        wire.call(Confirm.Select(), channel=1)
        assert "publishers wait" in command("alarm", "set", "maintenance").stdout
        assert "set already" in command("alarm", "set", "maintenance").stdout
        assert [(row["name"], row["source"]) for row in listed("alarm", "list")] == [("maintenance", "operator")]
        wire.send_bytes(publish_bytes(1, "", "q", b"first"))
        blocked = wire.read_method()[1]  # and no ack
        assert isinstance(blocked, Connection.Blocked), described(blocked)
        assert blocked.reason == "low on maintenance"
        [row] = listed("connection", "list")
        assert row["state"] == "blocked"
        wire.send_bytes(publish_bytes(1, "", "q", b"second"))
        assert "is cleared" in command("alarm", "clear", "maintenance").stdout
        assert isinstance(wire.read_method()[1], Connection.Unblocked)
        while wire.expect(Basic.Ack).delivery_tag < 2:
            pass
        assert "no operator has set" in command("alarm", "clear", "maintenance").stdout
        assert "an alarm's name" in command("alarm", "set", "not a name", code=1).stderr
        assert listed("alarm", "list") == []


@pytest.mark.slow
def test_a_virtual_host_is_traced_from_the_command_line(
    broker: BrokerProcess, listed: Listed, command: Command
) -> None:
    with connected(broker) as wire:
        wire.call(Queue.Declare(queue="traces", exclusive=True), channel=1)
        wire.call(Queue.Declare(queue="traced", exclusive=True), channel=1)
        wire.call(Queue.Bind(queue="traces", exchange="amq.rabbitmq.trace", routing_key="#"), channel=1)
        wire.send(Basic.Consume(queue="traces", no_ack=True), channel=1)
        assert isinstance(wire.read_method()[1], Basic.ConsumeOk)
        assert "is traced" in command("trace", "on").stdout
        assert "already" in command("trace", "on", "--vhost", "/").stdout
        wire.send_bytes(publish_bytes(1, "", "traced", b"x"))
        copy = wire.read_message()[1]
        assert (copy.method.routing_key, copy.body) == ("publish.", b"x")
        assert copy.properties.headers["node"].startswith("amqpd@")
        assert listed("trace", "list") == [{"vhost": "/", "traced": 1, "dropped": 0}]
        assert "not traced any more" in command("trace", "off").stdout
        assert "is not traced" in command("trace", "off").stdout
        assert listed("trace", "list") == []
        assert "no virtual host 'none'" in command("trace", "on", "--vhost", "none", code=1).stderr


@pytest.mark.slow
def test_queues_channels_consumers_exchanges_and_bindings_are_listed(
    broker: BrokerProcess, listed: Listed, command: Command
) -> None:
    with connected(broker) as wire:
        wire.call(Queue.Declare(queue="work", exclusive=True, arguments={"x-note": "mine"}), channel=1)
        wire.call(Queue.Bind(queue="work", exchange="amq.topic", routing_key="a.#"), channel=1)
        wire.call(Basic.Qos(prefetch_count=2), channel=1)
        wire.call(Confirm.Select(), channel=1)
        wire.send_bytes(publish_bytes(1, "", "work", b"x") * 5)
        wire.send(Basic.Consume(queue="work", consumer_tag="me"), channel=1)
        assert listed("queue", "list", "--vhost", "elsewhere") == []
        [queue] = [row for row in listed("queue", "list") if row["name"] == "work"]
        assert (queue["messages_ready"], queue["messages_unacknowledged"], queue["messages"]) == (3, 2, 5)
        assert (queue["consumers"], queue["durable"], queue["exclusive"], queue["type"]) == (
            1,
            False,
            True,
            "classic",
        )
        assert queue["arguments"] == {"x-note": "mine"}
        assert (queue["messages"], queue["message_bytes_ready"], queue["message_bytes_unacknowledged"]) == (5, 3, 2)
        assert (queue["totals"]["accepted"], queue["totals"]["delivered"]) == (5, 2)
        assert sum(queue["time_in_queue_ms"].values()) == 2
        assert 0 <= queue["oldest_message_age_s"] < 60
        assert queue["policy"] is None
        shown = command("queue", "show", "work").stdout
        assert "accepted 5, delivered 2" in shown
        assert "3 ready, 2 unacknowledged" in shown
        assert "time in queue" in shown
        detailed = json.loads(command("queue", "show", "work", "--json").stdout)
        assert (detailed["name"], detailed["message_stats"]["publish"]) == ("work", 5)
        assert [each["consumer_tag"] for each in detailed["consumer_details"]] == ["me"]
        assert "there is no queue 'x'" in command("queue", "show", "x", code=1).stderr
        columns = command("queue", "list", "--columns", "name,ready,totals.delivered").stdout
        assert columns.splitlines()[-1].split() == ["work", "3", "2"]
        assert "there is no column 'nome'" in command("queue", "list", "--columns", "nome", code=2).stderr
        with connected(broker) as other:
            other.send_bytes(publish_bytes(1, "amq.topic", "nowhere", b"x"))
            other.call(Basic.Qos(prefetch_count=1), channel=1)
        dropped = {row["name"]: row["unroutable"]["dropped"] for row in listed("exchange", "list")}
        assert dropped["amq.topic"] == 1
        assert "dropped 1" in command("exchange", "list").stdout
        assert json.loads(command("status", "--json").stdout)["vhosts"][0]["unroutable"]["dropped"] == 1
        assert "messages_delayed" in command("status").stdout
        [consumer] = listed("consumer", "list")
        assert (consumer["priority"], consumer["active"]) == (0, True)
        assert (consumer["queue"], consumer["consumer_tag"], consumer["prefetch_count"]) == ("work", "me", 2)
        [channel] = listed("channel", "list", "--user", "guest")
        assert (channel["number"], channel["consumer_count"], channel["messages_unacknowledged"]) == (1, 1, 2)
        assert (channel["confirm"], channel["transactional"]) == (True, False)
        [binding] = listed("binding", "list")
        assert (binding["source"], binding["destination"], binding["routing_key"]) == ("amq.topic", "work", "a.#")
        exchanges = {row["name"]: row["type"] for row in listed("exchange", "list", "--vhost", "/")}
        assert exchanges["amq.headers"] == "headers"
        assert "work" in command("queue", "list").stdout


def test_without_a_broker_there_is_one_sentence(command: Command, tmp_path: Any, broker: BrokerProcess) -> None:
    for words in (["connection", "list"], ["queue", "list"], ["alarm", "set", "x"], ["connection", "close", "--all"]):
        done = subprocess.run(
            [sys.executable, "-m", "amqpd", *words, "--data-dir", str(tmp_path)],
            cwd=REPOSITORY,
            env=broker.child_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1
        assert done.stderr.startswith(f"amqpd: no broker runs on {tmp_path}")
