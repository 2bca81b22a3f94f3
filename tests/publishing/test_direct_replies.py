"""Direct reply-to (https://www.rabbitmq.com/docs/direct-reply-to). Texts: RabbitMQ 3.10.8 answered the same."""

from __future__ import annotations

import re
import struct
from base64 import b64decode
from typing import Any

import pytest
from pamqp import commands

from amqpd.peers.entry import NUMBER_MAX
from amqpd.publishing.replies import process_part
from amqpd.setting_types import NODE_NAME_MAX
from amqpd.vocabulary.limits import Limits
from tests.harness.harness import Client, Harness, publish_bytes

REPLY_TO = "amq.rabbitmq.reply-to"


def declare(client: Client, name: str, flags: int) -> None:
    """queue.declare, as clients without pamqp send it, which refuses the name's `=`."""
    payload = b"\x00\x32\x00\x0a\x00\x00" + bytes([len(name)]) + name.encode() + bytes([flags]) + bytes(4)
    client.raw(struct.pack(">BHI", 1, 1, len(payload)) + payload + b"\xce")


def closed(client: Client) -> str:
    close = client.expect(commands.Channel.Close)
    client.send(commands.Channel.CloseOk())
    client.channel(1)
    return str(close.reply_text)


def asks(client: Client, server: Client, **properties: Any) -> str:
    """A request, and the name that it carries for replies."""
    server.declare("requests")
    client.publish(b"question", "requests", reply_to=REPLY_TO, **properties)
    client.harness.step()
    server.send(commands.Basic.Get(queue="requests", no_ack=True))
    (request,) = server.messages()
    assert request.body == b"question"
    return str(request.properties.reply_to)


def test_the_name_says_which_process_gave_it_out() -> None:
    """Of two processes of one node a later one is not taken for the earlier one, whose requesters are gone."""
    harness = Harness()
    names = []
    for incarnation in (None, 3, 4):
        harness.cluster.process = incarnation
        client, server = harness.client(), harness.client()
        client.consume(REPLY_TO, tag="replies", no_ack=True)
        names.append(asks(client, server))
    parts = [b64decode(name.removeprefix(REPLY_TO + ".").partition(".")[0]).decode() for name in names]
    node = harness.node.identity.name
    assert parts == [f"{node}:0", f"{node}:3", f"{node}:4"]
    longest = process_part("n" * NODE_NAME_MAX, NUMBER_MAX)
    assert len(names[0]) - len(parts[0]) + len(longest) < 255, "a short string holds every name"


@pytest.fixture
def pair() -> tuple[Client, Client, str]:
    """A requester with its consumer, somebody who replies, and the name."""
    harness = Harness()
    client, server = harness.client(), harness.client()
    client.consume(REPLY_TO, tag="replies", no_ack=True)
    return client, server, asks(client, server, correlation_id="7")


def test_a_reply_goes_straight_to_the_requester(pair: tuple[Client, Client, str]) -> None:
    client, server, name = pair
    assert re.fullmatch(r"amq\.rabbitmq\.reply-to\.[A-Za-z0-9+/=_-]+\.[A-Za-z0-9+/_-]{22}==", name)
    server.publish(b"answer", name, correlation_id="7", mandatory=True)
    client.collect()
    (reply,) = client.messages()
    assert (reply.body, reply.properties.correlation_id) == (b"answer", "7")
    method = reply.method
    assert (method.consumer_tag, method.exchange, method.routing_key) == ("replies", "", name)
    assert (method.delivery_tag, method.redelivered) == (1, False)
    assert server.messages() == []
    server.raw(publish_bytes(b"a", name) * 3)
    client.collect()
    assert [message.tag for message in client.messages()] == [2, 3, 4]
    assert client.harness.node.replies.delivered == 4


def test_the_rest_of_a_request_is_as_it_was(pair: tuple[Client, Client, str]) -> None:
    client, server, first = pair
    server.call(commands.Queue.Purge(queue="requests"), commands.Queue.PurgeOk)
    client.publish(b"q", "requests", reply_to=REPLY_TO, message_id="m", headers={"a": 1}, delivery_mode=2)
    server.send(commands.Basic.Get(queue="requests", no_ack=True))
    (request,) = server.messages()
    properties = request.properties
    assert (properties.reply_to, properties.message_id, properties.headers) == (first, "m", {"a": 1})
    client.publish(b"q", "requests", reply_to="some.queue")
    server.send(commands.Basic.Get(queue="requests", no_ack=True))
    assert server.messages()[0].properties.reply_to == "some.queue"


def test_replies_are_confirmed_at_once_and_need_no_queue(pair: tuple[Client, Client, str]) -> None:
    client, server, name = pair
    server.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
    server.publish(b"answer", name, delivery_mode=2)
    assert server.expect(commands.Basic.Ack).delivery_tag == 1
    assert ("/", name) not in client.harness.node.queues


def test_a_declaration_of_the_name_tells_whether_the_requester_lives(pair: tuple[Client, Client, str]) -> None:
    client, server, name = pair
    for passive in (1, 0):
        declare(server, name, passive)
        answer = server.expect(commands.Queue.DeclareOk)
        assert (answer.queue, answer.message_count, answer.consumer_count) == (name, 0, 1)
    client.call(commands.Basic.Cancel(consumer_tag="replies"), commands.Basic.CancelOk)
    declare(server, name, 1)
    assert closed(server) == f"NOT_FOUND - no queue '{name}' in vhost '/'"


def test_the_pseudo_queue_itself_is_always_there() -> None:
    client = Harness().client()
    client.harness.access.forbidden |= {(kind, REPLY_TO) for kind in ("configure", "write", "read")}
    for options in ({"passive": True}, {}, {"exclusive": True, "durable": True}):
        answer = client.declare(REPLY_TO, **options)
        assert (answer.queue, answer.message_count, answer.consumer_count) == (REPLY_TO, 0, 1)
    client.consume(REPLY_TO, no_ack=True)
    for name in (REPLY_TO + ".x", REPLY_TO + "x"):
        client.send(commands.Queue.Declare(queue=name))
        assert closed(client) == f"NOT_FOUND - no queue '{name}' in vhost '/'"


@pytest.mark.parametrize("end", ["cancel", "channel", "connection", "lost", "error"])
def test_a_reply_to_somebody_who_is_gone_is_unroutable(pair: tuple[Client, Client, str], end: str) -> None:
    client, server, name = pair
    server.publish(b"in time", name)
    match end:
        case "cancel":
            client.collect()
            assert client.bodies() == [b"in time"]
            client.call(commands.Basic.Cancel(consumer_tag="replies"), commands.Basic.CancelOk)
        case "channel":
            client.send(commands.Channel.Close(0, "", 0, 0))
        case "connection":
            client.send(commands.Connection.Close(0, "", 0, 0), 0)
        case "lost":
            client.lose()
        case "error":
            client.send(commands.Basic.Ack(99))
    server.publish(b"too late", name, mandatory=True)
    (returned,) = server.messages()
    assert (returned.body, returned.method.reply_code) == (b"too late", 312)
    assert client.bodies() in ([], [b"in time"])


def test_a_name_is_good_for_one_consumer_only(pair: tuple[Client, Client, str]) -> None:
    client, server, name = pair
    client.call(commands.Basic.Cancel(consumer_tag="replies"), commands.Basic.CancelOk)
    client.consume(REPLY_TO, tag="again", no_ack=True)
    second = asks(client, server)
    assert second != name
    server.publish(b"old", name)
    server.publish(b"new", second)
    client.collect()
    assert [(message.method.consumer_tag, message.body) for message in client.messages()] == [("again", b"new")]


def test_names_are_of_one_virtual_host(pair: tuple[Client, Client, str]) -> None:
    client, _, name = pair
    assert client.harness.node.replies.find("/", name) is not None
    assert client.harness.node.replies.find("other", name) is None


def test_what_rabbitmq_refuses_of_reply_consumers() -> None:
    client = Harness().client()
    client.publish(reply_to=REPLY_TO)
    assert closed(client) == "PRECONDITION_FAILED - fast reply consumer does not exist"
    client.send(commands.Basic.Consume(queue=REPLY_TO))
    assert closed(client) == "PRECONDITION_FAILED - reply consumer cannot acknowledge"
    client.consume(REPLY_TO, no_ack=True)
    client.send(commands.Basic.Consume(queue=REPLY_TO, no_ack=True))
    assert closed(client) == "PRECONDITION_FAILED - reply consumer already set"
    client.consume(REPLY_TO, no_ack=True)
    client.send(commands.Basic.Consume(queue=REPLY_TO))
    assert closed(client) == "PRECONDITION_FAILED - reply consumer cannot acknowledge"
    for method in (commands.Basic.Get(queue=REPLY_TO), commands.Queue.Purge(queue=REPLY_TO)):
        client.send(method)
        assert closed(client) == f"NOT_FOUND - no queue '{REPLY_TO}' in vhost '/'"


def test_its_tag_is_taken() -> None:
    client = Harness().client()
    client.declare("q")
    client.consume(REPLY_TO, tag="t", no_ack=True)
    client.send(commands.Basic.Consume(queue="q", consumer_tag="t"))
    assert client.expect(commands.Connection.Close).reply_text == "NOT_ALLOWED - attempt to reuse consumer tag 't'"


def test_the_server_names_the_consumer_if_nobody_else_does() -> None:
    client = Harness().client()
    answer = client.call(commands.Basic.Consume(queue=REPLY_TO, no_ack=True), commands.Basic.ConsumeOk)
    assert answer.consumer_tag.startswith("amq.ctag-")
    client.send(commands.Basic.Cancel(consumer_tag=answer.consumer_tag, nowait=True))
    client.consume(REPLY_TO, no_ack=True)


def test_a_copy_may_go_to_a_requester(pair: tuple[Client, Client, str]) -> None:
    client, server, name = pair
    server.declare("audit")
    server.publish(b"both", "audit", headers={"CC": [name, name]})
    client.collect()
    assert client.bodies() == [b"both"]
    assert server.declare("audit", passive=True).message_count == 1
    server.publish(b"hidden", name, headers={"BCC": ["audit"]})
    client.collect()
    (reply,) = client.messages()
    assert (reply.body, reply.properties.headers) == (b"hidden", {})
    assert server.declare("audit", passive=True).message_count == 2


def test_only_the_default_exchange_leads_to_requesters(pair: tuple[Client, Client, str]) -> None:
    client, server, name = pair
    server.publish(b"x", name, "amq.topic", mandatory=True)
    client.collect()
    assert client.messages() == []
    assert len(server.messages()) == 1


def test_replies_in_a_transaction_go_at_its_commit(pair: tuple[Client, Client, str]) -> None:
    client, server, name = pair
    server.call(commands.Tx.Select(), commands.Tx.SelectOk)
    server.publish(b"held", name)
    client.collect()
    assert client.messages() == []
    server.call(commands.Tx.Commit(), commands.Tx.CommitOk)
    client.collect()
    assert client.bodies() == [b"held"]
    server.publish(b"never", name)
    server.call(commands.Tx.Rollback(), commands.Tx.RollbackOk)
    client.collect()
    assert client.bodies() == []


def test_who_does_not_read_loses_replies_and_nothing_else() -> None:
    harness = Harness(Limits(outbox_bytes_max=4096))
    client, server = harness.client(), harness.client()
    client.consume(REPLY_TO, no_ack=True)
    name = asks(client, server)
    for i in range(100):
        server.connection.receive(publish_bytes(b"%098d" % i, name))
        harness.step()
    assert client.connection.outbox_bytes < 3 * 4096
    assert not client.connection.choked
    client.collect()
    taken = client.bodies()
    replies = harness.node.replies
    assert (len(taken), len(taken) + replies.dropped) == (replies.delivered, 100)
    assert taken == [b"%098d" % i for i in range(len(taken))]
    server.publish(b"again", name)
    client.collect()
    assert client.bodies() == [b"again"]


@pytest.mark.parametrize("mandatory", [False, True])
@pytest.mark.parametrize("how", ["channel.close", "basic.cancel", "reopened"])
def test_a_reply_that_a_transaction_held_goes_to_nobody_when_the_requester_has_gone(
    how: str, mandatory: bool
) -> None:
    harness = Harness()
    client, server = harness.client(), harness.client()
    client.consume(REPLY_TO, tag="replies", no_ack=True)
    name = asks(client, server)
    server.call(commands.Tx.Select(), commands.Tx.SelectOk)
    server.publish(b"answer", name, mandatory=mandatory)
    if how == "basic.cancel":
        client.call(commands.Basic.Cancel(consumer_tag="replies"), commands.Basic.CancelOk)
    else:
        client.call(commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)
        if how == "reopened":
            client.channel(1)
            client.consume(REPLY_TO, tag="replies", no_ack=True)
    server.send(commands.Tx.Commit())
    if mandatory:
        (returned,) = server.messages()
        assert (returned.method.reply_code, returned.body) == (312, b"answer")
    server.expect(commands.Tx.CommitOk)
    client.collect()
    assert client.messages() == []
    assert harness.bugs == []
