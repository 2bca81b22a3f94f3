"""A broker with its metadata store in etcd: what clients notice when etcd is paused, stopped, emptied or restored.

What is verified: who is connected publishes and consumes on; a declaration fails within its bound, with a reason; all
is well again when etcd is, without anybody's doing; no message is erased because etcd lost what it knew. Not verified
here: which outcome a lost answer has (`tests/topology/test_store_etcd.py`).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError, ChannelClosedByBroker

from tests.harness.etcd import EtcdProcess, free_ports

from .broker_process import BrokerProcess

pytest.importorskip("httpx2", reason="needs httpx2 (pip install 'amqpd[etcd]')")

OUTAGE_S = float(os.environ.get("AMQPD_TEST_OUTAGE_S", "600"))
# Between two messages: what is tried is whether they get through, not how many.
PACE_S = 0.02
PERSISTENT = pika.BasicProperties(delivery_mode=2)


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdProcess]:
    process = EtcdProcess(tmp_path / "etcd")
    process.start()
    yield process
    process.stop()


@pytest.fixture
def broker(tmp_path: Path, etcd: EtcdProcess) -> Iterator[BrokerProcess]:
    store = {"AMQPD_CLUSTER_STORE": f"etcd://{etcd.endpoint}/test"}
    process = BrokerProcess(tmp_path / "data", environment=store)
    process.start()
    yield process
    process.close()


@pytest.fixture
def open_channel(broker: BrokerProcess) -> Iterator[Callable[[], BlockingChannel]]:
    """A channel in confirm mode, on a connection of its own; all are closed at the end."""
    opened: list[pika.BlockingConnection] = []

    def open_one() -> BlockingChannel:
        opened.append(pika.BlockingConnection(pika.URLParameters(broker.url)))
        channel = opened[-1].channel()
        channel.confirm_delivery()
        return channel

    yield open_one
    for connection in opened:
        with suppress(AMQPError):  # its broker may be gone
            connection.close()


def publish(channel: BlockingChannel, queue: str, body: bytes) -> None:
    channel.basic_publish("", queue, body, PERSISTENT, mandatory=True)


def bodies(channel: BlockingChannel, queue: str) -> list[bytes]:
    found: list[bytes] = []
    while True:
        got: Any = channel.basic_get(queue, auto_ack=True)
        if got[0] is None:
            return found
        found.append(got[2])


@pytest.mark.slow
def test_definitions_are_in_etcd_and_messages_on_the_disk(
    broker: BrokerProcess, etcd: EtcdProcess, open_channel: Callable[[], BlockingChannel]
) -> None:
    channel = open_channel()
    channel.exchange_declare("x", durable=True)
    channel.queue_declare("q", durable=True)
    channel.queue_bind("q", "x", "k")
    channel.queue_declare("mine", exclusive=True)
    channel.basic_publish("x", "k", b"kept", PERSISTENT, mandatory=True)
    assert not (broker.data_dir / "metadata.db").exists()
    broker.kill()
    etcd.kill()
    etcd.start()
    broker.start()
    channel = open_channel()
    channel.basic_publish("x", "k", b"more", PERSISTENT, mandatory=True)
    assert bodies(channel, "q") == [b"kept", b"more"]
    assert broker.terminate() == 0


def command(broker: BrokerProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Of `amqpd`, on the broker's data directory and with its settings."""
    line = [sys.executable, "-m", "amqpd", *arguments, "--data-dir", str(broker.data_dir)]
    return subprocess.run(
        line, env=broker.child_environment(), capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.slow
def test_commands_find_the_definitions_there(
    broker: BrokerProcess, open_channel: Callable[[], BlockingChannel], tmp_path: Path
) -> None:
    assert command(broker, "vhost", "add", "shop").returncode == 0
    assert command(broker, "permission", "set", "shop", "guest", ".*", ".*", ".*").returncode == 0
    parameters = pika.URLParameters(broker.url)
    parameters.virtual_host = "shop"
    with pika.BlockingConnection(parameters) as connection:
        connection.channel().queue_declare("q", durable=True)
    assert command(broker, "definitions", "export", str(tmp_path / "all.json")).returncode == 0
    assert [each["name"] for each in json.loads((tmp_path / "all.json").read_text())["queues"]] == ["q"]
    refused = command(broker, "backup", str(tmp_path / "backup"))
    assert refused.returncode == 1
    assert "the definitions are in the store of cluster_store" in refused.stderr
    broker.kill()
    assert "shop" in command(broker, "vhost", "list").stdout


@pytest.mark.slow
def test_clients_go_on_while_etcd_is_stopped_and_declarations_fail_with_a_reason(
    broker: BrokerProcess, etcd: EtcdProcess, open_channel: Callable[[], BlockingChannel]
) -> None:
    channel = open_channel()
    channel.queue_declare("q", durable=True)
    etcd.kill()
    declaring = channel.connection.channel()
    with pytest.raises(ChannelClosedByBroker, match="the metadata store does not answer") as told:
        declaring.queue_declare("other", durable=True)
    assert told.value.reply_code == 406
    # From now on at once; and what is not a declaration is as always.
    declaring = channel.connection.channel()
    with pytest.raises(ChannelClosedByBroker, match="the metadata store does not answer"):
        declaring.queue_bind("q", "amq.fanout")
    publish(channel, "q", b"meanwhile")
    assert bodies(channel, "q") == [b"meanwhile"]
    etcd.start()
    broker.wait_log("declarations are made again")
    declaring = channel.connection.channel()
    declaring.queue_declare("other", durable=True)
    publish(channel, "other", b"after")
    assert bodies(channel, "other") == [b"after"]


@pytest.mark.heavy
@pytest.mark.timeout(OUTAGE_S + 600)
@pytest.mark.skipif(
    os.environ.get("AMQPD_HEAVY") != "1", reason="etcd is away for ten minutes; AMQPD_HEAVY=1 runs it"
)
def test_clients_go_on_for_as_long_as_etcd_is_away(
    broker: BrokerProcess, etcd: EtcdProcess, open_channel: Callable[[], BlockingChannel]
) -> None:
    channel, consuming = open_channel(), open_channel()
    channel.queue_declare("q", durable=True)
    mine = consuming.queue_declare("", exclusive=True).method.queue
    got: dict[str, list[bytes]] = {"q": [], mine: []}
    for name, found in got.items():
        consuming.basic_consume(name, lambda _c, _m, _p, body, found=found: found.append(body), auto_ack=True)
    etcd.pause()
    with pytest.raises(ChannelClosedByBroker, match="the metadata store does not answer"):
        channel.connection.channel().queue_declare("other", durable=True)
    sent, until = 0, time.monotonic() + OUTAGE_S
    while time.monotonic() < until:
        for name in got:
            publish(channel, name, b"%d" % sent)
        sent += 1
        consuming.connection.process_data_events(PACE_S)
    etcd.go_on()
    broker.wait_log("declarations are made again")
    channel.connection.channel().queue_declare("other", durable=True)
    while min(map(len, got.values())) < sent:
        consuming.connection.process_data_events(None)
    expected = [b"%d" % number for number in range(sent)]
    assert got == {"q": expected, mine: expected}
    # The lease of the exclusive queue ran out meanwhile.
    publish(channel, mine, b"after")
    assert sent > OUTAGE_S


@pytest.mark.slow
def test_an_exclusive_queue_outlives_a_lease_that_ran_out(
    broker: BrokerProcess, etcd: EtcdProcess, open_channel: Callable[[], BlockingChannel]
) -> None:
    channel = open_channel()
    name = channel.queue_declare("", exclusive=True).method.queue
    publish(channel, name, b"before")
    [lease] = etcd.ask("/v3/lease/leases", {})["leases"]
    etcd.ask("/v3/lease/revoke", {"ID": lease["ID"]})
    broker.wait_log("a lease ran out and was granted again")
    publish(channel, name, b"after")
    assert bodies(channel, name) == [b"before", b"after"]


@pytest.mark.slow
def test_an_emptied_etcd_erases_nothing(
    broker: BrokerProcess, etcd: EtcdProcess, open_channel: Callable[[], BlockingChannel]
) -> None:
    channel = open_channel()
    channel.queue_declare("q", durable=True)
    publish(channel, "q", b"kept")
    etcd.kill()
    shutil.rmtree(etcd.directory)
    etcd.start()
    assert "is not what it was: there is no metadata store any more" in broker.wait_log(
        "the metadata store went back"
    )
    publish(channel, "q", b"kept too")
    channel.queue_declare("q", passive=True)
    assert broker.terminate() == 0
    broker.spawn()
    assert broker.wait() == 1
    assert "belongs to another metadata store than etcd://" in broker.log
    broker.arguments.append("--accept-loss")
    broker.start()
    assert "messages_orphaned" in broker.log or "orphans_parked" in broker.log


@pytest.mark.slow
def test_an_etcd_that_was_restored_from_an_old_backup_erases_nothing(
    broker: BrokerProcess, etcd: EtcdProcess, open_channel: Callable[[], BlockingChannel], tmp_path: Path
) -> None:
    etcd.stop()
    shutil.copytree(etcd.directory, tmp_path / "backup")
    etcd.start()
    broker.restart()
    channel = open_channel()
    channel.queue_declare("q", durable=True)
    publish(channel, "q", b"kept")
    assert broker.terminate() == 0
    etcd.stop()
    shutil.rmtree(etcd.directory)
    shutil.copytree(tmp_path / "backup", etcd.directory)
    etcd.start()
    broker.spawn()
    assert broker.wait() == 1
    assert "it is an older copy" in broker.log


@pytest.mark.slow
def test_definitions_in_the_data_directory_are_not_forgotten(broker: BrokerProcess) -> None:
    broker.terminate()
    (broker.data_dir / "metadata.db").touch()
    broker.spawn()
    assert broker.wait() == 1
    assert "metadata.db has definitions: export them" in broker.log


def test_a_broker_whose_etcd_does_not_answer_says_so_soon_and_goes_on(tmp_path: Path, etcd: EtcdProcess) -> None:
    """It is ended in the middle of it, and has nothing to drain; at the next start etcd comes back."""
    gone = free_ports(1)[0]
    store = f"etcd://127.0.0.1:{gone},{etcd.endpoint}"
    broker = BrokerProcess(tmp_path / "data", environment={"AMQPD_CLUSTER_STORE": store})
    etcd.pause()
    try:
        broker.spawn()
        line = broker.wait_log("the start waits for the metadata store")
        assert f"does not answer: 127.0.0.1:{gone}: Connection refused; {etcd.endpoint}: " in line
        assert "waited_s=2" in line
        assert broker.terminate() == 0
        assert "it had not begun to serve" in broker.log
        assert "drain" not in broker.log
        broker.spawn()
        broker.wait_log("the start waits for the metadata store")
        etcd.go_on()
        broker.wait_ready()
    finally:
        broker.close()
        etcd.go_on()
