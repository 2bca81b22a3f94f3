"""The broker's side of a connection, read by a strict client.

What comes in: the bytes that the broker sends. What goes out: events that a client acts on.
Rules, each an assertion: every frame can be parsed and is no larger than negotiated; after connection.close only
close-ok comes, after close-ok nothing; on a channel that was closed nothing comes until it is open again; content is
whole; delivery tags count from 1 on, confirms only rise.
Not here: whether an answer is the right one (`tests/connection/test_channel_rules.py`).
"""

from __future__ import annotations

import struct
from typing import Any

from pamqp import commands, frame

from tests.harness.harness import PROTOCOL_HEADER

# Section 1.2 of the reference, without those that RabbitMQ does not use either; 541 is a bug of ours.
HARD_CODES = {320, 402, 403, 501, 502, 503, 504, 505, 506, 530, 540}
SOFT_CODES = {311, 403, 404, 405, 406, 540}
Event = tuple[Any, ...]
# basic.return, deliver and get-ok: not by pamqp, for names that are not UTF-8 go from publisher to consumer too.
CONTENT_METHODS = {b"\x00\x3c\x00\x32": "Return", b"\x00\x3c\x00\x3c": "Deliver", b"\x00\x3c\x00\x47": "GetOk"}

CLOSE_OK = frame.marshal(commands.Connection.CloseOk(), 0)


class Output:
    def __init__(self) -> None:
        self.close_code: int | None = None
        """of the connection.close that the broker sent"""
        self.ended = False
        """close-ok, or a protocol header that refuses ours: nothing may follow"""
        self.soft_codes: list[int] = []
        self.counts: dict[str, int] = {}
        self._rest = b""
        self._closed_channels: set[int] = set()
        self._tags: dict[int, int] = {}
        self._confirmed: dict[int, int] = {}
        self._content: list[Any] | None = None
        """[channel, bytes of body that are still due, or None before the header]"""

    def feed(self, data: bytes, frame_max: int) -> list[Event]:
        """("deliver", channel, consumer tag, delivery tag), ("get", channel, tag or None), ("closed", channel)."""
        data = self._rest + data
        events: list[Event] = []
        if data.startswith(PROTOCOL_HEADER):
            self.ended = True
            data = data[8:]
        while data:
            assert len(data) >= 8, f"half a frame: {data!r}"
            # A client's close that came twice is answered twice, until it ends the stream.
            assert not self.ended or data.startswith(CLOSE_OK), f"something after the end: {data!r}"
            kind, channel, size = struct.unpack_from(">BHI", data)
            assert len(data) >= size + 8, "half a frame"
            assert data[size + 7] == 0xCE
            one, data = data[: size + 8], data[size + 8 :]
            if kind == 1:
                if one[7:11] in CONTENT_METHODS:
                    events += self._content_method(channel, one)
                else:
                    events += self._method(channel, frame.unmarshal(one)[2])
            elif kind == 8:
                assert (channel, size) == (0, 0)
            else:
                assert kind in (2, 3)
                assert kind == 2 or size + 8 <= frame_max, f"a body frame of {size} bytes, {frame_max} negotiated"
                self._piece(kind, channel, one)
        return events

    def _method(self, channel: int, method: Any) -> list[Event]:
        name = method.name
        self.counts[name] = self.counts.get(name, 0) + 1
        assert self._content is None, f"{name} in the middle of content"
        assert self.close_code is None or isinstance(method, commands.Connection.CloseOk), f"{name} after close"
        if isinstance(method, commands.Connection.Close):
            assert method.reply_code in HARD_CODES, (method.reply_code, method.reply_text)
            self.close_code = method.reply_code
        elif isinstance(method, commands.Connection.CloseOk):
            self.ended = True
        if channel:
            return self._channel_method(channel, method)
        assert name.startswith("Connection"), f"{name} on channel 0"
        return []

    def _channel_method(self, channel: int, method: Any) -> list[Event]:
        if isinstance(method, commands.Channel.OpenOk):
            self._closed_channels.discard(channel)
            self._tags[channel] = self._confirmed[channel] = 0
            return []
        if isinstance(method, commands.Channel.CloseOk):
            self._closed_channels.add(channel)
            return []
        assert channel in self._tags, f"{method.name} on channel {channel}, which is not open"
        assert channel not in self._closed_channels, f"{method.name} on channel {channel}, which is closed"
        if isinstance(method, commands.Channel.Close):
            assert method.reply_code in SOFT_CODES, (method.reply_code, method.reply_text)
            self.soft_codes.append(method.reply_code)
            self._closed_channels.add(channel)
            return [("closed", channel)]
        if isinstance(method, commands.Basic.Ack):
            assert method.delivery_tag > self._confirmed[channel], "confirmed twice"
            self._confirmed[channel] = method.delivery_tag
        elif isinstance(method, commands.Basic.GetEmpty):
            return [("get", channel, None)]
        return []

    def _content_method(self, channel: int, one: bytes) -> list[Event]:
        kind = CONTENT_METHODS[one[7:11]]
        name = f"Basic.{kind}"
        self.counts[name] = self.counts.get(name, 0) + 1
        assert self._content is None, f"{name} in the middle of content"
        assert self.close_code is None, f"{name} after close"
        assert channel in self._tags, f"{name} on channel {channel}, which is not open"
        assert channel not in self._closed_channels, f"{name} on channel {channel}, which is closed"
        self._content = [channel, None]
        if kind == "Return":
            assert one[11:22] == b"\x01\x38\x08NO_ROUTE"
            self._shortstrs(one, 22, 2, 0)
            return []
        consumer, at = self._shortstrs(one, 11, 1, None) if kind == "Deliver" else ([""], 11)
        tag, redelivered = struct.unpack_from(">QB", one, at)
        assert redelivered < 2
        self._shortstrs(one, at + 9, 2, 4 if kind == "GetOk" else 0)
        self._tags[channel] += 1
        assert tag == self._tags[channel], "delivery tags do not follow each other"
        return [("get", channel, tag) if kind == "GetOk" else ("deliver", channel, consumer[0], tag)]

    def _shortstrs(self, one: bytes, at: int, count: int, left: int | None) -> tuple[list[str], int]:
        """`count` short strings, after which `left` bytes are left in the payload; where they end."""
        found = []
        for _ in range(count):
            stop = at + 1 + one[at]
            found.append(one[at + 1 : stop].decode("utf-8", "replace"))
            at = stop
        assert left is None or len(one) - 1 - at == left, f"{len(one) - 1 - at} bytes behind the arguments"
        return found, at

    def _piece(self, kind: int, channel: int, one: bytes) -> None:
        assert self._content is not None, "content without a method"
        assert self._content[0] == channel, "content on another channel than its method"
        if kind == 2:
            assert self._content[1] is None, "two content headers"
            # Properties go from publisher to consumer as they are, so what they hold is not the broker's.
            class_id, weight, self._content[1] = struct.unpack_from(">HHQ", one, 7)
            assert (class_id, weight) == (60, 0)
        else:
            assert self._content[1] is not None, "content body before its header"
            self._content[1] -= len(one) - 8
            assert self._content[1] >= 0, "more body than announced"
        if self._content[1] == 0:
            self._content = None
