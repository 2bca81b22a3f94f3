"""`slo` and `security` as streams beside a live broker, killed and started again: each event is counted once."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest

from tests.clients import address
from tests.clients.broker_process import BrokerProcess
from tests.faults.test_audit_kill import FULL, events_of

from . import jobs

KILLS = 3
DEADLINE_S = 300.0
LOOK_S = 0.25
TABLES = {
    "slo": ("rates", "histogram", "latency_total"),
    "security": ("failed_logins", "addresses", "findings"),
}
QUEUE = "streamed"


@pytest.fixture(autouse=True)
def _only_amqpd(only_amqpd: None) -> None: ...


class Load(threading.Thread):
    """Publishes with confirms, gets and acknowledges, and fails to log in now and then, until it is told to stop."""

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__(daemon=True)
        self._broker = broker
        self.stopping = threading.Event()
        self.published = 0

    def run(self) -> None:
        with pika.BlockingConnection(pika.URLParameters(self._broker.url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare(QUEUE, durable=True)
            while not self.stopping.is_set():
                for _ in range(50):
                    channel.basic_publish("", QUEUE, b"x" * 100, pika.BasicProperties(delivery_mode=2))
                    self.published += 1
                for _ in range(50):
                    method, _, _ = channel.basic_get(QUEUE)
                    if method is None:
                        break
                    channel.basic_ack(method.delivery_tag)
                self._fail_to_log_in()

    def _fail_to_log_in(self) -> None:
        wrong = pika.PlainCredentials("mallory", "guess")
        with contextlib.suppress(pika.exceptions.AMQPConnectionError):
            pika.BlockingConnection(pika.ConnectionParameters(address.HOST, self._broker.port, credentials=wrong))


class Stream:
    """A streaming job's process, and how far it is: batches that it has begun to write."""

    def __init__(self, job: str, events: Path, output: Path) -> None:
        self._job, self._events, self._output = job, events, output
        self._log = output.with_suffix(".log")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = jobs.command(self._job, "--stream", "--input", self._events, "--output", self._output)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, env=jobs.environment(), stdout=log, stderr=log, start_new_session=True
            )

    def wait_for_more(self) -> None:
        """Until a batch was begun that was not there at the call."""
        before, until = self._batches(), time.monotonic() + DEADLINE_S
        while self._batches() == before:
            assert self._process is not None
            assert self._process.poll() is None, f"{self._job} ended by itself: {self._log.read_text()[-3000:]}"
            assert time.monotonic() < until, f"{self._job}: no batch in {DEADLINE_S} s"
            time.sleep(LOOK_S)

    def kill(self) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _batches(self) -> int:
        return len(list((self._output / "_checkpoint").glob("offsets/[0-9]*")))


def rows(folder: Path) -> list[tuple[Any, ...]]:
    found = jobs.table(folder)
    names = sorted(found[0]) if found else []
    return sorted((tuple(row[name] for name in names) for row in found), key=repr)


def test_streams_that_were_killed_say_what_batches_say(
    make_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    broker = make_broker(environment=FULL | {"AMQPD_AUDIT_FILE_SECONDS": "3"})
    broker.start()
    events = events_of(broker)
    load = Load(broker)
    load.start()
    until = time.monotonic() + DEADLINE_S
    while not list(events.glob("date=*/hour=*/*.parquet")):
        assert time.monotonic() < until
        time.sleep(LOOK_S)
    streams = {job: Stream(job, events, tmp_path / f"{job}-stream") for job in TABLES}
    for _ in range(KILLS):
        for stream in streams.values():
            stream.start()
        for stream in streams.values():
            stream.wait_for_more()
            stream.kill()
    load.stopping.set()
    load.join(DEADLINE_S)
    assert broker.terminate() == 0
    for job, tables in TABLES.items():
        jobs.run(job, "--stream", "--once", "--input", events, "--output", tmp_path / f"{job}-stream")
        jobs.run(job, "--input", events, "--output", tmp_path / job)
        for table in tables:
            batch, stream_rows = rows(tmp_path / job / table), rows(tmp_path / f"{job}-stream" / table)
            assert batch, (job, table)
            assert stream_rows == batch, (job, table)
    routed = sum(row["routed"] for row in jobs.table(tmp_path / "slo-stream" / "rates") if row["routed"])
    print(f"{routed:,} messages routed, {load.published:,} published; each stream was killed {KILLS} times")
    assert routed == load.published
