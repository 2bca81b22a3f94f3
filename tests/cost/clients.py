"""The clients of a counted broker: one socket each, whole buffers, no waiting.

What comes in: a rig, methods while things are prepared, then bytes. What goes out: what the broker said, by count.
Rules: a client reads all that has come before it acts, as a client on a core of its own would; deliveries of one
client have one size, or are not acknowledged.
Not here: what is sent when (`loads.py`).
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import TypeVar

from pamqp import commands, frame
from pamqp.base import Frame

from bench.encode import encode_ack
from tests.cost.rig import SOCKET_BYTES, Rig
from tests.harness.harness import PROTOCOL_HEADER

READ_BYTES = 1 << 20

Reply = TypeVar("Reply")


class Client:
    """Connected, with channel 1 open. Raises AssertionError when the broker answers something else than was due."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._rest = b""
        self.received_bytes = 0
        self.heard: list[bytes] | None = [] if rig.recording else None
        self.socket = socket.socket()
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            self.socket.setsockopt(socket.SOL_SOCKET, option, SOCKET_BYTES)
        self.socket.connect(rig.address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(PROTOCOL_HEADER)
        self._reply(commands.Connection.Start)
        start_ok = commands.Connection.StartOk(client_properties={}, mechanism="PLAIN", response="\0guest\0guest")
        tune = self.call(start_ok, commands.Connection.Tune, 0)
        self.socket.sendall(frame.marshal(commands.Connection.TuneOk(tune.channel_max, tune.frame_max, 0), 0))
        self.call(commands.Connection.Open("/"), commands.Connection.OpenOk, 0)
        self.call(commands.Channel.Open(), commands.Channel.OpenOk)

    def call(self, method: Frame, reply: type[Reply], channel: int = 1) -> Reply:
        self.socket.sendall(frame.marshal(method, channel))
        return self._reply(reply)

    def send(self, data: bytes | memoryview) -> None:
        self.socket.sendall(data)

    def read(self) -> bytes:
        """All that has come by now."""
        pieces = []
        try:
            while piece := self.socket.recv(READ_BYTES, socket.MSG_DONTWAIT):
                pieces.append(piece)
        except BlockingIOError:
            pass
        data = b"".join(pieces)
        self.received_bytes += len(data)
        if self.heard is not None:
            self.heard.append(data)
        return data

    def close(self) -> None:
        self.socket.close()

    def _reply(self, reply: type[Reply]) -> Reply:
        self._rig.turn()
        data = self._rest
        while len(data) < 7 or len(data) < 8 + int.from_bytes(data[3:7]):
            piece = self.socket.recv(READ_BYTES)
            if self.heard is not None:
                self.heard.append(piece)
            data += piece
            self._rig.turn()
        consumed, _, value = frame.unmarshal(data)
        self._rest = data[consumed:]
        assert isinstance(value, reply), f"{value.name} where {reply.__name__} was due"
        return value


class Publisher(Client):
    def __init__(self, rig: Rig, confirms: bool) -> None:
        super().__init__(rig)
        if confirms:
            self.call(commands.Confirm.Select(), commands.Confirm.SelectOk)

    def bind(self, queue: str, exchange: str, keys: Sequence[str]) -> None:
        binds = [
            frame.marshal(commands.Queue.Bind(queue=queue, exchange=exchange, routing_key=key, nowait=True), 1)
            for key in keys
        ]
        self.send(b"".join(binds))
        self.call(commands.Queue.Declare(queue=queue, passive=True), commands.Queue.DeclareOk)


class Consumer(Client):
    """Of some queues; acknowledges, after each batch, with one `multiple`, or has them acknowledged by the
    broker (0)."""

    def __init__(self, rig: Rig, queues: list[str], ack_every: int, prefetch: int, marker: bytes = b"") -> None:
        """`marker` is in each message once; without one all deliveries are of one size."""
        super().__init__(rig)
        self._ack_every = ack_every
        self._marker = marker
        self._came = 0
        """of deliveries with a marker"""
        self._cut = b""
        """what may be the beginning of one"""
        self._acked_bytes = self._acked = 0
        self._stride = 0
        if prefetch:
            self.call(commands.Basic.Qos(prefetch_count=prefetch), commands.Basic.QosOk)
        for number, queue in enumerate(queues):
            consume = commands.Basic.Consume(queue=queue, consumer_tag=f"c{number:04}", no_ack=not ack_every)
            self.call(consume, commands.Basic.ConsumeOk)

    def react(self) -> bool:
        """Take what came, acknowledge what is due; True when something was sent."""
        data = self.read()
        if not (data and self._ack_every):
            return False
        due = range(self._acked + self._ack_every, self._count(data) + 1, self._ack_every)
        if not due:
            return False
        self._acked = due[-1]
        self.send(b"".join([encode_ack(1, tag, multiple=self._ack_every > 1) for tag in due]))
        return True

    def _count(self, data: bytes) -> int:
        """Deliveries that have come."""
        if self._marker:
            data = self._cut + data
            self._came += data.count(self._marker)
            self._cut = data[1 - len(self._marker) :]
            return self._came
        if not self._stride:
            self._stride = _first_bytes(data)
        return self.received_bytes // self._stride


def _first_bytes(data: bytes) -> int:
    """Size of the first delivery: a method, a header and one body frame."""
    at = 0
    for _ in range(3):
        at += 8 + int.from_bytes(data[at + 3 : at + 7])
    return at
