"""Acts: who did what, without secrets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pamqp import commands, frame

from amqpd.audit.acts import NODE, address_of
from amqpd.connection import Connection
from amqpd.management import queues
from amqpd.management.operators import Operator
from amqpd.management.running import Running
from amqpd.vocabulary.audit_levels import ADMIN, OFF
from amqpd.vocabulary.records import (
    Change,
    Delete,
    ParameterRecord,
    PermissionRecord,
    Put,
    QueueRecord,
    UserRecord,
    VhostRecord,
)
from amqpd.vocabulary.states import PeerAddress
from tests.audit.reading import told
from tests.audit.recorded import RecordedHarness
from tests.harness.harness import PROTOCOL_HEADER, Client

WHO = ("event", "user", "address", "vhost", "object")


def named(harness: RecordedHarness) -> Client:
    client = Client(harness)
    client.connection.name = "[::1]:4000 -> [::1]:5672"
    client.open()
    return client


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("127.0.0.1:5000 -> 127.0.0.1:5672", "127.0.0.1"),
        ("[fe80::1]:5000 -> [fe80::2]:5672", "fe80::1"),
        ("10.0.0.1:5000", "10.0.0.1"),
        ("test", "test"),
    ],
)
def test_an_address_is_the_peers_without_its_port(name: str, address: str) -> None:
    assert address_of(name) == address


def test_a_connection_comes_and_goes(harness: RecordedHarness) -> None:
    client = named(harness)
    client.lose()
    assert told(harness.acts(), *WHO) == [
        ("connection_opened", "guest", "::1", "/", None),
        ("connection_closed", "guest", "::1", "/", None),
    ]


def test_what_a_client_declares_is_its_act(harness: RecordedHarness) -> None:
    client = named(harness)
    harness.acts()
    client.declare("q", durable=True, arguments={"x-max-length": 5})
    client.call(commands.Exchange.Declare(exchange="x", exchange_type="fanout"), commands.Exchange.DeclareOk)
    client.call(commands.Queue.Bind(queue="q", exchange="x", routing_key="k"), commands.Queue.BindOk)
    client.call(commands.Queue.Unbind(queue="q", exchange="x", routing_key="k"), commands.Queue.UnbindOk)
    client.call(commands.Queue.Purge(queue="q"), commands.Queue.PurgeOk)
    client.call(commands.Queue.Delete(queue="q"), commands.Queue.DeleteOk)
    client.call(commands.Exchange.Delete(exchange="x"), commands.Exchange.DeleteOk)
    rows = harness.acts()
    assert {(row["user"], row["address"], row["vhost"]) for row in rows} == {("guest", "::1", "/")}
    assert [(row["event"], (row["object"] or "").split()[:2]) for row in rows] == [
        ("queue_declared", ["queue", "q"]),
        ("exchange_declared", ["exchange", "x"]),
        ("bound", ["binding", "x"]),
        ("unbound", ["binding", "x"]),
        ("queue_purged", ["queue", "q"]),
        ("queue_deleted", ["queue", "q"]),
        ("exchange_deleted", ["exchange", "x"]),
    ]
    declared, bound = json.loads(rows[0]["detail"]), json.loads(rows[2]["detail"])
    assert declared == {
        "durable": True,
        "auto_delete": False,
        "exclusive": False,
        "arguments": {"x-max-length": 5},
    }
    assert (bound["source"], bound["destination"], bound["routing_key"]) == ("x", "q", "k")


def test_what_was_there_already_is_no_act(harness: RecordedHarness, client: Client) -> None:
    client.declare("q")
    harness.acts()
    client.declare("q")
    assert harness.acts() == []


def test_what_another_does_meanwhile_is_not_blamed_on_a_client(harness: RecordedHarness, client: Client) -> None:
    client.declare("q")
    harness.acts()
    harness._apply([Put(VhostRecord("other"))])
    harness._apply([Delete(("queue", "/", "q"))])
    assert told(harness.acts(), "event", "user", "object") == [
        ("vhost_put", "rmq-cli", "vhost other"),
        ("queue_deleted", "rmq-cli", "queue q"),
    ]


def test_where_nodes_share_a_store_another_node_is_no_command(harness: RecordedHarness, client: Client) -> None:
    """It has the user in its own log."""
    harness.node.acts.unasked = NODE
    harness._apply([Put(VhostRecord("other"))])
    client.declare("q")
    found = told(harness.acts(), "event", "user")
    assert found[-2:] == [("vhost_put", None), ("queue_declared", "guest")]


@pytest.mark.trio
@pytest.mark.parametrize("user", [None, "guest"])
async def test_what_an_operator_asks_the_broker_for_has_a_user(user: str | None) -> None:
    """A command has the name that RabbitMQ gives its own."""
    harness = RecordedHarness()
    by, on = Operator(user), Running(harness.node, harness.step)
    await queues.declare(on, by, "/", "q")
    await queues.purge(on, by, "/", "q")
    await queues.delete(on, by, "/", "q")
    rows = harness.acts()
    assert told(rows, "event", "user") == [
        (event, user or "rmq-cli") for event in ("queue_declared", "queue_purged", "queue_deleted")
    ]


SECRETS: list[tuple[Change, str, str]] = [
    (Put(UserRecord("alice", "SECRET-HASH", ("administrator",))), "user_put", "user alice"),
    (Delete(("user", "alice")), "user_deleted", "user alice"),
    (Put(PermissionRecord("alice", "/", "a.*", "", "")), "permission_put", "permission of alice"),
    (Put(ParameterRecord("/", "shovel", "s", {"uri": "amqp://u:SECRET@h"})), "parameter_put", "parameter shovel s"),
]


@pytest.mark.parametrize(("change", "event", "what"), SECRETS)
def test_no_secret_is_in_the_log(harness: RecordedHarness, change: Change, event: str, what: str) -> None:
    harness._apply([change])
    (row,) = harness.acts()
    assert (row["event"], row["object"], row["user"]) == (event, what, "rmq-cli")
    assert "SECRET" not in str(row)


def handshake(harness: RecordedHarness, response: str, vhost: str = "/") -> Client:
    client = Client(harness)
    client.raw(PROTOCOL_HEADER)
    start: Any = commands.Connection.StartOk(client_properties={}, response=response, mechanism="PLAIN")
    client.connection.claimed_user = "eve"
    client.send(start, 0)
    if client.connection.user:
        client.send(commands.Connection.TuneOk(100, 4096, 0), 0)
        client.send(commands.Connection.Open(virtual_host=vhost), 0)
    return client


def test_a_log_in_that_failed_names_who_it_wanted_to_be_and_is_told_once(harness: RecordedHarness) -> None:
    client = handshake(harness, "\0eve\0wrong")
    client.lose()
    assert told(harness.acts(), "event", "user", "reason", "vhost") == [
        ("login_failed", "eve", "wrong password", None)
    ]


def test_a_log_in_that_failed_is_told_though_the_client_has_left(harness: RecordedHarness) -> None:
    client = Client(harness)
    client.raw(PROTOCOL_HEADER)
    client.connection.claimed_user = "eve"
    client.lose()
    client.connection.refused("PLAIN", "wrong password")
    assert told(harness.acts(), "event", "user", "reason") == [("login_failed", "eve", "wrong password")]


def test_who_may_not_enter_was_never_connected(harness: RecordedHarness) -> None:
    harness.access.forbidden.add(("enter", "/"))
    client = handshake(harness, "\0guest\0guest")
    client.lose()
    assert told(harness.acts(), "event", "user", "object") == [("permission_refused", "guest", "vhost /")]


def test_a_refusal_says_what_was_refused_to_whom(harness: RecordedHarness) -> None:
    client = named(harness)
    harness.access.forbidden.add(("configure", "q"))
    harness.acts()
    client.send(commands.Queue.Declare(queue="q"))
    (row,) = harness.acts()
    assert told([row], *WHO) == [("permission_refused", "guest", "::1", "/", "queue q")]
    assert "configure" in json.loads(row["detail"])["told"]


def test_nothing_is_recorded_where_the_level_is_off() -> None:
    harness = RecordedHarness(OFF)
    client = harness.client()
    client.declare("q")
    client.publish(b"x", "q")
    client.lose()
    assert (harness.acts(), harness.log_rows()) == ([], [])


def test_a_virtual_host_has_acts_of_its_own_level() -> None:
    harness = RecordedHarness(OFF, other=ADMIN)
    harness._apply([Put(VhostRecord("other")), Put(VhostRecord("third")), Put(UserRecord("bob", ""))])
    client = harness.client()
    client.declare("q")
    rows = harness.acts()
    assert told(rows, "event", "object") == [("vhost_put", "vhost other"), ("user_put", "user bob")]


def test_the_brokers_own_events_are_there_where_messages_are_recorded() -> None:
    """A gap must never be missing."""
    harness = RecordedHarness(OFF)
    client = harness.client()
    client.declare("q")
    harness.recorder.act("gap", {"reason": "disk_full"})
    assert harness.acts() == []
    harness.policy(audit="full")
    harness.recorder.act("gap", {"reason": "disk_full"})
    assert told(harness.acts(), "event") == [("gap",)]


def test_a_connection_that_never_spoke_is_none(harness: RecordedHarness) -> None:
    connection = Connection(harness.node, PeerAddress("[::1]:1", True), "c0", 0.0)
    connection.lost()
    assert harness.acts() == []


def two_clients(harness: RecordedHarness) -> tuple[Client, Client]:
    clients = Client(harness), Client(harness)
    for number, client in enumerate(clients, 1):
        client.connection.name = f"10.0.0.{number}:4000 -> 10.0.0.9:5672"
        client.open()
    return clients


def test_what_ends_with_a_connection_is_not_blamed_on_another_whose_method_failed(harness: RecordedHarness) -> None:
    """Both in one tick: the node kept whose method was carried out, and an error of the channel left it there until
    the next method. A connection that is lost sends none."""
    first, second = two_clients(harness)
    second.declare("goes", auto_delete=True)
    second.declare("own", exclusive=True)
    second.call(commands.Basic.Consume(queue="goes", consumer_tag="c"), commands.Basic.ConsumeOk)
    harness.acts()
    first.connection.receive(frame.marshal(commands.Queue.Declare(queue="missing", passive=True), 1))
    second.connection.lost()
    harness.step()
    deleted = {row["object"]: row["address"] for row in harness.acts() if row["event"] == "queue_deleted"}
    assert deleted == {"queue goes": "10.0.0.2", "queue own": None}


def test_a_removal_that_waits_behind_another_names_its_client(harness: RecordedHarness) -> None:
    first, second = two_clients(harness)
    first.declare("a")
    second.declare("b")
    harness.acts()
    harness.automatic = False
    first.connection.receive(frame.marshal(commands.Queue.Delete(queue="a"), 1))
    second.connection.receive(frame.marshal(commands.Queue.Delete(queue="b"), 1))
    harness.automatic = True
    harness.step()
    harness.step()
    deleted = [(row["object"], row["address"]) for row in harness.acts() if row["event"] == "queue_deleted"]
    assert deleted == [("queue a", "10.0.0.1"), ("queue b", "10.0.0.2")]


@pytest.mark.parametrize("kind", ["exchange", "queue"])
def test_what_two_clients_declare_in_one_tick_is_the_act_of_the_one_that_made_it(
    harness: RecordedHarness, kind: str
) -> None:
    """The second one's request is on its way too when the first one's takes effect."""
    first, second = two_clients(harness)
    harness.acts()
    harness.automatic = False
    declare: list[Any] = [commands.Exchange.Declare(exchange="x", exchange_type=of) for of in ("direct", "fanout")]
    if kind == "queue":
        declare = [commands.Queue.Declare(queue="x")] * 2
    first.connection.receive(frame.marshal(declare[0], 1))
    second.connection.receive(frame.marshal(declare[1], 1))
    harness.automatic = True
    harness.step()
    rows = [row for row in harness.acts() if row["event"] == f"{kind}_declared"]
    assert [row["address"] for row in rows] == ["10.0.0.1"]


def test_what_another_process_made_is_not_the_act_of_a_client_that_asked_for_it(harness: RecordedHarness) -> None:
    first, _ = two_clients(harness)
    harness.acts()
    harness.automatic = False
    first.connection.receive(frame.marshal(commands.Queue.Declare(queue="x"), 1))
    harness._apply([Put(QueueRecord("/", "x", 77))])
    harness.automatic = True
    harness.step()
    assert told(harness.acts(), "event", "user", "object") == [("queue_declared", "rmq-cli", "queue x")]
