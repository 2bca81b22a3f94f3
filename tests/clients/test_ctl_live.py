"""`amqpd ctl` on a broker that runs: lists in rabbitmqctl's columns, and what is done to queues and connections."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pika
import pytest
from pamqp import commands

from amqpd.__main__ import run

from .broker_process import BrokerProcess
from .wire import Wire

Ctl = Callable[..., str]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("ctl") / "data")
    try:
        broker.start()
        yield broker
        assert broker.terminate() == 0
        assert "Traceback" not in broker.log
    finally:
        broker.close()


@pytest.fixture
def ctl(broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> Ctl:
    """In this process: thirty more of them would take half a minute of a processor."""

    def told(*words: str, code: int = 0) -> str:
        capsys.readouterr()
        ended = run(["--data-dir", str(broker.data_dir), "ctl", *words])
        said = capsys.readouterr()
        assert ended == code, said.err
        return said.out if code == 0 else said.err

    return told


def test_lists_as_rabbitmqctl_prints_them(broker: BrokerProcess, ctl: Ctl) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("jobs", durable=True, arguments={"x-message-ttl": 60_000, "x-max-length": 5})
        channel.exchange_declare("events", "topic", durable=True)
        channel.queue_bind("jobs", "events", "a.#")
        channel.confirm_delivery()
        channel.basic_publish("", "jobs", b"one")
        channel.queue_declare("other")
        channel.basic_qos(prefetch_count=7)
        tag = channel.basic_consume("other", lambda *_: None)
        assert ctl("list_queues") == (
            "Timeout: 60.0 seconds ...\nListing queues for vhost / ...\nname\tmessages\njobs\t1\nother\t0\n"
        )
        assert ctl("-q", "list_queues", "name", "durable", "arguments", "pid", "type", "state").splitlines()[1] == (
            'jobs\ttrue\t[{"x-message-ttl",60000},{"x-max-length",5}]\t\tclassic\trunning'
        )
        assert json.loads(ctl("list_queues", "--formatter", "json", "name", "arguments")) == [
            {"name": "jobs", "arguments": [["x-message-ttl", "signedint", 60_000], ["x-max-length", "signedint", 5]]},
            {"name": "other", "arguments": []},
        ]
        exchanges = ctl("list_exchanges").splitlines()
        assert exchanges[:3] == ["Listing exchanges for vhost / ...", "name\ttype", "\tdirect"]
        assert {"events\ttopic", "amq.match\theaders"} <= set(exchanges)
        assert ctl("list_bindings").splitlines()[2:] == [
            "\texchange\tjobs\tqueue\tjobs\t[]",
            "\texchange\tother\tqueue\tother\t[]",
            "events\texchange\tjobs\tqueue\ta.#\t[]",
        ]
        assert ctl(
            "list_consumers", "queue_name", "consumer_tag", "ack_required", "prefetch_count", "active"
        ).endswith(f"other\t{tag}\ttrue\t7\ttrue\n")
        assert ctl("list_connections", "user", "state", "channels", "vhost", "ssl", "protocol").endswith(
            "guest\trunning\t1\t/\tfalse\t{0,9,1}\n"
        )
        assert ctl("list_channels", "number", "user", "consumer_count", "confirm", "prefetch_count").endswith(
            "1\tguest\t1\ttrue\t7\n"
        )
        assert ctl("list_unresponsive_queues").count("\n") == 1


def test_queues_are_purged_and_deleted(broker: BrokerProcess, ctl: Ctl) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("full", durable=True)
        for _ in range(3):
            channel.basic_publish("", "full", b"m")
        assert "not empty" in ctl("delete_queue", "full", "--if-empty", code=69)
        ctl("purge_queue", "full")
        assert channel.queue_declare("full", passive=True).method.message_count == 0
        channel.basic_publish("", "full", b"m")
        assert ctl("delete_queue", "full").splitlines() == [
            "Deleting queue 'full' on vhost '/' ...",
            "Queue was successfully deleted with 1 ready messages",
        ]
    ctl("delete_queue", "full", code=64)
    ctl("purge_queue", "full", code=69)


def test_a_connection_is_closed_by_the_pid_that_is_listed(broker: BrokerProcess, ctl: Ctl) -> None:
    with Wire(broker.port) as wire:
        wire.open()
        pid = ctl("-s", "list_connections", "pid").strip()
        ctl("close_connection", pid, "because")
        close = wire.read_method()[1]
        assert isinstance(close, commands.Connection.Close)
        assert (close.reply_code, "because" in close.reply_text) == (320, True)
    assert ctl("close_connection", "nonsense", "because", code=69).startswith("Error:\n")
    assert ctl("close_all_connections", "because").endswith("Closed 0 connections\n")


def test_the_node_is_there(broker: BrokerProcess, ctl: Ctl) -> None:
    assert ctl("ping").endswith("Ping succeeded\n")
    assert ctl("await_startup") == ""
    ctl("await_online_nodes", "1")
    ctl("await_online_nodes", "2", "-t", "0.1", code=65)
    assert ctl("node_health_check").endswith("Health check passed\n")
    assert json.loads(ctl("status", "--formatter", "json"))["alarms"] == []
    assert ctl("cluster_status").splitlines()[0].startswith("Cluster status of node ")
    ctl("trace_on")
    assert "/\ttrue" in ctl("list_vhosts", "name", "tracing").splitlines()
    ctl("trace_off")
