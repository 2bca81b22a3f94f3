"""Messages in a queue, one by one, over HTTP: looked at, deleted, moved; and why a queue is as it is."""

from __future__ import annotations

import pika
import pytest

from tests.admin.conftest import Api
from tests.admin.test_things import publish


@pytest.fixture
def five(api: Api) -> str:
    api.do("PUT", "/queues/%2F/mine-five", {}, status=204 if "mine-five" in names(api) else 201)
    api.do("DELETE", "/queues/%2F/mine-five/contents", status=204)
    for number in range(5):
        publish(api, "amq.default", "mine-five", f"m{number}", message_id=f"id{number}", headers={"n": str(number)})
    return "/amqpd/messages/%2F/mine-five"


def names(api: Api) -> list[str]:
    return [row["name"] for row in api.get("/queues/%2F")]


def ready(api: Api, queue: str) -> int:
    found = api.get(f"/amqpd/messages/%2F/{queue}", count=500)
    return len(found)


def test_messages_are_looked_at_where_they_stand(api: Api, five: str):
    rows = api.get(five, body=100)
    assert [row["position"] for row in rows] == [1, 2, 3, 4, 5]
    assert [row["properties"]["message_id"] for row in rows] == [f"id{number}" for number in range(5)]
    assert [row["redelivered"] for row in rows] == [False] * 5, "to look delivers nothing"
    assert [row["position"] for row in api.do("GET", f"{five}?from=2&count=2", status=200).json()] == [2, 3]
    assert len(api.get(five, message_id="id3")) == 1
    assert len(api.get(five, header="n=4")) == 1
    assert len(api.get(five, header="n")) == 5
    assert api.get(five, state="unacked") == []


def test_what_is_asked_for_has_a_bound(api: Api, five: str):
    assert api("GET", f"{five}?count=501").status_code in (400, 422)
    assert api.do("GET", f"{five}?count=500&body=60000", status=400).json()["reason"].startswith("count and body")
    assert api("GET", f"{five}?state=nonsense").status_code in (400, 422)


def test_nothing_is_deleted_without_yes(api: Api, five: str):
    told = api.do("POST", f"{five}/delete", {"message_id": "id1"}, status=200).json()
    assert told["count"] == 1
    assert ready(api, "mine-five") == 5
    told = api.do("POST", f"{five}/delete", {"message_id": "id1", "yes": True}, status=200).json()
    assert told["count"] == 1
    assert [row["properties"]["message_id"] for row in api.get(five)] == ["id0", "id2", "id3", "id4"]
    refused = api.do("POST", f"{five}/delete", {"yes": True}, status=400).json()
    assert refused["reason"].startswith("say which messages")


def test_messages_are_moved(api: Api, five: str):
    if "mine-other" not in names(api):
        api.do("PUT", "/queues/%2F/mine-other", {}, status=201)
    wanted = {"from": 2, "count": 3, "to_queue": "mine-other", "yes": True}
    assert api.do("POST", f"{five}/move", wanted, status=200).json()["count"] == 3
    assert (ready(api, "mine-five"), ready(api, "mine-other")) == (2, 3)
    api.do("DELETE", "/queues/%2F/mine-other", status=204)
    api.do("POST", f"{five}/move", {"all": True, "to_queue": "nowhere", "yes": True}, status=404)
    assert ready(api, "mine-five") == 2


def test_who_may_look_and_act(api: Api, five: str):
    """`clerk` may read and write `mine...`, and not the default exchange."""
    assert len(api.get(five, user="clerk")) == 5
    api.do("GET", "/amqpd/messages/closed/any", user="clerk", status=401)
    if "secret" not in names(api):
        api.do("PUT", "/queues/%2F/secret", {}, status=201)
    api.do("GET", "/amqpd/messages/%2F/secret", user="clerk", status=401)
    for act, wanted in (("delete", {"all": True, "yes": True}), ("move", {"all": True, "to_queue": "mine-five"})):
        api.do("POST", f"/amqpd/messages/%2F/secret/{act}", wanted, user="clerk", status=401)
    moved = api.do("POST", f"{five}/move", {"all": True, "to_queue": "secret", "yes": True}, user="clerk", status=401)
    assert "amq.default" in moved.json()["reason"]
    api.do("POST", f"{five}/move", {"all": True, "to_vhost": "closed", "to_queue": "x"}, user="clerk", status=401)
    assert ready(api, "mine-five") == 5


def test_a_queue_of_one_connection_is_nobody_else_s(api: Api):
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", api.broker.port)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("mine-alone", exclusive=True)
        channel.basic_publish("", "mine-alone", b"secret")
        place = "/amqpd/messages/%2F/mine-alone"
        for user in ("guest", "clerk"):
            assert "locked queue" in api.do("GET", place, user=user, status=400).text
            for act in ("delete", "move"):
                wanted = {"all": True, "yes": True, "to_queue": "mine-five"}
                assert "locked queue" in api.do("POST", f"{place}/{act}", wanted, user=user, status=400).text
        assert channel.queue_declare("mine-alone", passive=True).method.message_count == 1


def test_a_long_answer_ends_and_can_be_gone_on_with(api: Api, five: str):
    headers = {"h": "\u00e9" * 20_000}
    api.do("DELETE", "/queues/%2F/mine-five/contents", status=204)
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", api.broker.port)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for _ in range(200):
            channel.basic_publish("", "mine-five", b"", pika.BasicProperties(headers=headers))
    first = api.get(five, count=500)
    assert 0 < len(first) < 200
    rest = api.do("GET", f"{five}?count=500&from={len(first) + 1}", status=200).json()
    assert rest[0]["position"] == len(first) + 1


def test_who_holds_a_message_is_told_to_who_monitors(api: Api, five: str):
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", api.broker.port)) as connection:
        channel = connection.channel()
        channel.basic_get("mine-five")
        [row] = api.get(five, state="unacked")
        assert row["channel"] == 1
        [row] = api.get(five, state="unacked", user="clerk")
        assert not {"connection", "channel", "consumer_tag"} & row.keys()


def test_why_a_queue_is_as_it_is(api: Api, five: str):
    [said] = api.get("/amqpd/why/queues/%2F/mine-five")["why"][:1]
    assert said.startswith("5 messages wait, the oldest for ")
    assert said.endswith(": nobody consumes")
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", api.broker.port)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=2)
        channel.basic_consume("mine-five", lambda *_: None)
        connection.process_data_events()
        said = api.get("/amqpd/why/queues/%2F/mine-five", user="clerk")["why"][0]
        assert said.endswith("the only consumer has as many unacknowledged messages as its prefetch allows (2 of 2)")
        # Of consumers of other users only who monitors is told.
        [named] = api.get("/amqpd/why/queues/%2F/mine-five")["why"]
        assert ": the only consumer, 'ctag" in named
    api.do("GET", "/amqpd/why/queues/%2F/nowhere", status=404)
