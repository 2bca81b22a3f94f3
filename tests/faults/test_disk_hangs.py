"""A node on three data directories, one or two of which are on a file system that neither answers nor fails.

What is verified, with real processes: with one that is frozen (fsfreeze(8): who writes waits) confirms, declarations
and reads go on, and it is repaired when it is thawed; with two publishing stops with a reason, goes on when they are
thawed, and nothing is lost; the end of the node waits for none. With one that does not give what is read (strace)
consumers get a backlog all the same.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pika
import pytest

from ..clients.broker_process import BrokerProcess
from .conftest import opened
from .power import NoPowerDisk, PowerDisk
from .strace import FailingCalls
from .test_disks import (
    PERSISTENT,
    QUEUE,
    Book,
    assert_equal,
    on,
    status_of,
    stop,
    wait_all_in,
    wait_repaired,
    wait_until,
)

MakeBroker = Callable[..., BrokerProcess]
PROMPT_S = 30.0
"""More than the bound, and less than anybody waits who waits for the disk."""

pytestmark = pytest.mark.usefixtures("only_amqpd")


class Freezing:
    """File systems that can hang; thawed in the end."""

    def __init__(self, folder: Path, count: int) -> None:
        self.frozen: list[Path] = []
        self._mounted = ExitStack()
        self.disks = [folder / name / "amqpd" for name in "abc"[count:]]
        for name in "xy"[:count]:
            place = folder / name
            place.mkdir()
            disk = PowerDisk(place)
            self._mounted.callback(disk.close)
            self.disks.append(disk.path / "amqpd")

    def freeze(self, disk: Path) -> None:
        done = subprocess.run(["fsfreeze", "-f", str(disk.parent)], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"file systems cannot be frozen here: {done.stderr}")
        self.frozen.append(disk)

    def thaw(self) -> None:
        while self.frozen:
            subprocess.run(["fsfreeze", "-u", str(self.frozen.pop().parent)], check=True)

    def close(self) -> None:
        self.thaw()
        self._mounted.close()


@pytest.fixture
def freezing(tmp_path: Path, make_broker: MakeBroker) -> Iterator[Callable[[int], Freezing]]:
    """Thawed before brokers are ended: a process that hangs there does not end before."""
    made: list[Freezing] = []

    def make(count: int) -> Freezing:
        try:
            made.append(Freezing(tmp_path, count))
        except (NoPowerDisk, PermissionError) as error:
            pytest.skip(f"needs root and loop devices: {error}")
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize("first", [False, pytest.param(True, marks=pytest.mark.heavy)])
def test_one_disk_is_frozen(freezing: Callable[[int], Freezing], make_broker: MakeBroker, first: bool) -> None:
    freezer = freezing(1)
    disks = freezer.disks[::-1] if first else freezer.disks
    frozen = freezer.disks[-1]
    # The audit log is in the first directory, and is written where all wait for it (docs/disks.md).
    broker = on(make_broker, disks, environment={"AMQPD_AUDIT_LEVEL": "off"} if first else {})
    broker.start()
    book = Book(broker)
    book.publish(50)
    freezer.freeze(frozen)
    began = time.monotonic()
    book.publish(50)
    with opened(broker) as channel:
        channel.queue_declare("declared meanwhile", durable=True)
        channel.queue_declare("and another", durable=True)
    book.take_some(20)
    assert time.monotonic() - began < PROMPT_S
    broker.wait_log(rf'disk left behind".*{frozen}.*did not answer for 10 s')
    assert f"{frozen} left behind" in status_of(broker, freezer.disks[0])
    book.publish(20)
    freezer.thaw()
    wait_repaired(broker, frozen)
    book.publish(20)
    with opened(broker) as channel:
        channel.queue_declare("declared afterwards", durable=True)
    stop(broker)
    assert_equal(disks)
    broker.start()
    book.check_all_there()


@pytest.mark.slow
def test_the_node_ends_while_a_disk_is_frozen(freezing: Callable[[int], Freezing], make_broker: MakeBroker) -> None:
    """Its process stays until the system lets go of the threads that hang there; nobody waits for more than that."""
    freezer = freezing(1)
    broker = on(make_broker, freezer.disks)
    broker.start()
    book = Book(broker)
    book.publish(20)
    freezer.freeze(freezer.disks[-1])
    book.publish(20)
    broker.send_signal(signal.SIGTERM)
    broker.wait_log('event="?stopped')
    freezer.thaw()
    assert broker.wait() == 0, broker.log[-3000:]
    assert "Traceback" not in broker.log, broker.log[-3000:]
    broker.start()
    wait_all_in(broker, freezer.disks)
    book.check_all_there()
    stop(broker)
    assert_equal(freezer.disks)


@pytest.mark.slow
def test_two_disks_are_frozen(freezing: Callable[[int], Freezing], make_broker: MakeBroker) -> None:
    freezer = freezing(2)
    broker = on(make_broker, freezer.disks)
    broker.start()
    book = Book(broker)
    book.publish(20)
    for each in freezer.disks[1:]:
        freezer.freeze(each)
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    blocked: list[str] = []
    connection.add_on_connection_blocked_callback(lambda _, method: blocked.append(method.method.reason))
    unblocked: list[object] = []
    connection.add_on_connection_unblocked_callback(lambda _, method: unblocked.append(method))
    channel = connection.channel()
    channel.confirm_delivery()
    channel._impl.basic_publish("", QUEUE, b"waits", PERSISTENT)
    connection.process_data_events(0.1)

    def is_blocked() -> bool:
        connection.process_data_events(0.1)
        return bool(blocked)

    broker.wait_log(r"too few disks: publishers wait.*1 of 3 data directories can be written, and 2 are needed")
    channel._impl.basic_publish("", QUEUE, b"waits", PERSISTENT)  # a connection is blocked when it publishes
    wait_until(is_blocked, "it is not blocked")
    assert broker.running
    freezer.thaw()

    def goes_on() -> bool:
        connection.process_data_events(0.1)
        return bool(unblocked)

    wait_until(goes_on, "it is not unblocked")
    connection.close()
    book.publish(20)
    wait_all_in(broker, freezer.disks)
    stop(broker)
    assert_equal(freezer.disks)
    broker.start()
    with opened(broker) as channel:
        found = [body for _, _, body in iter(lambda: channel.basic_get(QUEUE, auto_ack=True), (None, None, None))]
    assert [body for body in found if body != b"waits"] == book.confirmed


@pytest.mark.slow
def test_a_backlog_is_read_from_another_disk(make_broker: MakeBroker, tmp_path: Path) -> None:
    disks = [tmp_path / name for name in "abc"]
    broker = on(make_broker, disks)
    broker.start()
    book = Book(broker)
    book.publish(100, nbytes=20_000)
    stop(broker)
    broker.start()
    with FailingCalls(
        broker.broker_pid, "pread64", "delay_enter=40000000", paths=[disks[0] / "journal.db"]
    ) as hanging:
        began = time.monotonic()
        book.take_some(50)
        took_s = time.monotonic() - began
        assert any("pread64(" in line for line in hanging.lines), "no read hung: this was not tested"
    assert took_s < PROMPT_S, f"50 messages took {took_s:.1f} s"
    book.publish(1)  # its confirm says that what was acknowledged before is on the disks, too
    broker.kill()
    broker.start()
    book.check_all_there()
