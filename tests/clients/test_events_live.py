"""The event exchange of a whole broker: made at its start, told of clients, commands and alarms, there again after a
restart."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pamqp import commands

from .broker_process import REPOSITORY, BrokerProcess
from .wire import Wire

Basic, Queue = commands.Basic, commands.Queue
EXCHANGE = "amq.rabbitmq.event"
SETTINGS = {"AMQPD_EVENTS_EXCHANGE": "true", "AMQPD_AUDIT_LEVEL": "off"}


def command(broker: BrokerProcess, *words: str, given: str | None = None) -> None:
    line = [sys.executable, "-m", "amqpd", *words, "--data-dir", str(broker.data_dir)]
    environment = broker.child_environment()
    subprocess.run(line, check=True, cwd=REPOSITORY, env=environment, capture_output=True, input=given, text=True)


def event(wire: Wire) -> tuple[str, dict[str, Any]]:
    message = wire.read_message()[1]
    assert message.body == b""
    assert message.properties.headers is not None
    return str(message.method.routing_key), dict(message.properties.headers)


@pytest.mark.slow
def test_events_of_a_broker_without_an_audit_log(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", environment=SETTINGS)
    try:
        broker.start()
        with Wire(broker.port) as wire:
            wire.open()
            wire.open_channel()
            wire.call(Queue.Declare(queue="events", durable=True), channel=1)
            for key in ("user.#", "alarm.*", "connection.closed"):
                wire.call(Queue.Bind(queue="events", exchange=EXCHANGE, routing_key=key), channel=1)
        broker.restart()
        with Wire(broker.port) as wire:
            wire.open()
            wire.open_channel()
            wire.send(Basic.Consume(queue="events", no_ack=True), channel=1)
            assert isinstance(wire.read_method()[1], Basic.ConsumeOk)
            # The first connection's end, and the second one's log-in.
            assert [event(wire)[0] for _ in range(2)] == ["connection.closed", "user.authentication.success"]
            command(broker, "user", "add", "ann", "--password-stdin", "--tag", "monitoring", given="secret")
            (created, facts), (tagged, tags) = event(wire), event(wire)
            assert (created, facts["name"], facts["user_who_performed_action"]) == ("user.created", "ann", "rmq-cli")
            assert (tagged, tags["tags"]) == ("user.tags.set", ["monitoring"])
            command(broker, "alarm", "set", "maintenance")
            command(broker, "alarm", "clear", "maintenance")
            alarms = [event(wire) for _ in range(2)]
            assert [(key, facts["source"]) for key, facts in alarms] == [
                ("alarm.set", "maintenance"),
                ("alarm.cleared", "maintenance"),
            ]
        assert broker.terminate() == 0
        assert '"bug"' not in broker.log
        assert "Traceback" not in broker.log
    finally:
        broker.close()
