"""A connection of the generator: handshake and calls by pamqp, then the bare socket for a role.

What comes in: an `amqp://` or `amqps://` address. What goes out: an open connection and `socket`. Rules: 1. before
measuring everything is a call with its reply, under a deadline; 2. the connection announces no capability
that lets a broker send frames unasked (blocked, cancel), and no heartbeat; 3. `take_rest` hands over what was
read beyond the last reply, it is never dropped.
Not here: publishing and consuming (`roles/`).
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from pamqp import commands, frame
from pamqp.base import Frame
from pamqp.common import FieldTable
from pamqp.header import ProtocolHeader

from bench.errors import BenchError, name_of_frame
from bench.tls import TlsSocket, client_context

CLOSE_SECONDS_MAX = 5.0
CALL_SECONDS_MAX = 60.0
"""One call's reply; generous, as a broker may hash a password slowly under a storm of connections."""

Reply = TypeVar("Reply")
Socket = socket.socket | TlsSocket
"""What roles send to and receive from; the same calls."""

_CLOSE_OK = frame.marshal(commands.Connection.CloseOk(), 0)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a broker is; from `amqp://user:password@host:port/vhost` with RabbitMQ's defaults.

    `amqps://` is TLS, and takes two of RabbitMQ's parameters: `?cacertfile=FILE` to trust, `?verify=verify_none`
    (https://www.rabbitmq.com/docs/uri-query-parameters)."""

    host: str
    port: int
    user: str
    password: str
    vhost: str
    tls: bool = False
    cacertfile: str | None = None
    verify: bool = True

    @classmethod
    def parse(cls, url: str) -> Address:
        """Raises ValueError for another scheme than amqp and amqps, and for parameters that it does not know."""
        parts = urlsplit(url)
        if parts.scheme not in ("amqp", "amqps") or not parts.hostname:
            raise ValueError(f"not an amqp:// or amqps:// address: {url}")
        tls = parts.scheme == "amqps"
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        unknown = query.keys() - ({"cacertfile", "verify"} if tls else set())
        if unknown or query.get("verify", "verify_peer") not in ("verify_peer", "verify_none"):
            raise ValueError(f"an address with parameters that are not understood: {url}")
        vhost = unquote(parts.path[1:]) if len(parts.path) > 1 else "/"
        user, password = unquote(parts.username or "guest"), unquote(parts.password or "guest")
        port = parts.port or (5671 if tls else 5672)
        verify = query.get("verify") != "verify_none"
        return cls(parts.hostname, port, user, password, vhost, tls, query.get("cacertfile"), verify)


def connect(address: Address, seconds_max: float) -> Socket:
    """A connected socket, after the TLS handshake if there is one. Raises OSError (ssl.SSLError is one)."""
    raw = socket.create_connection((address.host, address.port), timeout=seconds_max)
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not address.tls:
        return raw
    try:
        return TlsSocket(raw, client_context(address.cacertfile, verify=address.verify), address.host)
    except BaseException:
        raw.close()
        raise


class Wire:
    """One open connection; channel 1 is open too. A context manager that closes it politely.

    Raises BenchError if the broker refuses or does not answer in time, OSError if it cannot be reached."""

    def __init__(self, url: str, *, call_seconds_max: float = CALL_SECONDS_MAX) -> None:
        address = Address.parse(url)
        self.socket = connect(address, call_seconds_max)
        self.server_properties: dict[str, object] = {}
        self._received = bytearray()
        self._call_seconds_max = call_seconds_max
        try:
            self._open(address)
        except BaseException:
            self.socket.close()
            raise

    def _open(self, address: Address) -> None:
        self.socket.sendall(ProtocolHeader(0, 9, 1).marshal())
        start = self._reply(commands.Connection.Start)
        self.server_properties = dict(start.server_properties)
        response = f"\0{address.user}\0{address.password}"
        properties: FieldTable = {
            "product": "amqpd bench",
            "capabilities": {"authentication_failure_close": True},
        }
        tune = self.call(
            commands.Connection.StartOk(client_properties=properties, mechanism="PLAIN", response=response),
            commands.Connection.Tune,
            channel=0,
        )
        self.frame_bytes_max = min(tune.frame_max or 131_072, 131_072)
        self.send(commands.Connection.TuneOk(tune.channel_max, self.frame_bytes_max, 0), channel=0)
        self.call(commands.Connection.Open(address.vhost), commands.Connection.OpenOk, channel=0)
        self.call(commands.Channel.Open(), commands.Channel.OpenOk)

    def send(self, method: Frame, channel: int = 1) -> None:
        self.socket.sendall(frame.marshal(method, channel))

    def call(self, method: Frame, reply: type[Reply], channel: int = 1) -> Reply:
        """Send `method`, wait for the frame of type `reply` and return it."""
        self.send(method, channel)
        return self._reply(reply)

    def _reply(self, reply: type[Reply]) -> Reply:
        while True:
            data = self._received
            if len(data) >= 7:
                size = 7 + int.from_bytes(data[3:7]) + 1
                if data[:4] == b"AMQP":
                    raise BenchError(f"the broker wants another protocol: {bytes(data[:8])!r}")
                if len(data) >= size:
                    one = bytes(data[:size])
                    del data[:size]
                    value = frame.unmarshal(one)[2]
                    if isinstance(value, reply):
                        return value
                    if one[0] != 8:
                        raise BenchError(f"{reply.__name__} was due, came {name_of_frame(one)}")
                    continue
            try:
                chunk = self.socket.recv(65_536)
            except TimeoutError:
                raise BenchError(f"no {reply.__name__} within {self._call_seconds_max:g} s") from None
            if not chunk:
                raise BenchError(f"the broker closed the connection, {reply.__name__} was due")
            data += chunk

    def take_rest(self) -> bytes:
        """What came after the last reply; the caller owns it and everything that follows on the socket."""
        rest = bytes(self._received)
        self._received.clear()
        return rest

    def set_wake_seconds(self, wake_s: float) -> None:
        """Let the blocking socket give up after `wake_s` (BlockingIOError), so that a role can look at the
        clock.

        By SO_RCVTIMEO and SO_SNDTIMEO: a Python timeout would cost a poll() before every call."""
        self.socket.setblocking(True)
        value = struct.pack("ll", int(wake_s), int(wake_s % 1 * 1e6))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, value)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, value)

    def set_receive_bytes_min(self, size: int) -> None:
        """Wake a blocked receive only for `size` bytes or more, or when the wake time is over.

        By SO_RCVLOWAT. A broker that sends deliveries one by one would otherwise wake its consumer for each,
        and on a machine with few cores it is the broker that pays for the consumer's wake-ups."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)

    def close(self) -> None:
        """`connection.close` with its reply; deliveries on the way are skipped."""
        self.set_receive_bytes_min(1)
        self.socket.settimeout(CLOSE_SECONDS_MAX)
        try:
            self.send(commands.Connection.Close(200, "", 0, 0), channel=0)
            # RabbitMQ waits for the client to close the socket, so its own end of it is not what to wait for.
            tail = b""
            while not tail.endswith(_CLOSE_OK) and (chunk := self.socket.recv(65_536)):
                tail = (tail + chunk)[-len(_CLOSE_OK) :]
        except OSError:
            pass  # the broker may reset instead; all counts were checked before
        self.socket.close()

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
