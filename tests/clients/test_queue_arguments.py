"""Arguments of queues, as any broker speaks of them: the cases of tests/core/argument_cases.py over a socket.

RabbitMQ 3.10 proves all of them but those that it does not have (`SINCE_4`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest
from pamqp import commands

from tests.core import argument_cases as cases

from .wire import Wire, described

Channel, Queue = commands.Channel, commands.Queue


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
    assert isinstance(wire.call(Queue.Delete(queue=name), channel=1), Queue.DeleteOk)
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
