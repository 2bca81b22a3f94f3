"""Exchanges: declaring, deleting, binding exchanges to exchanges."""

from __future__ import annotations

import pytest
from pamqp import base, commands

from conformance.broker import Broker
from conformance.conftest import Names
from conformance.rules import differs, rule
from conformance.talk import alive, ask, bodies, check_close, new_queue, publish, refused
from tests.clients.wire import METHOD, Wire, frame_bytes, short_string

Basic, Channel, Exchange, Queue = commands.Basic, commands.Channel, commands.Exchange, commands.Queue
TYPES = ["direct", "fanout", "topic", "headers"]


def declared(client: Wire, name: str, kind: str = "direct", **options: object) -> str:
    ask(client, Exchange.Declare(exchange=name, exchange_type=kind, **options))  # type: ignore[arg-type]
    return name


@rule("AMQP 0-9-1 section 3.1.3", "The standard exchanges are there, one for each type.")
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("amq.direct", "direct"),
        ("amq.fanout", "fanout"),
        ("amq.topic", "topic"),
        ("amq.headers", "headers"),
        ("amq.match", "headers"),
    ],
)
def test_standard_exchanges(client: Wire, name: str, kind: str) -> None:
    declared(client, name, kind, durable=True)


@rule("AMQP 0-9-1 section 1.6.2.1", "Declaring an exchange again in the same way changes nothing.")
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("durable", [True, False], ids=["durable", "transient"])
def test_declare_again(client: Wire, unique: Names, kind: str, durable: bool) -> None:
    for _ in range(2):
        declared(client, unique("x"), kind, durable=durable)


@rule("AMQP 0-9-1 section 1.6.2.1", "Declaring an exchange again in another way is refused with 406.")
@pytest.mark.parametrize(
    ("option", "text"),
    [
        ({"exchange_type": "topic"}, "inequivalent arg 'type' for {0}: received 'topic' but current is 'direct'"),
        ({"durable": True}, "inequivalent arg 'durable' for {0}: received 'true' but current is 'false'"),
        ({"auto_delete": True}, "inequivalent arg 'auto_delete' for {0}: received 'true' but current is 'false'"),
        ({"internal": True}, "inequivalent arg 'internal' for {0}: received 'true' but current is 'false'"),
        (
            {"arguments": {"alternate-exchange": "y"}},
            "inequivalent arg 'alternate-exchange' for {0}: received the value 'y' of type 'longstr' but current is "
            "none",
        ),
    ],
    ids=["type", "durable", "auto_delete", "internal", "alternate"],
)
def test_declare_otherwise(client: Wire, unique: Names, broker: Broker, option: dict, text: str) -> None:
    name = declared(client, unique("x"))
    method = Exchange.Declare(**{"exchange": name, "exchange_type": "direct", **option})
    resource = f"exchange '{name}' in vhost '{broker.vhost}'"
    refused(client, method, 406, f"PRECONDITION_FAILED - {text.format(resource)}")


@rule("AMQP 0-9-1 section 1.6.2.1", "Arguments that nobody knows are kept, and not compared.")
def test_unknown_arguments(client: Wire, unique: Names) -> None:
    declared(client, unique("x"), arguments={"x-mine": 1})
    declared(client, unique("x"), arguments={"x-mine": 2})


@rule("AMQP 0-9-1 section 1.6.2.1", "A passive declaration looks at nothing but the name.")
def test_declare_passive(client: Wire, unique: Names, broker: Broker) -> None:
    name = declared(client, unique("x"))
    declared(client, name, "topic", passive=True, durable=True)
    refused(
        client,
        Exchange.Declare(exchange=unique("missing"), passive=True),
        404,
        f"NOT_FOUND - no exchange '{unique('missing')}' in vhost '{broker.vhost}'",
    )


@rule("AMQP 0-9-1 section 1.6.2.1", "Names that begin with amq. are the broker's.")
def test_reserved_names(client: Wire) -> None:
    refused(
        client,
        Exchange.Declare(exchange="amq.mine", exchange_type="direct"),
        403,
        "ACCESS_REFUSED - exchange name 'amq.mine' contains reserved prefix 'amq.*'",
    )


@rule("AMQP 0-9-1 section 3.1.3.1", "The default exchange cannot be declared, deleted, or bound.")
@pytest.mark.parametrize(
    "method",
    [
        pytest.param(Exchange.Declare(exchange="", exchange_type="direct"), id="declare"),
        pytest.param(Exchange.Delete(exchange=""), id="delete"),
        pytest.param(Exchange.Bind(destination="amq.fanout", source=""), id="bind from"),
        pytest.param(Exchange.Bind(destination="", source="amq.fanout"), id="bind to"),
        pytest.param(Exchange.Unbind(destination="amq.fanout", source=""), id="unbind"),
    ],
)
def test_the_default_exchange_stays_as_it_is(client: Wire, method: base.Frame) -> None:
    refused(client, method, 403, "ACCESS_REFUSED - operation not permitted on the default exchange")


@rule("AMQP 0-9-1 section 1.6.2.1", "An exchange type that the broker does not have is refused.")
@differs(on="rabbitmq<4", why="503 for the connection; 4.x has 406 for the channel", asserted=True)
def test_an_unknown_type(client: Wire, unique: Names, broker: Broker) -> None:
    method = Exchange.Declare(exchange=unique("x"), exchange_type="x-unheard-of")
    if broker.is_("rabbitmq<4"):
        refused(client, method, 503, None, "connection")
    else:
        refused(client, method, 406, "PRECONDITION_FAILED - unknown exchange type 'x-unheard-of'")


@rule("AMQP 0-9-1 section 1.6.2.3", "Deleting an exchange ends it and its bindings; what is not there is no error.")
def test_delete(client: Wire, unique: Names) -> None:
    name, queue = declared(client, unique("x"), "fanout"), new_queue(client)
    ask(client, Queue.Bind(queue=queue, exchange=name))
    ask(client, Exchange.Delete(exchange=name))
    declared(client, name, "fanout")
    publish(client, name, "")
    assert bodies(client, queue) == []
    for _ in range(2):
        ask(client, Exchange.Delete(exchange=name))


@rule("AMQP 0-9-1 section 1.6.2.3", "With if-unused an exchange that has bindings stays: 406.")
def test_delete_if_unused(client: Wire, unique: Names, broker: Broker) -> None:
    name, queue = declared(client, unique("x")), new_queue(client)
    ask(client, Queue.Bind(queue=queue, exchange=name, routing_key="k"))
    text = f"PRECONDITION_FAILED - exchange '{name}' in vhost '{broker.vhost}' in use"
    refused(client, Exchange.Delete(exchange=name, if_unused=True), 406, text)
    ask(client, Queue.Unbind(queue=queue, exchange=name, routing_key="k"))
    ask(client, Exchange.Delete(exchange=name, if_unused=True))


@rule("AMQP 0-9-1 section 1.6.2.3", "The broker's own exchanges cannot be deleted: 403.")
def test_delete_a_standard_exchange(client: Wire) -> None:
    assert refused(client, Exchange.Delete(exchange="amq.topic"), 403).reply_text.startswith("ACCESS_REFUSED - ")


@rule("AMQP 0-9-1 section 1.6.2.1", "With nowait nothing is answered, and it takes effect in order.")
def test_nowait(client: Wire, unique: Names) -> None:
    name, queue = unique("x"), new_queue(client)
    client.send(
        Exchange.Declare(exchange=name, exchange_type="fanout", nowait=True),
        Queue.Bind(queue=queue, exchange=name, nowait=True),
        channel=1,
    )
    publish(client, name, "")
    assert bodies(client, queue) == [b"x"]
    client.send(Exchange.Delete(exchange=name, nowait=True), channel=1)
    assert alive(client)
    refused(client, Exchange.Declare(exchange=name, passive=True), 404)


@rule("RabbitMQ: exchanges", "An auto-delete exchange goes with its last binding, and not before its first.")
def test_auto_delete(client: Wire, unique: Names) -> None:
    name, queue = declared(client, unique("x"), auto_delete=True), new_queue(client)
    for key in ("a", "b"):
        ask(client, Queue.Bind(queue=queue, exchange=name, routing_key=key))
    ask(client, Queue.Unbind(queue=queue, exchange=name, routing_key="a"))
    ask(client, Exchange.Declare(exchange=name, passive=True))
    ask(client, Queue.Unbind(queue=queue, exchange=name, routing_key="b"))
    refused(client, Exchange.Declare(exchange=name, passive=True), 404)


@rule("RabbitMQ: exchanges", "An auto-delete exchange goes with the last queue that is bound to it.")
def test_auto_delete_with_the_queue(client: Wire, unique: Names) -> None:
    name, queue = declared(client, unique("x"), auto_delete=True), new_queue(client)
    ask(client, Queue.Bind(queue=queue, exchange=name, routing_key="k"))
    ask(client, Queue.Delete(queue=queue))
    refused(client, Exchange.Declare(exchange=name, passive=True), 404)


@rule("RabbitMQ: e2e", "An exchange can be bound to an exchange; messages go on as if published there.")
@pytest.mark.parametrize("kind", TYPES)
def test_exchange_to_exchange(client: Wire, unique: Names, kind: str) -> None:
    source, destination, queue = declared(client, unique("s"), kind), declared(client, unique("d")), new_queue(client)
    ask(client, Queue.Bind(queue=queue, exchange=destination, routing_key="k"))
    arguments = {"x-match": "all"} if kind == "headers" else {}
    ask(client, Exchange.Bind(destination=destination, source=source, routing_key="k", arguments=arguments))
    publish(client, source, "k")
    publish(client, source, "other")
    assert bodies(client, queue) == [b"x"]
    ask(client, Exchange.Unbind(destination=destination, source=source, routing_key="k", arguments=arguments))
    publish(client, source, "k")
    assert bodies(client, queue) == []


@rule("RabbitMQ: e2e", "A message goes to a queue once, by however many ways; circles of exchanges end.")
def test_circles_and_diamonds(client: Wire, unique: Names) -> None:
    a, b, queue = declared(client, unique("a"), "fanout"), declared(client, unique("b"), "fanout"), new_queue(client)
    for destination, source in ((b, a), (a, b), (a, a)):
        ask(client, Exchange.Bind(destination=destination, source=source))
    for exchange in (a, b):
        ask(client, Queue.Bind(queue=queue, exchange=exchange))
    publish(client, a, "")
    assert bodies(client, queue) == [b"x"]


@rule("RabbitMQ: e2e", "Binding exchanges that are not there is refused with 404; unbinding them is no error.")
@pytest.mark.parametrize("end", ["source", "destination"])
def test_bind_missing(client: Wire, unique: Names, broker: Broker, end: str) -> None:
    names = {"source": "amq.fanout", "destination": "amq.fanout", end: unique("missing")}
    ask(client, Exchange.Unbind(**names))
    text = f"NOT_FOUND - no exchange '{unique('missing')}' in vhost '{broker.vhost}'"
    refused(client, Exchange.Bind(**names), 404, text)


@rule("RabbitMQ: exchanges", "Nobody publishes to an internal exchange, but messages reach it from others.")
def test_internal(client: Wire, unique: Names, broker: Broker) -> None:
    inner, outer = declared(client, unique("i"), "fanout", internal=True), declared(client, unique("o"), "fanout")
    queue = new_queue(client)
    ask(client, Exchange.Bind(destination=inner, source=outer))
    ask(client, Queue.Bind(queue=queue, exchange=inner))
    publish(client, outer, "")
    assert bodies(client, queue) == [b"x"]
    publish(client, inner, "")
    text = f"ACCESS_REFUSED - cannot publish to internal exchange '{inner}' in vhost '{broker.vhost}'"
    check_close(client.closed(), 403, text)


@rule("RabbitMQ: ae", "What an exchange cannot route goes to its alternate; only when that has nowhere, it returns.")
def test_alternate_exchange(client: Wire, unique: Names) -> None:
    last = declared(client, unique("last"), "fanout")
    middle = declared(client, unique("middle"), arguments={"alternate-exchange": last})
    first = declared(client, unique("first"), arguments={"alternate-exchange": middle})
    caught, direct = new_queue(client), new_queue(client)
    ask(client, Queue.Bind(queue=direct, exchange=first, routing_key="k"))
    publish(client, first, "k", b"routed", mandatory=True)
    publish(client, first, "other", b"nowhere", mandatory=True)
    assert client.read_message()[1].body == b"nowhere"
    ask(client, Queue.Bind(queue=caught, exchange=last))
    publish(client, first, "other", b"caught", mandatory=True)
    assert (bodies(client, caught), bodies(client, direct)) == ([b"caught"], [b"routed"])


@rule("RabbitMQ: ae", "An alternate exchange that is not there is no error; the message is dropped or returned.")
def test_a_missing_alternate(client: Wire, unique: Names) -> None:
    name = declared(client, unique("x"), arguments={"alternate-exchange": unique("missing")})
    publish(client, name, "k", b"dropped")
    publish(client, name, "k", b"returned", mandatory=True)
    assert client.read_message()[1].body == b"returned"


@rule("RabbitMQ: exchanges", "Carriage returns and line feeds are no part of a name.")
def test_names_without_line_ends(client: Wire, unique: Names) -> None:
    name = short_string(unique("x") + "\r\n")
    client.send_bytes(frame_bytes(METHOD, b"\x00\x28\x00\x0a\x00\x00" + name + b"\x06direct" + bytes(5)))
    client.expect(Exchange.DeclareOk)
    ask(client, Exchange.Declare(exchange=unique("x"), passive=True))
