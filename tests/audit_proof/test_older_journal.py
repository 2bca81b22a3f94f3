"""An operator restores an older journal beside the log of what came after it: the messages that come back are named.

What is verified: a real broker delivers again what was acknowledged; `conservation` says `returned_from_the_dead` of
just these, and nothing else. Not verified: a kill, which undoes ends that were not on disk and is no fault
(`test_real_run.py`).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.clients.broker_process import BrokerProcess
from tests.faults.conftest import opened
from tests.faults.test_audit_kill import FULL, events_of

from . import jobs

QUEUE = "orders"
MESSAGES = 20
ACKED = {2, 3, 4, 11, 19}


@pytest.fixture(autouse=True)
def _only_amqpd(only_amqpd: None) -> None: ...


def deliveries(channel: BlockingChannel) -> dict[int, int]:
    """Each message that is ready, and the tag of its delivery."""
    found = {}
    while (answer := channel.basic_get(QUEUE))[0] is not None:
        found[int(answer[2])] = answer[0].delivery_tag
    return found


def restore(older: Path, data: Path) -> None:
    """All but the log, which goes on."""
    for each in data.iterdir():
        if each.name == "audit":
            continue
        if each.is_dir():
            shutil.rmtree(each)
        else:
            each.unlink()
    shutil.copytree(older, data, dirs_exist_ok=True, ignore=shutil.ignore_patterns("audit"))


def test_messages_of_an_older_journal_are_named(make_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    broker = make_broker(environment=FULL)
    broker.start()
    with opened(broker) as channel:
        channel.queue_declare(QUEUE, durable=True)
        channel.confirm_delivery()
        for number in range(MESSAGES):
            channel.basic_publish("", QUEUE, str(number).encode(), pika.BasicProperties(delivery_mode=2))
    assert broker.terminate() == 0
    shutil.copytree(broker.data_dir, tmp_path / "older", ignore=shutil.ignore_patterns("*.sock"))
    broker.start()
    with opened(broker) as channel:
        tags = deliveries(channel)
        assert set(tags) == set(range(MESSAGES))
        for number in sorted(ACKED):
            channel.basic_ack(tags[number])
    assert broker.terminate() == 0
    done = jobs.run("conservation", "--input", events_of(broker), "--output", tmp_path / "before")
    assert done.returncode == 0, done.stdout

    restore(tmp_path / "older", broker.data_dir)
    broker.start()
    with opened(broker) as channel:
        assert set(deliveries(channel)) >= ACKED
    assert broker.terminate() == 0
    done = jobs.run("conservation", "--input", events_of(broker), "--output", tmp_path / "after")
    assert done.returncode == 1, done.stdout
    found = jobs.table(tmp_path / "after" / "findings")
    # The queue's numbers are those of the publishes.
    named = sorted((row["kind"], row["queue"], row["first"]) for row in found)
    assert named == [("returned_from_the_dead", QUEUE, number) for number in sorted(ACKED)]
