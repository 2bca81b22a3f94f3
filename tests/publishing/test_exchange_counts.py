"""What passes an exchange: one message in, a copy out for each queue; and what waits there for its time."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands

from amqpd.exchanges.delayed_message import DELAYED_MESSAGE, DELAYED_TYPE
from amqpd.management.figures.inventory import added, figures_of_exchange
from tests.harness.harness import Client, Harness, publish_bytes


def declare(client: Client, name: str, kind: str = "fanout", **arguments: Any) -> None:
    method = commands.Exchange.Declare(exchange=name, exchange_type=kind, durable=True, arguments=arguments)
    client.call(method, commands.Exchange.DeclareOk)


def bound(client: Client, exchange: str, *queues: str) -> None:
    for queue in queues:
        client.declare(queue, durable=True)
        client.call(commands.Queue.Bind(0, queue, exchange, "", False, {}), commands.Queue.BindOk)


def passed(client: Client, exchange: str) -> tuple[int, int]:
    found = client.harness.node.routes.traffic.find("/", exchange)
    return (0, 0) if found is None else (found.publish_in, found.publish_out)


@pytest.fixture
def client() -> Client:
    return Harness().client()


def test_a_fan_out_of_ten_comes_in_once_and_goes_out_tenfold(client: Client) -> None:
    declare(client, "wide")
    bound(client, "wide", *(f"q{i}" for i in range(10)))
    client.raw(b"".join(publish_bytes(b"x", "", "wide") for _ in range(7)))
    client.publish(b"y", "k", "wide")
    client.publish(b"z", "q3", "")
    assert passed(client, "wide") == (8, 80)
    assert passed(client, "") == (1, 1)
    assert client.connection.channels[1].published == client.connection.published == 9


def test_a_batch_of_several_exchanges_is_counted_at_each(client: Client) -> None:
    declare(client, "one", "topic")
    declare(client, "two")
    client.declare("a")
    client.call(commands.Queue.Bind(0, "a", "one", "#", False, {}), commands.Queue.BindOk)
    bound(client, "two", "b", "c")
    client.raw(
        b"".join(publish_bytes(b"%d" % i, f"k{i % 5}", "one" if i % 3 else "two", mandatory=False) for i in range(90))
    )
    assert passed(client, "one") == (60, 60)
    assert passed(client, "two") == (30, 60)
    assert client.connection.channels[1].published == 90


def test_what_reaches_no_queue_has_come_in_all_the_same_and_what_is_refused_has_not(client: Client) -> None:
    declare(client, "empty")
    client.publish(b"x", "k", "empty")
    assert passed(client, "empty") == (1, 0)
    client.publish(b"x", "k", "missing")
    client.expect(commands.Channel.Close)
    assert client.harness.node.routes.traffic.find("/", "missing") is None


def test_a_transaction_is_counted_when_it_is_committed(client: Client) -> None:
    declare(client, "wide")
    bound(client, "wide", "a", "b")
    client.call(commands.Tx.Select(), commands.Tx.SelectOk)
    client.publish(b"x", "", "wide")
    assert passed(client, "wide") == (0, 0)
    client.call(commands.Tx.Commit(), commands.Tx.CommitOk)
    assert passed(client, "wide") == (1, 2)


def test_dead_letters_are_no_publishes(client: Client) -> None:
    declare(client, "dlx")
    bound(client, "dlx", "dead")
    client.declare("q", arguments={"x-dead-letter-exchange": "dlx", "x-max-length": 1})
    client.publish(b"1", "q")
    client.publish(b"2", "q")
    assert client.declare("dead", durable=True).message_count == 1
    assert passed(client, "dlx") == (0, 0)
    assert passed(client, "") == (2, 2)


def test_the_counts_go_with_the_exchange(client: Client) -> None:
    declare(client, "wide")
    bound(client, "wide", "a")
    client.publish(b"x", "", "wide")
    client.call(commands.Exchange.Delete(exchange="wide"), commands.Exchange.DeleteOk)
    assert passed(client, "wide") == (0, 0)
    declare(client, "wide")
    client.publish(b"x", "", "wide")
    assert passed(client, "wide") == (1, 0)


def test_rates_are_those_between_two_samples(client: Client) -> None:
    declare(client, "wide")
    bound(client, "wide", "a", "b")
    client.publish(b"x", "", "wide")
    found = client.harness.node.routes.traffic.of("/", "wide")
    found.sample(0.5)
    assert (found.rate_in, found.rate_out) == (2.0, 4.0)
    found.sample(5.0)
    assert (found.rate_in, found.rate_out) == (0.0, 0.0)


# -- delayed messages


def waiting(client: Client, exchange: str) -> int | None:
    found = figures_of_exchange(client.harness.node, "/", exchange)["messages_delayed"]
    assert found is None or isinstance(found, int)
    return found


def delayed(client: Client, exchange: str, delay_ms: int) -> None:
    client.publish(b"later", "", exchange, headers={"x-delay": delay_ms})


def pass_time(client: Client, ms: int) -> None:
    client.harness.node.now_ms += ms
    client.harness.step()


def test_messages_delayed_are_those_that_wait_for_their_exchange(client: Client) -> None:
    for name in ("one", "two"):
        declare(client, name, DELAYED_MESSAGE, **{DELAYED_TYPE: "fanout"})
    bound(client, "one", "q")
    assert (waiting(client, "one"), waiting(client, "two")) == (0, 0)
    for delay_ms in (1000, 1000, 9000):
        delayed(client, "one", delay_ms)
    delayed(client, "two", 5000)
    assert (waiting(client, "one"), waiting(client, "two")) == (3, 1)
    assert passed(client, "one") == (3, 0)
    pass_time(client, 2000)
    assert (waiting(client, "one"), waiting(client, "two")) == (1, 1)
    pass_time(client, 8000)
    assert (waiting(client, "one"), waiting(client, "two")) == (0, 0)
    assert client.declare("q", durable=True).message_count == 3
    declare(client, "plain")
    assert "messages_delayed" not in figures_of_exchange(client.harness.node, "/", "plain")


def test_after_a_restart_those_of_before_belong_to_the_only_such_exchange_or_are_not_told_apart(
    client: Client,
) -> None:
    declare(client, "one", DELAYED_MESSAGE, **{DELAYED_TYPE: "fanout"})
    for delay_ms in (1000, 9000):
        delayed(client, "one", delay_ms)
    client.harness.restart()
    client = client.harness.client()
    assert waiting(client, "one") == 2
    delayed(client, "one", 2000)
    assert waiting(client, "one") == 3
    declare(client, "two", DELAYED_MESSAGE, **{DELAYED_TYPE: "fanout"})
    delayed(client, "two", 20_000)
    assert (waiting(client, "one"), waiting(client, "two")) == (None, None)
    pass_time(client, 3000)
    assert (waiting(client, "one"), waiting(client, "two")) == (None, None)
    # The last one of before has gone: from now on all are known.
    pass_time(client, 8000)
    assert (waiting(client, "one"), waiting(client, "two")) == (0, 1)


def test_figures_of_two_nodes_are_added() -> None:
    one = {"publish_in": 1, "publish_out": 2, "messages_delayed": 3}
    assert added(one, {"publish_in": 10, "publish_out": 20}) == {
        "publish_in": 11,
        "publish_out": 22,
        "messages_delayed": 3,
    }
    assert added(one, {"messages_delayed": None})["messages_delayed"] is None
    assert added({}, {}) == {}
