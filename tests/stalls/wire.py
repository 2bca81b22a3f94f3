"""A client of raw bytes: what it sends is prepared, and of what comes it only looks for the end of each phase.

What comes in: bytes to send; bytes from the broker. What goes out: frames of methods, and whether a phase is over.
Rules: 1. The end of a phase is the answer to a basic.qos that is sent behind it: methods of a channel are answered in
order. 2. A channel or connection that the broker closes ends the phase too, and its close is answered.
Not here: what is sent (`shapes.py`, `search.py`), sockets (`rig.py`, `measure.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Any

from pamqp import base, commands, frame, header

_HEAD = Struct(">BHI")
PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
HEARTBEATS_OFF = 0
SYNC = frame.marshal(commands.Basic.Qos(), 1)
_QOS_OK = (60, 11)
_CHANNEL_CLOSE, _CONNECTION_CLOSE = (20, 40), (10, 50)


def method(value: base.Frame, channel: int = 1) -> bytes:
    return frame.marshal(value, channel)


def methods(values: Iterable[base.Frame], channel: int = 1) -> bytes:
    return b"".join(frame.marshal(value, channel) for value in values)


def publish(
    exchange: str, key: str, body: bytes = b"", channel: int = 1, mandatory: bool = False, **properties: Any
) -> bytes:
    frames = frame.marshal(commands.Basic.Publish(exchange=exchange, routing_key=key, mandatory=mandatory), channel)
    frames += frame.marshal(header.ContentHeader(0, len(body), commands.Basic.Properties(**properties)), channel)
    if body:
        frames += _HEAD.pack(3, channel, len(body)) + body + b"\xce"
    return frames


def login(vhost: str = "/") -> list[bytes]:
    """What is sent after each of the broker's answers, until channel 1 is open."""
    start_ok = commands.Connection.StartOk(
        client_properties={"capabilities": {"consumer_cancel_notify": True}},
        mechanism="PLAIN",
        response="\0guest\0guest",
    )
    return [
        PROTOCOL_HEADER,
        method(start_ok, 0),
        method(commands.Connection.TuneOk(2047, 131_072, HEARTBEATS_OFF), 0)
        + method(commands.Connection.Open(vhost), 0),
        method(commands.Channel.Open()),
    ]


class Reader:
    """Cuts what comes into frames and counts the methods that matter."""

    def __init__(self) -> None:
        self._rest = b""
        self.answers = 0
        """of basic.qos"""
        self.methods = 0
        self.closed: list[int] = []
        """channels that the broker closed; 0 is the connection"""
        self.bytes_in = 0

    def feed(self, data: bytes) -> bytes:
        """What has to be answered at once."""
        self.bytes_in += len(data)
        data = self._rest + data if self._rest else data
        at, end, answer = 0, len(data), b""
        while end - at >= 8:
            kind, channel, size = _HEAD.unpack_from(data, at)
            if end - at < size + 8:
                break
            if kind == 1:
                self.methods += 1
                named = (int.from_bytes(data[at + 7 : at + 9], "big"), int.from_bytes(data[at + 9 : at + 11], "big"))
                if named == _QOS_OK:
                    self.answers += 1
                elif named == _CHANNEL_CLOSE:
                    self.closed.append(channel)
                    answer += method(commands.Channel.CloseOk(), channel)
                elif named == _CONNECTION_CLOSE:
                    self.closed.append(0)
                    answer += method(commands.Connection.CloseOk(), 0)
            at += size + 8
        self._rest = data[at:]
        return answer
