"""Emptying queues into a history, and looking at what they hold without taking it.

What comes in: a port, queue names. What goes out: deliveries in the history, or `Content` lists to compare.
Rules: 1. Empty means: as many came as `queue.declare` said, and `basic.get` finds nothing after that.
2. Everything is read by one connection; nobody else may use the queues meanwhile.
Not here: the judgement (`checker.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Collection

from pamqp import commands

from ..clients.wire import METHOD, Wire, decode_method, described, publish_bytes
from .fates import FATES, LIFE_MS_MAX
from .history import Delivery, History, QueueHistory
from .workload import DELIVER, FRAME_MAX, METHOD_ID, note_arrival, parse_content, read_content

CLOCK = "clock"
REST_MS = 200
RESTS_MAX = 50

Content = list[tuple[str, int, bool]]
"""(publisher, sequence, redelivered) in the order of the queue"""


def drain(port: int, history: History, queues: Collection[str] | None = None) -> None:
    """Take all messages of these queues, or of all; what was taken counts as settled for sure."""
    with Wire(port) as wire:
        wire.open(frame_max=FRAME_MAX)
        wire.open_channel()
        for queue in history.queues.values():
            if queues is not None and queue.name not in queues:
                continue
            rank = None
            for publisher, sequence, redelivered in _take_all(wire, queue.name, no_ack=True, history=queue):
                if queue.rank_of is not None:
                    before, rank = rank, queue.rank_of(sequence)
                    if before is not None and rank > before:
                        queue.violations.append(f"{sequence} of rank {rank} came behind {before}")
                index = len(queue.deliveries)
                queue.deliveries.append(Delivery(publisher, sequence, redelivered, history.incarnation))
                queue.settle_sent.add(index)
                queue.settle_sure.add(index)
        wire.close()


def wait_for_rest(port: int) -> None:
    """Until everything that the fates promise is over: what expires has expired, what was delayed has arrived.

    A delayed message is the clock: it comes when the longest history of a message that was published before it is
    over, and then once more, until no queue changes meanwhile."""
    names = [fate.queue for fate in FATES] + [fate.dead for fate in FATES if fate.dead]
    with Wire(port) as wire:
        wire.open(frame_max=FRAME_MAX)
        wire.open_channel()
        before: list[int] | None = None
        for _ in range(RESTS_MAX):
            properties = commands.Basic.Properties(
                headers={"x-delay": LIFE_MS_MAX + 1 if before is None else REST_MS}
            )
            wire.send_bytes(publish_bytes(1, "", CLOCK, b"over", properties))
            wire.send(commands.Basic.Consume(queue=CLOCK, consumer_tag=CLOCK, no_ack=True), channel=1)
            wire.expect(commands.Basic.ConsumeOk)
            wire.read_message()
            wire.call(commands.Basic.Cancel(CLOCK), channel=1)
            depths = [depth(wire, name) for name in names]
            expiring = [depth(wire, fate.queue) for fate in FATES if fate.life_ms is not None and fate.dead]
            if depths == before and not any(expiring):
                wire.close()
                return
            before = depths
    raise AssertionError(f"still not at rest: {dict(zip(names, before or [], strict=True))}")


def look(port: int, queues: list[str]) -> dict[str, Content]:
    """What the queues hold. They keep it, marked as redelivered, when the connection closes."""
    contents: dict[str, Content] = {}
    with Wire(port) as wire:
        wire.open(frame_max=FRAME_MAX)
        wire.open_channel()
        for queue in queues:
            contents[queue] = _take_all(wire, queue, no_ack=False)
        wire.close()
    return contents


def depth(wire: Wire, queue: str) -> int:
    answer = wire.call(commands.Queue.Declare(queue=queue, passive=True), channel=1)
    assert isinstance(answer, commands.Queue.DeclareOk), described(answer)
    return int(answer.message_count)


def _take_all(wire: Wire, queue: str, *, no_ack: bool, history: QueueHistory | None = None) -> Content:
    due = depth(wire, queue)
    contents: Content = []
    if due:
        wire.send(commands.Basic.Consume(queue=queue, consumer_tag=queue, no_ack=no_ack), channel=1)
        while len(contents) < due:
            kind, _, payload = wire.read_frame()
            if kind != METHOD:
                continue
            if METHOD_ID.unpack_from(payload) != DELIVER:
                method = decode_method(payload)
                assert isinstance(method, commands.Basic.ConsumeOk), described(method)
                continue
            redelivered = struct.unpack_from(">B", payload, 5 + payload[4] + 8)[0]
            head, content = read_content(wire)
            publisher, sequence = parse_content(content)
            if history is not None:
                note_arrival(history, publisher, sequence, head)
            contents.append((publisher, sequence, bool(redelivered)))
        answer = wire.call(commands.Basic.Cancel(queue), channel=1)
        assert isinstance(answer, commands.Basic.CancelOk), f"more than {due} came: {described(answer)}"
    answer = wire.call(commands.Basic.Get(queue=queue), channel=1)
    assert isinstance(answer, commands.Basic.GetEmpty), f"more than {due} were there: {described(answer)}"
    return contents
