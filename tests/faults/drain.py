"""Emptying queues into a history, and looking at what they hold without taking it.

What comes in: a port, queue names. What goes out: deliveries in the history, or `Content` lists to compare.
Rules: 1. Empty means: as many came as `queue.declare` said, and `basic.get` finds nothing after that.
2. Everything is read by one connection; nobody else may use the queues meanwhile.
Not here: the judgement (`checker.py`).
"""

from __future__ import annotations

import struct

from pamqp import commands

from ..clients.wire import METHOD, Wire, decode_method, described
from .history import Delivery, History
from .workload import DELIVER, FRAME_MAX, METHOD_ID, parse_content, read_content

Content = list[tuple[str, int, bool]]
"""(publisher, sequence, redelivered) in the order of the queue"""


def drain(port: int, history: History) -> None:
    """Take all messages of all queues; what was taken counts as settled for sure."""
    with Wire(port) as wire:
        wire.open(frame_max=FRAME_MAX)
        wire.open_channel()
        for queue in history.queues.values():
            for publisher, sequence, redelivered in _take_all(wire, queue.name, no_ack=True):
                index = len(queue.deliveries)
                queue.deliveries.append(Delivery(publisher, sequence, redelivered, history.life))
                queue.settle_sent.add(index)
                queue.settle_sure.add(index)
        wire.close()


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


def _take_all(wire: Wire, queue: str, *, no_ack: bool) -> Content:
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
            contents.append((*parse_content(read_content(wire)), bool(redelivered)))
        answer = wire.call(commands.Basic.Cancel(queue), channel=1)
        assert isinstance(answer, commands.Basic.CancelOk), f"more than {due} came: {described(answer)}"
    answer = wire.call(commands.Basic.Get(queue=queue), channel=1)
    assert isinstance(answer, commands.Basic.GetEmpty), f"more than {due} were there: {described(answer)}"
    return contents
