"""Metadata that are gone or an older copy: what the journal has of their queues is all given back, by hand."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from amqpd.__main__ import run
from amqpd.commands.serve import serve

from ..clients.broker_process import BrokerProcess
from .conftest import opened

COUNT = 60
ARGUMENTS: dict[str, dict[str, Any]] = {
    "classic": {},
    "priority": {"x-max-priority": 5},
    "quorum": {"x-queue-type": "quorum"},
}
DELAYED_TYPE = {"x-delayed-type": "direct"}


class Operator:
    """At the command line, without a process for each command."""

    def __init__(self, broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> None:
        self._broker = broker
        self._capsys = capsys

    def __call__(self, *words: str, code: int = 0) -> str:
        """What it prints; what it complains, when the exit code is to be another one."""
        self._capsys.readouterr()
        found = run(["--data-dir", str(self._broker.data_dir), *words])
        told = self._capsys.readouterr()
        assert found == code, told.out + told.err
        return told.err if code else told.out

    def orphans(self) -> dict[str, dict[str, Any]]:
        """By the routing key of the first message."""
        return {row["routing_key"]: row for row in json.loads(self("orphans", "list", "--json"))}

    def status(self) -> dict[str, Any]:
        sums: dict[str, Any] = json.loads(self("status", "--json"))
        return sums


def declare(channel: BlockingChannel) -> None:
    for name, arguments in ARGUMENTS.items():
        channel.queue_declare(name, durable=True, arguments=arguments)
    channel.queue_declare("late", durable=True)
    channel.exchange_declare("later", "x-delayed-message", durable=True, arguments=DELAYED_TYPE)
    channel.queue_bind("late", "later", "late")


def publish(channel: BlockingChannel, names: list[str], count: int = COUNT) -> None:
    """Returns when all are confirmed."""
    channel.confirm_delivery()
    for number in range(count):
        for name in names:
            properties = pika.BasicProperties(delivery_mode=2, priority=number % 3)
            channel.basic_publish("", name, f"{number}".encode(), properties)


def bodies(channel: BlockingChannel, name: str, count: int) -> list[int]:
    found = []
    for _, _, body in channel.consume(name, auto_ack=True, inactivity_timeout=60):
        assert body is not None, f"{name} gave {len(found)} of {count}"
        found.append(int(body))
        if len(found) == count:
            break
    channel.cancel()
    return found


def start_without_metadata(broker: BrokerProcess, older: Path | None = None) -> None:
    """They are gone, with all that says that there were any; or those of an older copy are in their place."""
    for path in broker.data_dir.glob("metadata*"):
        path.unlink()
    for path in older.glob("metadata*") if older is not None else ():
        shutil.copy(path, broker.data_dir)
    broker.arguments = ["--accept-loss"] if any(each.name == "accept_loss" for each in serve.params) else []
    broker.start()
    broker.arguments = []


def test_lost_metadata_lose_no_message(
    make_broker: Callable[..., BrokerProcess], only_amqpd: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = make_broker()
    amqpd = Operator(broker, capsys)
    broker.start()
    with opened(broker) as channel:
        declare(channel)
        publish(channel, list(ARGUMENTS))
        for number in range(3):
            later = pika.BasicProperties(delivery_mode=2, headers={"x-delay": 3_600_000})
            channel.basic_publish("later", "late", f"{number}".encode(), later)
    assert broker.terminate() == 0
    start_without_metadata(broker)
    broker.wait_log("orphans_parked")
    parked = amqpd.orphans()
    assert {name: row["messages"] for name, row in parked.items()} == {**dict.fromkeys(ARGUMENTS, COUNT), "late": 3}
    status = amqpd.status()
    assert (status["orphans"], status["messages_orphaned"]) == (4, 3 * COUNT + 3)
    ids = {name: row["id"] for name, row in parked.items()}
    exported = tmp_path / "classic.jsonl"
    amqpd("orphans", "export", ids["classic"], str(exported))
    assert [int(json.loads(line)["payload"]) for line in exported.read_text().splitlines()] == [*range(COUNT)]
    with opened(broker) as channel:
        declare(channel)
    assert f"{COUNT} messages moved" in amqpd("orphans", "adopt", ids["priority"], "--queue", "priority")
    assert "3 messages moved" in amqpd("orphans", "adopt", ids["late"], "--delayed")
    # When the answer came, it was on disk.
    broker.kill()
    broker.start()
    assert set(amqpd.orphans()) == {"classic", "quorum"}
    assert amqpd.status()["messages_delayed"] == 3
    for name in ("classic", "quorum"):
        amqpd("orphans", "adopt", ids[name], "--queue", name)
    assert broker.terminate() == 0
    broker.start()
    assert amqpd.orphans() == {}
    with opened(broker) as channel:
        for name in ("classic", "quorum"):
            assert bodies(channel, name, COUNT) == [*range(COUNT)]
        levels = [[each for each in range(COUNT) if each % 3 == priority] for priority in (2, 1, 0)]
        assert bodies(channel, "priority", COUNT) == [each for level in levels for each in level]
    assert "Traceback" not in broker.log


@pytest.mark.slow
def test_an_older_copy_of_the_metadata_erases_nothing(
    make_broker: Callable[..., BrokerProcess], only_amqpd: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = make_broker()
    amqpd = Operator(broker, capsys)
    broker.start()
    with opened(broker) as channel:
        channel.queue_declare("old", durable=True)
    assert broker.terminate() == 0
    older = tmp_path / "older"
    shutil.copytree(broker.data_dir, older)
    broker.start()
    with opened(broker) as channel:
        for name in ("young", "younger"):
            channel.queue_declare(name, durable=True)
        publish(channel, ["old", "young", "younger"], COUNT)
    assert broker.terminate() == 0
    start_without_metadata(broker, older)
    parked = amqpd.orphans()
    assert {name: row["messages"] for name, row in parked.items()} == {"young": COUNT, "younger": COUNT}
    assert f"{COUNT} messages would be deleted" in amqpd("orphans", "delete", parked["young"]["id"])
    assert f"deleted {COUNT} messages" in amqpd("orphans", "delete", parked["young"]["id"], "--yes")
    broker.kill()
    broker.start()
    assert set(amqpd.orphans()) == {"younger"}
    assert "there is no orphan" in amqpd("orphans", "delete", parked["young"]["id"], "--yes", code=1)
    assert "there is no queue 'younger'" in amqpd(
        "orphans", "adopt", parked["younger"]["id"], "--queue", "younger", code=1
    )
    with opened(broker) as channel:
        assert bodies(channel, "old", COUNT) == [*range(COUNT)]


@pytest.mark.slow
def test_a_queue_that_was_deleted_just_before_a_kill_is_no_orphan(
    make_broker: Callable[..., BrokerProcess], only_amqpd: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """The metadata have committed its deletion, the journal may not have dropped it yet."""
    broker = make_broker()
    broker.start()
    names = [f"q{number}" for number in range(10)]
    with opened(broker) as channel:
        for name in names:
            channel.queue_declare(name, durable=True, arguments={"x-max-priority": 5})
        publish(channel, names, 3)
        for name in names:
            channel.queue_delete(name)
        broker.kill()
    broker.start()
    assert Operator(broker, capsys).orphans() == {}
    assert "orphans_parked" not in broker.log
