"""The event exchange: what happens in the broker comes to those who bind a queue to amq.rabbitmq.event."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from amqpd.events.exchange import STRANGERS_BYTES_MAX
from amqpd.publishing.copies import DROPS_TOLD_MS, PENDING_BYTES_MAX
from amqpd.topology import plans
from amqpd.topology.plans import EVENT_EXCHANGE
from amqpd.vocabulary.caller import Caller
from amqpd.vocabulary.records import Change, Delete, ExchangeRecord, Put, UserRecord, VhostRecord
from tests.harness.harness import PROTOCOL_HEADER, Client, Harness, Message, publish_bytes

Basic, Channel, Connection, Exchange, Queue = (
    commands.Basic,
    commands.Channel,
    commands.Connection,
    commands.Exchange,
    commands.Queue,
)
PEER = "127.0.0.1:4711 -> 127.0.0.1:5672"


class Watched:
    """A node with the event exchange, and a client that sees the events when it has bound its queue."""

    def __init__(self, vhost: str = "/") -> None:
        self.harness = Harness()
        self.harness.node.now_ms = 1_700_000_000_123
        if vhost != "/":
            self.harness._apply(plans.create_vhost(vhost))
        self.harness._apply([Put(ExchangeRecord(vhost, EVENT_EXCHANGE, "topic", internal=True))])
        self.harness.node.event_exchange.start(vhost)
        self.watcher = Client(self.harness)
        self.watcher.open(vhost)
        self.watcher.declare("events")

    @property
    def copies(self) -> Any:
        return self.harness.node.event_exchange.copies

    def bind(self, key: str = "#") -> None:
        self.watcher.call(Queue.Bind(queue="events", exchange=EVENT_EXCHANGE, routing_key=key), Queue.BindOk)

    def messages(self) -> list[Message]:
        found: list[Message] = []
        while True:
            self.harness.step()
            self.watcher.send(Basic.Get(queue="events", no_ack=True))
            messages = self.watcher.messages()
            if not messages:
                self.watcher.take(Basic.GetEmpty)
                return found
            found += messages

    def events(self) -> list[tuple[str, dict[str, Any]]]:
        """Routing keys and headers, without the time."""
        found = []
        for message in self.messages():
            headers = dict(message.properties.headers)
            assert headers.pop("timestamp_in_ms") == self.harness.node.now_ms
            found.append((message.method.routing_key, headers))
        return found

    def keys(self) -> list[str]:
        return [key for key, _ in self.events()]

    def client(self) -> Client:
        client = Client(self.harness)
        client.connection.name = PEER
        client.open()
        return client


@pytest.fixture
def watched() -> Watched:
    return Watched()


def bound() -> Watched:
    watched = Watched()
    watched.bind()
    watched.events()
    return watched


def test_off_nothing_is_published_and_nobody_listens() -> None:
    harness = Harness()
    harness._apply([Put(ExchangeRecord("/", EVENT_EXCHANGE, "topic", internal=True))])
    client = harness.client()
    client.declare("q")
    client.call(Queue.Bind(queue="q", exchange=EVENT_EXCHANGE, routing_key="#"), Queue.BindOk)
    client.declare("other")
    assert harness.node.queues["/", "q"].ready_count == 0
    assert harness.node.event_exchange.copies is None
    assert harness.node.acts.told_changes is None


def test_while_no_queue_is_bound_nothing_is_made(watched: Watched) -> None:
    watched.client().declare("q")
    assert (watched.copies.published, watched.copies.pending_bytes) == (0, 0)


def test_the_first_binding_is_the_first_event(watched: Watched) -> None:
    watched.bind()
    ((key, facts),) = watched.events()
    assert key == "binding.created"
    assert facts == {
        "source_name": EVENT_EXCHANGE,
        "source_kind": "exchange",
        "destination_name": "events",
        "destination_kind": "queue",
        "routing_key": "#",
        "arguments": [],
        "vhost": "/",
        "user_who_performed_action": "guest",
    }


def test_an_event_is_a_persistent_message_without_a_body_and_has_the_time_twice(watched: Watched) -> None:
    watched.bind()
    (message,) = watched.messages()
    properties = message.properties
    assert message.body == b""
    assert message.method.exchange == EVENT_EXCHANGE
    assert (properties.delivery_mode, properties.timestamp.timestamp()) == (2, 1_700_000_000)
    assert properties.headers["timestamp_in_ms"] == 1_700_000_000_123
    assert (properties.message_id, properties.content_type) == (None, None)


def test_only_what_was_bound_for_comes(watched: Watched) -> None:
    watched.bind("queue.*")
    watched.events()
    client = watched.client()
    client.declare("q")
    client.call(Queue.Delete(queue="q"), Queue.DeleteOk)
    assert watched.keys() == ["queue.created", "queue.deleted"]


def test_a_queue_that_comes_and_goes(watched: Watched) -> None:
    watched.bind("queue.#")
    client = watched.client()
    client.declare("q", durable=True, arguments={"x-max-length": 5})
    client.declare("mine", exclusive=True)
    client.declare("mine", exclusive=True)
    client.call(Queue.Delete(queue="q"), Queue.DeleteOk)
    (_, declared), (_, own), (gone_key, gone) = watched.events()
    assert declared == {
        "name": "q",
        "vhost": "/",
        "type": "rabbit_classic_queue",
        "durable": True,
        "auto_delete": False,
        "exclusive": False,
        "owner_pid": "",
        "arguments": ['{<<"x-max-length">>,byte,5}'],
        "user_who_performed_action": "guest",
    }
    assert (own["exclusive"], own["owner_pid"]) == (True, f"<amqpd@test.{client.connection.id}>")
    assert (gone_key, gone) == (
        "queue.deleted",
        {"name": "q", "vhost": "/", "user_who_performed_action": "guest"},
    )


def test_what_goes_along_with_a_thing_is_told_with_its_arguments() -> None:
    watched = bound()
    client = watched.client()
    client.declare("q")
    bind = Queue.Bind(queue="q", exchange="amq.headers", routing_key="k", arguments={"x": "y", "a": 1})
    client.call(bind, Queue.BindOk)
    watched.events()
    client.call(Queue.Delete(queue="q"), Queue.DeleteOk)
    (unbound_key, unbound), (key, _) = watched.events()
    assert (unbound_key, key) == ("binding.deleted", "queue.deleted")
    assert unbound["arguments"] == ['{<<"a">>,byte,1}', '{<<"x">>,longstr,<<"y">>}']
    assert (unbound["source_name"], unbound["destination_name"]) == ("amq.headers", "q")


def test_an_exchange_that_comes_and_goes() -> None:
    watched = bound()
    client = watched.client()
    watched.events()
    client.call(Exchange.Declare(exchange="x", exchange_type="topic"), Exchange.DeclareOk)
    client.call(Exchange.Delete(exchange="x"), Exchange.DeleteOk)
    (created_key, created), (deleted_key, _) = watched.events()
    assert (created_key, deleted_key) == ("exchange.created", "exchange.deleted")
    assert created == {
        "name": "x",
        "vhost": "/",
        "type": "topic",
        "durable": False,
        "auto_delete": False,
        "internal": False,
        "arguments": [],
        "policy": "",
        "user_who_performed_action": "guest",
    }


def test_a_connection_from_its_log_in_to_its_end() -> None:
    watched = bound()
    client = watched.client()
    client.declare("own", exclusive=True)
    client.consume("own", "t")
    client.lose()
    keys, facts = zip(*watched.events(), strict=True)
    assert keys == (
        "user.authentication.success",
        "connection.created",
        "channel.created",
        "queue.created",
        "consumer.created",
        "consumer.deleted",
        "channel.closed",
        "connection.closed",
        "queue.deleted",
    )
    login, opened, channel, queue, consumer, cancelled, closed, left, deleted = facts
    assert login == {
        "connection_type": "network",
        "name": "guest",
        "host": "{127,0,0,1}",
        "connection_name": PEER,
        "peer_host": "{127,0,0,1}",
        "peer_port": 4711,
        "protocol": "{0,9,1}",
        "auth_mechanism": "PLAIN",
        "ssl": False,
    }
    assert (opened["user"], opened["vhost"], opened["port"], opened["node"]) == ("guest", "/", 5672, "amqpd@test")
    assert opened["pid"] == channel["connection"] == left["pid"] == queue["owner_pid"]
    assert channel["pid"] == consumer["channel"] == cancelled["channel"] == closed["pid"]
    assert (channel["number"], consumer["consumer_tag"], consumer["queue"]) == (1, "t", "own")
    assert deleted["user_who_performed_action"] == "rmq-internal"


@pytest.mark.parametrize("how", ["cancel", "channel", "queue"])
def test_a_consumer_is_gone_once(how: str) -> None:
    watched = bound()
    client = watched.client()
    client.declare("q")
    client.consume("q", "t", no_ack=True)
    watched.events()
    if how == "cancel":
        client.call(Basic.Cancel(consumer_tag="t"), Basic.CancelOk)
    elif how == "channel":
        client.call(Channel.Close(reply_code=200, reply_text="", class_id=0, method_id=0), Channel.CloseOk)
    else:
        client.send(Queue.Delete(queue="q"))
    assert watched.keys().count("consumer.deleted") == 1


def test_a_refused_log_in_says_why_in_numbers_of_characters() -> None:
    watched = bound()
    client = Client(watched.harness)
    client.raw(PROTOCOL_HEADER)
    client.connection.claimed_user = "mallory"
    client.send(Connection.StartOk(client_properties={}, response="\0mallory\0wrong", mechanism="PLAIN"), 0)
    ((key, facts),) = watched.events()
    assert (key, facts["name"]) == ("user.authentication.failure", "mallory")
    assert "".join(map(chr, facts["error"])) == "wrong password"


def test_strangers_get_half_of_the_space() -> None:
    watched = bound()
    stranger = Client(watched.harness).connection
    watched.harness.automatic = False
    while not watched.copies.dropped:
        watched.harness.node.event_exchange.login_refused(stranger, "x" * 1000)
    assert STRANGERS_BYTES_MAX < watched.copies.pending_bytes < STRANGERS_BYTES_MAX + 10_000
    watched.harness.node.event_exchange.alarm("memory", True)
    assert watched.copies.dropped == 1


def test_what_comes_faster_than_there_is_time_for_is_dropped_counted_and_told_now_and_then() -> None:
    watched = bound()
    node = watched.harness.node
    watched.harness.automatic = False

    def fill(dropped: int) -> None:
        while watched.copies.dropped < dropped:
            node.event_exchange.alarm("x" * 10_000, True)

    fill(1)
    assert watched.copies.pending_bytes <= PENDING_BYTES_MAX
    told = [fields for event, fields in watched.harness.logged if event == "events_dropped"]
    assert told == [{"vhost": "/", "messages": 1}]
    fill(5)
    node.now_ms += DROPS_TOLD_MS
    fill(6)
    told = [fields for event, fields in watched.harness.logged if event == "events_dropped"]
    assert told == [{"vhost": "/", "messages": 1}, {"vhost": "/", "messages": 5}]


def test_while_memory_is_short_only_alarms_are_told() -> None:
    watched = bound()
    client = watched.client()
    watched.events()
    alarms = watched.harness.node.alarms
    alarms.put("memory", "watch", True, 0)
    alarms.put("memory", "watch", True, 0)
    client.declare("q")
    alarms.put("memory", "watch", False, 0)
    client.declare("r")
    assert [(key, facts.get("source"), facts.get("name")) for key, facts in watched.events()] == [
        ("alarm.set", "memory", None),
        ("alarm.cleared", "memory", None),
        ("queue.created", None, "r"),
    ]
    assert watched.copies.dropped == 1
    alarms.put("maintenance", "watch", True, 0)
    client.declare("s")
    assert watched.keys() == ["alarm.set", "queue.created"]


def test_an_event_is_no_cause_of_events() -> None:
    watched = bound()
    watched.client().declare("q")
    watched.events()
    published = watched.copies.published
    assert watched.events() == []
    assert watched.copies.published == published


def test_events_of_all_virtual_hosts_come_to_the_one_that_was_named() -> None:
    watched = Watched("ops")
    watched.bind("queue.created")
    watched.client().declare("q")
    ((_, facts),) = watched.events()
    assert (facts["name"], facts["vhost"]) == ("q", "/")


def test_without_its_virtual_host_nothing_is_published_and_nothing_fails() -> None:
    watched = Watched("ops")
    watched.bind()
    watched.harness._apply(plans.delete_vhost(watched.harness.topology, "ops"))
    watched.harness.step()
    watched.client().declare("q")
    watched.harness.step()
    assert watched.harness.bugs == []


def test_who_asked_is_named_and_who_did_not_ask_is_not_blamed() -> None:
    watched = bound()
    harness = watched.harness
    change: list[Change] = [Put(UserRecord("alice", "hash"))]
    done = harness.node.acts.expect(change, Caller("boss", "127.0.0.1"), lambda made: None)
    harness._apply(change)
    done(True)
    harness._apply([Delete(("user", "alice"))])
    assert [(key, facts["user_who_performed_action"]) for key, facts in watched.events()] == [
        ("user.created", "boss"),
        ("user.deleted", "rmq-cli"),
    ]


def test_what_recovery_finds_is_no_event(watched: Watched) -> None:
    watched.watcher.declare("kept", durable=True)
    watched.watcher.call(Queue.Bind(queue="kept", exchange=EVENT_EXCHANGE, routing_key="#"), Queue.BindOk)
    watched.harness.restart()
    watched.harness.node.event_exchange.start("/")
    watched.harness.step()
    assert watched.harness.node.queues["/", "kept"].ready_count == 1  # its binding's, of before


def test_a_client_cannot_publish_to_it(watched: Watched) -> None:
    client = watched.client()
    client.raw(publish_bytes(b"x", "queue.created", EVENT_EXCHANGE))
    closed = client.expect(Channel.Close)
    assert (closed.reply_code, closed.reply_text) == (
        403,
        "ACCESS_REFUSED - cannot publish to internal exchange 'amq.rabbitmq.event' in vhost '/'",
    )


def test_a_new_virtual_host_is_told_with_its_exchanges() -> None:
    watched = bound()
    watched.harness._apply(plans.create_vhost("new", "why", {"tags": ["a", "b"]}))
    (key, facts), *exchanges = watched.events()
    assert key == "vhost.created"
    assert facts == {
        "name": "new",
        "description": "why",
        "tags": ["a", "b"],
        "default_queue_type": "undefined",
        "metadata": '#{description => <<"why">>,tags => [a,b]}',
        "tracing": False,
        "cluster_state": {"amqpd@test": "running"},
        "user_who_performed_action": "rmq-cli",
    }
    assert {key for key, _ in exchanges} == {"exchange.created"}
    assert len(exchanges) == len(plans.PREDECLARED_EXCHANGES)
    watched.harness._apply([Put(VhostRecord("new", "why", metadata={"tags": ["a", "b"]}))])
    assert watched.events() == []
    watched.harness._apply([Put(VhostRecord("new", "other"))])
    assert watched.keys() == ["vhost.updated"]


def test_what_fails_in_an_event_reaches_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = bound()
    client = watched.client()

    def fails(*_: object) -> None:
        raise LookupError("a bug")

    monkeypatch.setattr("amqpd.events.exchange.put", fails)
    client.declare("q")
    assert [type(bug) for bug in watched.harness.bugs] == [LookupError]
    assert client.declare("q").queue == "q"
