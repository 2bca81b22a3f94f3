"""Arguments of queues, as any broker speaks of them: the cases of tests/harness/argument_cases.py over a socket.

RabbitMQ 3.10 proves all of them but those that it does not have (`SINCE_4`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from typing import Any

import pika
import pytest
from pamqp import base, commands

from tests.harness import argument_cases as cases

from .wire import Wire, described

Basic, Channel, Queue = commands.Basic, commands.Channel, commands.Queue


QUORUM, SINGLE_ACTIVE = cases.QUORUM, {"x-single-active-consumer": True}
FAILED, NOT_IMPLEMENTED = "PRECONDITION_FAILED - ", "NOT_IMPLEMENTED - "
CONDITION = "cannot delete {}. queue.delete operations with {} flag set are not supported by quorum queues"

# (arguments of the durable queue that is there, or None; what is sent, `:queue:` for its name; code; text)
METHODS: list[tuple[dict[str, Any] | None, list[base.Frame], int, str]] = [
    (
        None,
        [Queue.Declare(queue=":queue:", durable=True, auto_delete=True, exclusive=True, arguments=QUORUM)],
        406,
        FAILED + "invalid property 'auto-delete' for {}",
    ),
    (
        None,
        [Queue.Declare(queue=":queue:", durable=True, exclusive=True, arguments=QUORUM)],
        406,
        FAILED + "invalid property 'exclusive-owner' for {}",
    ),
    (
        None,
        [Queue.Declare(queue=":queue:", arguments=QUORUM)],
        406,
        FAILED + "invalid property 'non-durable' for {}",
    ),
    (
        None,
        [Queue.Declare(queue="", durable=True, arguments=QUORUM)],
        406,
        FAILED + "Cannot declare a server-named queue for type rabbit_quorum_queue",
    ),
    (
        None,
        [Queue.Declare(queue=":queue:", arguments={"x-queue-type": "bogus", "x-dead-letter-exchange": cases.BIG})],
        406,
        FAILED + "invalid type 'signedint' for arg 'x-dead-letter-exchange' in {}",
    ),
    (
        QUORUM,
        [Queue.Delete(queue=":queue:", if_unused=True, if_empty=True)],
        540,
        NOT_IMPLEMENTED + CONDITION.format("{}", "if-unused"),
    ),
    (
        QUORUM,
        [Queue.Delete(queue=":queue:", if_empty=True)],
        540,
        NOT_IMPLEMENTED + CONDITION.format("{}", "if-empty"),
    ),
    (
        QUORUM,
        [Basic.Qos(prefetch_count=1, global_=True), Basic.Consume(queue=":queue:")],
        540,
        NOT_IMPLEMENTED + "{} does not support global qos",
    ),
    (
        SINGLE_ACTIVE,
        [Basic.Consume(queue=":queue:", exclusive=True)],
        403,
        "ACCESS_REFUSED - {} in exclusive use",
    ),
    *(
        (
            {"x-queue-type": kind},
            [Basic.Consume(queue=":queue:", arguments=arguments)],
            406,
            FAILED + words.replace("TYPE", kind),
        )
        for kind in ("classic", "quorum")
        for arguments, words in (
            ({"x-priority": "5"}, "invalid arg 'x-priority' for {}: \"expected integer, got longstr\""),
            ({"x-priority": True}, "invalid arg 'x-priority' for {}: \"expected integer, got bool\""),
            ({"x-stream-offset": "first"}, "invalid arg 'x-stream-offset' for {} of queue type rabbit_TYPE_queue"),
        )
    ),
]


@pytest.fixture
def wire(broker_url: str) -> Iterator[Wire]:
    with Wire(pika.URLParameters(broker_url).port) as opened:
        opened.open()
        opened.open_channel()
        yield opened


@pytest.fixture
def declare(wire: Wire, unique: Callable[[str], str]) -> Iterator[Callable[[dict[str, Any]], Any]]:
    """Declares the test's queue, and returns the answer; what was made is deleted in the end."""
    name = unique("queue")

    def call(arguments: dict[str, Any]) -> Any:
        answer = wire.call(Queue.Declare(queue=name, durable=True, arguments=arguments), channel=1)
        if isinstance(answer, Channel.Close):
            wire.send(Channel.CloseOk(), channel=1)
            wire.open_channel(1)
        return answer

    yield call
    wire.send(Queue.Delete(queue=name), channel=1)
    while isinstance((answer := wire.read_method()[1]), Basic.Cancel):
        pass  # a consumer is told first by amqpd, and later by RabbitMQ
    assert isinstance(answer, Queue.DeleteOk), described(answer)
    wire.close()


def refused(answer: Any) -> str:
    assert isinstance(answer, Channel.Close), described(answer)
    assert (answer.reply_code, answer.class_id, answer.method_id) == (406, 50, 10)
    text: str = answer.reply_text
    return text.removeprefix("PRECONDITION_FAILED - ")


@pytest.mark.parametrize(("arguments", "name", "reason"), cases.VALUES, ids=str)
def test_a_wrong_value(
    declare: Any, unique: Callable[[str], str], arguments: dict[str, Any], name: str, reason: str
) -> None:
    text = refused(declare(arguments))
    assert text == f"invalid arg '{name}' for queue '{unique('queue')}' in vhost '/': {reason}"


@pytest.mark.parametrize(("arguments", "name", "module"), cases.OTHER_TYPES, ids=str)
def test_an_argument_of_another_queue_type(
    declare: Any, unique: Callable[[str], str], arguments: dict[str, Any], name: str, module: str
) -> None:
    text = refused(declare(arguments))
    assert text == f"invalid arg '{name}' for queue '{unique('queue')}' in vhost '/' of queue type {module}"


@pytest.mark.parametrize("arguments", cases.ACCEPTED, ids=str)
def test_accepted(declare: Any, arguments: dict[str, Any]) -> None:
    answer = declare(arguments)
    assert isinstance(answer, Queue.DeclareOk), described(answer)


@pytest.mark.parametrize(("current", "received", "words"), cases.REDECLARED, ids=str)
def test_a_redeclaration_that_differs(
    declare: Any, unique: Callable[[str], str], current: dict[str, Any], received: dict[str, Any], words: str
) -> None:
    declare(current)
    queue = f"queue '{unique('queue')}' in vhost '/'"
    assert refused(declare(received)) == f"inequivalent arg {words.format(queue)}"


@pytest.mark.parametrize(("current", "received"), cases.EQUIVALENT, ids=str)
def test_a_redeclaration_that_does_not_differ(
    declare: Any, current: dict[str, Any], received: dict[str, Any]
) -> None:
    declare(current)
    answer = declare(received)
    assert isinstance(answer, Queue.DeclareOk), described(answer)


@pytest.mark.parametrize(("current", "methods", "code", "words"), METHODS)
def test_what_a_queue_does_not_take(
    broker_url: str,
    declare: Any,
    unique: Callable[[str], str],
    current: dict[str, Any] | None,
    methods: list[base.Frame],
    code: int,
    words: str,
) -> None:
    if current is not None:
        assert isinstance(declare(current), Queue.DeclareOk)
    with Wire(pika.URLParameters(broker_url).port) as wire:
        wire.open()
        wire.open_channel()
        for method in map(copy, methods):
            if getattr(method, "queue", "") == ":queue:":
                method.queue = unique("queue")  # type: ignore[attr-defined]  # of those that have one
            answer = wire.call(method, channel=1)
    assert isinstance(answer, Channel.Close | commands.Connection.Close), described(answer)
    queue = f"queue '{unique('queue')}' in vhost '/'"
    assert (answer.reply_code, answer.reply_text) == (code, words.format(queue))
    assert isinstance(answer, Channel.Close) == (code != 540)
    assert answer.class_id << 16 | answer.method_id == methods[-1].index


def test_a_quorum_queue_ignores_that_a_consumer_wants_to_be_alone(
    declare: Any, wire: Wire, unique: Callable[[str], str]
) -> None:
    declare(QUORUM)
    for tag in ("one", "two"):
        answer = wire.call(Basic.Consume(queue=unique("queue"), consumer_tag=tag, exclusive=True), channel=1)
        assert isinstance(answer, Basic.ConsumeOk), described(answer)


def test_a_redeclaration_is_compared_and_not_checked(declare: Any) -> None:
    """Who redeclares with what no queue could have hears that the queue is another one."""
    declare({"x-max-length": cases.BIG})
    text = refused(declare({"x-max-length": cases.BIG, "x-overflow": "bogus", "x-max-age": "1h"}))
    assert "'x-overflow'" in text
    assert text.endswith("received the value 'bogus' of type 'longstr' but current is none")
