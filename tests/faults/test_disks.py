"""A node on three data directories, one or two of which fail: what was confirmed is safe, and disks are repaired.

What is verified, with real processes: publishing goes on while one disk is full, fails, is emptied, replaced or slow;
that disk has what the others have afterwards. With two of three gone publishing stops with a reason, and nothing that
was confirmed is lost. Kills at random moments with a disk emptied after each lose nothing.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pika
import pika.exceptions
import pytest

from amqpd.datadir.disk_record import read_record
from amqpd.journal.disk import ReplicaState
from amqpd.journal.sqlite.disk import SqliteDisk
from amqpd.topology.metadata.sqlite.glance import glance

from ..clients.broker_process import BrokerFailed, BrokerProcess
from .checker import check
from .conftest import opened
from .drain import drain
from .strace import FailingCalls
from .test_kill import declare_topology, new_history, publish_and_kill

MakeBroker = Callable[..., BrokerProcess]
NAMES = ("a", "b", "c")
QUEUE = "kept"
PERSISTENT = pika.BasicProperties(delivery_mode=2)
SMALL_BYTES, BALLAST_BYTES = 200 << 20, 120 << 20
DEADLINE_S = 180.0
ROUNDS = int(os.environ.get("AMQPD_FAULT_ROUNDS", "2"))
SEED = int(os.environ.get("AMQPD_FAULT_SEED", "0")) or random.randrange(1 << 30)

HEAVY = [pytest.param(number, marks=pytest.mark.heavy) for number in (1, 2)]
"""the other disks: make test looks at the first one, with which the node works"""

pytestmark = pytest.mark.usefixtures("only_amqpd")


@pytest.fixture
def disks(tmp_path: Path) -> list[Path]:
    return [tmp_path / name for name in NAMES]


@pytest.fixture
def broker(make_broker: MakeBroker, disks: list[Path]) -> BrokerProcess:
    return on(make_broker, disks)


def on(make_broker: MakeBroker, disks: list[Path], **options: object) -> BrokerProcess:
    more = [word for each in disks[1:] for word in ("--data-dir", str(each))]
    return make_broker(disks[0], arguments=more, **options)


class Book:
    """What was confirmed to one publisher."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.confirmed: list[bytes] = []

    def publish(self, count: int, nbytes: int = 100) -> None:
        """With a confirm for each."""
        with opened(self.broker) as channel:
            channel.queue_declare(QUEUE, durable=True)
            channel.confirm_delivery()
            for _ in range(count):
                body = b"%d " % len(self.confirmed) + bytes(nbytes)
                channel.basic_publish("", QUEUE, body, PERSISTENT, mandatory=True)
                self.confirmed.append(body)

    def take_some(self, count: int) -> None:
        """The oldest ones are acknowledged."""
        with opened(self.broker) as channel:
            for _ in range(count):
                method, _, body = channel.basic_get(QUEUE)
                assert body == self.confirmed.pop(0)
                channel.basic_ack(method.delivery_tag)
            channel.queue_declare(QUEUE, passive=True)  # what was acknowledged before has been taken in

    def check_all_there(self) -> None:
        """And nothing else; in order."""
        with opened(self.broker) as channel:
            found = [body for _, _, body in iter(lambda: channel.basic_get(QUEUE, auto_ack=True), (None, None, None))]
        assert found[: len(self.confirmed)] == self.confirmed, f"{len(found)} of {len(self.confirmed)} are there"
        assert len(found) <= len(self.confirmed) + 1, "more than one that was not confirmed"


def contents(directory: Path) -> tuple[list[ReplicaState], dict[int, list[tuple[object, ...]]]]:
    """The replicas of sources, and of each queue what its rows have."""
    disk = SqliteDisk(directory)
    try:
        queues = disk.recover().queues
        replicas = disk.replicas()
        queues |= disk.recovered_of([each.source for each in replicas]).queues
        return replicas, {
            queue_id: [
                (row.first_seq, row.last_seq, tuple(row.settled), tuple(each.data for each in read))
                for row in queue.rows
                for read in [disk.read(queue_id, row.first_seq, row.last_seq, 1 << 30)]
            ]
            for queue_id, queue in queues.items()
        }
    finally:
        disk.close()


def assert_equal(disks: list[Path]) -> None:
    """Of a node that has stopped: all count, and have the same."""
    records = [read_record(each) for each in disks]
    assert all(record is not None and record.whole for record in records), records
    assert len({record.list for record in records if record is not None}) == 1
    assert all(each.inside for record in records if record is not None for each in record.list.disks)
    # None of a node whose definitions are in etcd.
    definitions = [glance(each / "metadata.db") for each in disks]
    assert None not in definitions
    assert definitions.count(definitions[0]) == len(definitions), definitions
    first, *others = [contents(each) for each in disks]
    assert any(first)
    for each in others:
        assert each == first


def stop(broker: BrokerProcess) -> None:
    assert broker.terminate() == 0, broker.log[-3000:]
    assert "Traceback" not in broker.log, broker.log[-3000:]


def wait_repaired(broker: BrokerProcess, disk: Path, count: int = 1) -> None:
    deadline = time.monotonic() + DEADLINE_S
    pattern = re.compile(rf'event="disk repaired".*path={re.escape(str(disk))} ')
    while len(pattern.findall(broker.log)) < count:
        assert time.monotonic() < deadline, broker.log[-3000:]
        assert broker.running, broker.log[-3000:]
        time.sleep(0.05)


def empty(disk: Path) -> None:
    """As a new disk in the place of the old one."""
    shutil.rmtree(disk)
    disk.mkdir(mode=0o700)


@pytest.mark.slow
def test_three_directories_have_the_same(broker: BrokerProcess, disks: list[Path]) -> None:
    broker.start()
    book = Book(broker)
    book.publish(50)
    book.take_some(20)
    stop(broker)
    assert_equal(disks)
    broker.start()
    book.check_all_there()


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, *HEAVY])
def test_a_disk_is_emptied_while_the_node_is_down(broker: BrokerProcess, disks: list[Path], number: int) -> None:
    broker.start()
    book = Book(broker)
    book.publish(50)
    broker.kill()
    empty(disks[number])
    broker.start()
    book.publish(10)
    wait_repaired(broker, disks[number])
    book.publish(10)
    stop(broker)
    assert_equal(disks)
    broker.start()
    book.check_all_there()


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, *HEAVY])
def test_a_disk_is_emptied_while_the_node_runs(broker: BrokerProcess, disks: list[Path], number: int) -> None:
    broker.start()
    book = Book(broker)
    book.publish(50)
    empty(disks[number])
    book.publish(50)
    wait_repaired(broker, disks[number])
    wait_all_in(broker, disks)
    book.publish(10)
    with opened(broker) as channel:
        channel.queue_declare("declared after the repair", durable=True)
    stop(broker)
    assert_equal(disks)
    broker.start()
    book.check_all_there()


@pytest.mark.slow
def test_two_of_three_are_emptied_while_the_node_runs(broker: BrokerProcess, disks: list[Path]) -> None:
    """What they had is on the third one, and nowhere else: they are repaired from that."""
    broker.start()
    book = Book(broker)
    book.publish(50)
    for each in disks[:2]:
        empty(each)
    for each in disks[:2]:
        wait_repaired(broker, each)
    book.publish(50)
    with opened(broker) as channel:
        channel.queue_declare("declared after the repair", durable=True)
    stop(broker)
    assert_equal(disks)
    # Either of the two is enough beside another one.
    empty(disks[2])
    broker.start()
    book.check_all_there()


@pytest.mark.slow
def test_two_of_three_are_moved_while_the_node_runs(broker: BrokerProcess, disks: list[Path]) -> None:
    """They may come back: nobody is kept waiting for an answer, and they are not replaced."""
    broker.start()
    book = Book(broker)
    book.publish(50)
    moved = [each.rename(each.with_name(f"{each.name}.moved")) for each in disks[:2]]
    for each in disks[:2]:
        broker.wait_log(rf'disk not repaired".*path={re.escape(str(each))} .*was not erased.*--accept-loss')
    with (
        opened(broker) as channel,
        pytest.raises(pika.exceptions.ChannelClosedByBroker, match="too few of the broker"),
    ):
        channel.queue_declare("refused", durable=True)
    broker.kill()
    for path, each in zip(disks, moved, strict=False):
        shutil.rmtree(path, ignore_errors=True)
        each.rename(path)
    broker.start()
    wait_all_in(broker, disks)
    book.check_all_there()


@pytest.mark.heavy
def test_a_second_disk_fails_after_the_first_was_repaired(broker: BrokerProcess, disks: list[Path]) -> None:
    """So what was repaired has everything by itself."""
    broker.start()
    book = Book(broker)
    book.publish(50)
    for number in (0, 1, 2):
        empty(disks[number])
        book.publish(20)
        wait_repaired(broker, disks[number])
    broker.kill()
    shutil.rmtree(disks[2])
    broker.start()
    book.check_all_there()


@pytest.mark.slow
def test_a_node_starts_without_its_first_disk(broker: BrokerProcess, disks: list[Path]) -> None:
    broker.start()
    book = Book(broker)
    book.publish(20)
    stop(broker)
    empty(disks[0])
    in_the_way = disks[0] / "amqpd.lock"
    in_the_way.mkdir()
    broker.start()
    book.publish(20)
    said = status_of(broker, disks[2])
    assert f"{disks[0]} left behind" in said
    assert f"Data directory {disks[0]} is left behind (" in said, "it needs attention"
    in_the_way.rmdir()
    wait_repaired(broker, disks[0])
    stop(broker)
    assert_equal(disks)
    broker.start()
    book.check_all_there()


@pytest.mark.slow
def test_a_node_of_one_directory_gets_two_more(make_broker: MakeBroker, disks: list[Path]) -> None:
    alone = make_broker(disks[0])
    alone.start()
    book = Book(alone)
    book.publish(30)
    stop(alone)
    broker = book.broker = on(make_broker, disks)
    broker.start()
    wait_all_in(broker, disks)
    book.publish(10)
    stop(broker)
    assert_equal(disks)
    with pytest.raises(BrokerFailed):
        alone.start()
    assert "is one of several data directories of a node" in alone.log
    # The first one is not needed any more.
    shutil.rmtree(disks[0])
    broker.start()
    book.check_all_there()


@pytest.mark.slow
def test_definitions_of_another_process_are_on_all_disks(broker: BrokerProcess, disks: list[Path]) -> None:
    broker.start()
    for name, where in (("while it runs", disks[1]), ("and again", disks[0])):
        done = subprocess.run(
            [*broker.command()[:3], "vhost", "add", name, "--data-dir", str(where)],
            env=broker.child_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    book = Book(broker)
    book.publish(1)
    stop(broker)
    assert_equal(disks)


@pytest.mark.slow
def test_two_of_three_are_missing_at_the_start(broker: BrokerProcess, disks: list[Path]) -> None:
    broker.start()
    book = Book(broker)
    book.publish(20)
    stop(broker)
    kept = disks[1].with_name("kept")
    shutil.copytree(disks[1], kept)
    empty(disks[1])
    empty(disks[2])
    with pytest.raises(BrokerFailed):
        broker.start()
    assert re.search(r"1 of the 3 data directories of this node have its data, 2 are needed", broker.log), broker.log
    assert str(disks[1]) in broker.log
    shutil.rmtree(disks[1])
    kept.rename(disks[1])
    broker.start()
    book.check_all_there()


@pytest.mark.slow
def test_two_of_three_are_lost_for_good(make_broker: MakeBroker, broker: BrokerProcess, disks: list[Path]) -> None:
    broker.start()
    book = Book(broker)
    book.publish(20)
    stop(broker)
    empty(disks[0])
    shutil.rmtree(disks[2])
    with pytest.raises(BrokerFailed):
        broker.start()
    more = ["--data-dir", str(disks[1]), "--data-dir", str(disks[2]), "--accept-loss"]
    once = book.broker = make_broker(disks[0], arguments=more)
    once.start()
    wait_all_in(once, disks)
    book.publish(10)
    stop(once)
    assert_equal(disks)
    book.broker = broker
    broker.start()
    book.check_all_there()


@pytest.fixture
def small_disk(disks: list[Path]) -> Iterator[Path]:
    """The second one is small."""
    disk = disks[1]
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_BYTES}", "none", str(disk)]
    if os.geteuid() or subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("needs root, to mount a small file system")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_one_disk_is_full(small_disk: Path, disks: list[Path], broker: BrokerProcess) -> None:
    broker.start()
    book = Book(broker)
    book.publish(20)
    ballast = small_disk / "ballast"
    free = shutil.disk_usage(small_disk).free
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free - (1 << 20))
    began = time.monotonic()
    book.publish(60, nbytes=1_000_000)
    assert time.monotonic() - began < DEADLINE_S
    broker.wait_log(rf'disk full: it tries again".*{re.escape(str(small_disk))}')
    ballast.unlink()
    book.take_some(40)
    book.publish(5)
    deadline = time.monotonic() + DEADLINE_S
    while f"{small_disk} in use" not in status_of(broker, disks[0]):
        assert time.monotonic() < deadline, broker.log[-3000:]
        time.sleep(0.2)
    stop(broker)
    assert_equal(disks)
    broker.start()
    book.check_all_there()


def wait_until(true: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.05)


def status_of(broker: BrokerProcess, directory: Path) -> str:
    command = [*broker.command()[:3], "status", "--data-dir", str(directory)]
    asked = subprocess.run(command, env=broker.child_environment(), capture_output=True, text=True, check=False)
    return asked.stdout


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, *HEAVY])
def test_the_fsync_of_one_disk_fails(broker: BrokerProcess, disks: list[Path], number: int) -> None:
    broker.start()
    book = Book(broker)
    book.publish(20)
    log = disks[number] / "journal.db-wal"
    with FailingCalls(broker.broker_pid, "fsync,fdatasync", "error=EIO", paths=[log]) as failing:
        book.publish(20)
        assert failing.injected, "no call failed: this was not tested"
        broker.wait_log(rf'disk left behind".*{re.escape(str(disks[number]))}.*disk I/O error')
        book.publish(20)
    wait_repaired(broker, disks[number])
    book.publish(20)
    stop(broker)
    assert_equal(disks)
    broker.start()
    book.check_all_there()


@pytest.mark.slow
def test_one_disk_is_slow(broker: BrokerProcess, disks: list[Path]) -> None:
    """Each sync takes it a second: others are not kept waiting, and it comes after."""
    broker.start()
    book = Book(broker)
    book.publish(5)
    log = disks[2] / "journal.db-wal"
    with FailingCalls(broker.broker_pid, "fsync,fdatasync", "delay_enter=1000000", paths=[log]) as slow:
        began = time.monotonic()
        book.publish(40)
        took_s = time.monotonic() - began
        wait_until(lambda: slow.injected > 0, "no call was slow: this was not tested")
    assert took_s < 20, f"40 confirms took {took_s:.1f} s, as if the slow disk was waited for"
    stop(broker)
    assert_equal(disks)
    broker.start()
    book.check_all_there()


def test_two_of_three_fail_while_the_node_runs(broker: BrokerProcess, disks: list[Path]) -> None:
    """Publishing stops with a reason, and goes on when the disks work again."""
    broker.start()
    book = Book(broker)
    book.publish(20)
    logs = [disks[number] / "journal.db-wal" for number in (0, 2)]
    others = [disks[number] / "journal.db" for number in (0, 2)]
    with FailingCalls(broker.broker_pid, "fsync,fdatasync,pwrite64", "error=EIO", paths=[*logs, *others]) as failing:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        blocked: list[object] = []
        connection.add_on_connection_blocked_callback(lambda _, method: blocked.append(method))
        channel = connection.channel()
        channel.confirm_delivery()
        channel._impl.basic_publish("", QUEUE, b"unknown", PERSISTENT)
        connection.process_data_events(0.1)
        broker.wait_log(r"too few disks: publishers wait.*1 of 3 data directories can be written, and 2 are needed")
        connection.process_data_events(2)
        assert failing.injected
        broker.kill()
    with suppress(pika.exceptions.AMQPError):
        connection.close()  # its socket, too
    broker.start()
    wait_all_in(broker, disks)
    book.publish(20)
    with opened(broker) as channel:
        found = [body for _, _, body in iter(lambda: channel.basic_get(QUEUE, auto_ack=True), (None, None, None))]
    assert [body for body in found if body != b"unknown"] == book.confirmed


def wait_all_in(broker: BrokerProcess, disks: list[Path]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while status_of(broker, disks[0]).count(" in use") < len(disks):
        assert time.monotonic() < deadline, broker.log[-3000:]
        time.sleep(0.2)


@pytest.mark.slow
def test_kills_and_emptied_disks_lose_nothing(broker: BrokerProcess, disks: list[Path]) -> None:
    chance = random.Random(SEED)
    history = new_history()
    history.events.append(f"seed {SEED}, {ROUNDS} rounds")
    broker.start()
    declare_topology(broker)
    try:
        for _ in range(ROUNDS):
            publish_and_kill(broker, history, chance.randint(1, 20_000))
            number = chance.randrange(len(disks))
            empty(disks[number])
            history.events.append(f"disk {number} emptied")
            broker.start()
            wait_all_in(broker, disks)  # two at a time may not be lost
        drain(broker.port, history)
        verdict = check(history, acks_are_durable=True)
        print(f"seed {SEED}: {verdict.text()}")
        assert verdict.valid, verdict.text()
        stop(broker)
        assert_equal(disks)
    except BaseException:
        print(history.text())
        print(f"Again with: AMQPD_FAULT_SEED={SEED} AMQPD_FAULT_ROUNDS={ROUNDS}")
        raise
