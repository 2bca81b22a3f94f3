"""The whole end of a broker, from SIGTERM to the process' exit, has one bound: `drain_timeout_s` and a second.

What is verified, with real processes: whatever is under way is left or given up in time: Parquet of a large spool,
clients of AMQP that do not answer, clients of HTTP that do not read, a backup, a scrub; a disk that does not answer.
Not verified: the hand-over of a cluster's node (`tests/cluster`).
"""

from __future__ import annotations

import contextlib
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pika
import pytest
import trio
from pamqp import commands

from amqpd.process.signals import LATE_S

from ..audit.written import Written
from ..clients.broker_process import BrokerProcess, free_port
from ..clients.wire import Wire
from .conftest import opened
from .strace import FailingCalls
from .test_backup import SLOW, amqpd

MakeBroker = Callable[..., BrokerProcess]
DRAIN_S = 3.0
# A process ends, and a busy machine gives it its turn.
SLACK_S = 2.5
SPOOL_BYTES = 40 << 20

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("only_amqpd")]


def left_spool(folder: Path) -> None:
    """Of an earlier incarnation: acts, which take longest to make Parquet of."""

    async def write() -> None:
        written = Written(folder, spool_bytes=1 << 30)
        acts = 0
        while written.writer.sink.size < SPOOL_BYTES:
            for _ in range(1000):
                written.act(f"queue-{acts}", record=False)
                acts += 1
            written.writer.sink.record()

    trio.run(write)


def stop_s(broker: BrokerProcess) -> tuple[int, float]:
    """The exit code, and how long it took."""
    began = time.monotonic()
    broker.send_signal(signal.SIGTERM)
    code = broker.wait(60)
    return code, time.monotonic() - began


def test_whatever_is_under_way(make_broker: MakeBroker, tmp_path: Path) -> None:
    port = free_port()
    environment = {"AMQPD_DRAIN_TIMEOUT_S": str(DRAIN_S), "AMQPD_HTTP_ENABLED": "true", "AMQPD_HTTP_PORT": str(port)}
    broker = make_broker(environment=environment)
    broker.start()
    with opened(broker) as channel:
        channel.queue_declare("q", durable=True)
        for _ in range(50):
            channel.basic_publish("", "q", bytes(100_000), pika.BasicProperties(delivery_mode=2))
    assert broker.terminate() == 0
    left_spool(broker.data_dir / "audit")
    broker.start()
    backup = amqpd(broker, "backup", tmp_path / "backup", *SLOW)
    try:
        broker.wait_log("backup begun")
        with contextlib.ExitStack() as open_:
            silent = open_.enter_context(Wire(broker.port))
            silent.open()
            silent.open_channel()
            silent.call(commands.Basic.Consume(queue="q"), channel=1)
            unread = open_.enter_context(socket.create_connection(("127.0.0.1", port)))
            unread.sendall(b"GET /api/openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 200)
            open_.enter_context(socket.create_connection(("127.0.0.1", port)))
            scrub = amqpd(broker, "scrub", "--now")
            code, took_s = stop_s(broker)
            scrub.communicate()
    finally:
        backup.kill()
        backup.communicate()
    assert code == 0, broker.log[-3000:]
    assert took_s < DRAIN_S + LATE_S + SLACK_S, broker.log[-3000:]
    assert "the last part of the audit log is made Parquet at the next start" in broker.log
    assert "event=stopped" in broker.log
    assert list((broker.data_dir / "audit" / "spool").glob("n-1-*.spool"))


def test_a_disk_that_does_not_answer(make_broker: MakeBroker) -> None:
    """Nobody can interrupt the thread that waits for it."""
    broker = make_broker(environment={"AMQPD_DRAIN_TIMEOUT_S": str(DRAIN_S)})
    broker.start()
    with opened(broker) as channel:
        channel.queue_declare("q", durable=True)
        with FailingCalls(broker.broker_pid, "fdatasync,fsync", "delay_enter=60000000") as hanging:
            channel.basic_publish("", "q", b"x", pika.BasicProperties(delivery_mode=2))
            while not hanging.lines or not any("sync(" in line for line in hanging.lines):
                time.sleep(0.01)
            began = time.monotonic()
            broker.send_signal(signal.SIGTERM)
            broker.wait_log("amqpd: the end takes longer than drain_timeout_s")
            took_s = time.monotonic() - began
        # What strace holds ends when it lets go.
        assert broker.wait(60) == 1
    assert took_s < DRAIN_S + LATE_S + SLACK_S, broker.log[-3000:]
