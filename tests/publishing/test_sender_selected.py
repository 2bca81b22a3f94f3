"""CC and BCC, and what a publisher's properties may claim. Texts: RabbitMQ 3.10.8 answered the same."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from amqpd.message.rewriting import readdressed
from amqpd.publishing.routing import route_again
from amqpd.wire.fieldtypes import SignedInt
from tests.harness.harness import Client, Harness, publish_bytes
from tests.harness.runs import raw_publish, run_of_table


def closed(client: Client) -> str:
    close = client.expect(commands.Channel.Close)
    client.send(commands.Channel.CloseOk())
    client.channel(1)
    return str(close.reply_text)


def consumed(client: Client, *queues: str) -> dict[str, list[Any]]:
    """The messages of each queue."""
    found = {}
    for queue in queues:
        client.consume(queue, tag=queue, no_ack=True)
        found[queue] = client.messages()
        client.call(commands.Basic.Cancel(consumer_tag=queue), commands.Basic.CancelOk)
    return found


def test_cc_and_bcc_are_further_routing_keys_and_bcc_is_not_delivered() -> None:
    client = Harness().client()
    for queue in ("to", "cc", "bcc", "other"):
        client.declare(queue)
    client.publish(b"x", "to", headers={"CC": ["cc", "to"], "BCC": ["bcc", "missing"], "n": 1}, priority=3)
    found = consumed(client, "to", "cc", "bcc", "other")
    assert {queue: len(messages) for queue, messages in found.items()} == {"to": 1, "cc": 1, "bcc": 1, "other": 0}
    for queue in ("to", "cc", "bcc"):
        (message,) = found[queue]
        assert (message.method.routing_key, message.body) == ("to", b"x")
        assert (message.properties.headers, message.properties.priority) == ({"CC": ["cc", "to"], "n": 1}, 3)


def test_a_run_with_bcc_is_one_run() -> None:
    harness = Harness()
    client = harness.client()
    client.declare("a")
    client.declare("b")
    client.raw(b"".join(publish_bytes(b"%03d" % i, "a", headers={"BCC": ["b"]}) for i in range(100)))
    found = consumed(client, "a", "b")
    expected = [b"%03d" % i for i in range(100)]
    assert [message.body for message in found["a"]] == [message.body for message in found["b"]] == expected
    assert all(message.properties.headers == {} for message in found["b"])


def test_keys_are_matched_together_and_a_queue_gets_one_copy() -> None:
    client = Harness().client()
    client.declare("q")
    client.declare("r")
    for queue, key in (("q", "a.#"), ("q", "*.b"), ("r", "c")):
        client.call(commands.Queue.Bind(0, queue, "amq.topic", key, False, {}), commands.Queue.BindOk)
    client.publish(b"x", "a.b", "amq.topic", headers={"CC": ["a.c"], "BCC": ["c"]})
    client.publish(b"y", "none", "amq.topic", headers={"CC": ["c"]})
    client.publish(b"z", "none", "amq.topic")
    found = consumed(client, "q", "r")
    assert [message.body for message in found["q"]] == [b"x"]
    assert [message.body for message in found["r"]] == [b"x", b"y"]


def test_a_mandatory_message_that_only_a_copy_reaches_is_not_returned() -> None:
    client = Harness().client()
    client.declare("cc")
    client.publish(b"x", "nowhere", mandatory=True, headers={"CC": ["cc"]})
    client.publish(b"y", "nowhere", mandatory=True, headers={"BCC": ["missing"], "n": 1})
    (returned,) = client.messages()
    assert (returned.body, returned.properties.headers) == (b"y", {"n": 1})


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        (b"\x02CCS\0\0\0\x01a", '"CC",longstr'),
        (b"\x03BCCI\0\0\0\x05", '"BCC",signedint'),
        (b"\x02CCF\0\0\0\0", '"CC",table'),
        (b"\x02CCV", '"CC",void'),
        (b"\x02CCI\0\0\0\x05\x03BCCI\0\0\0\x05", '"CC",signedint'),
        (b"\x03BCCI\0\0\0\x05\x02CCt\x01", '"CC",bool'),
        (b"\x02CCl\0\0\1\0\0\0\0\0", '"CC",long'),
    ],
)
def test_copies_are_an_array(headers: bytes, text: str) -> None:
    client = Harness().client()
    client.raw(raw_publish("q", headers))
    assert closed(client) == f"PRECONDITION_FAILED - invalid message: {{unacceptable_type_in_header,{text}}}"


def test_what_is_no_text_among_the_copies_is_passed_over() -> None:
    client = Harness().client()
    client.declare("a")
    client.publish(b"x", "nowhere", headers={"CC": [5, "a", None]})
    assert len(consumed(client, "a")["a"]) == 1


@pytest.mark.parametrize(
    ("expiration", "reason"),
    [
        ("abc", "no_integer"),
        ("-1", "{value_negative,-1}"),
        ("1.5", '{leftover_string,".5"}'),
        ("12x", '{leftover_string,"x"}'),
        (" 12", "no_integer"),
        ("12 ", '{leftover_string," "}'),
        ("315360000001", "{value_too_large,315360000001}"),
        ("0x10", '{leftover_string,"x10"}'),
        ("\u0661", "no_integer"),
        ("-", "no_integer"),
    ],
)
def test_an_expiration_is_a_number_of_milliseconds(expiration: str, reason: str) -> None:
    client = Harness().client()
    client.publish(expiration=expiration)
    assert closed(client) == f"PRECONDITION_FAILED - invalid expiration '{expiration}': {reason}"


@pytest.mark.parametrize("expiration", ["0", "1", "+5", "007", "315360000000"])
def test_these_are_expirations(expiration: str) -> None:
    client = Harness().client()
    client.declare("q")
    client.publish(expiration=expiration)
    assert client.take(commands.Channel.Close) == []


def test_the_claimed_user_is_the_one_who_publishes() -> None:
    client = Harness().client()
    client.declare("q")
    client.publish(user_id="guest")
    client.publish(user_id="somebody")
    assert closed(client) == (
        "PRECONDITION_FAILED - user_id property set to 'somebody' but authenticated user was 'guest'"
    )
    client.connection.may_impersonate = True
    client.publish(user_id="somebody")
    assert [message.properties.user_id for message in consumed(client, "q")["q"]] == ["guest", "somebody"]


def test_the_checks_come_in_rabbitmqs_order() -> None:
    client = Harness().client()
    everything = {"user_id": "x", "expiration": "x", "reply_to": "amq.rabbitmq.reply-to", "headers": {"CC": 1}}
    texts = []
    for name in ("", "reply_to", "expiration", "headers"):
        everything.pop(name, None)
        client.publish(**everything)
        texts.append(closed(client).removeprefix("PRECONDITION_FAILED - ").split()[0])
    assert texts == ["fast", "invalid", "invalid", "user_id"]


def test_each_copys_key_needs_the_topic_permission() -> None:
    harness = Harness()
    client = harness.client()
    asked: list[str] = []
    harness.access.require_topic = lambda *args: asked.append(args[4])  # type: ignore[method-assign]
    client.publish(b"x", "a", "amq.topic", headers={"CC": ["b"], "BCC": ["c"]})
    assert asked == ["a", "b", "c"]


def test_a_refused_publish_reaches_nobody() -> None:
    client = Harness().client()
    client.declare("q")
    client.publish(headers={"CC": 5})
    closed(client)
    assert client.declare("q").message_count == 0


def test_a_client_cannot_forge_what_only_a_broker_writes() -> None:
    """The reserved field of basic.publish says that a broker wrote x-death."""
    client = Harness().client()
    client.declare("q")
    run = run_of_table(b"\x07x-deathA\0\0\0\0")
    client.raw(readdressed(run, "", "q", run.properties, 1).raw())
    queue = client.harness.node.queues["/", "q"]
    piece = queue.backlog.take(1)
    assert piece is not None
    assert piece[0].data[piece[0].start + 11 : piece[0].start + 13] == b"\0\0"


def test_a_run_is_routed_again_by_its_names_and_copies_without_any_check() -> None:
    harness = Harness()
    client = harness.client()
    for queue in ("a", "b", "c"):
        client.declare(queue)
    harness.access.forbidden.add(("write", ""))
    run = readdressed(
        run_of_table(b"\x02CCA\0\0\0\x06S\0\0\0\x01b"),
        "",
        "a",
        run_of_table(b"\x02CCA\0\0\0\x06S\0\0\0\x01b").properties,
    )
    node = harness.node
    assert [queue.record.name for queue in route_again(node, "/", run)] == ["a", "b"]
    assert [queue.record.name for queue in route_again(node, "/", run, ["c"])] == ["c"]
    assert route_again(node, "missing", run) == ()
    assert route_again(node, "/", readdressed(run, "missing", "a", run.properties)) == ()
    plain = readdressed(run, "", "a", b"\0\0")
    assert [queue.record.name for queue in route_again(node, "/", plain)] == ["a"]


def test_typed_numbers_in_headers_come_out_as_they_came() -> None:
    client = Harness().client()
    client.declare("q")
    table = b"\x01aI\0\0\0\x07\x01bs\0\x05\x03BCCA\0\0\0\0"
    client.raw(raw_publish("q", table))
    queue = client.harness.node.queues["/", "q"]
    piece = queue.backlog.take(1)
    assert piece is not None
    assert piece[0].properties.endswith(b"\x01aI\0\0\0\x07\x01bs\0\x05")
    headers = client.harness.node.properties.read(piece[0].properties).headers
    assert headers is not None
    assert isinstance(headers["a"], SignedInt)


@pytest.mark.parametrize("name", [b"CC", b"BCC"])
def test_a_copy_has_a_routing_key_that_could_be_published_with(name: bytes) -> None:
    """Longer ones would fill caches of keys, and cost patterns more than any routing key can."""
    for size, refused in ((255, False), (256, True)):
        client = Harness().client()
        client.declare("q")
        key = b"S" + size.to_bytes(4, "big") + b"k" * size
        client.raw(raw_publish("q", bytes((len(name),)) + name + b"A" + len(key).to_bytes(4, "big") + key))
        if refused:
            text = f"PRECONDITION_FAILED - invalid message: a routing key in {name.decode()} is longer than 255 bytes"
            assert closed(client) == text
        else:
            assert client.declare("q", passive=True).message_count == 1
