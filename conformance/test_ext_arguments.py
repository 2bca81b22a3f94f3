"""Arguments of queue.declare: what is refused, and in RabbitMQ's words.

What comes in and goes out: one declaration for each case, and the text of the channel's close.
Rules: a queue that is refused does not exist afterwards; the channel alone is closed.
Not here: what the arguments do (the other `test_ext_*.py`), redeclaration (`test_ext_redeclare.py`).
"""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from conformance.extensions import gone, named, refused
from conformance.rules import differs, rule

TEN_YEARS_MS = 315_360_000_000
LONG = 2**63 - 1
A_TIME = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
INTEGERS = ["x-message-ttl", "x-expires", "x-max-length", "x-max-length-bytes", "x-max-priority"]
STRINGS = ["x-dead-letter-routing-key", "x-overflow", "x-queue-type"]
QUORUM = {"x-queue-type": "quorum"}


def invalid(broker: Any, argument: str, queue: str, reason: str) -> str:
    return f"PRECONDITION_FAILED - invalid arg '{argument}' for {named(broker, 'queue', queue)}: {reason}"


def other_type(broker: Any, argument: str, queue: str, kind: str) -> str:
    return (
        f"PRECONDITION_FAILED - invalid arg '{argument}' for {named(broker, 'queue', queue)}"
        f" of queue type rabbit_{kind}_queue"
    )


@rule(
    "RabbitMQ: queues",
    "An argument that is a number takes an integer of the field table, nothing that looks like one.",
)
@pytest.mark.parametrize("argument", INTEGERS)
@pytest.mark.parametrize(
    ("value", "kind"),
    [("10", "longstr"), (True, "bool"), (None, "void"), ([1], "array"), ({"a": 1}, "table"), (A_TIME, "timestamp")],
    ids=["longstr", "bool", "void", "array", "table", "timestamp"],
)
def test_a_number_has_to_be_an_integer(broker, connection, unique, argument, value, kind):
    queue = unique("q")
    with refused(invalid(broker, argument, queue, f'"expected integer, got {kind}"')):
        connection.channel().queue_declare(queue, exclusive=True, arguments={argument: value})
    assert gone(connection, queue)


@rule("RabbitMQ: queues", "No numeric argument may be negative.")
@pytest.mark.parametrize("argument", [*INTEGERS, "x-queue-version"])
def test_a_negative_number_is_refused(broker, channel, unique, argument):
    with refused(invalid(broker, argument, unique("q"), "{value_negative,-1}")):
        channel.queue_declare(unique("q"), exclusive=True, arguments={argument: -1})


@rule("RabbitMQ: ttl", "A time to live is at most ten years.")
@pytest.mark.parametrize("argument", ["x-message-ttl", "x-expires"])
@pytest.mark.parametrize("value", [TEN_YEARS_MS + 1, LONG])
def test_a_time_beyond_ten_years_is_refused(broker, channel, unique, argument, value):
    with refused(invalid(broker, argument, unique("q"), f"{{value_too_large,{value}}}")):
        channel.queue_declare(unique("q"), exclusive=True, arguments={argument: value})


@rule("RabbitMQ: ttl", "A queue cannot expire after no time at all.")
def test_expires_of_zero_is_refused(broker, channel, unique):
    with refused(invalid(broker, "x-expires", unique("q"), "{value_zero,0}")):
        channel.queue_declare(unique("q"), exclusive=True, arguments={"x-expires": 0})


@rule("RabbitMQ: queues", "The bounds of each number are still good.")
@pytest.mark.parametrize(
    "arguments",
    [
        {"x-message-ttl": 0},
        {"x-message-ttl": TEN_YEARS_MS},
        {"x-expires": TEN_YEARS_MS},
        {"x-max-length": 0},
        {"x-max-length": LONG},
        {"x-max-length-bytes": 0},
        {"x-max-length-bytes": LONG},
        {"x-max-priority": 0},
        {"x-max-priority": 255},
        {"x-dead-letter-exchange": ""},
        {"x-dead-letter-exchange": "nobody.declared.this"},
        {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": ""},
        {"x-single-active-consumer": False},
    ],
    ids=str,
)
def test_the_bounds_are_accepted(channel, unique, arguments):
    assert channel.queue_declare(unique("q"), exclusive=True, arguments=arguments).method.queue == unique("q")


@rule("RabbitMQ: priority", "A queue has at most 255 priorities.")
@pytest.mark.parametrize("value", [256, 2**31, LONG])
def test_more_than_255_priorities_are_refused(broker, channel, unique, value):
    with refused(invalid(broker, "x-max-priority", unique("q"), f"{{max_value_exceeded,{value}}}")):
        channel.queue_declare(unique("q"), exclusive=True, arguments={"x-max-priority": value})


@rule("RabbitMQ: queues", "An argument that is a word takes a long string.")
@pytest.mark.parametrize("argument", STRINGS)
@pytest.mark.parametrize(
    ("value", "kind"), [(5, "signedint"), (True, "bool"), (None, "void")], ids=["signedint", "bool", "void"]
)
def test_a_word_has_to_be_a_string(broker, channel, unique, argument, value, kind):
    with refused(invalid(broker, argument, unique("q"), f"{{unacceptable_type,{kind}}}")):
        channel.queue_declare(unique("q"), exclusive=True, arguments={argument: value})


@rule("RabbitMQ: dlx", "The name of the dead letter exchange is a string.")
@pytest.mark.parametrize(("value", "kind"), [(5, "signedint"), (True, "bool"), (None, "void")])
def test_a_dead_letter_exchange_has_to_be_a_string(broker, channel, unique, value, kind):
    text = f"invalid type '{kind}' for arg 'x-dead-letter-exchange' in {named(broker, 'queue', unique('q'))}"
    with refused(f"PRECONDITION_FAILED - {text}"):
        channel.queue_declare(unique("q"), exclusive=True, arguments={"x-dead-letter-exchange": value})


@rule("RabbitMQ: dlx", "A dead letter routing key needs a dead letter exchange.")
def test_a_dead_letter_routing_key_alone_is_refused(broker, channel, unique):
    with refused(invalid(broker, "x-dead-letter-routing-key", unique("q"), "routing_key_but_no_dlx_defined")):
        channel.queue_declare(unique("q"), exclusive=True, arguments={"x-dead-letter-routing-key": "k"})


@rule("RabbitMQ: maxlength", "x-overflow is drop-head, reject-publish or reject-publish-dlx.")
@pytest.mark.parametrize("value", ["bogus", "", "Drop-Head"])
def test_an_unknown_overflow_is_refused(broker, channel, unique, value):
    with refused(invalid(broker, "x-overflow", unique("q"), "invalid_overflow")):
        channel.queue_declare(unique("q"), exclusive=True, arguments={"x-overflow": value})


@rule("RabbitMQ: maxlength", "Each of the three overflow behaviours can be declared.")
@pytest.mark.parametrize("value", ["drop-head", "reject-publish", "reject-publish-dlx"])
def test_each_overflow_is_accepted(channel, unique, value):
    channel.queue_declare(unique("q"), exclusive=True, arguments={"x-overflow": value})


@rule("RabbitMQ: consumers", "x-single-active-consumer is a boolean.")
@pytest.mark.parametrize(("value", "kind"), [("true", "longstr"), (1, "signedint")])
def test_single_active_consumer_has_to_be_a_boolean(broker, channel, unique, value, kind):
    with refused(invalid(broker, "x-single-active-consumer", unique("q"), f"{{unacceptable_type,{kind}}}")):
        channel.queue_declare(unique("q"), exclusive=True, arguments={"x-single-active-consumer": value})


@rule("RabbitMQ: queues", "x-queue-type is one of the types that the broker knows, in lower case.")
@pytest.mark.parametrize("value", ["bogus", "Classic"])
def test_an_unknown_queue_type_is_refused(broker, channel, unique, value):
    with refused(invalid(broker, "x-queue-type", unique("q"), f"\"unsupported queue type '{value}'\"")):
        channel.queue_declare(unique("q"), durable=True, arguments={"x-queue-type": value})


@rule("RabbitMQ: queues", "An empty type, and the word undefined, are as good as none.")
@differs(on="rabbitmq<4.3", why="3.10 refuses them; the empty one is none since RabbitMQ 4.3")
@pytest.mark.parametrize("value", ["", "undefined"])
def test_an_empty_queue_type_is_none(channel, unique, value):
    channel.queue_declare(unique("q"), durable=True, arguments={"x-queue-type": value})


@rule("RabbitMQ: streams", "A queue of type stream can be declared.")
@differs(on="amqpd", why="amqpd has no streams: the type is refused as an unknown one is")
def test_a_stream_can_be_declared(channel, unique):
    channel.queue_declare(unique("q"), durable=True, arguments={"x-queue-type": "stream"})


@rule("RabbitMQ: queues", "Both types of queues can be declared by name.")
@pytest.mark.parametrize("value", ["classic", "quorum"])
def test_both_queue_types_are_accepted(channel, unique, value):
    channel.queue_declare(unique("q"), durable=True, arguments={"x-queue-type": value})


@rule("RabbitMQ: lazy-queues", "x-queue-mode and x-queue-version 2 may be given, though they change nothing today.")
@pytest.mark.parametrize("arguments", [{"x-queue-mode": "lazy"}, {"x-queue-mode": "default"}, {"x-queue-version": 2}])
def test_mode_and_version_are_accepted(channel, unique, arguments):
    channel.queue_declare(unique("q"), exclusive=True, arguments=arguments)


@rule("RabbitMQ: lazy-queues", "x-queue-mode is lazy or default.")
@pytest.mark.parametrize(
    ("value", "reason"),
    [("bogus", "\"unsupported queue mode 'bogus'\""), (5, "{unacceptable_type,signedint}")],
    ids=["bogus", "signedint"],
)
def test_an_unknown_queue_mode_is_refused(broker, channel, unique, value, reason):
    with refused(invalid(broker, "x-queue-mode", unique("q"), reason)):
        channel.queue_declare(unique("q"), exclusive=True, arguments={"x-queue-mode": value})


@rule("RabbitMQ: persistence-conf", "x-queue-version is a number that names a version of the storage.")
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (3, "\"unsupported queue version '3'\""),
        (0, "\"unsupported queue version '0'\""),
        ("2", '"expected integer, got longstr"'),
    ],
    ids=["3", "0", "longstr"],
)
def test_an_unknown_queue_version_is_refused(broker, channel, unique, value, reason):
    with refused(invalid(broker, "x-queue-version", unique("q"), reason)):
        channel.queue_declare(unique("q"), exclusive=True, arguments={"x-queue-version": value})


@rule("RabbitMQ: queues", "An argument of another queue type is refused, not ignored.")
@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("x-delivery-limit", 5),
        ("x-dead-letter-strategy", "at-least-once"),
        ("x-max-in-memory-length", 5),
        ("x-quorum-initial-group-size", 1),
        ("x-max-age", "5D"),
    ],
)
def test_a_classic_queue_refuses_what_is_of_other_types(broker, channel, unique, argument, value):
    with refused(other_type(broker, argument, unique("q"), "classic")):
        channel.queue_declare(unique("q"), exclusive=True, arguments={argument: value})


@rule("RabbitMQ: quorum-queues", "A quorum queue refuses the arguments that classic queues alone know.")
@pytest.mark.parametrize(
    ("argument", "value"), [("x-max-priority", 5), ("x-queue-mode", "lazy"), ("x-queue-version", 2)]
)
def test_a_quorum_queue_refuses_what_is_of_other_types(broker, channel, unique, argument, value):
    with refused(other_type(broker, argument, unique("q"), "quorum")):
        channel.queue_declare(unique("q"), durable=True, arguments={**QUORUM, argument: value})


@rule("RabbitMQ: quorum-queues", "A quorum queue takes these arguments.")
@pytest.mark.parametrize(
    "arguments",
    [
        {"x-max-length": 5},
        {"x-max-length-bytes": 5},
        {"x-message-ttl": 5000},
        {"x-expires": 50000},
        {"x-overflow": "reject-publish"},
        {"x-single-active-consumer": True},
        {"x-delivery-limit": 5},
        {"x-dead-letter-exchange": "d", "x-dead-letter-routing-key": "k", "x-dead-letter-strategy": "at-least-once"},
        {"x-quorum-initial-group-size": 1},
        {"x-queue-leader-locator": "client-local"},
    ],
    ids=lambda value: next(iter(value)),
)
def test_a_quorum_queue_accepts_its_arguments(channel, unique, arguments):
    channel.queue_declare(unique("q"), durable=True, arguments={**QUORUM, **arguments})


@rule("RabbitMQ: quorum-queues", "x-dead-letter-strategy is at-most-once or at-least-once.")
@pytest.mark.parametrize(
    ("value", "reason"), [("bogus", "invalid_dlx_strategy"), (5, "{unacceptable_type,signedint}")], ids=["bogus", "5"]
)
def test_an_unknown_dead_letter_strategy_is_refused(broker, channel, unique, value, reason):
    with refused(invalid(broker, "x-dead-letter-strategy", unique("q"), reason)):
        channel.queue_declare(unique("q"), durable=True, arguments={**QUORUM, "x-dead-letter-strategy": value})


@rule("RabbitMQ: quorum-queues", "A quorum queue is durable, not exclusive and not deleted automatically.")
@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({}, "non-durable"),
        ({"durable": True, "exclusive": True}, "exclusive-owner"),
        ({"durable": True, "auto_delete": True}, "auto-delete"),
    ],
    ids=["non-durable", "exclusive", "auto-delete"],
)
def test_a_quorum_queue_has_to_be_durable_and_shared(broker, channel, unique, options, what):
    with refused(f"PRECONDITION_FAILED - invalid property '{what}' for {named(broker, 'queue', unique('q'))}"):
        channel.queue_declare(unique("q"), arguments=QUORUM, **options)


@rule("RabbitMQ: quorum-queues", "The broker gives no names to quorum queues.")
def test_a_quorum_queue_needs_a_name(channel):
    with refused("PRECONDITION_FAILED - Cannot declare a server-named queue for type rabbit_quorum_queue"):
        channel.queue_declare("", durable=True, arguments=QUORUM)


@rule("RabbitMQ: queues", "An argument that no queue type knows is accepted with any value.")
@pytest.mark.parametrize(
    "value", [1, "word", None, [1, "a"], {"a": True}], ids=["int", "str", "void", "array", "table"]
)
def test_unknown_arguments_are_accepted(channel, unique, value):
    channel.queue_declare(unique("q"), exclusive=True, arguments={"x-nobody-knows-this": value})


@rule("RabbitMQ: consumers", "A queue may say how long its consumers may keep a delivery.")
@pytest.mark.parametrize("arguments", [{}, QUORUM], ids=["classic", "quorum"])
def test_consumer_timeout_is_accepted(channel, unique, arguments):
    channel.queue_declare(unique("q"), durable=True, arguments={**arguments, "x-consumer-timeout": 60_000})
