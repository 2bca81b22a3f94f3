"""A client that does not acknowledge, on a whole broker: the timers run, and the setting arrives."""

from __future__ import annotations

from pathlib import Path

import pytest
from pamqp import commands

from .broker_process import BrokerProcess
from .wire import Message, Wire, publish_bytes

Basic, Channel, Queue = commands.Basic, commands.Channel, commands.Queue


@pytest.mark.slow
def test_who_does_not_acknowledge_loses_the_channel_and_the_message_is_there_again(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", environment={"AMQPD_CONSUMER_TIMEOUT_S": "0.001"})
    try:
        broker.start()
        with Wire(broker.port) as wire:
            wire.open()
            wire.open_channel()
            wire.call(Queue.Declare(queue="q"), channel=1)
            wire.call(Basic.Consume(queue="q"), channel=1)
            wire.send_bytes(publish_bytes(1, "", "q", b"m"))
            assert isinstance(wire.read_message()[1], Message)
            close = wire.read_method()[1]
            assert isinstance(close, Channel.Close)
            assert (close.reply_code, close.reply_text) == (
                406,
                "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: 1 ms. "
                "This timeout value can be configured, see consumers doc guide to learn more",
            )
            wire.send(Channel.CloseOk(), channel=1)
            wire.open_channel(1)
            assert wire.call(Queue.Declare(queue="q", passive=True), channel=1).message_count == 1
            wire.close()
        assert broker.terminate() == 0
        assert "Traceback" not in broker.log
    finally:
        broker.close()
