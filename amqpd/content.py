"""A publish whose frames arrive one by one: cut by receives, large, or interleaved with other channels' frames.

What comes in: the payloads of one channel's method, content header and content body frames, in order. What goes
out: a `Run` of one message, the same as the kernel makes of a buffer.
Rules: 1. Frames out of order are an unexpected frame (505), with RabbitMQ's texts. 2. What the kernel would not take
as a run is refused here, so the journal never holds what it could not read again. 3. What is kept is bounded by the
announced body size, which the channel checks against `message_bytes_max`.
Not here: whole publishes in one buffer (`kernel/`).

Source: AMQP 0-9-1 section 4.2.6.
"""

from __future__ import annotations

from struct import Struct

from pamqp.exceptions import AMQPFrameError, AMQPSyntaxError, AMQPUnexpectedFrame

from amqpd.kernel import Run

_HEAD = Struct(">BHI")
_CONTENT = Struct(">HHQ")
HEADER, BODY = 2, 3


class Content:
    """The publish of one channel that is not complete yet."""

    def __init__(self, channel: int, method_payload: bytes) -> None:
        self._channel = channel
        self._pieces = [_HEAD.pack(1, channel, len(method_payload)), method_payload, b"\xce"]
        self._method_size = len(method_payload) + 8
        self._header_size = 0
        self.body_size = -1
        """announced by the content header; -1 before it came"""
        self._received = 0
        self._body_frames = 0
        exchange = method_payload[6] if len(method_payload) > 8 else 255
        key_at = 7 + exchange
        if key_at >= len(method_payload) or key_at + method_payload[key_at] + 2 != len(method_payload):
            raise AMQPSyntaxError("cannot read the arguments of basic.publish")

    def add(self, kind: int, payload: bytes) -> bool:
        """Take one more frame; True when the message is complete. Raises AMQPUnexpectedFrame, AMQPFrameError."""
        if self.body_size < 0:
            self._add_header(kind, payload)
        else:
            self._add_body(kind, payload)
        if payload:
            self._pieces += (_HEAD.pack(kind, self._channel, len(payload)), payload, b"\xce")
        return self._received == self.body_size

    def _add_header(self, kind: int, payload: bytes) -> None:
        if kind != HEADER:
            raise AMQPUnexpectedFrame("expected content header for class 60, got non content header frame instead")
        if len(payload) < 14:
            raise AMQPFrameError("content header too short")
        class_id, weight, body_size = _CONTENT.unpack_from(payload)
        if class_id != 60:
            raise AMQPUnexpectedFrame(f"expected content header for class 60, got one for class {class_id} instead")
        if weight != 0:
            raise AMQPSyntaxError("content header with a weight that is not 0")
        self.body_size = body_size
        self._header_size = len(payload) + 8

    def _add_body(self, kind: int, payload: bytes) -> None:
        if kind != BODY:
            raise AMQPUnexpectedFrame("expected content body, got non content body frame instead")
        self._received += len(payload)
        self._body_frames += bool(payload)
        if self._received > self.body_size:
            raise AMQPFrameError("body larger than announced in the content header")

    def run(self) -> Run:
        data = b"".join(self._pieces)
        return Run(data, 0, len(data), 1, self._method_size, self._header_size, self.body_size, self._body_frames)
