"""Takes everything out of a broker of which nobody knows what it will give.

What comes in: a port, the data directory for the control socket, the book. What goes out: deliveries, wrong
contents and rows of `queue list` in an `Outcome`.
Rules: 1. A channel of its own for each queue, so that a queue that is fenced takes no other with it. 2. It ends
when all that is due has come and the broker reports every queue empty or fenced; or when nothing comes any more,
though queues are empty; what is left in a queue that is not fenced is a hang. 3. A body is compared byte by byte.
Not here: the judgement.
"""

from __future__ import annotations

import struct
import time
from pathlib import Path
from typing import Any

from pamqp import commands, frame

from amqpd.management.control.socket import call as control_call
from amqpd.management.control.socket import rows as control_rows
from tests.clients.wire import BODY, HEADER, METHOD, Wire, decode_method, frame_bytes

from .books import Book, body_of
from .images import HEADER as NUMBER
from .judge import Delivered, Outcome

QUIET_S = 0.25
DELAYED = "delayed messages"
HANG_S = 15.0


class Drain:
    def __init__(self, port: int, data: Path, book: Book, seen: Outcome) -> None:
        self.port, self.data, self.book, self.seen = port, data, book, seen
        self.due = {message for messages in book.due.values() for message in messages}
        self.fans = sum(map(len, book.due.values()))
        self.came = 0
        self.queues: dict[int, str] = {}
        self.contents: dict[int, list[Any]] = {}

    def run(self) -> None:
        """Raises OSError or ManagementError when the broker is gone, AssertionError when it breaks the protocol."""
        with Wire(self.port, timeout_s=HANG_S) as wire:
            wire.open()
            self._ask()
            for number, name in enumerate(sorted(self.seen.rows), 1):
                self.queues[number] = name
                self.seen.deliveries.setdefault(name, [])
                wire.send(commands.Channel.Open(), channel=number)
                wire.send(commands.Basic.Consume(queue=name, no_ack=True), channel=number)
            self._until_empty(wire)
        self._ask()

    def _until_empty(self, wire: Wire) -> None:
        wire.socket.settimeout(QUIET_S)
        last, before = time.monotonic(), -1
        while True:
            if self.came < self.fans or wire.buffer:
                try:
                    self._take(*wire.read_frame())
                    last = time.monotonic()
                    continue
                except TimeoutError:
                    pass
            if self._sync(wire):
                last = time.monotonic()
            # Twice the same: what was on its way from one queue to another has arrived.
            # And what was handed out between the last look at the socket and that answer is read.
            if self._empty() and (self.came >= self.fans or before == self.came) and not self._sync(wire):
                return
            before = self.came
            if time.monotonic() - last > HANG_S:
                left = {n: row["messages"] for n, row in self.seen.rows.items() if row["messages"]}
                self.seen.hung = f"nothing comes any more, and there is {left}"
                return

    def _sync(self, wire: Wire) -> bool:
        """Everything that the broker has sent by now is read. Whether a message was among it."""
        before = self.came
        wire.socket.settimeout(HANG_S)
        number = len(self.queues) + 1
        wire.send(commands.Channel.Open(), channel=number)
        while True:
            kind, channel, payload = wire.read_frame()
            if channel == number:
                break
            self._take(kind, channel, payload)
        wire.send(commands.Channel.Close(200, "", 0, 0), channel=number)
        while True:
            kind, channel, payload = wire.read_frame()
            if channel == number:
                break
            self._take(kind, channel, payload)
        wire.socket.settimeout(QUIET_S)
        return self.came > before

    def _empty(self) -> bool:
        self._ask()
        status = control_call(self.data, "status", {}, HANG_S) or {}
        delayed = int(status.get("messages_delayed", 0))
        fenced = [fence for fence in status.get("queues_fenced", ()) if fence["name"] == DELAYED]
        # Those that are not due yet wait behind the damage; nothing else is due for ever in an image.
        self.seen.delayed_fenced = delayed if any(map(_stopped, fenced)) else 0
        return delayed == self.seen.delayed_fenced and all(
            _stopped(row.get("fenced")) or not row["messages"] for row in self.seen.rows.values()
        )

    def _ask(self) -> None:
        rows = control_rows(self.data, "queue list", {"vhost": None}, HANG_S)
        if rows is None:
            raise ConnectionError("nobody listens on the control socket")
        self.seen.rows = {row["name"]: row for row in rows}

    def _take(self, kind: int, channel: int, payload: bytes) -> None:
        if kind == METHOD:
            method = decode_method(payload)
            if isinstance(method, commands.Basic.Deliver):
                self.contents[channel] = [method, None, 0, []]
            elif isinstance(method, commands.Connection.Close):
                raise ConnectionError(f"the broker closes: {method.reply_code} {method.reply_text}")
            # A consumer that is told of a fence, or a channel that ends with it: nothing more comes there.
        elif kind == HEADER:
            content = self.contents[channel]
            content[1] = frame.unmarshal(frame_bytes(HEADER, payload, channel))[2].properties
            content[2] = struct.unpack_from(">Q", payload, 4)[0]
            self._finish(channel)
        elif kind == BODY:
            self.contents[channel][3].append(payload)
            self._finish(channel)

    def _finish(self, channel: int) -> None:
        method, properties, size, parts = self.contents[channel]
        body = b"".join(parts)
        if len(body) < size:
            return
        del self.contents[channel]
        queue, message = self.queues[channel], str(properties.message_id)
        self.came += 1
        origin, _, number = message.rpartition(":")
        headers = properties.headers or {}
        if not number.isdigit() or body != body_of(message):
            self.seen.wrong.append(f"the body of {message} in {queue}: {body[:60]!r}")
        elif headers.get(NUMBER) != int(number) or properties.delivery_mode != 2:
            self.seen.wrong.append(f"the properties of {message} in {queue}: {properties.to_dict()}")
        elif queue not in self.book.dead_letters.values() and method.routing_key not in (origin, ""):
            self.seen.wrong.append(f"the routing key of {message} in {queue}: {method.routing_key!r}")
        self.seen.deliveries[queue].append(
            Delivered(message, int(headers.get("x-delivery-count", 0)), method.redelivered)
        )


def _stopped(fence: Any) -> bool:
    """A queue whose damage is further back goes on until it comes to it."""
    return bool(fence) and (not isinstance(fence, dict) or bool(fence.get("blocked", True)))
