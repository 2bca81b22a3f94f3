"""The handshake: protocol header, start, tune, open.

What comes in: the first bytes, and the connection methods start-ok, tune-ok, open; the verdict on the log-in. What
goes out: our header, start, tune, open-ok, or the refusal.
Rules: 1. Methods come in one order; another one is 503 COMMAND_INVALID. 2. Negotiation and texts as in RabbitMQ
(rabbit_reader), but frames down to 4096 bytes are allowed (AMQP 0-9-1's frame-min-size; old clients send it).
Not here: checking passwords (`security/authentication/logins.py`), everything after connection.open-ok
(`connection.py`).

Source: AMQP 0-9-1 sections 2.2.4, 4.2.2; https://www.rabbitmq.com/docs/auth-notification.
"""

from __future__ import annotations

from pamqp import base, commands
from pamqp.exceptions import AMQPCommandInvalid, AMQPConnectionForced, AMQPNotAllowed

from amqpd.session.ports import ConnectionBase
from amqpd.topology.sizes import arguments_bytes
from amqpd.wire.frames import PROTOCOL_HEADER, PROTOCOL_HEADERS, start_frame, tune_frame

FRAME_BYTES_MIN = 4096
# Until frame_max is negotiated, that is from anybody (RabbitMQ's initial_frame_max): some kilobytes of client
# properties, and a token where others have a password.
HANDSHAKE_FRAME_BYTES_MAX = 8192
# What client properties may take in memory, twice what a frame of ordinary ones does. Of larger ones, those are kept
# that operators look at.
CLIENT_PROPERTIES_BYTES_MAX = 16 * 1024
SHOWN_PROPERTIES = ("connection_name", "product", "version", "platform", "information", "copyright")
# What clients may say of themselves that matters to us.
SHUTDOWN = "broker forced connection closure with reason 'shutdown'"
CAPABILITIES = ("authentication_failure_close", "connection.blocked", "consumer_cancel_notify")


class Handshake:
    """The state of one connection before connection.open-ok."""

    def __init__(self, connection: ConnectionBase) -> None:
        self._connection = connection
        self._expected: type[base.Frame] = commands.Connection.StartOk
        self.started = False
        """start was sent: from now on the client understands connection.close"""

    def protocol_header(self, data: bytes) -> bool:
        """False while the header is not complete. A wrong one is answered with ours, and that is the end."""
        connection = self._connection
        length = len(PROTOCOL_HEADER)
        received = data[:length]
        if not any(header.startswith(received) for header in PROTOCOL_HEADERS):
            connection.shared.log("bad_protocol_header", connection=connection.name, received=repr(received))
            connection.write(PROTOCOL_HEADER)
            connection.lost()
            return True
        if len(received) < length:
            return False
        self.started = True
        connection.handshaking()
        mechanisms = "PLAIN AMQPLAIN"
        # Some clients take EXTERNAL as soon as it is offered, although they have a password (py-amqp does). So it is
        # offered to clients that it would let in; RabbitMQ offers it only where its plugin for it is enabled.
        if connection.peer.certificate_user in connection.shared.topology.users:
            mechanisms += " EXTERNAL"
        greetings = connection.shared.greetings
        greeting = greetings.get(mechanisms)
        if greeting is None:
            greeting = greetings[mechanisms] = start_frame(connection.shared.server_properties, mechanisms)
        connection.write(greeting)
        return True

    def method(self, method: base.Frame) -> None:
        if not isinstance(method, self._expected):
            raise AMQPCommandInvalid(
                f"received {method.name.lower()} where {self._expected.name.lower()} was expected"
            )
        if isinstance(method, commands.Connection.StartOk):
            self._start_ok(method)
        elif isinstance(method, commands.Connection.TuneOk):
            self._tune_ok(method)
        elif isinstance(method, commands.Connection.Open):
            self._open(method)

    def _start_ok(self, method: commands.Connection.StartOk) -> None:
        connection = self._connection
        properties = dict(method.client_properties or {})
        capabilities = properties.get("capabilities")
        known_to_us = capabilities if isinstance(capabilities, dict) else {}
        connection.capabilities = {name: known_to_us[name] for name in CAPABILITIES if name in known_to_us}
        if arguments_bytes(properties) > CLIENT_PROPERTIES_BYTES_MAX:
            # From anybody, before any log-in: empty tables take thirteen times the octets of the frame.
            shown = {name: properties[name] for name in SHOWN_PROPERTIES if isinstance(properties.get(name), str)}
            properties = {**shown, "capabilities": connection.capabilities}
        connection.client_properties = properties
        mechanism = method.mechanism or ""
        known = ("PLAIN", "AMQPLAIN") + (("EXTERNAL",) if connection.peer.certificate_user is not None else ())
        if mechanism not in known:
            raise AMQPCommandInvalid(f"unknown authentication mechanism '{mechanism}'")
        connection.auth_mechanism, response = mechanism, method.response
        connection.suspended = True
        connection.shared.services.authenticate(
            connection, mechanism, response.encode() if isinstance(response, str) else bytes(response or b"")
        )

    def authenticated(self) -> None:
        limits = self._connection.shared.limits
        self._expected = commands.Connection.TuneOk
        self._connection.write(tune_frame(limits.channel_max, limits.frame_max, limits.heartbeat_s))

    def refused(self, mechanism: str) -> None:
        connection = self._connection
        if connection.capabilities.get("authentication_failure_close"):
            text = (
                f"ACCESS_REFUSED - Login was refused using authentication mechanism {mechanism}. For details see the "
                "broker logfile."
            )
            connection.close_with(403, text)
        else:
            connection.lost()

    def _tune_ok(self, method: commands.Connection.TuneOk) -> None:
        connection = self._connection
        limits = connection.shared.limits
        frame_max, channel_max = method.frame_max or 0, method.channel_max or 0
        if frame_max and frame_max < FRAME_BYTES_MIN:
            raise _negotiation("frame_max", frame_max, "lower", "minimum", FRAME_BYTES_MIN)
        if not 0 < frame_max <= limits.frame_max:
            raise _negotiation("frame_max", frame_max, "higher", "maximum", limits.frame_max)
        if not 0 < channel_max <= limits.channel_max:
            raise _negotiation("channel_max", channel_max, "higher", "maximum", limits.channel_max)
        connection.frame_max, connection.channel_max = frame_max, channel_max
        connection.heartbeat_s = method.heartbeat or 0
        self._expected = commands.Connection.Open

    def _open(self, method: commands.Connection.Open) -> None:
        connection = self._connection
        node, vhost = connection.shared, method.virtual_host or ""
        if node.draining:
            raise AMQPConnectionForced(SHUTDOWN)
        node.client_counters.require_node()
        if vhost not in node.topology.vhosts:
            raise AMQPNotAllowed(f"vhost {vhost} not found")
        node.client_counters.require_entry(connection.user, vhost)
        if not node.access.may_enter(connection.user, vhost):
            raise AMQPNotAllowed(f"access to vhost '{vhost}' refused for user '{connection.user}'")
        connection.vhost = vhost
        connection.opened()
        connection.send(commands.Connection.OpenOk())


def _negotiation(field: str, value: int, than: str, bound: str, limit: int) -> AMQPNotAllowed:
    detail = " (no limit)" if value == 0 else ""
    return AMQPNotAllowed(f"negotiated {field} = {value}{detail} is {than} than the {bound} allowed value ({limit})")
