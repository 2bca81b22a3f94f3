"""Arguments of queue.declare: what is refused with which words, what is compared, who may name a dead letter
exchange."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from amqpd.vocabulary.records import Put, VhostRecord
from tests.harness import argument_cases as cases
from tests.harness.harness import Client, Harness

Basic, Channel, Queue = commands.Basic, commands.Channel, commands.Queue
Q = "queue 'q' in vhost '/'"
FAILED = "PRECONDITION_FAILED - "


@pytest.fixture
def harness() -> Harness:
    return Harness()


@pytest.fixture
def client(harness: Harness) -> Client:
    return harness.client()


def text_of_close(client: Client, method: Any, code: int = 406) -> str:
    client.send(method)
    close = client.expect(Channel.Close if code in (403, 404, 405, 406) else commands.Connection.Close)
    assert close.reply_code == code
    assert (close.class_id << 16 | close.method_id) == method.index
    return str(close.reply_text)


def refused(client: Client, arguments: dict[str, Any]) -> str:
    return text_of_close(client, Queue.Declare(queue="q", durable=True, arguments=arguments))


def name_of(case: Any) -> str:
    return str(case)


@pytest.mark.parametrize(("arguments", "name", "reason"), [*cases.VALUES, *cases.SINCE_4], ids=name_of)
def test_a_wrong_value(harness: Harness, client: Client, arguments: dict[str, Any], name: str, reason: str) -> None:
    assert refused(client, arguments) == f"{FAILED}invalid arg '{name}' for {Q}: {reason}"
    assert not harness.node.queues


@pytest.mark.parametrize(("arguments", "name", "module"), cases.OTHER_TYPES, ids=name_of)
def test_an_argument_of_another_queue_type(client: Client, arguments: dict[str, Any], name: str, module: str) -> None:
    assert refused(client, arguments) == f"{FAILED}invalid arg '{name}' for {Q} of queue type {module}"


@pytest.mark.parametrize(
    "arguments",
    [
        *cases.ACCEPTED,
        {"x-queue-type": ""},
        {"x-queue-type": "undefined"},
        {"x-consumer-timeout": 0, "x-queue-leader-locator": "balanced"},
        {**cases.QUORUM, "x-consumer-timeout": 1000},
    ],
    ids=name_of,
)
def test_accepted(client: Client, arguments: dict[str, Any]) -> None:
    client.declare("q", durable=True, arguments=arguments)


def test_streams_are_a_type_that_is_not_there(client: Client) -> None:
    assert refused(client, {"x-queue-type": "stream"}) == (
        f"{FAILED}invalid arg 'x-queue-type' for {Q}: \"unsupported queue type 'stream'\""
    )


def test_a_dead_letter_exchange_has_a_name(client: Client) -> None:
    # Looked at before everything else, in words of its own.
    assert refused(client, {"x-queue-type": "bogus", "x-dead-letter-exchange": cases.BIG}) == (
        f"{FAILED}invalid type 'signedint' for arg 'x-dead-letter-exchange' in {Q}"
    )


@pytest.mark.parametrize(("kind", "name"), [("read", "q"), ("write", "dead")])
def test_a_dead_letter_exchange_takes_reading_here_and_writing_there(
    harness: Harness, client: Client, kind: str, name: str
) -> None:
    harness.access.forbidden.add((kind, name))
    declaration = Queue.Declare(queue="q", durable=True, arguments={"x-dead-letter-exchange": "dead", "x-expires": 0})
    text = text_of_close(client, declaration, 403)
    assert text.startswith(f"ACCESS_REFUSED - {kind} access to ")
    assert f"'{name}'" in text


def test_a_redeclaration_needs_no_rights_on_the_dead_letter_exchange(harness: Harness, client: Client) -> None:
    arguments = {"x-dead-letter-exchange": "dead"}
    client.declare("q", durable=True, arguments=arguments)
    harness.access.forbidden |= {("read", "q"), ("write", "dead")}
    client.declare("q", durable=True, arguments=arguments)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"durable": True, "auto_delete": True, "exclusive": True}, "auto-delete"),
        ({"durable": True, "exclusive": True}, "exclusive-owner"),
        ({}, "non-durable"),
    ],
)
def test_quorum_queues_are_durable_and_shared(client: Client, options: dict[str, bool], name: str) -> None:
    text = text_of_close(client, Queue.Declare(queue="q", arguments=cases.QUORUM, **options))
    assert text == f"{FAILED}invalid property '{name}' for {Q}"


def test_quorum_queues_have_names(harness: Harness, client: Client) -> None:
    harness.access.forbidden.add(("configure", ""))
    text = text_of_close(client, Queue.Declare(queue="", durable=True, arguments=cases.QUORUM))
    assert text == f"{FAILED}Cannot declare a server-named queue for type rabbit_quorum_queue"


@pytest.mark.parametrize(("current", "received", "words"), cases.REDECLARED, ids=name_of)
def test_a_redeclaration_that_differs(
    client: Client, current: dict[str, Any], received: dict[str, Any], words: str
) -> None:
    client.declare("q", durable=True, arguments=current)
    assert refused(client, received) == f"{FAILED}inequivalent arg {words.format(Q)}"


def test_a_queue_without_a_type_is_compared_as_a_classic_one(client: Client) -> None:
    # As RabbitMQ 4, which writes the type down; 3.10 says "none" on the side that has none.
    client.declare("q", durable=True)
    assert refused(client, cases.QUORUM) == (
        f"{FAILED}inequivalent arg 'x-queue-type' for {Q}: received 'quorum' but current is 'classic'"
    )


@pytest.mark.parametrize(("current", "received"), cases.EQUIVALENT, ids=name_of)
def test_a_redeclaration_that_does_not_differ(
    client: Client, current: dict[str, Any], received: dict[str, Any]
) -> None:
    client.declare("q", durable=True, arguments=current)
    client.declare("q", durable=True, arguments=received)


def test_a_passive_declaration_compares_nothing(client: Client) -> None:
    client.declare("q", durable=True, arguments={"x-message-ttl": 1})
    client.declare("q", passive=True, arguments={"x-message-ttl": "nonsense", "x-queue-type": 7})


def test_what_is_nested_too_deep_to_be_shown_is_refused_all_the_same(harness: Harness, client: Client) -> None:
    deep: Any = 1
    for _ in range(60):
        deep = [deep]
    client.declare("q", durable=True)
    assert "received the value '...' of type 'array' but current is none" in refused(client, {"x-max-length": deep})
    assert not harness.bugs


@pytest.mark.parametrize("flag", ["if_unused", "if_empty"])
def test_quorum_queues_are_deleted_without_conditions(client: Client, flag: str) -> None:
    client.declare("q", durable=True, arguments=cases.QUORUM)
    text = text_of_close(client, Queue.Delete(queue="q", **{flag: True}), 540)
    assert text == (
        f"NOT_IMPLEMENTED - cannot delete {Q}. queue.delete operations with {flag.replace('_', '-')} flag set are "
        "not supported by quorum queues"
    )


def test_quorum_queues_are_deleted(client: Client) -> None:
    client.declare("q", durable=True, arguments=cases.QUORUM)
    client.publish(b"1")
    assert client.call(Queue.Delete(queue="q"), Queue.DeleteOk).message_count == 1


def test_a_name_that_the_broker_gave_can_only_be_declared_passively(client: Client) -> None:
    name = client.declare("", exclusive=True).queue
    client.declare(name, passive=True)
    text = text_of_close(client, Queue.Declare(queue=name, exclusive=True), 403)
    assert text == f"ACCESS_REFUSED - queue name '{name}' contains reserved prefix 'amq.*'"


def set_default_type(harness: Harness, kind: str) -> None:
    harness.topology.apply([Put(VhostRecord("/", metadata={"default_queue_type": kind}))])


@pytest.mark.parametrize("arguments", [{}, {"x-max-length": 5}, {"x-queue-type": ""}, {"x-queue-type": "undefined"}])
def test_a_virtual_host_may_have_another_type_for_who_names_none(
    harness: Harness, client: Client, arguments: dict[str, Any]
) -> None:
    set_default_type(harness, "quorum")
    client.declare("q", durable=True, arguments=arguments)
    client.declare("q", durable=True, arguments={**arguments, **cases.QUORUM})
    assert harness.node.queues["/", "q"].settings.quorum


@pytest.mark.parametrize(
    "options",
    [
        {"durable": True, "arguments": {"x-queue-type": "classic"}},
        {"durable": True, "exclusive": True},
        {"durable": True, "auto_delete": True},
        {},
    ],
    ids=str,
)
def test_what_only_a_classic_queue_can_be_is_one(harness: Harness, client: Client, options: dict[str, Any]) -> None:
    set_default_type(harness, "quorum")
    client.declare("q", **options)
    client.declare("q", **options)
    assert not harness.node.queues["/", "q"].settings.quorum


def test_the_default_type_counts_for_names_and_redeclarations_too(harness: Harness, client: Client) -> None:
    client.declare("q", durable=True)
    set_default_type(harness, "quorum")
    assert "received 'quorum' but current is 'classic'" in refused(client, {})
    client.send(Channel.CloseOk())
    client.channel(1)
    assert "Cannot declare a server-named queue" in text_of_close(client, Queue.Declare(queue="", durable=True))
