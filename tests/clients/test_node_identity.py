"""What a node is called may change; what it has is found by what the data directory says."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pamqp import commands

from .broker_process import REPOSITORY, BrokerProcess
from .wire import Wire, publish_bytes

Basic, Exchange, Queue = commands.Basic, commands.Exchange, commands.Queue
# Made by the version before nodes had ids: queue `q` with one message, and three that an exchange `later` delays,
# whose time has come since.
BEFORE = REPOSITORY / "tests" / "datadir" / "before_node_ids.tar.xz"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path / "data")
    try:
        yield broker
    finally:
        broker.close()


def connected(broker: BrokerProcess) -> Wire:
    wire = Wire(broker.port)
    wire.open()
    wire.open_channel()
    return wire


def status(broker: BrokerProcess) -> dict[str, Any]:
    line = [sys.executable, "-m", "amqpd", "status", "--json", "--data-dir", str(broker.data_dir)]
    done = subprocess.run(
        line, cwd=REPOSITORY, env=broker.child_environment(), capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def check(broker: BrokerProcess) -> str:
    line = [sys.executable, "-m", "amqpd", "check", "--data-dir", str(broker.data_dir)]
    done = subprocess.run(line, cwd=REPOSITORY, env=broker.child_environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def delay(wire: Wire, body: bytes, delay_ms: int) -> None:
    properties = Basic.Properties(headers={"x-delay": delay_ms}, delivery_mode=2)
    wire.send_bytes(publish_bytes(1, "later", "q", body, properties))


def taken(wire: Wire, count: int) -> list[bytes]:
    wire.send(Basic.Consume(queue="q", no_ack=True), channel=1)
    assert isinstance(wire.read_method()[1], Basic.ConsumeOk)
    return [wire.read_message()[1].body for _ in range(count)]


@pytest.mark.slow
def test_a_data_directory_of_the_version_before_gives_back_what_it_delayed(broker: BrokerProcess) -> None:
    with tarfile.open(BEFORE) as files:
        files.extractall(broker.data_dir, filter="data")
    assert "orphan" not in check(broker)
    broker.start()
    with connected(broker) as wire:
        assert sorted(taken(wire, 4)) == [b"delayed 0", b"delayed 1", b"delayed 2", b"ready"]
        delay(wire, b"new", 1)
        assert wire.read_message()[1].body == b"new"
    assert status(broker)["orphans"] == 0
    assert broker.terminate() == 0
    assert "orphan" not in check(broker)


@pytest.mark.slow
def test_a_node_may_have_another_name_at_each_start(broker: BrokerProcess) -> None:
    broker.environment = {"AMQPD_NODE_NAME": "one@somewhere"}
    broker.start()
    with connected(broker) as wire:
        arguments: dict[str, Any] = {"x-delayed-type": "direct"}
        declared = Exchange.Declare(
            exchange="later", exchange_type="x-delayed-message", durable=True, arguments=arguments
        )
        assert isinstance(wire.call(declared, channel=1), Exchange.DeclareOk)
        wire.call(Queue.Declare(queue="q", durable=True), channel=1)
        wire.call(Queue.Bind(queue="q", exchange="later", routing_key="q"), channel=1)
        wire.call(commands.Confirm.Select(), channel=1)
        delay(wire, b"waits", 3_600_000)
        delay(wire, b"due", 1)
        wire.send_bytes(publish_bytes(1, "", "q", b"ready", Basic.Properties(delivery_mode=2)))
        confirmed = 0
        while confirmed < 3:
            method = wire.read_method()[1]
            assert isinstance(method, Basic.Ack)
            confirmed = method.delivery_tag
    before = status(broker)
    broker.environment = {"AMQPD_NODE_NAME": "two@elsewhere"}
    broker.restart()
    after = status(broker)
    assert (before["node"], after["node"]) == ("one@somewhere", "two@elsewhere")
    assert after["incarnation"] > before["incarnation"]
    assert (after["messages_delayed"], after["orphans"]) == (1, 0)
    with connected(broker) as wire:
        assert sorted(taken(wire, 2)) == [b"due", b"ready"]
    assert broker.terminate() == 0
    assert "orphan" not in check(broker)
