"""What suites ask of `rabbitmqctl` beyond commands: the run stops and starts its broker, and changes a setting.

What comes in: a broker of our own, the words of RabbitMQ's suites. What goes out: verdicts. Rules: CONTRIBUTING's.
Not here: amqpd's commands, which have tests of their own.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from tests.clients.broker_process import BrokerProcess

from . import preloaded, rabbitmqctl
from .node import ask, operated


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BrokerProcess]:
    it = BrokerProcess(tmp_path / "data")
    path = tmp_path / "run"
    monkeypatch.setenv("SUITE_BROKER", str(path))
    try:
        it.start()
        with operated(it, path):
            yield it
    finally:
        it.close()


@pytest.mark.slow
def test_the_app_stops_and_starts_with_what_it_had(broker: BrokerProcess) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        connection.channel().queue_declare("kept", durable=True)
    assert rabbitmqctl.main(["-n", "node", "stop_app"]) == 0
    assert not broker.running
    assert rabbitmqctl.main(["stop_app"]) == 0, "as RabbitMQ: what is stopped may be stopped"
    assert rabbitmqctl.main(["-n", "node", "start_app"]) == 0
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        connection.channel().queue_declare("kept", passive=True)


@pytest.mark.slow
def test_channel_max_of_the_next_connection(broker: BrokerProcess) -> None:
    def agreed() -> int:
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            return int(connection._impl.params.channel_max)  # what tune said: pika asks for the most

    usual = agreed()
    assert rabbitmqctl.main(["eval", "application:set_env(rabbit, channel_max, 48)."]) == 0
    assert agreed() == 48
    assert rabbitmqctl.main(["eval", "application:set_env(rabbit, channel_max, 0)."]) == 0
    assert agreed() == usual != 48


@pytest.mark.slow
def test_a_broker_that_does_not_start_is_said(broker: BrokerProcess, tmp_path: Path) -> None:
    path = tmp_path / "run"
    assert "BrokerFailed" in ask(path, "restart", {"AMQPD_CHANNEL_MAX": "0"})
    assert ask(path, "restart", {"AMQPD_CHANNEL_MAX": None}) == ""


def test_a_queue_is_deleted(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rabbitmqctl, "PORT", broker.port)
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        connection.channel().queue_declare("goes")
        assert rabbitmqctl.main(["delete_queue", "goes"]) == 0
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="NOT_FOUND"):
            connection.channel().queue_declare("goes", passive=True)


def test_what_is_not_translated_is_not_answered(capsys: pytest.CaptureFixture[str]) -> None:
    assert rabbitmqctl.main(["eval", "application:set_env(rabbit, loopback_users, [])."]) == rabbitmqctl.UNAVAILABLE
    assert "not translated" in capsys.readouterr().err


@pytest.mark.slow
def test_the_preloaded_stand_in_says_what_the_command_says(broker: BrokerProcess, tmp_path: Path) -> None:
    path = tmp_path / "control"
    environment = broker.child_environment() | {"AMQPD_DATA_DIR": str(broker.data_dir)}
    program = [sys.executable, "-I", "-S", preloaded.__file__, str(path)]

    def said(*words: str) -> tuple[int, str, str]:
        done = subprocess.run([*program, *words], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    with preloaded.preloaded(path, environment):
        assert said("add_user", "one", "password")[0] == 0
        assert said("add_user", "one", "password")[0] != 0
        assert said("join_cluster") == (rabbitmqctl.UNAVAILABLE, "", "not translated for amqpd: join_cluster\n")
        with pika.BlockingConnection(pika.URLParameters(broker.url)):
            assert len(said("list_connections", "pid", "peer_port")[1].splitlines()) == 1
