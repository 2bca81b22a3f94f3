"""A small disk that others fill to its last byte, and what a broker goes through there.

What comes in: a folder; a broker whose data are on the disk, its history, chance. What goes out: the history, with
what was published one by one before the disk was full, and what was taken and acknowledged while it was.
Rules: 1. What ends the broker is drawn each time: SIGKILL, or a stop in order, which must end with 0. 2. Each start
must succeed. Sometimes others have taken the journal's reserve too, as they may when the broker gave it up before it
was killed: then acknowledgements may have to wait. 3. An acknowledgement is for sure when a stop in order came after
it and the reserve was there; without the reserve a stop forgets what finds no space, as a kill does. 4. Needs root.
Not here: the load before it, the judgement (`crashes.py`).
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import time
from collections import Counter
from pathlib import Path

from pamqp import commands

from amqpd.journal.sqlite.reserve import RESERVE_BYTES

from ..clients.broker_process import BrokerProcess
from ..clients.wire import Wire, publish_bytes
from .drain import depth
from .history import CONFIRMED, Delivery, History, PublisherHistory, QueueHistory
from .power import PowerDisk
from .workload import PERSISTENT, content_of, parse_content

DISK_BYTES = 384 << 20
ALONE, ALONE_PUBLISHER = "alone", "to-alone"
BEHIND_MAX = 150
"""messages that are published one by one: twice as many as the journal's record may be behind, and some"""
TAKEN_MAX = 500
STARTS_MAX = 3
PIECE_BYTES = 4096


def add_alone(history: History) -> None:
    """The queue into which messages are published one by one."""
    history.publishers[ALONE_PUBLISHER] = PublisherHistory(ALONE_PUBLISHER, (ALONE,))
    history.queues[ALONE] = QueueHistory(ALONE)


class SmallDisk(PowerDisk):
    """ext4 in a file; every second one is a tmpfs."""

    def __init__(self, folder: Path, number: int) -> None:
        self.tmpfs = bool(number % 2)
        super().__init__(folder)

    def fill(self) -> None:
        """Somebody else takes all that is left, and what is given back until the next time."""
        with (self.path / "ballast").open("ab", buffering=0) as file:
            step = self._free_bytes()
            while step >= PIECE_BYTES:
                with contextlib.suppress(OSError):
                    os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, step)
                    continue
                step //= 2
            file.seek(0, os.SEEK_END)
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(PIECE_BYTES))
                    os.fsync(file.fileno())

    def make_space(self) -> None:
        (self.path / "ballast").unlink()

    def _free_bytes(self) -> int:
        file_system = os.statvfs(self.path)
        return file_system.f_bavail * file_system.f_frsize

    def _make(self, nbytes: int, *options: str) -> None:
        if not self.tmpfs:
            # Blocks of a page, or the start refuses where the index of the metadata's log has no space.
            super()._make(DISK_BYTES, "-b", "4096", "-m", "0")

    def _mount(self) -> None:
        if self.tmpfs:
            self._run("mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(self.path))
        else:
            super()._mount()


def go_through(
    broker: BrokerProcess, disk: SmallDisk, history: History, chance: random.Random, done: Counter[str]
) -> str:
    """The broker does not run, before and afterwards, and there is space again. What was done."""
    broker.start()
    published = chance.randint(1, BEHIND_MAX)
    publish_one_by_one(broker.port, history.publishers[ALONE_PUBLISHER], published)
    said = [f"{published} one by one", _end(broker, history, chance, done, {}, forgets=False)]
    for _ in range(chance.randint(1, STARTS_MAX)):
        reserve = broker.data_dir / "reserve"
        if chance.random() < 0.25:
            reserve.unlink(missing_ok=True)
        disk.fill()
        # What the broker gave up is others' by now, too, and stays so.
        taken_too = not reserve.exists() or reserve.stat().st_size < RESERVE_BYTES
        broker.start()
        done["starts on a full disk" + taken_too * ", without the reserve"] += 1
        if chance.random() < 0.25:
            publish_unheard(broker.port, history.publishers[ALONE_PUBLISHER])
            done["published to a full disk"] += 1
        taken: dict[str, list[int]] = {}
        for queue in (ALONE, chance.choice(["durable3", "durable4"])):
            taken[queue] = take(broker.port, history.queues[queue], history.incarnation, chance.randint(0, TAKEN_MAX))
            done["acknowledged on a full disk"] += len(taken[queue])
        said.append(f"{sum(map(len, taken.values()))} taken" + taken_too * " without the reserve")
        said.append(_end(broker, history, chance, done, taken, forgets=taken_too))
    disk.make_space()
    return ", ".join(said)


def _end(
    broker: BrokerProcess,
    history: History,
    chance: random.Random,
    done: Counter[str],
    taken: dict[str, list[int]],
    *,
    forgets: bool,
) -> str:
    """`taken`: what is for sure after a stop in order, unless that `forgets` what finds no space."""
    if chance.random() < 0.5:
        broker.kill()
        history.incarnation += 1
        done["SIGKILL beside a full disk"] += 1
        return "SIGKILL"
    code = broker.terminate()
    assert code == 0, f"exit code {code} of a stop in good order\n{broker.log[-3000:]}"
    done["stops beside a full disk"] += 1
    if forgets:
        history.incarnation += 1
        return "stop without the reserve"
    for queue, indexes in taken.items():
        history.queues[queue].settle_sure.update(indexes)
    return "stop"


def publish_one_by_one(port: int, history: PublisherHistory, count: int) -> None:
    """Each is confirmed before the next: a transaction of one row each."""
    with Wire(port) as wire:
        wire.open()
        wire.open_channel()
        wire.call(commands.Queue.Declare(queue=ALONE, durable=True), channel=1)
        wire.call(commands.Confirm.Select(), channel=1)
        for _ in range(count):
            sequence = history.attempt(1, time.time_ns() // 1_000_000)
            wire.send_bytes(publish_bytes(1, "", ALONE, content_of(history.name, sequence), PERSISTENT))
            wire.expect(commands.Basic.Ack)
            history.resolve(sequence, sequence, CONFIRMED)
        wire.close()


def publish_unheard(port: int, history: PublisherHistory) -> None:
    """What becomes of them is not known."""
    with Wire(port) as wire:
        wire.open()
        wire.open_channel()
        first = history.attempt(5, time.time_ns() // 1_000_000)
        for sequence in range(first, first + 5):
            wire.send_bytes(publish_bytes(1, "", ALONE, content_of(history.name, sequence), PERSISTENT))
        # There may be no answer: a connection that publishes is held back.
        wire.socket.shutdown(socket.SHUT_WR)


def take(port: int, history: QueueHistory, incarnation: int, count: int) -> list[int]:
    """Get and acknowledge at most `count`: which deliveries these were."""
    taken: list[int] = []
    with Wire(port) as wire:
        wire.open()
        wire.open_channel()
        for _ in range(min(count, depth(wire, history.name))):
            wire.send(commands.Basic.Get(queue=history.name), channel=1)
            got = wire.read_message()[1]
            publisher, sequence = parse_content(got.body)
            assert isinstance(got.method, commands.Basic.GetOk)
            taken.append(len(history.deliveries))
            history.settle_sent.add(taken[-1])
            history.deliveries.append(Delivery(publisher, sequence, bool(got.method.redelivered), incarnation))
            wire.send(commands.Basic.Ack(got.method.delivery_tag or 0), channel=1)
        depth(wire, history.name)  # its answer comes after the acknowledgements were taken
        wire.close()
    return taken
