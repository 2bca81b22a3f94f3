"""The disk is full: publishers wait or are refused with a reason, consumers and acks go on, and nothing
breaks.

The data directory is on a tmpfs of its own (needs root). Space is freed as an operator would: by deleting
some other file there.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pamqp import commands

from tests.harness.slow import slow

from ..audit.reading import only, rows_below, told
from ..clients.broker_process import BrokerFailed, BrokerProcess
from ..clients.brokers import broker_class
from ..clients.wire import METHOD, Wire, decode_method, publish_bytes
from .conftest import settings
from .drain import depth

MakeBroker = Callable[..., BrokerProcess]
DISK_BYTES, BALLAST_BYTES, ALARM_BYTES = 300 << 20, 120 << 20, 80 << 20
BODY_BYTES = 100_000
WINDOW_MESSAGES = 20
QUEUE = "filled"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(disk)]
    if os.geteuid() or subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("needs root, to mount a small file system")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


class Filler(threading.Thread):
    """Publishes big persistent messages with a small window, and notes confirms and blocked/unblocked."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.wire = Wire(port, timeout_s=60)
        self.sent = self.confirmed = 0
        self.blocked: str | None = None
        self.stop = False
        self.failure: BaseException | None = None
        self.sending = threading.Lock()
        self.news = threading.Condition()

    def run(self) -> None:
        try:
            self.wire.open()
            self.wire.open_channel()
            self.wire.call(commands.Confirm.Select(), channel=1)
            while not (self.stop and self.confirmed == self.sent):
                while not self.stop and self.sent - self.confirmed < WINDOW_MESSAGES:
                    self.publish_one()
                kind, _, payload = self.wire.read_frame()
                if kind == METHOD:
                    with self.news:
                        self.take(decode_method(payload))
                        self.news.notify_all()
            self.wire.close()
        except BaseException as error:  # noqa: BLE001 - handed to the test, which fails with it
            with self.news:
                self.failure = error
                self.news.notify_all()
        finally:
            self.wire.socket.close()

    def publish_one(self) -> None:
        with self.sending:
            self.wire.send_bytes(self.message(self.sent))
            self.sent += 1

    def take(self, method: object) -> None:
        if isinstance(method, commands.Basic.Ack):
            # Confirms are in order, or the number of messages would not fit in the end.
            self.confirmed = max(self.confirmed, method.delivery_tag)
        elif isinstance(method, commands.Connection.Blocked):
            self.blocked = method.reason
        elif isinstance(method, commands.Connection.Unblocked):
            self.blocked = None
        else:
            raise AssertionError(f"not due: {method}")

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        with self.news:
            done = self.news.wait_for(lambda: condition() or self.failure is not None, 60)
            assert self.failure is None, f"{what}: {self.failure!r}"
            assert done, f"{what}; {self.confirmed} confirmed"

    def message(self, number: int) -> bytes:
        content = (b"%08d" % number) * (BODY_BYTES // 8)
        return publish_bytes(1, "", QUEUE, content, commands.Basic.Properties(delivery_mode=2))


def prepare(broker: BrokerProcess, disk: Path) -> Path:
    """The broker runs with its queue, and some other file takes space; the path of that file."""
    ballast = disk / "ballast"
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, BALLAST_BYTES)
    broker.start()
    with Wire(broker.port) as wire:
        wire.open()
        wire.open_channel()
        wire.call(commands.Queue.Declare(queue=QUEUE, durable=True), channel=1)
        wire.close()
    return ballast


def take(broker: BrokerProcess, first: int, count: int, *, after_kill: bool = False) -> None:
    """Consume and acknowledge the next messages of the queue; they are whole, and the ones that are due.
    After a kill some before them may come again: their acknowledgements were on the way to the disk."""
    with Wire(broker.port) as wire:
        wire.open()
        wire.open_channel()
        due = first
        while due < first + count:
            wire.send(commands.Basic.Get(queue=QUEUE), channel=1)
            message = wire.read_message()[1]
            number = int(message.body[:8])
            assert message.body == (b"%08d" % number) * (BODY_BYTES // 8)
            wire.send(commands.Basic.Ack(message.method.delivery_tag), channel=1)
            if after_kill and due == first and number < first:
                continue
            assert number == due
            due += 1
        depth(wire, QUEUE)  # its answer comes after the acks were taken
        wire.close()


def check_after_restart(broker: BrokerProcess, filler: Filler, taken: int) -> None:
    """Kill, start: what was confirmed and not taken is there, whole and in order."""
    broker.kill()
    broker.start()
    take(broker, taken, filler.confirmed - taken, after_kill=True)


def test_publishers_are_blocked_and_consumers_go_on(make_broker: MakeBroker, small_disk: Path) -> None:
    broker = make_broker(
        small_disk / "data",
        **settings(
            amqpd={"AMQPD_DISK_FREE_BYTES_MIN": str(ALARM_BYTES)},
            rabbitmq=[f"disk_free_limit.absolute = {ALARM_BYTES}"],
        ),
    )
    ballast = prepare(broker, small_disk)
    filler = Filler(broker.port)
    filler.start()
    filler.wait(lambda: filler.blocked is not None, "connection.blocked never came")
    assert filler.blocked
    assert "disk" in filler.blocked
    take(broker, 0, 50)

    at_block = filler.confirmed
    ballast.unlink()
    filler.wait(lambda: filler.blocked is None, "connection.unblocked never came")
    filler.wait(lambda: filler.confirmed > at_block + WINDOW_MESSAGES, "publishing did not go on")
    filler.stop = True
    take(broker, 50, 50)
    filler.join(180)
    assert filler.failure is None, filler.failure
    check_after_restart(broker, filler, 100)


@pytest.mark.slow
def test_a_disk_that_is_full_to_the_last_byte(make_broker: MakeBroker, small_disk: Path) -> None:
    """Without the alarm, or when something else fills the disk faster than it looks."""
    if broker_class() is not BrokerProcess:
        pytest.skip("RabbitMQ's nodes crash without the alarm")
    broker = make_broker(small_disk / "data", environment={"AMQPD_DISK_FREE_BYTES_MIN": "0"})
    ballast = prepare(broker, small_disk)
    filler = Filler(broker.port)
    filler.start()
    print(broker.wait_log(r"level=error.*disk full"))
    at_full = filler.confirmed
    filler.publish_one()  # RabbitMQ's rule: a publisher without space on the disk is told
    filler.wait(lambda: filler.blocked is not None, "nobody told the publisher why it waits")
    take(broker, 0, 50)
    ballast.unlink()
    filler.wait(lambda: filler.confirmed > at_full + 2 * WINDOW_MESSAGES, "publishing did not go on")
    filler.stop = True
    filler.join(180)
    assert filler.failure is None, filler.failure
    check_after_restart(broker, filler, 50)


def use_up(disk: Path, ballast: Path) -> None:
    """Somebody else takes the last byte."""
    with ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    assert os.statvfs(disk).f_bavail == 0


@pytest.mark.slow
def test_a_broker_that_is_killed_starts_without_a_free_byte(make_broker: MakeBroker, small_disk: Path) -> None:
    """Or what fills its disk could not be consumed. The audit log says what it misses when there is space again."""
    if broker_class() is not BrokerProcess:
        pytest.skip("RabbitMQ's nodes crash without the alarm")
    environment = {"AMQPD_DISK_FREE_BYTES_MIN": "0", "AMQPD_AUDIT_LEVEL": "full"}
    data = small_disk / "data"
    broker = make_broker(data, environment=environment)
    ballast = prepare(broker, small_disk)
    filler = Filler(broker.port)
    filler.start()
    filler.wait(lambda: filler.confirmed >= 100, "the queue was not filled")
    filler.stop = True
    filler.join(180)
    assert filler.failure is None, filler.failure
    take(broker, 0, 10)
    broker.kill()
    # The journal has given up what it held back, as it does while the disk is full, and that is taken too.
    (data / "reserve").unlink()
    use_up(small_disk, ballast)

    for first in (10, 30, 50):
        broker.start()
        broker.wait_log(r"level=error.*the audit log cannot be written")
        take(broker, first, 20, after_kill=True)
        if first < 50:
            broker.kill()
            use_up(small_disk, ballast)
    ballast.unlink()
    broker.wait_log("the audit log goes on, with a gap")
    take(broker, 70, filler.confirmed - 80)
    assert broker.terminate() == 0
    broker.start()
    take(broker, filler.confirmed - 10, 10)
    assert broker.terminate() == 0

    rows = only(rows_below(data / "audit" / "events"), "started", "gap", "standing", "stopped")
    # Those of incarnations that found no space have no rows, and no number of their own.
    assert told(rows, "incarnation", "event", "reason", "count")[1:] == [
        *((2, "started", None, 1), (2, "gap", "disk_full", 1), (2, "gap", "disk_full", 1)),
        *((2, "standing", "gap", 0), (2, "standing", None, filler.confirmed - 70)),
        *((2, "standing", "stopped", 0), (2, "standing", None, 10), (2, "stopped", None, 1)),
        *((3, "started", None, 1), (3, "standing", "recovered", 0), (3, "standing", None, 10)),
        *((3, "standing", "stopped", 0), (3, "stopped", None, 1)),
    ]
    assert [json.loads(row["detail"])["orderly"] for row in only(rows, "started")] == [True, False, True]
    assert sorted(path.name for path in (data / "audit" / "spool").iterdir()) == []


@pytest.mark.parametrize("rounds", [slow(2), pytest.param(10, marks=pytest.mark.heavy)])
def test_start_drain_and_stop_without_a_free_byte(make_broker: MakeBroker, small_disk: Path, rounds: int) -> None:
    """Again and again, with the disk filled to the last byte before each start: what was acknowledged does not come
    again. What metadata's index needs, which an orderly stop removes, is held for it; without any the start is
    refused."""
    if broker_class() is not BrokerProcess:
        pytest.skip("RabbitMQ's nodes crash without the alarm")
    data = small_disk / "data"
    broker = make_broker(data, environment={"AMQPD_DISK_FREE_BYTES_MIN": "0", "AMQPD_AUDIT_LEVEL": "full"})
    ballast = prepare(broker, small_disk)
    filler = Filler(broker.port)
    filler.start()
    filler.wait(lambda: filler.confirmed >= 10 * rounds + 10, "the queue was not filled")
    filler.stop = True
    filler.join(180)
    assert filler.failure is None, filler.failure
    assert broker.terminate() == 0

    for first in range(0, 10 * rounds, 10):
        use_up(small_disk, ballast)
        broker.start()
        broker.wait_log(r"level=error.*disk full: publishers wait.*at the start", 20)
        take(broker, first, 10)
        assert broker.terminate() == 0
        assert "Traceback" not in broker.log

    for reserve in data.glob("*reserve"):
        reserve.unlink()
    use_up(small_disk, ballast)
    with pytest.raises(BrokerFailed, match=r"amqpd: there is no space on the disk for .*metadata\.db"):
        broker.start()

    ballast.unlink()
    broker.start()
    take(broker, 10 * rounds, filler.confirmed - 10 * rounds)
    assert broker.terminate() == 0
    assert only(rows_below(data / "audit" / "events"), "stopped"), "what the audit log had no space for is there now"


def test_a_message_to_more_queues_than_the_disk_has_space_for_is_refused_and_others_go_on(
    make_broker: MakeBroker, small_disk: Path
) -> None:
    """5 MB to 100 durable queues on a disk of 300 MB: a transaction that can never fit would be tried again for ever,
    and every later one would wait behind it."""
    if broker_class().product != "amqpd":
        pytest.skip("RabbitMQ stores one copy of the body for all queues")
    broker = make_broker(data_dir=small_disk / "data")
    broker.start()
    properties = commands.Basic.Properties(delivery_mode=2)
    with Wire(broker.port) as wire, Wire(broker.port) as other:
        for each in (wire, other):
            each.open()
            each.open_channel()
        for number in range(100):
            wire.call(commands.Queue.Declare(queue=f"q{number}", durable=True), channel=1)
            wire.call(commands.Queue.Bind(queue=f"q{number}", exchange="amq.fanout"), channel=1)
        wire.call(commands.Confirm.Select(), channel=1)
        other.call(commands.Queue.Declare(queue="other", durable=True), channel=1)
        other.call(commands.Confirm.Select(), channel=1)
        wire.send_bytes(publish_bytes(1, "amq.fanout", "", bytes(5_000_000), properties))
        assert isinstance(wire.read_method()[1], commands.Basic.Nack)
        for _ in range(3):
            other.send_bytes(publish_bytes(1, "", "other", b"x" * 1000, properties))
            assert isinstance(other.read_method()[1], commands.Basic.Ack)
        wire.send_bytes(publish_bytes(1, "amq.fanout", "", bytes(100_000), properties))
        assert isinstance(wire.read_method()[1], commands.Basic.Ack)
    assert broker.terminate() == 0
