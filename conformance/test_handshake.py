"""Connection: the handshake, from the protocol header to open."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands, encode

from conformance.broker import Broker
from conformance.conftest import OpenWire
from conformance.rules import differs, rule
from conformance.talk import check_close
from tests.clients.wire import CAPABILITIES, PROTOCOL_HEADER, Wire, described

Connection = commands.Connection
# RabbitMQ waits three seconds before it tells of a refused log-in, or of anything else before connection.open.
SILENT = "before connection.open it drops the socket, three seconds later, and says nothing"


def started(bare: Wire) -> Any:
    bare.send_bytes(PROTOCOL_HEADER)
    return bare.expect(Connection.Start)


def header_of(bare: Wire) -> bytes:
    """The eight bytes that come; a TLS socket does not wait for all of them by itself."""
    received = b""
    while len(received) < 8 and (piece := bare.socket.recv(8 - len(received))):
        received += piece
    return received


def tuned(bare: Wire, broker: Broker, **capabilities: bool) -> Any:
    started(bare)
    login = f"\0{broker.user}\0{broker.password}"
    bare.send(Connection.StartOk({"capabilities": capabilities or CAPABILITIES}, "PLAIN", login))
    return bare.expect(Connection.Tune)


@rule("AMQP 0-9-1 section 4.2.2", "A wrong protocol header is answered with the right one, and the end.")
@pytest.mark.parametrize(
    "header",
    [
        pytest.param(b"GET / HT", id="http"),
        pytest.param(b"AMQP\x00\x00\x08\x00", id="0-8"),
        pytest.param(b"AMQP\x01\x01\x00\x0a", id="0-10"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01", id="tls"),
    ],
)
def test_a_wrong_protocol_header(wire: OpenWire, header: bytes) -> None:
    bare = wire(handshake=False)
    bare.send_bytes(header)
    assert header_of(bare) == PROTOCOL_HEADER
    assert bare.at_end()


@rule("AMQP 0-9-1 section 4.2.2", "The protocol header of AMQP 1.0 is not ours.")
def test_the_header_of_amqp_1_0(wire: OpenWire) -> None:
    bare = wire(handshake=False)
    bare.send_bytes(b"AMQP\x00\x01\x00\x00")
    assert header_of(bare) == PROTOCOL_HEADER
    assert bare.at_end()


@rule("AMQP 0-9-1 section 4.2.2", "The header of AMQP 0-9, which old clients send, begins a 0-9-1 connection.")
def test_the_header_of_amqp_0_9(wire: OpenWire) -> None:
    bare = wire(handshake=False)
    bare.send_bytes(b"AMQP\x01\x01\x00\x09")
    start = bare.expect(Connection.Start)
    assert (start.version_major, start.version_minor) == (0, 9)


@rule("AMQP 0-9-1 section 4.2.2", "The protocol header may come octet by octet.")
def test_a_protocol_header_in_pieces(wire: OpenWire) -> None:
    bare = wire(handshake=False)
    for at in range(len(PROTOCOL_HEADER)):
        bare.send_bytes(PROTOCOL_HEADER[at : at + 1])
    bare.expect(Connection.Start)


@rule("AMQP 0-9-1 section 1.4.2.1", "connection.start has version 0-9, PLAIN and AMQPLAIN, and en_US.")
def test_start(wire: OpenWire) -> None:
    start = started(wire(handshake=False))
    assert (start.version_major, start.version_minor) == (0, 9)
    assert {"PLAIN", "AMQPLAIN"} <= set(start.mechanisms.split())
    assert "en_US" in start.locales.split()


@rule("AMQP 0-9-1 section 1.4.2.1", "The server's properties name product, version, platform and what it is.")
@pytest.mark.parametrize("name", ["product", "version", "platform", "information", "copyright"])
@differs(on="amqpd", why="it has no copyright line; what clients look at is there", asserted=True)
def test_server_properties(wire: OpenWire, broker: Broker, name: str) -> None:
    properties = started(wire(handshake=False)).server_properties
    if name == "copyright" and broker.name == "amqpd":
        assert name not in properties
    else:
        assert isinstance(properties[name], str)
        assert properties[name]


@rule("RabbitMQ: consumers#capabilities", "The server announces its extensions as capabilities.")
@pytest.mark.parametrize(
    "capability",
    [
        "publisher_confirms",
        "exchange_exchange_bindings",
        "basic.nack",
        "consumer_cancel_notify",
        "connection.blocked",
        pytest.param("consumer_priorities", id="consumer_priorities"),
        "authentication_failure_close",
        "per_consumer_qos",
        pytest.param("direct_reply_to", id="direct_reply_to"),
    ],
)
def test_capabilities(wire: OpenWire, capability: str) -> None:
    assert started(wire(handshake=False)).server_properties["capabilities"][capability] is True


@rule("RabbitMQ: access-control#mechanisms", "PLAIN takes two texts behind zero octets, AMQPLAIN a table.")
@pytest.mark.parametrize("mechanism", ["PLAIN", "AMQPLAIN"])
def test_mechanisms(wire: OpenWire, broker: Broker, mechanism: str) -> None:
    bare = wire(handshake=False)
    started(bare)
    response = f"\0{broker.user}\0{broker.password}"
    if mechanism == "AMQPLAIN":
        table = encode.field_table({"LOGIN": broker.user, "PASSWORD": broker.password})
        response = table[4:].decode("latin-1")
    bare.send(Connection.StartOk({}, mechanism, response))
    bare.expect(Connection.Tune)


@rule("RabbitMQ: auth-notification", "A refused log-in is told to a client that says it understands.")
@pytest.mark.parametrize("mechanism", ["PLAIN", "AMQPLAIN"])
def test_a_refused_login(wire: OpenWire, broker: Broker, mechanism: str) -> None:
    bare = wire(handshake=False)
    started(bare)
    response = f"\0{broker.user}\0not {broker.password}"
    if mechanism == "AMQPLAIN":
        table = encode.field_table({"LOGIN": broker.user, "PASSWORD": "not the password"})
        response = table[4:].decode("latin-1")
    bare.send(Connection.StartOk({"capabilities": {"authentication_failure_close": True}}, mechanism, response))
    close = bare.closed("connection")
    check_close(
        close,
        403,
        f"ACCESS_REFUSED - Login was refused using authentication mechanism {mechanism}. For details see the broker "
        "logfile.",
    )
    assert (close.class_id, close.method_id) == (0, 0)


@rule("AMQP 0-9-1 section 2.2.4", "A client that does not say so finds the socket closed after a refused log-in.")
def test_a_refused_login_in_silence(wire: OpenWire, broker: Broker) -> None:
    bare = wire(handshake=False)
    started(bare)
    bare.send(Connection.StartOk({}, "PLAIN", f"\0{broker.user}\0not {broker.password}"))
    assert bare.at_end()


@rule("AMQP 0-9-1 section 1.4.2.2", "A mechanism that was not offered is refused.")
@differs(on="rabbitmq", why=SILENT, asserted=True)
def test_an_unknown_mechanism(wire: OpenWire, broker: Broker) -> None:
    bare = wire(handshake=False)
    started(bare)
    bare.send(Connection.StartOk({}, "MAGIC", "please"))
    if broker.name == "rabbitmq":
        assert bare.at_end()
    else:
        check_close(bare.closed("connection"), 503, "COMMAND_INVALID - unknown authentication mechanism 'MAGIC'")


@rule("AMQP 0-9-1 section 1.4.2.5", "The broker proposes 2047 channels, frames of 128 KiB and a heartbeat of 60 s.")
def test_tune(wire: OpenWire) -> None:
    tune = wire().tune
    assert tune is not None
    assert (tune.channel_max, tune.frame_max, tune.heartbeat) == (2047, 131072, 60)


@rule("AMQP 0-9-1 section 1.4.2.6", "tune-ok above what was proposed, or below the smallest frame, is refused.")
@pytest.mark.parametrize(
    ("channel_max", "frame_max", "text"),
    [
        pytest.param(
            2047,
            1 << 20,
            "negotiated frame_max = 1048576 is higher than the maximum allowed value (131072)",
            id="larger frames",
        ),
        pytest.param(
            2048,
            131072,
            "negotiated channel_max = 2048 is higher than the maximum allowed value (2047)",
            id="more channels",
        ),
        pytest.param(
            2047,
            0,
            "negotiated frame_max = 0 (no limit) is higher than the maximum allowed value (131072)",
            id="frames without limit",
        ),
        pytest.param(
            0,
            131072,
            "negotiated channel_max = 0 (no limit) is higher than the maximum allowed value (2047)",
            id="channels without limit",
        ),
        pytest.param(
            2047,
            4095,
            "negotiated frame_max = 4095 is lower than the minimum allowed value (4096)",
            id="smaller than frame-min-size",
        ),
    ],
)
@differs(on="rabbitmq", why=SILENT, asserted=True)
def test_limits_are_refused(wire: OpenWire, broker: Broker, channel_max: int, frame_max: int, text: str) -> None:
    bare = wire(handshake=False)
    tuned(bare, broker)
    bare.send(Connection.TuneOk(channel_max, frame_max, 0))
    if broker.name == "rabbitmq":
        assert bare.at_end()
    else:
        check_close(bare.closed("connection"), 530, f"NOT_ALLOWED - {text}")


@rule("AMQP 0-9-1 section 1.4.2.6", "A client may ask for less than was proposed, down to frames of 4096 octets.")
@pytest.mark.parametrize("frame_max", [4096, 8192, 131072])
@pytest.mark.parametrize("channel_max", [1, 2047])
def test_smaller_limits(wire: OpenWire, frame_max: int, channel_max: int) -> None:
    client = wire(frame_max=frame_max, channel_max=channel_max)
    client.open_channel(channel_max)
    client.close()


@rule("AMQP 0-9-1 section 1.4.2.7", "A virtual host that is not there is refused with 530.")
def test_an_unknown_vhost(wire: OpenWire, broker: Broker) -> None:
    for vhost in ("nowhere", ""):
        bare = wire(handshake=False)
        tune = tuned(bare, broker)
        bare.send(Connection.TuneOk(tune.channel_max, tune.frame_max, 0), Connection.Open(vhost))
        close = bare.closed("connection")
        check_close(close, 530, f"NOT_ALLOWED - vhost {vhost} not found")
        assert (close.class_id, close.method_id) == (10, 40)


@rule("AMQP 0-9-1 section 2.2.4", "A method of the handshake that is not due ends the connection.")
@pytest.mark.parametrize(
    "method",
    [
        pytest.param(Connection.TuneOk(2047, 131072, 0), id="tune-ok"),
        pytest.param(Connection.Open("/"), id="open"),
        pytest.param(Connection.SecureOk("x"), id="secure-ok"),
    ],
)
@differs(on="rabbitmq", why=SILENT, asserted=True)
def test_a_method_that_is_not_due(wire: OpenWire, broker: Broker, method: Any) -> None:
    bare = wire(handshake=False)
    started(bare)
    bare.send(method)
    if broker.name == "rabbitmq":
        assert bare.at_end()
    else:
        assert bare.closed("connection").reply_code == 503


@rule("AMQP 0-9-1 section 2.2.4", "A frame on another channel than 0 before connection.open ends the connection.")
@differs(on="rabbitmq", why=SILENT, asserted=True)
def test_a_channel_before_open(wire: OpenWire, broker: Broker) -> None:
    bare = wire(handshake=False)
    tuned(bare, broker)
    bare.send(commands.Channel.Open(), channel=1)
    if broker.name == "rabbitmq":
        assert bare.at_end()
    else:
        assert bare.closed("connection").reply_code == 504


@rule("AMQP 0-9-1 section 2.2.4", "The whole handshake may come at once, before any answer.")
def test_a_handshake_in_one_piece(wire: OpenWire, broker: Broker) -> None:
    bare = wire(handshake=False)
    bare.send_bytes(PROTOCOL_HEADER)
    bare.send(
        Connection.StartOk({}, "PLAIN", f"\0{broker.user}\0{broker.password}"),
        Connection.TuneOk(10, 131072, 0),
        Connection.Open(broker.vhost),
    )
    bare.send(commands.Channel.Open(), channel=1)
    bare.expect(Connection.Start, Connection.Tune, Connection.OpenOk, commands.Channel.OpenOk)


@rule("AMQP 0-9-1 section 1.4.2.2", "The client's properties may hold any table.")
def test_client_properties(wire: OpenWire, broker: Broker) -> None:
    bare = wire(handshake=False)
    started(bare)
    properties = {"product": "snö", "deep": {"a": [1, {"b": None}]}, "capabilities": {"unheard.of": True}}
    bare.send(Connection.StartOk(properties, "PLAIN", f"\0{broker.user}\0{broker.password}"))  # type: ignore[arg-type]
    tune = bare.read_method()[1]
    assert isinstance(tune, Connection.Tune), described(tune)
