"""The system's clock was set back while no broker ran: lifetimes hold, and somebody is told."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pika

from amqpd.datadir.opening import CLOCK
from amqpd.journal.sqlite.database import connect_to_write, put_names

from ..faults.damage.forked import ForkedBroker

DAY_S = 86_400


def status(data_dir: Path) -> dict[str, object]:
    command = [sys.executable, "-m", "amqpd", "--data-dir", str(data_dir), "status", "--json"]
    found: dict[str, object] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def test_lifetimes_go_on_from_what_the_journal_wrote_last(
    tmp_path: Path,
) -> None:
    """As if the clock had stood a day ahead when the message came: it would not expire for a day more."""
    broker = ForkedBroker(tmp_path / "data", {})
    try:
        run(broker)
    finally:
        broker.close()


def run(broker: ForkedBroker) -> None:
    broker.start()
    assert status(broker.data_dir)["clock_ahead_s"] == 0
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.confirm_delivery()
        for hours in (1, 48):
            properties = pika.BasicProperties(delivery_mode=2, expiration=str(hours * 3_600_000))
            channel.basic_publish("", "q", f"{hours} h".encode(), properties)
    assert broker.terminate() == 0
    journal = connect_to_write(broker.data_dir / "journal.db")
    noted_ms = int(journal.execute("SELECT value FROM names WHERE name = ?", (CLOCK,)).fetchone()[0])
    assert abs(noted_ms / 1000 - time.time()) < 600
    put_names(journal, {CLOCK: str(noted_ms + DAY_S * 1000)})
    journal.execute("COMMIT")
    journal.close()
    broker.start()
    assert "86,3" in broker.wait_log("clock set back") or "86,4" in broker.wait_log("clock set back")
    ahead_s = status(broker.data_dir)["clock_ahead_s"]
    assert isinstance(ahead_s, int)
    assert DAY_S - 600 < ahead_s <= DAY_S
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        assert channel.basic_get("q", auto_ack=True)[2] == b"48 h"
        assert channel.basic_get("q")[0] is None
    assert broker.terminate() == 0
