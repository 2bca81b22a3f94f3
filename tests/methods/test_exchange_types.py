"""Exchange types of RabbitMQ's plugins through a whole node, and what declarations of exchanges are told."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pamqp import commands

from amqpd.publishing import histories
from amqpd.vocabulary.records import BindingRecord, Delete, Put, QueueRecord
from tests.harness.harness import Client, Harness, publish_bytes


def declare(client: Client, name: str, kind: str, **arguments: Any) -> None:
    given = {key.replace("_", "-"): value for key, value in arguments.items()}
    method = commands.Exchange.Declare(exchange=name, exchange_type=kind, arguments=given)
    client.call(method, commands.Exchange.DeclareOk)


def bind(client: Client, queue: str, exchange: str, key: str = "") -> None:
    client.call(commands.Queue.Bind(0, queue, exchange, key, False, {}), commands.Queue.BindOk)


def bodies(client: Client, queue: str) -> list[bytes]:
    client.consume(queue, tag=queue, no_ack=True)
    found = client.bodies()
    client.call(commands.Basic.Cancel(consumer_tag=queue), commands.Basic.CancelOk)
    return found


def closed(client: Client) -> str:
    close = client.expect(commands.Channel.Close)
    client.send(commands.Channel.CloseOk())
    client.channel(1)
    return str(close.reply_text)


@pytest.fixture
def client() -> Client:
    return Harness().client()


def test_random_draws_for_each_message_of_a_run_and_keeps_the_order(client: Client) -> None:
    declare(client, "r", "x-random")
    for queue in "abc":
        client.declare(queue)
        bind(client, queue, "r")
    client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
    client.raw(b"".join(publish_bytes(b"%03d" % i, "k", "r") for i in range(300)))
    assert client.take(commands.Basic.Ack)[-1].delivery_tag == 300
    found = {queue: bodies(client, queue) for queue in "abc"}
    assert sorted(body for each in found.values() for body in each) == [b"%03d" % i for i in range(300)]
    assert all(each == sorted(each) and 80 < len(each) < 120 for each in found.values())


def test_local_random_draws_for_each_message_of_a_run_whatever_its_key(client: Client) -> None:
    declare(client, "l", "x-local-random")
    for queue in "abc":
        client.declare(queue)
        bind(client, queue, "l")
    client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
    client.raw(b"".join(publish_bytes(b"%03d" % i, "k", "l") for i in range(300)))
    assert client.take(commands.Basic.Ack)[-1].delivery_tag == 300
    found = {queue: bodies(client, queue) for queue in "abc"}
    assert sorted(body for each in found.values() for body in each) == [b"%03d" % i for i in range(300)]
    assert all(each == sorted(each) and 80 < len(each) < 120 for each in found.values())


def test_local_random_refuses_what_is_no_classic_queue_with_an_empty_key(client: Client) -> None:
    declare(client, "l", "x-local-random")
    declare(client, "other", "fanout")
    client.declare("q")
    client.declare("big", durable=True, arguments={"x-queue-type": "quorum"})
    client.send(commands.Queue.Bind(0, "q", "l", "key", False, {}))
    assert closed(client) == "PRECONDITION_FAILED - Non empty binding 'key' key not permitted"
    client.send(commands.Queue.Bind(0, "big", "l", "", False, {}))
    assert closed(client) == "PRECONDITION_FAILED - Queue type rabbit_quorum_queue not valid for this exchange type"
    client.send(commands.Exchange.Bind(0, "other", "l", "", False, {}))
    assert closed(client) == "PRECONDITION_FAILED - Destination not found"


def test_local_random_does_not_draw_another_nodes_exclusive_queue() -> None:
    harness = Harness()
    client = harness.client()
    declare(client, "l", "x-local-random")
    client.declare("here")
    bind(client, "here", "l")
    foreign = QueueRecord("/", "foreign", 99, False, exclusive=True, owner="a connection", node="another node")
    to_it = BindingRecord("/", "l", "foreign", "queue", "", durable=False)
    harness.submit([Put(foreign), Put(to_it)], lambda _: None)
    harness.step()
    assert ("/", "foreign") in harness.node.remote
    for i in range(20):
        client.publish(b"%d" % i, "", "l")
    assert len(bodies(client, "here")) == 20


def test_a_consistent_hash_sends_one_key_one_way(client: Client) -> None:
    declare(client, "h", "x-consistent-hash")
    for queue, weight in (("a", "1"), ("b", "1"), ("c", "2")):
        client.declare(queue)
        bind(client, queue, "h", weight)
    for i in range(400):
        client.publish(b"%d" % (i % 100), f"{i % 100}", "h")
    found = {queue: Counter(bodies(client, queue)) for queue in "abc"}
    assert sum(map(len, found.values())) == 100
    assert all(count == 4 for each in found.values() for count in each.values())


def test_a_weight_that_is_none_is_refused(client: Client) -> None:
    declare(client, "h", "x-consistent-hash")
    client.declare("q")
    client.send(commands.Queue.Bind(0, "q", "h", "many", False, {}))
    assert closed(client) == 'PRECONDITION_FAILED - The binding key must be an integer: <<"many">>'


def test_by_property_the_properties_are_read(client: Client) -> None:
    declare(client, "h", "x-consistent-hash", hash_property="message_id")
    for queue in "ab":
        client.declare(queue)
        bind(client, queue, "h", "1")
    for i in range(60):
        client.publish(b"%d" % i, "same key", "h", message_id=f"{i % 20}")
    found = {queue: set(bodies(client, queue)) for queue in "ab"}
    assert min(map(len, found.values())) >= 9
    for each in found.values():
        assert all(b"%d" % ((int(body) + 20) % 60) in each for body in each)


# -- recent history


def test_a_new_binding_gets_the_last_messages_and_then_the_others(client: Client) -> None:
    declare(client, "h", "x-recent-history", x_recent_history_length=3)
    client.declare("early")
    bind(client, "early", "h", "any")
    for i in range(5):
        client.publish(b"%d" % i, "k", "h", headers={"n": i})
    client.publish(b"secret", "k", "h", headers={"x-recent-history-no-store": True})
    client.declare("late")
    bind(client, "late", "h")
    bind(client, "late", "h")  # again: it is the same binding
    client.publish(b"5", "k", "h")
    assert bodies(client, "early") == [b"0", b"1", b"2", b"3", b"4", b"secret", b"5"]
    assert bodies(client, "late") == [b"2", b"3", b"4", b"5"]
    bind(client, "late", "h", "another binding")
    assert bodies(client, "late") == [b"3", b"4", b"5"]
    client.call(commands.Queue.Unbind(0, "late", "h", "", {}), commands.Queue.UnbindOk)
    bind(client, "late", "h")
    assert bodies(client, "late") == [b"3", b"4", b"5"]


def test_the_end_of_a_long_run_is_kept(client: Client) -> None:
    declare(client, "h", "x-recent-history")
    client.raw(b"".join(publish_bytes(b"%03d" % i, "k", "h") for i in range(100)))
    client.publish(b"100", "k", "h", headers={"BCC": ["x"]})
    client.declare("q")
    bind(client, "q", "h")
    assert bodies(client, "q") == [b"%03d" % i for i in range(81, 101)]


def test_what_is_kept_goes_through_an_exchange_that_is_bound(client: Client) -> None:
    declare(client, "h", "x-recent-history")
    declare(client, "t", "topic")
    client.declare("q")
    bind(client, "q", "t", "a.*")
    for key in ("a.1", "b.1", "a.2"):
        client.publish(key.encode(), key, "h")
    client.call(commands.Exchange.Bind(0, "t", "h", "", False, {}), commands.Exchange.BindOk)
    assert bodies(client, "q") == [b"a.1", b"a.2"]


def test_what_comes_through_other_exchanges_is_kept_too(client: Client) -> None:
    declare(client, "f", "fanout")
    declare(client, "h", "x-delayed-message", x_delayed_type="x-recent-history")
    client.call(commands.Exchange.Bind(0, "h", "f", "", False, {}), commands.Exchange.BindOk)
    client.publish(b"x", "k", "f")
    client.declare("q")
    bind(client, "q", "h")
    assert bodies(client, "q") == [b"x"]


def test_a_history_ends_with_its_exchange(client: Client) -> None:
    declare(client, "h", "x-recent-history")
    client.publish(b"x", "k", "h")
    node = client.harness.node
    assert (node.histories.count("/", "h"), node.histories.nbytes > 0) == (1, True)
    client.call(commands.Exchange.Delete(exchange="h"), commands.Exchange.DeleteOk)
    assert (node.histories.count("/", "h"), node.histories.nbytes) == (0, 0)
    declare(client, "h", "x-recent-history")
    client.declare("q")
    bind(client, "q", "h")
    assert bodies(client, "q") == []
    client.publish(b"x", "k", "h")
    node.histories.applied([Delete(("vhost", "/"))])
    assert node.histories.nbytes == 0


def test_a_history_is_bounded_in_bytes(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "EXCHANGE_BYTES_MAX", 3000)
    monkeypatch.setattr(histories, "BYTES_MAX", 5000)
    node = client.harness.node
    for name in ("h1", "h2"):
        declare(client, name, "x-recent-history", x_recent_history_length=2**40)
    for i in range(10):
        client.publish(b"%01000d" % i, "k", "h1")
    assert node.histories.count("/", "h1") == 2
    client.raw(b"".join(publish_bytes(b"%0100d" % i, "k", "h2") for i in range(100)))
    assert node.histories.nbytes <= 5000
    assert (node.histories.count("/", "h1") < 2, node.histories.count("/", "h2") > 10) == (True, True)
    client.publish(b"0" * 10_000, "k", "h2")
    assert node.histories.count("/", "h2") == 0
    client.declare("q")
    bind(client, "q", "h2")
    assert bodies(client, "q") == []


def test_a_restart_forgets_what_was_kept(client: Client) -> None:
    client.call(
        commands.Exchange.Declare(exchange="h", exchange_type="x-recent-history", durable=True),
        commands.Exchange.DeclareOk,
    )
    client.declare("q", durable=True)
    bind(client, "q", "h")
    client.publish(b"x", "k", "h", delivery_mode=2)
    client.harness.restart()
    again = client.harness.client()
    assert again.declare("q", durable=True).message_count == 1
    again.publish(b"y", "k", "h")
    bind(again, "q", "h")
    assert bodies(again, "q") == [b"x", b"y"]


# -- declarations


@pytest.mark.parametrize(
    ("value", "kind"), [(5, "signedint"), (None, "void"), (True, "bool"), (["a"], "array"), ({"a": 1}, "table")]
)
def test_an_alternate_exchange_is_a_text(client: Client, value: Any, kind: str) -> None:
    client.send(commands.Exchange.Declare(exchange="x", arguments={"alternate-exchange": value}))
    text = closed(client)
    kind = "byte" if value == 5 else kind  # pamqp sends the shortest
    assert (
        text
        == f"PRECONDITION_FAILED - invalid type '{kind}' for arg 'alternate-exchange' in exchange 'x' in vhost '/'"
    )


@pytest.mark.parametrize(
    ("kind", "arguments", "text"),
    [
        ("x-bogus", {}, "unknown exchange type 'x-bogus'"),
        ("x-delayed-message", {}, "Invalid argument, 'x-delayed-type' must be an existing exchange type"),
        ("x-consistent-hash", {"hash-property": "app_id"}, "Unsupported property: app_id"),
    ],
)
def test_what_is_wrong_with_a_type_or_its_arguments(
    client: Client, kind: str, arguments: dict[str, Any], text: str
) -> None:
    client.send(commands.Exchange.Declare(exchange="x", exchange_type=kind, arguments=arguments))
    assert closed(client) == f"PRECONDITION_FAILED - {text}"


def test_a_type_must_exist_also_for_an_exchange_that_does(client: Client) -> None:
    client.send(commands.Exchange.Declare(exchange="amq.direct", exchange_type="x-bogus", durable=True))
    assert closed(client) == "PRECONDITION_FAILED - unknown exchange type 'x-bogus'"
    client.send(commands.Exchange.Declare(exchange="amq.direct", exchange_type="x-bogus", passive=True))
    client.expect(commands.Exchange.DeclareOk)


def test_only_the_alternate_exchange_is_compared(client: Client) -> None:
    declare(client, "h", "x-recent-history", x_recent_history_length=3)
    declare(client, "h", "x-recent-history", x_recent_history_length=4)
    client.send(
        commands.Exchange.Declare(
            exchange="h", exchange_type="x-recent-history", arguments={"alternate-exchange": "a"}
        )
    )
    assert closed(client).endswith("received the value 'a' of type 'longstr' but current is none")
