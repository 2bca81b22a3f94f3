"""Users, permissions and virtual hosts that change under connections that are open; alarms that are on before one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pamqp import commands

from .broker_process import REPOSITORY, BrokerProcess
from .wire import Wire, described, publish_bytes

Basic, Channel, Confirm, Connection, Exchange, Queue = (
    commands.Basic,
    commands.Channel,
    commands.Confirm,
    commands.Connection,
    commands.Exchange,
    commands.Queue,
)
Command = Callable[..., None]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("live") / "data")
    try:
        broker.start()
        yield broker
        assert broker.terminate() == 0
        assert '"bug"' not in broker.log
        assert "Traceback" not in broker.log
    finally:
        broker.close()


@pytest.fixture
def command(broker: BrokerProcess) -> Command:
    def run(*words: str, given: str | None = None) -> None:
        line = [sys.executable, "-m", "amqpd", *words, "--data-dir", str(broker.data_dir)]
        subprocess.run(
            line,
            check=True,
            cwd=REPOSITORY,
            env=broker.child_environment(),
            capture_output=True,
            input=given,
            text=True,
        )

    return run


@pytest.fixture
def user(command: Command) -> str:
    """A user for this test, which deletes it."""
    command("user", "add", "app", "--password-stdin", given="secret")
    command("permission", "set", "/", "app", ".*", ".*", ".*")
    return "app"


def connected(broker: BrokerProcess, user: str = "guest", password: str = "guest", vhost: str = "/") -> Wire:
    wire = Wire(broker.port)
    wire.open(user=user, password=password, vhost=vhost)
    wire.open_channel()
    return wire


@pytest.mark.slow
def test_a_permission_that_is_taken_away_counts_for_the_next_publish(
    broker: BrokerProcess, command: Command, user: str
) -> None:
    with connected(broker, user, "secret") as wire, connected(broker) as other:
        wire.call(Queue.Declare(queue="live.q"), channel=1)
        wire.call(Confirm.Select(), channel=1)
        for _ in range(2):
            wire.send_bytes(publish_bytes(1, "", "live.q", b"allowed"))
            assert isinstance(wire.read_method()[1], Basic.Ack)
        command("permission", "set", "/", user, ".*", "^only-this$", ".*")
        wire.send_bytes(publish_bytes(1, "", "live.q", b"refused"))
        close = wire.read_method()[1]
        assert isinstance(close, Channel.Close), described(close)
        assert close.reply_text == (
            "ACCESS_REFUSED - write access to exchange 'amq.default' in vhost '/' refused for user 'app'"
        )
        assert other.call(Queue.Delete(queue="live.q"), channel=1).message_count == 2
    command("user", "delete", user)


@pytest.mark.slow
def test_a_user_that_is_deleted_is_out(broker: BrokerProcess, command: Command, user: str) -> None:
    with connected(broker, user, "secret") as wire:
        wire.call(Queue.Declare(queue="", exclusive=True), channel=1)
        wire.send(Basic.Consume(queue="", consumer_tag="c"), channel=1)
        assert isinstance(wire.read_method()[1], Basic.ConsumeOk)
        command("user", "delete", user)
        close = wire.read_method()[1]
        assert isinstance(close, Connection.Close), described(close)
        assert close.reply_code == 320
        wire.send(Connection.CloseOk())
        assert wire.at_end()
    with Wire(broker.port) as again, pytest.raises(AssertionError, match="403 ACCESS_REFUSED"):
        again.open(user=user, password="secret")


@pytest.mark.slow
def test_a_virtual_host_that_is_deleted_closes_its_connections_and_comes_back_empty(
    broker: BrokerProcess, command: Command
) -> None:
    command("vhost", "add", "v")
    command("permission", "set", "v", "guest", ".*", ".*", ".*")
    with connected(broker, vhost="v") as wire, connected(broker, vhost="v") as other, connected(broker) as outside:
        wire.call(Exchange.Declare(exchange="x", exchange_type="fanout"), channel=1)
        wire.call(Queue.Declare(queue="durable", durable=True), channel=1)
        wire.call(Queue.Declare(queue="transient"), channel=1)
        wire.call(Queue.Declare(queue="mine", exclusive=True), channel=1)
        for queue in ("durable", "transient", "mine"):
            wire.call(Queue.Bind(queue=queue, exchange="x"), channel=1)
        wire.send_bytes(publish_bytes(1, "x", "", b"x", Basic.Properties(delivery_mode=2)) * 10)
        other.send(Basic.Consume(queue="durable", consumer_tag="c"), channel=1)
        assert isinstance(other.read_method()[1], Basic.ConsumeOk)
        other.read_message()
        command("vhost", "delete", "v")
        for each in (wire, other):
            # What comes before it on the channel: basic.cancel, for the consumer.
            while each.read_frame()[1] != 0:
                pass
            each.send(Connection.CloseOk())
            assert each.at_end()
        assert isinstance(outside.call(Basic.Qos(prefetch_count=1), channel=1), Basic.QosOk)
    command("vhost", "add", "v")
    command("permission", "set", "v", "guest", ".*", ".*", ".*")
    with connected(broker, vhost="v") as wire:
        for number, queue in enumerate(("durable", "transient", "mine"), 1):
            close = wire.call(Queue.Declare(queue=queue, passive=True), channel=number)
            assert close.reply_code == 404
            wire.open_channel(number + 1)
        close = wire.call(Exchange.Declare(exchange="x", passive=True), channel=4)
        assert close.reply_code == 404
        wire.open_channel(5)
        answer = wire.call(Queue.Declare(queue="durable", durable=True), channel=5)
        assert answer.message_count == 0
        wire.close()
    command("vhost", "delete", "v")


@pytest.mark.slow
def test_an_alarm_that_was_on_before_blocks_at_the_first_publish(tmp_path: Path) -> None:
    """Whoever only consumes never hears of it."""
    broker = BrokerProcess(tmp_path / "data", environment={"AMQPD_DISK_FREE_BYTES_MIN": "900TiB"})
    try:
        broker.start()
        with connected(broker) as publisher, connected(broker) as consumer:
            consumer.call(Queue.Declare(queue="q"), channel=1)
            consumer.send(Basic.Consume(queue="q", consumer_tag="c", no_ack=True), channel=1)
            assert isinstance(consumer.read_method()[1], Basic.ConsumeOk)
            publisher.call(Confirm.Select(), channel=1)
            publisher.send_bytes(publish_bytes(1, "", "q", b"first"))
            blocked = publisher.read_method()[1]
            assert isinstance(blocked, Connection.Blocked), described(blocked)
            assert blocked.reason == "low on disk"
            assert isinstance(consumer.call(Basic.Qos(prefetch_count=1), channel=1), Basic.QosOk)
            # A stop does not wait for one that is blocked: it reads its close-ok.
            publisher.send_bytes(publish_bytes(1, "", "q", b"never read before the end"))
            broker.send_signal(15)
            for each in (publisher, consumer):
                close = each.read_method()[1]
                assert isinstance(close, Connection.Close), described(close)
                each.send(Connection.CloseOk())
                assert each.at_end()
            assert broker.wait() == 0
        assert "connections_cut=0" in broker.log or '"connections_cut": 0' in broker.log
    finally:
        broker.close()


def test_a_policy_gives_a_live_exchange_an_alternate_and_takes_it_away(
    broker: BrokerProcess, command: Command
) -> None:
    with connected(broker) as wire:
        wire.call(Exchange.Declare(exchange="live.x", exchange_type="direct"), channel=1)
        wire.call(Exchange.Declare(exchange="live.lost", exchange_type="fanout"), channel=1)
        wire.call(Queue.Declare(queue="live.lost"), channel=1)
        wire.call(Queue.Bind(queue="live.lost", exchange="live.lost"), channel=1)
        wire.call(Confirm.Select(), channel=1)

        def arrived() -> int:
            wire.send_bytes(publish_bytes(1, "live.x", "nowhere", b""))
            assert isinstance(wire.read_method()[1], Basic.Ack)
            return int(wire.call(Queue.Purge(queue="live.lost"), channel=1).message_count)

        assert arrived() == 0
        words = ("/", "lost", "^live\\.x$", '{"alternate-exchange": "live.lost"}')
        command("policy", "set", *words, "--apply-to", "exchanges")
        assert arrived() == 1
        command("policy", "clear", "/", "lost")
        assert arrived() == 0


@pytest.mark.slow
def test_a_limit_counts_for_the_next_one(broker: BrokerProcess, command: Command, user: str) -> None:
    with connected(broker, user, "secret") as wire:
        command("limits", "set-user", user, "--max-channels", "2")
        wire.open_channel(2)
        wire.send(Channel.Open(), channel=3)
        close = wire.read_method()[1]
        assert (close.reply_code, "maximum allowed user limit of 2" in close.reply_text) == (530, True)
    command("limits", "clear-user", user)
    connected(broker, user, "secret").close()
    command("user", "delete", user)


@pytest.mark.slow
def test_a_publisher_over_its_quota_is_slowed_and_loses_nothing(
    broker: BrokerProcess, command: Command, user: str
) -> None:
    command("limits", "set-user", user, "--publish-rate", "500", "--publish-rate-burst", "50")
    with connected(broker, user, "secret") as wire:
        wire.call(Queue.Declare(queue="live.slow"), channel=1)
        wire.call(Confirm.Select(), channel=1)
        wire.send_bytes(publish_bytes(1, "", "live.slow", b"") * 120)
        confirmed = 0
        while confirmed < 120:
            confirmed = wire.read_method()[1].delivery_tag
        assert wire.call(Queue.Delete(queue="live.slow"), channel=1).message_count == 120
    broker.wait_log("publisher_slowed")
    command("user", "delete", user)
