"""Errors: the code, the text and the scope that client libraries and their users' code look at.

The texts are RabbitMQ's. Where 3.10 (Debian's, which proves these tests) and 4.x differ, amqpd follows 4.x,
and the case says so. A `connection.close` or `channel.close` names the class and method that it is about.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pika
import pytest
from pamqp import base, commands

from .wire import Wire, publish_bytes

Channel, Queue, Exchange, Basic = commands.Channel, commands.Queue, commands.Exchange, commands.Basic


@dataclass
class Case:
    """What is sent on an open channel, and the close that must come. `:queue:` and so on stand for names of
    the test: a queue, an exchange, a queue that is exclusive to another connection, and nothing."""

    name: str
    methods: list[base.Frame]
    code: int
    text: str
    scope: str = "channel"


PASSIVE = Queue.Declare(queue=":missing:", passive=True)
CASES = [
    Case("declare passive", [PASSIVE], 404, "NOT_FOUND - no queue ':missing:' in vhost '/'"),
    Case("consume", [Basic.Consume(queue=":missing:")], 404, "NOT_FOUND - no queue ':missing:' in vhost '/'"),
    Case("get", [Basic.Get(queue=":missing:")], 404, "NOT_FOUND - no queue ':missing:' in vhost '/'"),
    Case("purge", [Queue.Purge(queue=":missing:")], 404, "NOT_FOUND - no queue ':missing:' in vhost '/'"),
    Case(
        "exchange declare passive",
        [Exchange.Declare(exchange=":missing:", passive=True)],
        404,
        "NOT_FOUND - no exchange ':missing:' in vhost '/'",
    ),
    Case(
        "bind to a missing exchange",
        [Queue.Bind(queue=":queue:", exchange=":missing:", routing_key="k")],
        404,
        "NOT_FOUND - no exchange ':missing:' in vhost '/'",
    ),
    Case(
        "bind a missing queue",
        [Queue.Bind(queue=":missing:", exchange=":exchange:", routing_key="k")],
        404,
        "NOT_FOUND - no queue ':missing:' in vhost '/'",
    ),
    Case("no queue declared", [Basic.Get(queue="")], 404, "NOT_FOUND - no previously declared queue"),
    Case(
        "reserved queue name",
        [Queue.Declare(queue="amq.mine")],
        403,
        "ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'",
    ),
    Case(
        "reserved exchange name",
        [Exchange.Declare(exchange="amq.mine", exchange_type="direct")],
        403,
        "ACCESS_REFUSED - exchange name 'amq.mine' contains reserved prefix 'amq.*'",
    ),
    Case(
        "bind to the default exchange",
        [Queue.Bind(queue=":queue:", exchange="", routing_key="k")],
        403,
        "ACCESS_REFUSED - operation not permitted on the default exchange",
    ),
    Case(
        "delete the default exchange",
        [Exchange.Delete(exchange="")],
        403,
        "ACCESS_REFUSED - operation not permitted on the default exchange",
    ),
    Case(
        "queue of another connection",
        [Queue.Declare(queue=":exclusive:", passive=True)],
        405,
        "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue ':exclusive:' in vhost '/'. It "
        "could be originally declared on another connection or the exclusive property value does not match "
        "that of the original declaration.",
    ),
    Case(
        "queue declared otherwise: durable",
        [Queue.Declare(queue=":queue:", durable=True)],
        406,
        "PRECONDITION_FAILED - inequivalent arg 'durable' for queue ':queue:' in vhost '/': received 'true' "
        "but current is 'false'",
    ),
    Case(
        "queue declared otherwise: argument",
        [Queue.Declare(queue=":queue:", arguments={"x-message-ttl": 100_000})],
        406,
        "PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue ':queue:' in vhost '/': received "
        "the value '100000' of type 'signedint' but current is none",
    ),
    Case(
        "exchange declared otherwise: type",
        [Exchange.Declare(exchange=":exchange:", exchange_type="topic")],
        406,
        "PRECONDITION_FAILED - inequivalent arg 'type' for exchange ':exchange:' in vhost '/': received "
        "'topic' but current is 'direct'",
    ),
    Case("unknown tag", [Basic.Ack(82)], 406, "PRECONDITION_FAILED - unknown delivery tag 82"),
    Case("unknown tag nacked", [Basic.Nack(82)], 406, "PRECONDITION_FAILED - unknown delivery tag 82"),
    Case("unknown tag rejected", [Basic.Reject(82)], 406, "PRECONDITION_FAILED - unknown delivery tag 82"),
    Case(
        "confirm then tx",
        [commands.Confirm.Select(), commands.Tx.Select()],
        406,
        "PRECONDITION_FAILED - cannot switch from confirm to tx mode",
    ),
    Case(
        "tx then confirm",
        [commands.Tx.Select(), commands.Confirm.Select()],
        406,
        "PRECONDITION_FAILED - cannot switch from tx to confirm mode",
    ),
    Case("commit without tx", [commands.Tx.Commit()], 406, "PRECONDITION_FAILED - channel is not transactional"),
    Case(
        "rollback without tx",
        [commands.Tx.Rollback()],
        406,
        "PRECONDITION_FAILED - channel is not transactional",
    ),
    Case(
        "prefetch size",
        [Basic.Qos(prefetch_size=10)],
        540,
        "NOT_IMPLEMENTED - prefetch_size!=0 (10)",
        "connection",
    ),
    Case(
        "consumer tag twice",
        [Basic.Consume(queue=":queue:", consumer_tag="c"), Basic.Consume(queue=":queue:", consumer_tag="c")],
        530,
        "NOT_ALLOWED - attempt to reuse consumer tag 'c'",
        "connection",
    ),
    Case(
        "channel opened twice",
        [Channel.Open()],
        504,
        "CHANNEL_ERROR - second 'channel.open' seen",
        "connection",
    ),
]


@dataclass
class Names:
    port: int
    values: dict[str, str]

    def fill(self, text: str) -> str:
        for name, value in self.values.items():
            text = text.replace(name, value)
        return text

    def fill_method(self, method: base.Frame) -> base.Frame:
        values = {name: getattr(method, name) for name in method.attributes()}
        filled = {name: self.fill(value) if isinstance(value, str) else value for name, value in values.items()}
        return type(method)(**filled)


@pytest.fixture
def names(
    broker_url: str,
    make_queue: Callable[..., str],
    make_exchange: Callable[..., str],
    connection: pika.BlockingConnection,
    unique: Callable[[str], str],
) -> Names:
    exclusive = connection.channel().queue_declare("", exclusive=True).method.queue
    return Names(
        pika.URLParameters(broker_url).port,
        {
            ":missing:": unique("missing"),
            ":queue:": make_queue(),
            ":exchange:": make_exchange("direct"),
            ":exclusive:": exclusive,
        },
    )


def closed_with(wire: Wire, scope: str) -> Any:
    """The close that comes; on a connection that lives, a goodbye follows."""
    method = wire.closed(scope)
    if scope == "channel":
        wire.close()
    return method


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_error_codes_and_texts(names: Names, case: Case) -> None:
    methods = [names.fill_method(method) for method in case.methods]
    with Wire(names.port) as wire:
        wire.open()
        wire.open_channel()
        for method in methods:
            wire.send(method, channel=1)
        close = closed_with(wire, case.scope)
    assert (close.reply_code, close.reply_text) == (case.code, names.fill(case.text))
    offending = methods[-1].index
    assert (close.class_id, close.method_id) == (offending >> 16, offending & 0xFFFF)


def publish_error(names: Names, scope: str = "channel", **options: Any) -> Any:
    properties = options.pop("properties", None)
    exchange = names.fill(options.pop("exchange", ""))
    data = publish_bytes(1, exchange, names.fill(":queue:"), b"x", properties)
    with Wire(names.port) as wire:
        wire.open()
        wire.open_channel()
        wire.send_bytes(data)
        return closed_with(wire, scope)


def test_publish_to_a_missing_exchange(names: Names) -> None:
    close = publish_error(names, exchange=":missing:")
    assert close.reply_code == 404
    assert close.reply_text == names.fill("NOT_FOUND - no exchange ':missing:' in vhost '/'")
    assert (close.class_id, close.method_id) == (60, 40)


def test_publish_to_an_internal_exchange(names: Names, make_exchange: Callable[..., str]) -> None:
    exchange = make_exchange("fanout", internal=True)
    close = publish_error(names, exchange=exchange)
    assert close.reply_code == 403
    assert close.reply_text == (f"ACCESS_REFUSED - cannot publish to internal exchange '{exchange}' in vhost '/'")


def test_publish_immediate(names: Names) -> None:
    with Wire(names.port) as wire:
        wire.open()
        wire.open_channel()
        wire.send(Basic.Publish(routing_key="k", immediate=True), channel=1)
        # The content follows the method, whatever is wrong with it.
        wire.send_bytes(publish_bytes(1, "", "k", b"x").split(b"\xce", 1)[1])
        close = closed_with(wire, "connection")
    assert (close.reply_code, close.reply_text) == (540, "NOT_IMPLEMENTED - immediate=true")
    assert (close.class_id, close.method_id) == (60, 40)


def test_publish_for_another_user(names: Names) -> None:
    close = publish_error(names, properties=Basic.Properties(user_id="somebody"))
    assert (close.reply_code, close.reply_text) == (
        406,
        "PRECONDITION_FAILED - user_id property set to 'somebody' but authenticated user was 'guest'",
    )


@pytest.mark.parametrize("expiration", ["soon", "-1", "10x", "1.5"])
def test_publish_with_a_bad_expiration(names: Names, expiration: str) -> None:
    close = publish_error(names, properties=Basic.Properties(expiration=expiration))
    assert close.reply_code == 406
    assert close.reply_text.startswith(f"PRECONDITION_FAILED - invalid expiration '{expiration}'")


def test_unknown_exchange_type(names: Names, broker_product: str) -> None:
    method = Exchange.Declare(exchange=names.fill(":missing:"), exchange_type="x-unheard-of")
    # RabbitMQ 3.x closes the connection with 503; 4.x, and so amqpd, the channel with 406.
    scope, code = ("connection", 503) if broker_product == "RabbitMQ" else ("channel", 406)
    with Wire(names.port) as wire:
        wire.open()
        wire.open_channel()
        wire.send(method, channel=1)
        close = closed_with(wire, scope)
    assert close.reply_code == code
    assert "unknown exchange type 'x-unheard-of'" in close.reply_text


def test_delete_if_unused_and_if_empty(names: Names) -> None:
    queue = names.fill(":queue:")
    with Wire(names.port) as wire:
        wire.open()
        wire.open_channel()
        wire.send_bytes(publish_bytes(1, "", queue, b"x"))
        wire.send(Queue.Delete(queue=queue, if_empty=True), channel=1)
        close = closed_with(wire, "channel")
    assert (close.reply_code, close.reply_text) == (
        406,
        f"PRECONDITION_FAILED - queue '{queue}' in vhost '/' is not empty"
        if "is not empty" in close.reply_text  # 3.x has the verb, 4.x has not
        else f"PRECONDITION_FAILED - queue '{queue}' in vhost '/' not empty",
    )
    with Wire(names.port) as wire:
        wire.open()
        wire.open_channel()
        wire.call(Basic.Consume(queue=queue, consumer_tag="c"), channel=1)
        wire.read_message()
        wire.send(Queue.Delete(queue=queue, if_unused=True), channel=1)
        close = closed_with(wire, "channel")
    assert (close.reply_code, close.reply_text) == (
        406,
        f"PRECONDITION_FAILED - queue '{queue}' in vhost '/' in use",
    )


def test_exchange_delete_if_unused(names: Names) -> None:
    queue, exchange = names.fill(":queue:"), names.fill(":exchange:")
    with Wire(names.port) as wire:
        wire.open()
        wire.open_channel()
        wire.call(Queue.Bind(queue=queue, exchange=exchange, routing_key="k"), channel=1)
        wire.send(Exchange.Delete(exchange=exchange, if_unused=True), channel=1)
        close = closed_with(wire, "channel")
    assert (close.reply_code, close.reply_text) == (
        406,
        f"PRECONDITION_FAILED - exchange '{exchange}' in vhost '/' in use",
    )


def test_a_second_ack_of_a_delivery_is_unknown(names: Names) -> None:
    queue = names.fill(":queue:")
    with Wire(names.port) as wire:
        wire.open()
        wire.open_channel()
        wire.send_bytes(publish_bytes(1, "", queue, b"x"))
        wire.send(Basic.Get(queue=queue), channel=1)
        assert wire.read_message()[1].body == b"x"
        wire.send(Basic.Ack(1), channel=1)
        wire.send(Basic.Ack(1), channel=1)
        close = closed_with(wire, "channel")
    assert (close.reply_code, close.reply_text) == (406, "PRECONDITION_FAILED - unknown delivery tag 1")


def test_a_method_on_a_channel_that_is_not_open(names: Names) -> None:
    with Wire(names.port) as wire:
        wire.open()
        wire.send(Basic.Get(queue=names.fill(":queue:")), channel=5)
        close = closed_with(wire, "connection")
    assert close.reply_code == 504
    assert close.reply_text.startswith("CHANNEL_ERROR - expected 'channel.open'")
