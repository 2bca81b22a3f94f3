"""A client without a client library: one socket, frames in and out, for what pika hides or is too slow for.

What comes in: pamqp methods, or bytes that are frames already.
What goes out: frames, methods, whole messages, in the order in which the broker sent them.
Rules: 1. Every wait has the socket's timeout; nothing is retried. 2. Heartbeats of the broker are skipped
only by `read_method` and `read_message`; nothing is sent that the test did not ask for. 3. After an error
the object is of no use any more.
Not here: pika and aio-pika, which the other tests use where they can.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from pamqp import base, body, commands, frame, header

from . import address

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
FRAME_END = 0xCE
PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
CAPABILITIES = {
    "publisher_confirms": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "authentication_failure_close": True,
}


@dataclass(slots=True)
class Message:
    method: commands.Basic.Deliver | commands.Basic.GetOk | commands.Basic.Return
    properties: commands.Basic.Properties
    body: bytes
    body_frames: int


class ClosedByBroker(ConnectionError):
    """The broker ended the stream."""


class Wire:
    def __init__(self, port: int, *, host: str = "", timeout_s: float = 120.0, tls: bool = address.TLS) -> None:
        """`host`, `tls`: others than those of the run (`address.py`)."""
        self.socket = address.connect(port, timeout_s, host, tls)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = bytearray()
        self.tune: commands.Connection.Tune | None = None
        self.server_properties: dict[str, Any] = {}

    def __enter__(self) -> Wire:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    # bytes and frames

    def send(self, *methods: base.Frame, channel: int = 0) -> None:
        self.socket.sendall(b"".join(frame.marshal(method, channel) for method in methods))

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read_frame(self) -> tuple[int, int, bytes]:
        """Type, channel, payload. Raises ClosedByBroker at the end of the stream, TimeoutError."""
        while True:
            if len(self.buffer) >= 8:
                kind, channel, size = struct.unpack_from(">BHI", self.buffer)
                if len(self.buffer) >= size + 8:
                    assert self.buffer[size + 7] == FRAME_END, "the broker sent a bad frame end"
                    payload = bytes(self.buffer[7 : size + 7])
                    del self.buffer[: size + 8]
                    return kind, channel, payload
            try:
                data = self.socket.recv(1 << 18)
            except ssl.SSLEOFError as error:
                # The ssl module says this of a stream that was reset, too.
                raise ConnectionResetError("the TLS stream was cut") from error
            if not data:
                raise ClosedByBroker(f"the broker closed; {bytes(self.buffer)!r} was left")
            self.buffer += data

    def read_method(self) -> tuple[int, Any]:
        """Channel and method of the next method frame; heartbeats are skipped, content is an error."""
        while True:
            kind, channel, payload = self.read_frame()
            if kind == HEARTBEAT:
                continue
            assert kind == METHOD, f"a method was due, not frame type {kind}"
            return channel, decode_method(payload)

    def read_message(self) -> tuple[int, Message]:
        """Channel and message; the next method must be one that carries content."""
        channel, method = self.read_method()
        assert isinstance(method, (commands.Basic.Deliver, commands.Basic.GetOk, commands.Basic.Return)), method
        kind, _, payload = self.read_frame()
        assert kind == HEADER
        content = frame.unmarshal(frame_bytes(kind, payload, channel))[2]
        assert isinstance(content, header.ContentHeader)
        parts: list[bytes] = []
        while sum(map(len, parts)) < content.body_size:
            kind, _, payload = self.read_frame()
            assert kind == BODY
            parts.append(payload)
        return channel, Message(method, content.properties, b"".join(parts), len(parts))

    def expect(self, *kinds: type) -> Any:
        """The next methods are of these kinds, in this order; returns the last one."""
        method = None
        for kind in kinds:
            method = self.read_method()[1]
            assert isinstance(method, kind), f"{kind.__name__} was due, not {described(method)}"
        return method

    def closed(self, scope: str = "channel", *, channel: int = 1) -> Any:
        """The close that comes, answers to earlier methods skipped. Only that scope (`channel`, `connection`) is
        dead: the channel can be opened again; a connection is at its end when the close is answered."""
        wanted = commands.Channel.Close if scope == "channel" else commands.Connection.Close
        while not isinstance(method := self.read_method()[1], (commands.Channel.Close, commands.Connection.Close)):
            pass
        assert isinstance(method, wanted), described(method)
        if scope == "channel":
            self.send(commands.Channel.CloseOk(), channel=channel)
            self.open_channel(channel)
        else:
            with contextlib.suppress(ConnectionError):  # some brokers do not wait for it
                self.send(commands.Connection.CloseOk())
            assert self.at_end()
        return method

    @property
    def name(self) -> str:
        """As brokers name the connection, when client and broker see the same addresses."""
        return f"{_end(self.socket.getsockname())} -> {_end(self.socket.getpeername())}"

    def at_end(self) -> bool:
        """Whether the broker closes the stream now (waits for it), with nothing left to read."""
        try:
            self.read_frame()
        except (ClosedByBroker, ConnectionResetError):
            return True
        return False

    # conversations

    def call(self, method: base.Frame, *, channel: int = 0) -> Any:
        """Send, and return the next method."""
        self.send(method, channel=channel)
        return self.read_method()[1]

    def open(
        self,
        *,
        vhost: str = "/",
        user: str = "guest",
        password: str = "guest",
        frame_max: int | None = None,
        channel_max: int | None = None,
        heartbeat_s: int = 0,
    ) -> Wire:
        """The whole handshake; asks for the broker's own limits unless told otherwise. Raises AssertionError
        with the broker's answer when it is not the expected one."""
        self.send_bytes(PROTOCOL_HEADER)
        start = self.read_method()[1]
        assert isinstance(start, commands.Connection.Start), start
        self.server_properties = dict(start.server_properties)
        login = f"\0{user}\0{password}"
        tune = self.call(commands.Connection.StartOk({"capabilities": CAPABILITIES}, "PLAIN", login))
        assert isinstance(tune, commands.Connection.Tune), described(tune)
        self.tune = tune
        self.send(
            commands.Connection.TuneOk(
                tune.channel_max if channel_max is None else channel_max,
                tune.frame_max if frame_max is None else frame_max,
                heartbeat_s,
            )
        )
        answer = self.call(commands.Connection.Open(vhost))
        assert isinstance(answer, commands.Connection.OpenOk), described(answer)
        return self

    def open_channel(self, number: int = 1) -> None:
        answer = self.call(commands.Channel.Open(), channel=number)
        assert isinstance(answer, commands.Channel.OpenOk), described(answer)

    def close(self) -> None:
        """A polite goodbye; deliveries on the way are thrown away."""
        self.send(commands.Connection.Close(200, "bye", 0, 0))
        while True:
            kind, _, payload = self.read_frame()
            if kind == METHOD and isinstance(decode_method(payload), commands.Connection.CloseOk):
                break
        self.socket.close()


def decode_method(payload: bytes) -> Any:
    return frame.unmarshal(frame_bytes(METHOD, payload, 0))[2]


def frame_bytes(kind: int, payload: bytes, channel: int = 1) -> bytes:
    """A frame by hand, for what pamqp would not send."""
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + bytes([FRAME_END])


def short_string(text: str) -> bytes:
    raw = text.encode()
    return bytes([len(raw)]) + raw


def publish_bytes(
    channel: int,
    exchange: str,
    routing_key: str,
    content: bytes,
    properties: commands.Basic.Properties | None = None,
    *,
    mandatory: bool = False,
    frame_max: int = 131072,
) -> bytes:
    """A publish as frames; frame_max counts the eight bytes around a payload too (4.2.3)."""
    piece = frame_max - 8
    frames = [
        frame.marshal(commands.Basic.Publish(0, exchange, routing_key, mandatory), channel),
        frame.marshal(header.ContentHeader(0, len(content), properties or commands.Basic.Properties()), channel),
    ]
    for start in range(0, len(content), piece):
        frames.append(frame.marshal(body.ContentBody(content[start : start + piece]), channel))
    return b"".join(frames)


def described(method: object) -> str:
    """For messages of failed tests: a close with its code and text, else the name."""
    code, text = getattr(method, "reply_code", ""), getattr(method, "reply_text", "")
    return f"{method} {code} {text}".strip()


def _end(address: tuple[Any, ...]) -> str:
    """An IPv6 address stands in brackets, as in RabbitMQ (rabbit_net.erl)."""
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
