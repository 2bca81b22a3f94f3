"""What becomes of a message that no queue takes: returned, dropped, refused or sent another way; and counted."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from amqpd.publishing.unroutable import UnroutableOutcome
from amqpd.vocabulary.records import Change, Delete, ExchangeRecord, ParameterRecord, PolicyRecord, Put
from tests.harness.harness import Client, Harness, publish_bytes


def policy(way: str, pattern: str = "^x$") -> Change:
    return Put(PolicyRecord("/", "p", pattern, "exchanges", {"unroutable": way}))


@pytest.fixture
def client() -> Client:
    """A publisher with confirms, an exchange `x` with nothing behind it, and `spare` before the queue `rest`."""
    client = Harness().client()
    client.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
    for exchange, kind in (("x", "direct"), ("spare", "fanout")):
        client.call(commands.Exchange.Declare(exchange=exchange, exchange_type=kind), commands.Exchange.DeclareOk)
    client.declare("rest")
    client.call(commands.Queue.Bind(0, "rest", "spare", "", False, {}), commands.Queue.BindOk)
    return client


def counts(client: Client, exchange: str | None = "x") -> dict[str, int]:
    unroutable = client.harness.node.unroutable
    found = unroutable.of_vhost("/") if exchange is None else unroutable.of_exchange("/", exchange)
    return {outcome.value: count for outcome, count in found.items() if count}


def answers(client: Client) -> list[str]:
    client.collect()
    names = [type(value).__name__ for _, value in client.inbox]
    client.inbox = []
    return names


def in_rest(client: Client) -> int:
    answers(client)
    return int(client.declare("rest", passive=True).message_count)


def test_without_a_policy_it_is_dropped_and_confirmed(client: Client) -> None:
    client.publish(b"x", "k", "x")
    assert answers(client) == ["Ack"]
    assert counts(client) == counts(client, None) == {"dropped": 1}


def test_what_is_mandatory_is_returned_and_confirmed(client: Client) -> None:
    client.raw(publish_bytes(b"x", "k", "x", mandatory=True) * 3)
    assert answers(client) == ["Message", "Message", "Message", "Ack", "Ack", "Ack"]
    assert counts(client) == {"returned": 3}


@pytest.mark.parametrize("by", ["policy", "parameter"])
def test_nack_refuses_what_no_queue_takes(client: Client, by: str) -> None:
    change = policy("nack") if by == "policy" else Put(ParameterRecord("/", "unroutable", "default", "nack"))
    client.harness._apply([change])
    client.declare("q")
    client.publish(b"x", "k", "x")
    client.publish(b"x", "rest")
    client.raw(publish_bytes(b"x", "k", "x") * 2)
    assert answers(client) == ["Nack", "Ack", "Nack", "Nack"]
    assert counts(client) == {"nacked": 3}
    client.publish(b"x", "k", "x", mandatory=True)
    assert answers(client) == ["Message", "Nack"]
    assert counts(client) == {"nacked": 4, "returned": 1}


def test_nack_needs_confirms(client: Client) -> None:
    client.harness._apply([policy("nack")])
    client.channel(2)
    client.publish(b"x", "k", "x", channel=2)
    assert answers(client) == []
    assert counts(client) == {"dropped": 1}


def test_a_policy_goes_before_the_virtual_hosts_default(client: Client) -> None:
    client.harness._apply([Put(ParameterRecord("/", "unroutable", "default", "nack")), policy("drop")])
    client.publish(b"x", "k", "x")
    client.publish(b"x", "k", "amq.direct")
    client.publish(b"x", "missing")
    assert answers(client) == ["Ack", "Nack", "Nack"]
    assert counts(client) == {"dropped": 1}
    assert counts(client, None) == {"dropped": 1, "nacked": 2}


def test_another_exchange_gets_what_no_queue_takes(client: Client) -> None:
    client.harness._apply([policy("spare")])
    client.publish(b"x", "k", "x", mandatory=True)
    client.raw(publish_bytes(b"x", "k", "x") * 3)
    assert set(answers(client)) == {"Ack"}
    assert (in_rest(client), counts(client)) == (4, {"rerouted": 4})
    client.declare("q")
    client.call(commands.Queue.Bind(0, "q", "x", "k", False, {}), commands.Queue.BindOk)
    client.publish(b"x", "k", "x")
    assert (in_rest(client), counts(client)) == (4, {"rerouted": 4})


@pytest.mark.parametrize("other", ["missing", "x", "empty"])
def test_another_exchange_that_does_not_help_is_as_none(client: Client, other: str) -> None:
    client.call(commands.Exchange.Declare(exchange="empty"), commands.Exchange.DeclareOk)
    client.harness._apply([policy(other)])
    client.publish(b"x", "k", "x")
    client.publish(b"x", "k", "x", mandatory=True)
    assert [name for name in answers(client) if name != "Ack"] == ["Message"]
    assert counts(client) == {"dropped": 1, "returned": 1}


def test_the_alternate_exchange_goes_first(client: Client) -> None:
    arguments = {"alternate-exchange": "spare"}
    client.call(commands.Exchange.Declare(exchange="y", arguments=arguments), commands.Exchange.DeclareOk)
    client.harness._apply([policy("nack", "")])
    client.publish(b"x", "k", "y")
    assert answers(client) == ["Ack"]
    assert (in_rest(client), counts(client, "y")) == (1, {})


def test_headers_decide_on_the_other_way_too(client: Client) -> None:
    client.call(commands.Exchange.Declare(exchange="h", exchange_type="headers"), commands.Exchange.DeclareOk)
    client.call(commands.Queue.Bind(0, "rest", "h", "", False, {"colour": "red"}), commands.Queue.BindOk)
    client.harness._apply([policy("h")])
    for colour in ("red", "blue", "red"):
        client.publish(b"x", "k", "x", headers={"colour": colour})
    assert (in_rest(client), counts(client)) == (2, {"rerouted": 2, "dropped": 1})


def test_in_a_transaction_it_is_decided_at_the_commit(client: Client) -> None:
    client.harness._apply([policy("nack")])
    client.channel(2)
    client.call(commands.Tx.Select(), commands.Tx.SelectOk, 2)
    client.publish(b"x", "k", "x", channel=2)
    client.publish(b"x", "k", "x", channel=2, mandatory=True)
    assert counts(client) == {}
    client.send(commands.Tx.Commit(), 2)
    assert answers(client) == ["Message", "CommitOk"]
    assert counts(client) == {"dropped": 1, "returned": 1}


def test_counts_go_with_what_they_are_about(client: Client) -> None:
    client.publish(b"x", "k", "x")
    client.publish(b"x", "k", "amq.direct")
    client.send(commands.Exchange.Delete(exchange="x"))
    assert (counts(client), counts(client, None)) == ({}, {"dropped": 2})
    client.harness.node.unroutable.applied([Delete(("vhost", "/"))])
    assert (counts(client, "amq.direct"), counts(client, None)) == ({}, {})


def test_every_message_has_its_outcome(client: Client) -> None:
    """What is published to `x` is in the queue, or counted."""
    ways: list[Any] = [None, "drop", "nack", "spare", "missing"]
    sent = 0
    for way in ways:
        client.harness._apply([Delete(("policy", "/", "p"))] if way is None else [policy(way)])
        for mandatory in (False, True):
            client.raw(publish_bytes(b"x", "k", "x", mandatory=mandatory) * 5)
            sent += 5
    found = client.harness.node.unroutable.of_exchange("/", "x")
    both = 5  # mandatory under `nack`
    assert sum(found.values()) - both == sent
    assert found[UnroutableOutcome.REROUTED] == in_rest(client)


def test_an_exchange_record_of_another_virtual_host_is_not_touched(client: Client) -> None:
    client.publish(b"x", "k", "x")
    client.harness.node.unroutable.applied([Delete(ExchangeRecord("other", "x", "direct").key)])
    assert counts(client) == {"dropped": 1}
