"""A byte of a stored body flips while the broker serves: the scrub finds it, and the queue stops before a consumer
meets it; nothing else happens."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from amqpd.journal.sqlite.database import JOURNAL

from .broker_process import REPOSITORY, BrokerProcess
from .test_damaged_message import HIT, MESSAGES, body, consumed


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path / "data", environment={"AMQPD_SCRUB_INTERVAL_S": "1"})
    try:
        broker.start()
        yield broker
        assert broker.terminate() == 0
        assert "Traceback" not in broker.log
        assert "fault_contained" not in broker.log
    finally:
        broker.close()


def flip(data_dir: Path) -> None:
    """One bit of the middle of one body, in place: the broker has the file open."""
    with (data_dir / JOURNAL).open("r+b") as file:
        content = file.read()
        at = content.index(bytes([HIT]) * 3000) + 1500
        file.seek(at)
        file.write(bytes([content[at] ^ 0x04]))


def scrubbed(broker: BrokerProcess) -> tuple[int, dict[str, Any]]:
    """A pass now: the exit code, and the facts."""
    line = [sys.executable, "-m", "amqpd", "scrub", "--now", "--json", "--data-dir", str(broker.data_dir)]
    done = subprocess.run(line, cwd=REPOSITORY, env=broker.child_environment(), capture_output=True, text=True)
    return done.returncode, json.loads(done.stdout)


@pytest.mark.slow
def test_a_byte_that_flips_under_a_serving_broker_fences_its_queue_before_anyone_reads_it(
    broker: BrokerProcess,
) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        persistent = pika.BasicProperties(delivery_mode=2)
        for queue in ("orders", "others"):
            channel.queue_declare(queue, durable=True)
            for number in range(MESSAGES):
                channel.basic_publish("", queue, body(number if queue == "orders" else 100 + number), persistent)
    assert broker.terminate() == 0
    broker.start()
    code, facts = scrubbed(broker)
    assert (code, facts["damaged_rows_found"], facts["damage"], facts["progress"]) == (0, 0, [], 1.0)
    assert facts["rows"] == 2 * MESSAGES
    assert facts["bytes"] > 2 * MESSAGES * len(body(0))
    assert facts["last_pass_finished"] is not None

    flip(broker.data_dir)
    # Nobody reads, and nobody asks: it is found by the next pass of its own.
    assert "queue=orders" in broker.wait_log("queue_fenced", 60)
    assert broker.log.count("queue_fenced") == 1
    assert broker.log.count("journal_damaged") == 0
    assert consumed(broker, "others", MESSAGES) == list(range(100, 100 + MESSAGES))
    assert consumed(broker, "orders", MESSAGES) == list(range(HIT))
    code, facts = scrubbed(broker)
    assert (code, facts["damaged_rows_found"], facts["damaged_records_found"]) == (1, 1, 0)
    assert f"messages {HIT}..{HIT} in {broker.data_dir / JOURNAL} are damaged" in facts["damage"][0]
    assert broker.log.count("queue_fenced") == 1
    assert 1 <= facts["expected_s"] < 60
    line = [sys.executable, "-m", "amqpd", "status", "--data-dir", str(broker.data_dir)]
    status = subprocess.check_output(line, cwd=REPOSITORY, env=broker.child_environment(), text=True)
    assert "found since the start: 1 damaged rows of messages" in status
