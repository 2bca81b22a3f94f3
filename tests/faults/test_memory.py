"""Resident memory stays bounded: with a backlog larger than memory, with one message kept of each buffer, and where
libraries are installed that the broker has no use for."""

from __future__ import annotations

import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pamqp import commands

from tests.harness.slow import slow

from ..clients.broker_process import REPOSITORY, BrokerProcess
from ..clients.wire import BODY, METHOD, Wire, publish_bytes
from .drain import depth

MakeBroker = Callable[..., BrokerProcess]
ACK_FRAME = struct.Struct(">BHIHHQBB")
SAMPLE_S = 0.02
BATCH = 500
QUEUE = "memory"
MIB = 1 << 20
KEPT_MIB_MAX = 200

pytestmark = pytest.mark.usefixtures("only_amqpd")


class Peak:
    """The highest resident memory of a broker while it is watched, in MiB above what it had at first."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.idle = broker.resident_bytes()
        self.highest = self.idle

    @property
    def grown_mib(self) -> int:
        return (self.highest - self.idle) // MIB

    @property
    def total_mib(self) -> int:
        return self.highest // MIB

    @contextmanager
    def watched(self) -> Iterator[Peak]:
        ended = threading.Event()
        self.highest = self.broker.resident_bytes()

        def sample() -> None:
            while not ended.wait(SAMPLE_S):
                self.highest = max(self.highest, self.broker.resident_bytes())

        thread = threading.Thread(target=sample, daemon=True)
        thread.start()
        yield self
        ended.set()
        thread.join()
        self.highest = max(self.highest, self.broker.resident_bytes())


def opened_wire(broker: BrokerProcess, **options: object) -> Wire:
    wire = Wire(broker.port, timeout_s=60).open()
    wire.open_channel()
    wire.call(commands.Queue.Declare(queue=QUEUE, **options), channel=1)  # type: ignore[arg-type]
    return wire


def publish_confirmed(wire: Wire, message: bytes, count: int) -> None:
    """Returns when all are confirmed; at most ten batches are open."""
    sent = confirmed = 0
    wire.call(commands.Confirm.Select(), channel=1)
    batch = message * BATCH
    while confirmed < count:
        while sent < count and sent - confirmed < 10 * BATCH:
            wire.send_bytes(batch)
            sent += BATCH
        kind, _, payload = wire.read_frame()
        if kind == METHOD and payload[:4] == b"\x00\x3c\x00\x50":
            confirmed = max(confirmed, struct.unpack_from(">Q", payload, 4)[0])


def consume(wire: Wire, count: int, settle: Callable[[int], bytes]) -> int:
    """Take that many deliveries and send what `settle(tag)` gives; the number of body bytes."""
    wire.send(commands.Basic.Consume(queue=QUEUE, consumer_tag="c"), channel=1)
    taken = nbytes = 0
    answers: list[bytes] = []
    while taken < count:
        kind, _, payload = wire.read_frame()
        if kind == METHOD and payload[:4] == b"\x00\x3c\x00\x3c":
            tag = struct.unpack_from(">Q", payload, 5 + payload[4])[0]
            answers.append(settle(tag))
        elif kind == BODY:
            nbytes += len(payload)
            taken += 1
            if len(answers) >= 100 or taken == count:
                wire.send_bytes(b"".join(answers))
                answers.clear()
    return nbytes


def ack(tag: int, *, multiple: bool = False) -> bytes:
    return ACK_FRAME.pack(METHOD, 1, 13, 60, 80, tag, multiple, 0xCE)


def backlog(broker: BrokerProcess, count: int, bound_mib: int, restart_s: float) -> None:
    body_bytes = 1000
    broker.start()
    peak = Peak(broker)
    persistent = commands.Basic.Properties(delivery_mode=2)
    message = publish_bytes(1, "", QUEUE, bytes(body_bytes), persistent)
    with opened_wire(broker, durable=True) as wire, peak.watched():
        publish_confirmed(wire, message, count)
        wire.close()
    print(f"filling {count}: peak {peak.total_mib} MiB, {peak.grown_mib} above idle")
    assert peak.grown_mib < bound_mib

    broker.kill()
    began = time.monotonic()
    broker.start()
    started_s = time.monotonic() - began
    peak = Peak(broker)
    print(f"restart with it: {started_s:.2f} s, resting at {peak.total_mib} MiB")
    assert started_s < restart_s
    with opened_wire(broker, durable=True) as wire, peak.watched():
        assert depth(wire, QUEUE) == count
        wire.call(commands.Basic.Qos(0, 2000, False), channel=1)
        nbytes = consume(wire, count, lambda tag: ack(tag, multiple=True) if tag % 100 == 0 else b"")
        assert nbytes == count * body_bytes
        assert depth(wire, QUEUE) == 0
        wire.close()
    print(f"draining: peak {peak.total_mib} MiB, {peak.grown_mib} above idle")
    assert peak.grown_mib < bound_mib


def test_a_backlog_larger_than_memory_stays_on_disk(make_broker: MakeBroker) -> None:
    """100 MB in a broker that may keep 8 MB of it in memory."""
    limits = {"AMQPD_QUEUE_MEMORY_BYTES": "4MiB", "AMQPD_BACKLOG_MEMORY_BYTES": "8MiB"}
    backlog(make_broker(environment=limits), 100_000, bound_mib=75, restart_s=20)


@pytest.mark.heavy
@pytest.mark.timeout(1800)
def test_a_backlog_of_two_million(make_broker: MakeBroker) -> None:
    """With the limits as they are by default; 300 MB in all."""
    backlog(make_broker(), 2_000_000, bound_mib=250, restart_s=5)


@pytest.mark.slow
@pytest.mark.parametrize("durable", [False, slow(True)], ids=["transient", "durable"])
def test_one_kept_message_does_not_pin_its_buffer(make_broker: MakeBroker, durable: bool) -> None:
    """480 MB go through, 7.5 MB of it are never acknowledged: one message of each 256 KiB, the size in which a
    socket is read. If each kept its whole buffer, all of it would stay."""
    body_bytes, count, keep_every = 4000, 120_000, 64
    broker = make_broker()
    broker.start()
    peak = Peak(broker)
    mode = commands.Basic.Properties(delivery_mode=2 if durable else 1)
    message = publish_bytes(1, "", QUEUE, bytes(body_bytes), mode)
    failures: list[BaseException] = []

    def publish() -> None:
        try:
            with opened_wire(broker, durable=durable) as wire:
                publish_confirmed(wire, message, count)
                wire.close()
        except BaseException as error:  # noqa: BLE001 - the test fails with it
            failures.append(error)

    with opened_wire(broker, durable=durable) as wire, peak.watched():
        publisher = threading.Thread(target=publish, daemon=True)
        publisher.start()
        consume(wire, count, lambda tag: b"" if tag % keep_every == 0 else ack(tag))
        publisher.join(180)
        assert not failures, failures
        wire.call(commands.Basic.Qos(0, 0, False), channel=1)  # all acks before it were taken
        resting = broker.resident_bytes()
        print(f"peak {peak.grown_mib}, then {(resting - peak.idle) // MIB} MiB above idle")
        wire.close()
        assert depth_of(broker, durable) == count // keep_every
    # 7.5 MB are kept, 16 MiB of a queue may be in memory, and what is on its way in sockets and to the disk.
    assert (resting - peak.idle) // MIB < KEPT_MIB_MAX
    assert peak.grown_mib < KEPT_MIB_MAX


def depth_of(broker: BrokerProcess, durable: bool) -> int:
    with opened_wire(broker, durable=durable) as wire:
        number = depth(wire, QUEUE)
        wire.close()
    return number


def test_a_file_of_the_audit_log_is_written_without_pandas(make_broker: MakeBroker) -> None:
    """Which would be sixty megabytes, where it is installed."""
    broker = make_broker()
    broker.start()
    with opened_wire(broker, durable=True) as wire:
        message = publish_bytes(1, "", QUEUE, b"x", commands.Basic.Properties(delivery_mode=2))
        publish_confirmed(wire, message, BATCH)
        wire.close()
    command = [sys.executable, "-m", "amqpd", "audit", "flush", "--data-dir", str(broker.data_dir)]
    subprocess.run(command, cwd=REPOSITORY, env=broker.child_environment(), check=True, timeout=60)
    audit = broker.data_dir / "audit"
    assert list((audit / "events").rglob("*.parquet"))
    assert not list((audit / "spool").glob("*.damaged"))
    loaded = Path(f"/proc/{broker.broker_pid}/maps").read_text()
    assert "pyarrow" in loaded
    assert "pandas" not in loaded
