"""What is counted of messages, where tools of RabbitMQ look for it: exchanges, channels, the overview, consumers."""

from __future__ import annotations

from collections.abc import Iterator

import pika
import pytest

from tests.admin.conftest import Api


@pytest.fixture
def channel(api: Api) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(api.broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


def test_a_fan_out_of_ten_is_one_publish_and_ten_that_go_out(api: Api, channel):
    before = api.get("/overview").get("message_stats", {}).get("publish", 0)
    channel.exchange_declare("wide", "fanout")
    assert "message_stats" not in api.get("/exchanges/%2F/wide")
    for number in range(10):
        channel.queue_declare(f"wide-{number}", exclusive=True)
        channel.queue_bind(f"wide-{number}", "wide")
    for _ in range(3):
        channel.basic_publish("wide", "", b"x")
    stats = api.get("/exchanges/%2F/wide")["message_stats"]
    assert (stats["publish_in"], stats["publish_out"]) == (3, 30)
    assert {"rate"} == stats["publish_in_details"].keys() == stats["publish_out_details"].keys()
    assert [row["message_stats"]["publish_out"] for row in api.get("/exchanges/%2F") if row["name"] == "wide"] == [30]
    assert api.get("/overview")["message_stats"]["publish"] - before == 3
    (row,) = [row for row in api.get("/channels") if row.get("message_stats")]
    assert row["message_stats"]["publish"] == 3
    assert api.get(f"/channels/{row['name']}")["message_stats"] == row["message_stats"]
    # What an operator publishes counts as what a client does.
    body = {"routing_key": "", "payload": "x", "payload_encoding": "string", "properties": {}}
    api.do("POST", "/exchanges/%2F/wide/publish", body, status=200)
    assert api.get("/exchanges/%2F/wide")["message_stats"]["publish_out"] == 40
    channel.exchange_delete("wide")


def test_the_messages_that_an_exchange_delays_are_counted(api: Api, channel):
    channel.exchange_declare("later", "x-delayed-message", arguments={"x-delayed-type": "fanout"})
    assert api.get("/exchanges/%2F/later")["messages_delayed"] == 0
    for _ in range(2):
        channel.basic_publish("later", "", b"x", pika.BasicProperties(headers={"x-delay": 3_600_000}))
    assert api.get("/exchanges/%2F/later")["messages_delayed"] == 2
    assert "messages_delayed" not in api.get("/exchanges/%2F/amq.fanout")
    channel.exchange_delete("later")


def test_a_consumer_says_how_long_it_may_hold_a_message(api: Api, channel):
    channel.queue_declare("slow", exclusive=True)
    channel.queue_declare("slower", exclusive=True, arguments={"x-consumer-timeout": 90_000_000})
    channel.basic_consume("slow", lambda *_: None, consumer_tag="usual")
    channel.basic_consume("slower", lambda *_: None, consumer_tag="of-its-queue")
    channel.basic_consume("slow", lambda *_: None, consumer_tag="own", arguments={"x-consumer-timeout": 5_000_000})
    timeouts = {row["consumer_tag"]: row["consumer_timeout"] for row in api.get("/consumers/%2F")}
    assert timeouts == {"usual": 1_800_000, "of-its-queue": 90_000_000, "own": 5_000_000}
    (detail,) = api.get("/queues/%2F/slower")["consumer_details"]
    assert detail["consumer_timeout"] == 90_000_000


def test_exchanges_of_the_type_x_local_random_are_made_and_listed(api: Api):
    assert "x-local-random" in [each["name"] for each in api.get("/overview")["exchange_types"]]
    api.do("PUT", "/exchanges/%2F/near", {"type": "x-local-random"}, status=201)
    api.do("PUT", "/queues/%2F/near", {"arguments": {"x-queue-type": "classic"}}, status=201)
    refused = api.do("POST", "/bindings/%2F/e/near/q/near", {"routing_key": "k"}, status=400).json()
    assert "Non empty binding 'k' key not permitted" in refused["reason"]
    api.do("POST", "/bindings/%2F/e/near/q/near", {}, status=201)
    body = {"routing_key": "any", "payload": "x", "payload_encoding": "string", "properties": {}}
    assert api.do("POST", "/exchanges/%2F/near/publish", body, status=200).json()["routed"]
    api.do("DELETE", "/exchanges/%2F/near", status=204)
    api.do("DELETE", "/queues/%2F/near", status=204)
