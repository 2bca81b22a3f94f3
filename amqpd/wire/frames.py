"""Methods on the wire, by pamqp.

What comes in: pamqp's method objects to send; payloads of method frames. What goes out: bytes; method objects.
Rules: 1. Whatever a client sends, reading raises only `AMQPHardError`s. 2. Names that clients chose are sent as they
are.
Not here: reading their arguments (`fieldtable.py`), what is said once per message (`kernel/`).
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Any, Final, cast

from pamqp import base, commands, encode, frame
from pamqp.exceptions import AMQPCommandInvalid, AMQPError, AMQPSyntaxError

from amqpd.wire.fieldtable import read_arguments

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
# The second one is of AMQP 0-9. RabbitMQ takes it for 0-9-1 (rabbit_reader), and old clients still send it.
PROTOCOL_HEADERS = (PROTOCOL_HEADER, b"AMQP\x01\x01\x00\x09")
HEARTBEAT = b"\x08\x00\x00\x00\x00\x00\x00\xce"

_HEAD: Final = Struct(">BHI")
_METHOD_ID: Final = Struct(">I")
_COUNTS: Final = Struct(">II")
_DECLARE_OK = _METHOD_ID.pack(commands.Queue.DeclareOk.index)
_NACK: Final = Struct(">BHIIQBB")
_DELETE_OK: Final = Struct(">BHIIIB")
_TUNE: Final = Struct(">BHIIHIHB")

# What every connection sends, and mostly in the same few words, is read once. A method that was read is never
# changed; those with tables are none of them, and no secrets are kept.
_REMEMBERED = frozenset(
    (
        commands.Connection.TuneOk,
        commands.Connection.Open,
        commands.Connection.Close,
        commands.Channel.Open,
        commands.Channel.Close,
        commands.Confirm.Select,
        commands.Basic.Qos,
    )
)
REMEMBERED_MAX: Final = 256
REMEMBERED_BYTES_MAX: Final = 64
_known: dict[bytes, base.Frame] = {}

# Methods that say nothing but that something is done: a connection that comes and goes is sent four of them.
_BARE: dict[type[base.Frame], bytes] = {
    method: _METHOD_ID.pack(method.index) + method().marshal()
    for method in (
        commands.Connection.OpenOk,
        commands.Connection.CloseOk,
        commands.Connection.UpdateSecretOk,
        commands.Channel.OpenOk,
        commands.Channel.CloseOk,
        commands.Confirm.SelectOk,
        commands.Basic.QosOk,
        commands.Queue.BindOk,
        commands.Queue.UnbindOk,
        commands.Exchange.DeclareOk,
        commands.Exchange.DeleteOk,
        commands.Exchange.BindOk,
        commands.Exchange.UnbindOk,
        commands.Tx.SelectOk,
        commands.Tx.CommitOk,
        commands.Tx.RollbackOk,
    )
}
# Its one argument is reserved, a long string. RabbitMQ sends an empty one, pamqp "0"; amqp-client.js reads a fixed
# number of octets.
_BARE[commands.Channel.OpenOk] = _METHOD_ID.pack(commands.Channel.OpenOk.index) + bytes(4)


def method_frame(channel: int, method: base.Frame) -> bytes:
    """The frame of a method that is not content-bearing."""
    payload = _BARE.get(type(method))
    if payload is None:
        return frame.marshal(method, channel)
    return _HEAD.pack(1, channel, len(payload)) + payload + b"\xce"


def start_frame(server_properties: Mapping[str, Any], mechanisms: str) -> bytes:
    """connection.start (section 1.4.2.1); costs some 0.1 ms."""
    start = commands.Connection.Start(0, 9, dict(server_properties), mechanisms, "en_US")
    return method_frame(0, start)


def tune_frame(channel_max: int, frame_max: int, heartbeat_s: int) -> bytes:
    """connection.tune (section 1.4.2.5)."""
    return _TUNE.pack(1, 0, 12, commands.Connection.Tune.index, channel_max, frame_max, heartbeat_s, 0xCE)


def delete_ok_frame(channel: int, messages: int) -> bytes:
    """queue.delete-ok."""
    return _DELETE_OK.pack(1, channel, 8, commands.Queue.DeleteOk.index, messages, 0xCE)


def declare_ok_frame(channel: int, queue: str, messages: int, consumers: int) -> bytes:
    """queue.declare-ok. Not by pamqp, which refuses to send names with characters that AMQP 0-9-1 does not list
    for names, though RabbitMQ takes any."""
    payload = _DECLARE_OK + encode.short_string(queue) + _COUNTS.pack(messages, consumers)
    return _HEAD.pack(1, channel, len(payload)) + payload + b"\xce"


def nack_frame(channel: int, delivery_tag: int) -> bytes:
    """basic.nack, as the refusal of a publish."""
    return _NACK.pack(1, channel, 13, 0x003C0078, delivery_tag, 0, 0xCE)


def read_method(payload: bytes) -> base.Frame:
    """The method in the payload of a method frame. Raises AMQPCommandInvalid for a method that AMQP 0-9-1 does not
    have, AMQPSyntaxError when its arguments cannot be read (sections 2.3.5.1 and 4.2.4)."""
    known = _known.get(payload)
    if known is not None:
        return known
    if len(payload) < 4:
        raise AMQPSyntaxError("method frame too short")
    method_class = commands.INDEX_MAPPING.get(_METHOD_ID.unpack_from(payload)[0])
    if method_class is None:
        class_id, method_id = payload[0] << 8 | payload[1], payload[2] << 8 | payload[3]
        raise AMQPCommandInvalid(f"unknown method {class_id}.{method_id}")
    # The mapping's values are the classes of methods; pamqp types them as plain frames. Their constructors set
    # defaults, and warn of what is deprecated: neither is wanted for what a client sent.
    method_type = cast("type[base.Frame]", method_class)
    method = method_type.__new__(method_type)
    try:
        read_arguments(method, payload)
    except ValueError as error:
        raise AMQPSyntaxError(f"cannot read the arguments of {method.name.lower()}") from error
    if method_type in _REMEMBERED and len(payload) <= REMEMBERED_BYTES_MAX:
        if len(_known) >= REMEMBERED_MAX:
            _known.clear()
        _known[payload] = method
    return method


def reply_text(error: AMQPError) -> str:
    """`NAME - explanation`, as RabbitMQ words it; at most 255 bytes, what a short string holds."""
    # pamqp gives name and value to each of its exception classes, not to their base.
    name: str = getattr(error, "name", "INTERNAL-ERROR")
    explanation = str(error.args[0]) if error.args else ""
    text = name.replace("-", "_") + (f" - {explanation}" if explanation else "")
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= 255:
        return text.encode("utf-8", "replace").decode()
    return encoded[:252].decode("utf-8", "ignore") + "..."
