"""A publish whose frames arrive one by one: cut by receives, large, or interleaved with other channels' frames.

What comes in: the payloads of one channel's method, content header and content body frames, in order. What goes
out: a `Run` of one message, as the kernel makes of a buffer, but with the body in one frame.
Rules: 1. Frames out of order are an unexpected frame (505), with RabbitMQ's texts. 2. What the kernel would not take
as a run is refused here, so the journal never holds what it could not read again. 3. What is kept is bounded by the
announced body size, which the channel checks against `message_bytes_max`, and not by the number of frames.
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
# What a publish costs in memory beside its frames while it comes.
CONTENT_BYTES = 1024
# Smaller pieces of a body are put together as they come: an object for each would take more than they do.
JOINED_BYTES = 4096


class Content:
    """The publish of one channel that is not complete yet."""

    def __init__(self, channel: int, method_payload: bytes) -> None:
        self._channel = channel
        self._method = method_payload
        self._header = b""
        self._body: list[bytes | bytearray] = []
        self._body_bytes = 0
        self.charged = 0
        """bytes that the channel has charged for it (`flow/unfinished.py`)"""
        self.body_size = -1
        """announced by the content header; -1 before it came"""
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
        return self._body_bytes == self.body_size

    def _add_header(self, kind: int, payload: bytes) -> None:
        if kind != HEADER:
            raise AMQPUnexpectedFrame("expected content header for class 60, got non content header frame instead")
        if len(payload) < 14:
            raise AMQPFrameError("content header too short")
        class_id, weight, body_size = _CONTENT.unpack_from(payload)
        if class_id != 60:
            raise AMQPUnexpectedFrame(f"expected content header for class 60, got one for class {class_id} instead")
        if weight != 0:
            raise AMQPUnexpectedFrame("content header with a weight that is not 0")  # as RabbitMQ has it
        self.body_size = body_size
        self._header = payload

    def _add_body(self, kind: int, payload: bytes) -> None:
        if kind != BODY:
            raise AMQPUnexpectedFrame("expected content body, got non content body frame instead")
        self._body_bytes += len(payload)
        if self._body_bytes > self.body_size:
            raise AMQPFrameError("body larger than announced in the content header")
        if len(payload) >= JOINED_BYTES:
            self._body.append(payload)
            return
        if not self._body or not isinstance(self._body[-1], bytearray):
            self._body.append(bytearray())
        self._body[-1] += payload

    def run(self) -> Run:
        """The body is one frame, however many it came in: octets that come one by one cost no more than others."""
        channel, method, header, body_bytes = self._channel, self._method, self._header, self._body_bytes
        pieces: list[bytes | bytearray] = [
            _HEAD.pack(1, channel, len(method)),
            method,
            b"\xce",
            _HEAD.pack(2, channel, len(header)),
            header,
        ]
        if body_bytes:
            pieces += (b"\xce", _HEAD.pack(3, channel, body_bytes), *self._body)
        data = b"".join((*pieces, b"\xce"))
        return Run(data, 0, len(data), 1, len(method) + 8, len(header) + 8, body_bytes, int(body_bytes > 0))
