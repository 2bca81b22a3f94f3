"""Limits of virtual hosts, users and the node: who is one too many is refused with RabbitMQ's error."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from amqpd.connection import Connection
from amqpd.flow.client_counters import CHANNELS, DECLARING, NOBODY, USER
from amqpd.topology import plans
from amqpd.vocabulary.limits import Limits
from amqpd.vocabulary.records import Delete, ParameterRecord, Put, UserRecord
from amqpd.vocabulary.states import PeerAddress
from tests.harness.harness import PROTOCOL_HEADER, Client, Harness


@pytest.fixture
def harness() -> Harness:
    return Harness()


def limit_vhost(harness: Harness, vhost: str = "/", **limits: int) -> None:
    value = {key.replace("_", "-"): limit for key, limit in limits.items()}
    harness._apply([Put(ParameterRecord(vhost, "vhost-limits", "limits", value))])


def limit_user(harness: Harness, **limits: int) -> None:
    value = {key.replace("_", "-"): limit for key, limit in limits.items()}
    harness._apply([Put(UserRecord("guest", limits=value))])


def refusal(harness: Harness, vhost: str = "/") -> Any:
    """What a connection gets that is one too many."""
    client = Client(harness)
    client.raw(PROTOCOL_HEADER)
    client.expect(commands.Connection.Start)
    client.send(commands.Connection.StartOk(response="\0guest\0guest", mechanism="PLAIN"), 0)
    tune = client.expect(commands.Connection.Tune)
    client.send(commands.Connection.TuneOk(tune.channel_max, tune.frame_max, 0), 0)
    client.send(commands.Connection.Open(virtual_host=vhost), 0)
    close = client.expect(commands.Connection.Close)
    client.send(commands.Connection.CloseOk(), 0)
    assert client.closed
    return close


def texts(close: Any) -> tuple[int, str]:
    return (close.reply_code, close.reply_text)


# -- connections


def test_a_vhost_has_so_many_connections_and_a_closed_one_makes_room(harness: Harness) -> None:
    limit_vhost(harness, max_connections=2)
    first, _ = harness.client(), harness.client()
    assert texts(refusal(harness)) == (
        530,
        "NOT_ALLOWED - access to vhost '/' refused for user 'guest': connection limit (2) is reached",
    )
    first.lose()
    harness.client()
    refusal(harness)


def test_a_user_has_so_many_connections_in_all_vhosts(harness: Harness) -> None:
    harness._apply(plans.create_vhost("other"))
    limit_user(harness, max_connections=1)
    client = harness.client()
    assert texts(refusal(harness, "other")) == (
        530,
        "NOT_ALLOWED - connection refused for user 'guest': user connection limit (1) is reached",
    )
    client.send(commands.Connection.Close(200, "", 0, 0), 0)
    harness.client()


def test_the_node_has_so_many_connections() -> None:
    harness = Harness(Limits(node_connections_max=1))
    harness.client()
    text = "NOT_ALLOWED - connection refused: node connection limit (1) is reached"
    assert texts(refusal(harness)) == (530, text)
    # The node's limit is looked at first, in RabbitMQ too.
    assert texts(refusal(harness, "missing")) == (530, text)


def test_zero_allows_none_and_minus_one_all(harness: Harness) -> None:
    limit_vhost(harness, max_connections=0)
    assert "connection limit (0) is reached" in refusal(harness).reply_text
    limit_vhost(harness, max_connections=-1)
    limit_user(harness, max_connections=-1, max_channels=-1)
    harness.client()
    limit_user(harness, max_connections=0)
    assert "user connection limit (0) is reached" in refusal(harness).reply_text


def test_a_limit_that_is_lowered_closes_nothing(harness: Harness) -> None:
    client = harness.client()
    limit_vhost(harness, max_connections=0, max_queues=0)
    limit_user(harness, max_connections=0, max_channels=0)
    client.call(commands.Basic.Qos(), commands.Basic.QosOk)
    harness._apply([Delete(("parameter", "/", "vhost-limits", "limits")), Put(UserRecord("guest"))])
    harness.client().channel(2)


def test_who_is_refused_or_never_came_in_is_not_counted(harness: Harness) -> None:
    limit_vhost(harness, max_connections=1)
    refused = [refusal(harness, "missing") for _ in range(2)]
    assert {close.reply_code for close in refused} == {530}
    Connection(harness.node, PeerAddress("silent", True), "silent", 0.0).lost()
    assert harness.node.client_counters.census() == NOBODY
    harness.client()


# -- channels


def test_a_user_has_so_many_channels_and_a_closed_one_makes_room(harness: Harness) -> None:
    limit_user(harness, max_channels=3)
    client, other = harness.client(), harness.client()
    client.channel(2)
    client.call(commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk, 2)
    other.channel(7)
    client.send(commands.Channel.Open(), 2)
    assert texts(client.expect(commands.Connection.Close)) == (
        530,
        "NOT_ALLOWED - number of channels opened for user 'guest' has reached the maximum allowed user limit of 3",
    )
    other.channel(8)


def test_the_node_has_so_many_channels() -> None:
    harness = Harness(Limits(node_channels_max=1))
    client = harness.client()
    client.send(commands.Channel.Open(), 2)
    text = "NOT_ALLOWED - number of channels opened on node 'amqpd@test' has reached the maximum allowed limit of 1"
    assert texts(client.expect(commands.Connection.Close)) == (530, text)


def test_channels_are_counted_however_they_end(harness: Harness) -> None:
    client_counters = harness.node.client_counters
    client = harness.client()
    for number in range(2, 6):
        client.channel(number)
    assert (client_counters.count(CHANNELS), client_counters.count(CHANNELS, USER, "guest")) == (5, 5)
    client.send(commands.Basic.Get(queue="missing"), 2)  # the broker closes it
    client.expect(commands.Channel.Close)
    assert client_counters.count(CHANNELS) == 5
    client.send(commands.Channel.CloseOk(), 2)
    client.call(commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk, 3)
    client.send(commands.Channel.CloseOk(), 4)
    assert client_counters.count(CHANNELS) == 2
    client.lose()
    assert client_counters.census() == NOBODY


# -- queues and exchanges


def test_a_vhost_has_so_many_queues_and_a_deleted_one_makes_room(harness: Harness) -> None:
    limit_vhost(harness, max_queues=2)
    client = harness.client()
    client.declare("a")
    client.declare("b", exclusive=True)
    client.send(commands.Queue.Declare(queue="c"))
    close = client.expect(commands.Channel.Close)
    assert texts(close) == (
        406,
        "PRECONDITION_FAILED - cannot declare queue 'c': queue limit in vhost '/' (2) is reached",
    )
    assert (close.class_id, close.method_id) == (50, 10)
    client.send(commands.Channel.CloseOk())
    client.channel(1)
    # What is there may be declared again, actively and passively.
    client.declare("a")
    client.declare("a", passive=True)
    client.call(commands.Queue.Delete(queue="a"), commands.Queue.DeleteOk)
    client.declare("c")


def test_queues_of_another_vhost_do_not_count(harness: Harness) -> None:
    harness._apply(plans.create_vhost("other"))
    limit_vhost(harness, "other", max_queues=0)
    harness.client().declare("a")


def test_the_node_has_so_many_queues() -> None:
    harness = Harness(Limits(node_queues_max=1))
    client = harness.client()
    client.declare("a")
    client.send(commands.Queue.Declare(queue="b"))
    text = "PRECONDITION_FAILED - cannot declare queue 'b': queue limit in cluster (1) is reached"
    assert texts(client.expect(commands.Channel.Close)) == (406, text)


def test_declarations_on_many_channels_at_once_do_not_get_past_the_limit_together(harness: Harness) -> None:
    limit_vhost(harness, max_queues=3)
    client = harness.client()
    for number in range(2, 6):
        client.channel(number)
    harness.automatic = False
    for number in range(1, 6):
        client.send(commands.Queue.Declare(queue=f"q{number}"), number)
    assert len(client.take(commands.Channel.Close)) == 2
    harness.automatic = True
    harness.step()
    assert len(client.take(commands.Queue.DeclareOk)) == 3
    assert not harness.node.client_counters.count(DECLARING)


def test_a_declaration_whose_channel_is_gone_does_not_stay_counted(harness: Harness) -> None:
    limit_vhost(harness, max_queues=1)
    client, other = harness.client(), harness.client()
    harness.automatic = False
    client.send(commands.Queue.Declare(queue="q", exclusive=True))
    client.lose()
    harness.automatic = True
    harness.step()
    assert not harness.node.client_counters.count(DECLARING)
    other.declare("r")


def test_a_queue_that_ended_by_itself_makes_room_at_once(harness: Harness) -> None:
    limit_vhost(harness, max_queues=1)
    client = harness.client()
    client.declare("a", auto_delete=True)
    client.consume("a")
    harness.automatic = False
    client.send(commands.Basic.Cancel(consumer_tag="t"))
    client.expect(commands.Basic.CancelOk)
    client.send(commands.Queue.Declare(queue="b"))
    harness.automatic = True
    harness.step()
    client.expect(commands.Queue.DeclareOk)


def test_the_node_has_so_many_exchanges() -> None:
    # Six are declared in each virtual host, and the default exchange counts, in RabbitMQ too.
    harness = Harness(Limits(node_exchanges_max=8))
    client = harness.client()
    client.call(commands.Exchange.Declare(exchange="x"), commands.Exchange.DeclareOk)
    client.call(commands.Exchange.Declare(exchange="x"), commands.Exchange.DeclareOk)
    client.send(commands.Exchange.Declare(exchange="y"))
    text = "PRECONDITION_FAILED - cannot declare exchange 'y' in vhost '/': exchange limit of 8 is reached"
    assert texts(client.expect(commands.Channel.Close)) == (406, text)
