"""Queues that come and go beside a load, and what must be left of them after a crash.

What comes in: a port, and the records of the incarnations before. What goes out: `Passing` records; after the crash,
what is wrong with them. Rules: 1. A step is written down before it is asked for, and again when its answer has
come. 2. Deleted stays deleted when the answer has come. 3. A purge is on disk when a later publish is confirmed;
what is confirmed behind it stays. 4. In between, either is right.
Not here: the queues that the checker judges (`workload.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pamqp import commands

from ..clients.wire import Wire, described
from .workload import FRAME_MAX, PERSISTENT, Progress, Worker, content_of, parse_content, publish_bytes

MESSAGES = 15
PUBLISHER = "churn"
FATES = ("deleted", "purged", "deleted", "kept", "deleted")


@dataclass
class Passing:
    """`attempted` and `confirmed` are numbers of messages; below `purged` they are gone, if `fate` was reached."""

    name: str
    fate: str
    declared: bool = False
    asked: bool = False
    done: bool = False
    purged: int = 0
    attempted: set[int] = field(default_factory=set)
    confirmed: set[int] = field(default_factory=set)


class Churn(Worker):
    """One queue after the other: declare, publish, and then its fate."""

    name = "churn"

    def __init__(
        self, port: int, progress: Progress, violations: list[str], records: list[Passing], prefix: str = PUBLISHER
    ) -> None:
        super().__init__(port, progress, violations)
        self.records, self.prefix = records, prefix

    def work(self, wire: Wire) -> None:
        wire.call(commands.Confirm.Select(), channel=1)
        while True:
            number = len(self.records)
            record = Passing(f"{self.prefix}{number}", FATES[number % len(FATES)])
            self.records.append(record)
            self._expect(wire, commands.Queue.Declare(queue=record.name, durable=True), commands.Queue.DeclareOk)
            record.declared = True
            self._publish(wire, record, 0)
            if record.fate == "kept":
                continue
            record.asked = True
            if record.fate == "deleted":
                self._expect(wire, commands.Queue.Delete(queue=record.name), commands.Queue.DeleteOk)
            else:
                record.purged = MESSAGES
                self._expect(wire, commands.Queue.Purge(queue=record.name), commands.Queue.PurgeOk)
                self._publish(wire, record, MESSAGES)
            record.done = True

    def _publish(self, wire: Wire, record: Passing, first: int) -> None:
        for number in range(first, first + MESSAGES):
            record.attempted.add(number)
            content = content_of(PUBLISHER, number)
            wire.send_bytes(publish_bytes(1, "", record.name, content, PERSISTENT, frame_max=FRAME_MAX))
        acknowledged = 0
        while acknowledged < MESSAGES:
            method = wire.read_method()[1]
            if isinstance(method, commands.Connection.Blocked | commands.Connection.Unblocked):
                continue
            assert isinstance(method, commands.Basic.Ack), described(method)
            # Tags go on over all queues of the channel: in a batch, all are confirmed or some in order.
            tag = (method.delivery_tag - 1) % MESSAGES + 1
            acknowledged = tag if method.multiple else acknowledged + 1
        record.confirmed |= set(range(first, first + MESSAGES))

    def _expect(self, wire: Wire, method: object, answer: type) -> None:
        wire.send(method, channel=1)  # type: ignore[arg-type]
        while True:
            came = wire.read_method()[1]
            if not isinstance(came, commands.Connection.Blocked | commands.Connection.Unblocked):
                break
        assert isinstance(came, answer), described(came)


def wrong_with(port: int, records: list[Passing]) -> list[str]:
    """Looks at every queue, takes what is in it, and deletes it."""
    found = []
    with Wire(port) as wire:
        wire.open()
        for record in records:
            wire.open_channel()
            answer = wire.call(commands.Queue.Declare(queue=record.name, passive=True), channel=1)
            if not isinstance(answer, commands.Queue.DeclareOk):
                wire.send(commands.Channel.CloseOk(), channel=1)
                if record.declared and not (record.fate == "deleted" and record.asked):
                    found.append(f"{record.name} was declared, and is gone ({record.fate})")
                continue
            if record.fate == "deleted" and record.done:
                found.append(f"{record.name} was deleted, and is back")
            found += contents_wrong(record, _taken(wire, record.name, answer.message_count))
            wire.call(commands.Queue.Delete(queue=record.name), channel=1)
            wire.send(commands.Channel.Close(200, "", 0, 0), channel=1)
            wire.expect(commands.Channel.CloseOk)
    return found


def _taken(wire: Wire, queue: str, count: int) -> list[int]:
    numbers = []
    for _ in range(count):
        wire.send(commands.Basic.Get(queue=queue, no_ack=True), channel=1)
        numbers.append(parse_content(wire.read_message()[1].body)[1])
    return numbers


def contents_wrong(record: Passing, numbers: list[int]) -> list[str]:
    found = []
    came = set(numbers)
    due = record.confirmed
    if record.asked:
        due = {number for number in due if number >= record.purged} if record.fate == "purged" else set()
    if numbers != sorted(came):
        found.append(f"{record.name} gave {numbers}")
    if due - came:
        found.append(f"lost from {record.name}: {sorted(due - came)} ({record.fate})")
    if came - record.attempted:
        found.append(f"unexpected in {record.name}: {sorted(came - record.attempted)}")
    if record.fate == "purged" and record.done and any(number < record.purged for number in came):
        found.append(f"purged and back in {record.name}: {sorted(came)}")
    return found
