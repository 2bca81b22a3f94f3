"""Declaring a queue again: which arguments are compared, how, and in which words a difference is told.

What comes in and goes out: two declarations; the second succeeds, or closes the channel with 406.
Rules: the queue stays what it was, whatever the second declaration said.
Not here: arguments that are refused at the first declaration (`test_ext_arguments.py`).
"""

from __future__ import annotations

import pytest
from pamqp import commands

from conformance.extensions import named, refused
from conformance.rules import rule

CHANGES = [
    ("x-message-ttl", 1000, 2000, "signedint"),
    ("x-expires", 100_000, 200_000, "signedint"),
    ("x-max-length", 1, 2, "signedint"),
    ("x-max-length-bytes", 1, 2, "signedint"),
    ("x-max-priority", 1, 2, "signedint"),
    ("x-overflow", "drop-head", "reject-publish", "longstr"),
    ("x-dead-letter-exchange", "a", "b", "longstr"),
    ("x-queue-mode", "lazy", "default", "longstr"),
    ("x-single-active-consumer", True, False, "bool"),
]
ALL = pytest.mark.parametrize(("argument", "first", "second", "kind"), CHANGES, ids=[row[0] for row in CHANGES])
QUORUM = {"x-queue-type": "quorum"}


def inequivalent(broker, argument: str, queue: str, received: str, current: str) -> str:
    told = f"inequivalent arg '{argument}' for {named(broker, 'queue', queue)}"
    return f"PRECONDITION_FAILED - {told}: received {received} but current is {current}"


def printed(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@rule("AMQP 0-9-1 section 1.7.2.1", "Declaring a queue again with the same arguments succeeds.")
@ALL
def test_the_same_arguments_again(channel, unique, argument, first, second, kind):
    for _ in range(2):
        channel.queue_declare(unique("q"), exclusive=True, arguments={argument: first})


@rule("RabbitMQ: queues#property-equivalence", "Another value of an argument is told with both values.")
@ALL
def test_another_value_is_refused(broker, connection, unique, argument, first, second, kind):
    queue = unique("q")
    connection.channel().queue_declare(queue, exclusive=True, arguments={argument: first})
    with refused(inequivalent(broker, argument, queue, f"'{printed(second)}'", f"'{printed(first)}'")):
        connection.channel().queue_declare(queue, exclusive=True, arguments={argument: second})
    connection.channel().queue_declare(queue, exclusive=True, arguments={argument: first})


@rule(
    "RabbitMQ: queues#property-equivalence",
    "An argument left out is told with the value and type that the queue has.",
)
@ALL
def test_a_missing_argument_is_refused(broker, connection, unique, argument, first, second, kind):
    queue = unique("q")
    connection.channel().queue_declare(queue, exclusive=True, arguments={argument: first})
    current = f"the value '{printed(first)}' of type '{kind}'"
    with refused(inequivalent(broker, argument, queue, "none", current)):
        connection.channel().queue_declare(queue, exclusive=True)


@rule(
    "RabbitMQ: queues#property-equivalence",
    "An argument that the queue was made without is told with its value and type.",
)
@ALL
def test_an_additional_argument_is_refused(broker, connection, unique, argument, first, second, kind):
    queue = unique("q")
    connection.channel().queue_declare(queue, exclusive=True)
    received = f"the value '{printed(first)}' of type '{kind}'"
    with refused(inequivalent(broker, argument, queue, received, "none")):
        connection.channel().queue_declare(queue, exclusive=True, arguments={argument: first})


@rule("RabbitMQ: queues#property-equivalence", "The dead letter routing key is compared too.")
def test_the_dead_letter_routing_key_is_compared(broker, connection, unique):
    queue, exchange = unique("q"), {"x-dead-letter-exchange": "d"}
    connection.channel().queue_declare(
        queue, exclusive=True, arguments={**exchange, "x-dead-letter-routing-key": "k"}
    )
    with refused(inequivalent(broker, "x-dead-letter-routing-key", queue, "'l'", "'k'")):
        connection.channel().queue_declare(
            queue, exclusive=True, arguments={**exchange, "x-dead-letter-routing-key": "l"}
        )


@rule("RabbitMQ: queues#property-equivalence", "A large number is of type long in the text.")
def test_a_long_is_called_long(broker, connection, unique):
    queue = unique("q")
    connection.channel().queue_declare(queue, exclusive=True, arguments={"x-message-ttl": 2**33})
    with refused(inequivalent(broker, "x-message-ttl", queue, "none", f"the value '{2**33}' of type 'long'")):
        connection.channel().queue_declare(queue, exclusive=True)


@rule(
    "RabbitMQ: queues#property-equivalence",
    "Values are compared before they are validated: digits are not their number.",
)
def test_a_string_of_digits_is_not_the_number(broker, connection, unique):
    queue = unique("q")
    connection.channel().queue_declare(queue, exclusive=True, arguments={"x-message-ttl": 1000})
    with refused(inequivalent(broker, "x-message-ttl", queue, "'1000'", "'1000'")):
        connection.channel().queue_declare(queue, exclusive=True, arguments={"x-message-ttl": "1000"})


@rule("RabbitMQ: queues#property-equivalence", "The same number in another width of integer is the same.")
def test_the_width_of_an_integer_does_not_matter(wire, unique):
    client = wire()
    client.open_channel()
    widths = [(b"b", 1), (b"s", 2), (b"I", 4), (b"i", 4), (b"l", 8)]
    for code, size in widths:
        table = b"\x0cx-max-length" + code + (7).to_bytes(size, "big")
        client.send_bytes(declare_frame(unique("q"), table))
        answer = client.read_method()[1]
        assert isinstance(answer, commands.Queue.DeclareOk), f"{code!r}: {getattr(answer, 'reply_text', answer)}"


def declare_frame(queue: str, table: bytes) -> bytes:
    """queue.declare of an exclusive queue on channel 1, its table as bytes."""
    name = queue.encode()
    method = b"\x00\x32\x00\x0a\x00\x00" + bytes([len(name)]) + name + b"\x04" + len(table).to_bytes(4, "big") + table
    return b"\x01\x00\x01" + len(method).to_bytes(4, "big") + method + b"\xce"


@rule("RabbitMQ: queues", "No type and x-queue-type classic are the same.")
@pytest.mark.parametrize(("first", "second"), [({}, {"x-queue-type": "classic"}), ({"x-queue-type": "classic"}, {})])
def test_classic_is_the_type_of_a_queue_without_one(channel, unique, first, second):
    channel.queue_declare(unique("q"), exclusive=True, arguments=first)
    channel.queue_declare(unique("q"), exclusive=True, arguments=second)


@rule("RabbitMQ: quorum-queues", "The type of a queue is compared; a queue without one is classic.")
@pytest.mark.parametrize(
    ("first", "second"),
    [(QUORUM, {"x-queue-type": "classic"}), (QUORUM, {}), ({}, QUORUM)],
    ids=["quorum-classic", "quorum-none", "none-quorum"],
)
def test_the_queue_type_is_compared(broker, connection, unique, first, second):
    queue = unique("q")
    connection.channel().queue_declare(queue, durable=True, arguments=first)
    if broker.is_("rabbitmq<4") and not (first and second):  # which does not add the type to the arguments yet
        received, current = (
            f"the value '{kind['x-queue-type']}' of type 'longstr'" if kind else "none" for kind in (second, first)
        )
    else:
        received, current = (f"'{kind.get('x-queue-type', 'classic')}'" for kind in (second, first))
    with refused(inequivalent(broker, "x-queue-type", queue, received, current)):
        connection.channel().queue_declare(queue, durable=True, arguments=second)


@rule("RabbitMQ: quorum-queues", "The arguments of quorum queues are compared.")
@pytest.mark.parametrize(
    ("first", "second", "argument", "received", "current"),
    [
        ({"x-delivery-limit": 3}, {"x-delivery-limit": 4}, "x-delivery-limit", "'4'", "'3'"),
        ({"x-delivery-limit": 3}, {}, "x-delivery-limit", "none", "the value '3' of type 'signedint'"),
        (
            {"x-dead-letter-exchange": "d", "x-dead-letter-strategy": "at-least-once"},
            {"x-dead-letter-exchange": "d", "x-dead-letter-strategy": "at-most-once"},
            "x-dead-letter-strategy",
            "'at-most-once'",
            "'at-least-once'",
        ),
    ],
    ids=["limit", "limit-none", "strategy"],
)
def test_the_arguments_of_quorum_queues_are_compared(
    broker, connection, unique, first, second, argument, received, current
):
    queue = unique("q")
    connection.channel().queue_declare(queue, durable=True, arguments={**QUORUM, **first})
    with refused(inequivalent(broker, argument, queue, received, current)):
        connection.channel().queue_declare(queue, durable=True, arguments={**QUORUM, **second})


@rule("RabbitMQ: queues#property-equivalence", "An argument that no queue type knows is not compared.")
@pytest.mark.parametrize("second", [{"x-unknown": 2}, {"x-unknown": "1"}, {}], ids=["value", "type", "missing"])
def test_unknown_arguments_are_not_compared(channel, unique, second):
    channel.queue_declare(unique("q"), exclusive=True, arguments={"x-unknown": 1})
    channel.queue_declare(unique("q"), exclusive=True, arguments=second)


@rule("RabbitMQ: queues", "A passive declaration compares nothing.")
def test_a_passive_declaration_compares_nothing(channel, unique):
    channel.queue_declare(unique("q"), exclusive=True, arguments={"x-max-length": 5})
    channel.queue_declare(unique("q"), passive=True, arguments={"x-max-length": 6})
