"""Makes images: data directories of brokers that lived, with a book of what must come out of each.

What comes in: a folder. What goes out: for each kind of image `KIND/data` (as the broker left it), `KIND/older`
(as it was at half of its lifetime), `KIND/book.json`.
Rules: 1. An image is never started again: rounds work on copies. 2. Between the older copy and the end of its
incarnation an image declares, publishes and settles, so that every file of the older copy is stale. 3. What expires
or is delayed is due before the image is used: a round waits for nothing.
Not here: what becomes of a copy (`damages.py`, `rounds.py`).
"""

from __future__ import annotations

import shutil
import struct
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pamqp import commands

from tests.clients.wire import Wire, publish_bytes

from .books import Book, body_of, message_id
from .forked import ForkedBroker

KINDS = ("stopped", "killed", "mixed", "rested", "paged")
STOPPED = ("stopped", "rested")
"""With an orderly stop, so that everything is in the databases, and nothing in a WAL; the others by SIGKILL."""
TIMED = ("mixed", "rested")
ENVIRONMENT = {"AMQPD_DISK_FREE_BYTES_MIN": "0", "AMQPD_DRAIN_TIMEOUT_S": "2"}
LIFE_MS = 1500
"""Of what expires, and of delays: longer than making the image takes, or the broker settles it before the kill."""
HEADER = "number"


def make_images(folder: Path, kinds: Iterable[str] = KINDS) -> None:
    """Those that are not there yet."""
    due = 0.0
    for kind in kinds:
        if not (folder / kind / "book.json").exists():
            shutil.rmtree(folder / kind, ignore_errors=True)
            _make(folder / kind, kind)
            if kind in TIMED:
                due = time.monotonic() + 2 * LIFE_MS / 1000
    # Rule 3: this is the one wait, for the time that was promised to the messages.
    time.sleep(max(0.0, due - time.monotonic()))


def _make(folder: Path, kind: str) -> None:
    data = folder / "data"
    data.mkdir(parents=True, mode=0o700)
    book = Book(kind, environment={**ENVIRONMENT, **_SETTINGS.get(kind, {})})
    broker = ForkedBroker(data, book.environment)
    end: Callable[[], object] = broker.terminate if kind in STOPPED else broker.kill
    try:
        broker.start()
        with Incarnation(broker.port, book) as incarnation:
            _INCARNATIONS[kind][0](incarnation)
        end()
        shutil.copytree(data, folder / "older", ignore=shutil.ignore_patterns("*.sock", "reserve"))
        broker.start()
        with Incarnation(broker.port, book) as incarnation:
            _INCARNATIONS[kind][1](incarnation)
            if kind not in STOPPED:
                broker.kill()  # while the connection is open: its end would give back what it holds
        if kind in STOPPED:
            broker.terminate()
    finally:
        broker.close()
    for left in data.glob("*.sock"):
        left.unlink()
    book.save(folder / "book.json")


class Incarnation:
    """One connection with one channel in confirm mode, which writes down what it was told."""

    def __init__(self, port: int, book: Book) -> None:
        self.book = book
        self.wire = Wire(port)
        self.confirmed = 0

    def __enter__(self) -> Incarnation:
        self.wire.open()
        self.wire.open_channel()
        self.wire.call(commands.Confirm.Select(), channel=1)
        return self

    def __exit__(self, *_: object) -> None:
        self.wire.socket.close()

    def queue(self, name: str, *, dead_letters: str = "", **arguments: Any) -> None:
        if dead_letters:
            arguments |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead_letters}
            self.book.dead_letters[name] = dead_letters
        said = {name.replace("_", "-"): value for name, value in arguments.items()}
        self.call(commands.Queue.Declare(queue=name, durable=True, arguments=said))
        self.book.due.setdefault(name, [])

    def bind(self, exchange: str, kind: str, queues: list[str]) -> None:
        self.call(commands.Exchange.Declare(exchange=exchange, exchange_type=kind, durable=True))
        for queue in queues:
            self.call(commands.Queue.Bind(queue=queue, exchange=exchange, routing_key="#"))
        self.book.bound[exchange] = queues

    def publish(
        self,
        origin: str,
        numbers: Iterable[int],
        queues: list[str] | None = None,
        exchange: str = "",
        properties: Callable[[int], dict[str, Any]] = lambda number: {},
        at_once: int = 40,
    ) -> None:
        """Publishes, `at_once` to a batch, and waits for the confirms."""
        numbers = list(numbers)
        for start in range(0, len(numbers), at_once):
            some = numbers[start : start + at_once]
            parts = []
            for number in some:
                message = message_id(origin, number)
                said = {"headers": {}, **properties(number)}
                said["headers"] = {HEADER: number, **said["headers"]}
                content = commands.Basic.Properties(delivery_mode=2, message_id=message, **said)
                parts.append(publish_bytes(1, exchange, "" if exchange else origin, body_of(message), content))
            self.wire.send_bytes(b"".join(parts))
            self._wait_confirms(len(some))
            for queue in queues or [origin]:
                self.book.due[queue] += [message_id(origin, number) for number in some]

    def settle(self, queue: str, chosen: Callable[[int], bool], *, returns: bool = False) -> None:
        """Takes everything, acknowledges what is chosen by its place in the queue, and proves it by a confirm.
        The rest goes back; that counts if `returns`."""
        due = self.book.due[queue]
        self.wire.open_channel(2)
        self.wire.send(commands.Confirm.Select(), channel=2)
        self.wire.expect(commands.Confirm.SelectOk)
        self.wire.send(commands.Basic.Consume(queue=queue), channel=2)
        self.wire.expect(commands.Basic.ConsumeOk)
        acks = []
        for place in range(len(due)):
            message = self.wire.read_message()[1]
            if chosen(place):
                acks.append(message.method.delivery_tag)
                self.book.settled.setdefault(queue, []).append(str(message.properties.message_id))
        for tag in acks:
            self.wire.send(commands.Basic.Ack(tag), channel=2)
        number = len(self.book.due["receipts"])
        message_text = message_id("receipts", number)
        content = commands.Basic.Properties(delivery_mode=2, message_id=message_text, headers={HEADER: number})
        self.wire.send_bytes(publish_bytes(2, "", "receipts", body_of(message_text), content))
        self.wire.expect(commands.Basic.Ack)
        self.book.due["receipts"].append(message_text)
        self.wire.send(commands.Channel.Close(200, "", 0, 0), channel=2)
        self.wire.expect(commands.Channel.CloseOk)
        settled = set(self.book.settled.get(queue, ()))
        self.book.due[queue] = [message for message in due if message not in settled]
        if returns:
            counts = self.book.counts.setdefault(queue, {})
            for each in self.book.due[queue]:
                counts[each] = counts.get(each, 0) + 1
        # What came back is on disk when a later commit is: this is that commit.
        self.publish("receipts", [number + 1])

    def delete(self, queue: str) -> None:
        self.call(commands.Queue.Delete(queue=queue))
        del self.book.due[queue]
        self.book.gone.append(queue)

    def purge(self, queue: str) -> None:
        """Its answer promises nothing of the disk; the confirm behind it does."""
        self.call(commands.Queue.Purge(queue=queue))
        self.book.settled.setdefault(queue, []).extend(self.book.due[queue])
        self.book.due[queue] = []
        self.publish("receipts", [len(self.book.due["receipts"])])

    def call(self, method: Any) -> None:
        answer = self.wire.call(method, channel=1)
        assert answer.name.endswith("Ok"), answer

    def _wait_confirms(self, count: int) -> None:
        target = self.confirmed + count
        while self.confirmed < target:
            _, _, payload = self.wire.read_frame()
            assert payload[:4] == b"\x00\x3c\x00\x50", f"a confirm was due: {payload[:40]!r}"
            tag, multiple = struct.unpack_from(">QB", payload, 4)
            # Alone they may come in any order; each counts once.
            self.confirmed = tag if multiple else self.confirmed + 1


def _plain(incarnation: Incarnation) -> None:
    incarnation.queue("receipts")
    incarnation.queue("plain")
    incarnation.queue("many")
    incarnation.queue("empty", x_max_length=1000)
    incarnation.queue("deleted")
    for queue in ("fan1", "fan2", "fan3"):
        incarnation.queue(queue)
    incarnation.bind("spread", "fanout", ["fan1", "fan2", "fan3"])
    incarnation.publish("plain", range(400))
    incarnation.publish("many", range(50), at_once=1)
    incarnation.publish("deleted", range(60))
    incarnation.publish("spread", range(120), ["fan1", "fan2", "fan3"], "spread")
    incarnation.settle("plain", lambda place: place < 100)


def _plain_later(incarnation: Incarnation) -> None:
    incarnation.settle("plain", lambda place: place % 7 in (2, 3))
    incarnation.settle("fan1", lambda place: place < 90)
    incarnation.delete("deleted")
    incarnation.queue("later")
    incarnation.publish("later", range(80))
    incarnation.publish("plain", range(400, 700))
    incarnation.publish("many", range(50, 80), at_once=1)
    incarnation.settle("many", lambda place: place % 3 == 0)
    incarnation.publish("plain", range(700, 760), at_once=3)


def _mixed(incarnation: Incarnation) -> None:
    incarnation.queue("receipts")
    incarnation.queue("ranked", x_max_priority=5)
    incarnation.book.unordered += ["ranked", "delayed", "expiring.dead", "counted"]
    incarnation.queue("delayed")
    incarnation.book.delayed.append("delayed")
    incarnation.queue("expiring.dead")
    incarnation.queue("expiring", dead_letters="expiring.dead")
    incarnation.queue("rejected.dead")
    incarnation.queue("rejected", dead_letters="rejected.dead")
    incarnation.queue("counted", x_queue_type="quorum", x_delivery_limit=20)
    incarnation.queue("purged")
    incarnation.queue("ranges")
    incarnation.publish("ranked", range(150), properties=lambda number: {"priority": number % 7})
    incarnation.publish("counted", range(120))
    incarnation.publish("ranges", range(300))
    incarnation.publish("purged", range(200))
    incarnation.settle("counted", lambda place: place % 10 == 0, returns=True)
    incarnation.settle("ranges", lambda place: place % 5 == 1 or 100 < place < 180)


def _mixed_later(incarnation: Incarnation) -> None:
    incarnation.queue("another")
    incarnation.publish("another", range(30))
    incarnation.settle("counted", lambda place: place % 9 == 0, returns=True)
    incarnation.settle("ranges", lambda place: place % 4 == 2)
    incarnation.settle("ranked", lambda place: place < 30)
    incarnation.publish("ranges", range(300, 420))
    incarnation.purge("purged")
    incarnation.publish("purged", range(200, 230))
    incarnation.publish("rejected", range(60))
    incarnation.publish("expiring", range(90), properties=lambda number: {"expiration": str(LIFE_MS + number)})
    incarnation.publish(
        "delayed", range(80), properties=lambda number: {"headers": {"x-delay": LIFE_MS + number * 7 % 60}}
    )
    incarnation.publish("ranges", range(420, 440), at_once=2)


def _paged(incarnation: Incarnation) -> None:
    incarnation.queue("receipts")
    incarnation.queue("backlog")
    incarnation.queue("other")
    incarnation.publish("backlog", range(1500))
    incarnation.publish("other", range(100))
    incarnation.settle("other", lambda place: place < 40)


def _paged_later(incarnation: Incarnation) -> None:
    incarnation.queue("later")
    incarnation.publish("later", range(20))
    incarnation.publish("backlog", range(1500, 2200), at_once=100)
    incarnation.settle("other", lambda place: place % 3 == 0)


_INCARNATIONS: dict[str, tuple[Callable[[Incarnation], None], Callable[[Incarnation], None]]] = {
    "stopped": (_plain, _plain_later),
    "killed": (_plain, _plain_later),
    "mixed": (_mixed, _mixed_later),
    "rested": (_mixed, _mixed_later),
    "paged": (_paged, _paged_later),
}
_SETTINGS = {
    "killed": {"AMQPD_AUDIT_LEVEL": "full"},
    "paged": {"AMQPD_QUEUE_MEMORY_BYTES": str(64 << 10), "AMQPD_BACKLOG_MEMORY_BYTES": str(1 << 20)},
}
