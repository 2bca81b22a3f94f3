"""Queues, exchanges, bindings and messages, as tools of RabbitMQ make and look at them."""

from __future__ import annotations

import pika
import pytest

from tests.admin.conftest import Api


def test_a_queue_is_declared_shown_and_deleted(api: Api):
    api.do("PUT", "/queues/%2F/declared", {"durable": True, "arguments": {"x-max-length": 9}}, status=201)
    api.do("PUT", "/queues/%2F/declared", {"durable": True, "arguments": {"x-max-length": 9}}, status=204)
    found = api.get("/queues/%2F/declared")
    assert (found["name"], found["vhost"], found["type"], found["state"]) == ("declared", "/", "classic", "running")
    assert found["arguments"] == {"x-max-length": 9}
    assert found["policy"] is None
    assert found["consumer_details"] == []
    assert "message_stats" not in found
    api.do("DELETE", "/queues/%2F/declared", status=204)
    api.do("DELETE", "/queues/%2F/declared", status=404)
    assert api.do("GET", "/queues/%2F/declared", status=404).json()["error"] == "Object Not Found"


def test_one_that_is_otherwise_is_refused_in_the_words_of_the_protocol(api: Api):
    api.do("PUT", "/queues/%2F/firm", {"durable": True}, status=201)
    refused = api.do("PUT", "/queues/%2F/firm", {"durable": False}, status=400).json()
    assert refused["error"] == "bad_request"
    assert "inequivalent arg 'durable' for queue 'firm' in vhost '/'" in refused["reason"]


def test_arguments_that_are_too_large_are_the_request_s_fault(api: Api):
    """Not a matter of who may: 401 made browsers ask for a password."""
    refused = api.do("PUT", "/queues/%2F/fat", {"arguments": {"x": "y" * 70_000}}, status=400).json()
    assert refused["error"] == "bad_request"
    assert "arguments of queue 'fat'" in refused["reason"]


@pytest.mark.parametrize("name", ["a/b", "a b", "ü", "100%", "a+b", "a%2Fb", "?#"])
def test_names_that_a_path_has_to_encode(api: Api, name: str):
    part = "".join(f"%{byte:02X}" for byte in name.encode())
    api.do("PUT", f"/queues/%2F/{part}", {}, status=201)
    assert api.get(f"/queues/%2F/{part}")["name"] == name
    assert name in [row["name"] for row in api.get("/queues/%2F")]
    api.do("DELETE", f"/queues/%2F/{part}", status=204)


def test_one_that_is_in_use_or_not_empty_is_kept_if_asked_to(api: Api):
    api.do("PUT", "/queues/%2F/full", {}, status=201)
    publish(api, "amq.default", "full")
    assert "empty" in api.do("DELETE", "/queues/%2F/full?if-empty=true", status=400).json()["reason"]
    api.do("DELETE", "/queues/%2F/full/contents", status=204)
    api.do("DELETE", "/queues/%2F/full?if-empty=true&if-unused=true", status=204)


def publish(api: Api, exchange: str, key: str, payload: str = "x", **properties: object) -> bool:
    body = {"routing_key": key, "payload": payload, "payload_encoding": "string", "properties": properties}
    return bool(api.do("POST", f"/exchanges/%2F/{exchange}/publish", body, status=200).json()["routed"])


def test_messages_are_published_and_got(api: Api):
    api.do("PUT", "/queues/%2F/post", {}, status=201)
    assert publish(api, "amq.default", "post", "hello", delivery_mode=2, headers={"a": 1})
    assert not publish(api, "amq.default", "nowhere")
    wanted = {"count": 5, "ackmode": "ack_requeue_true", "encoding": "auto"}
    (first,) = api.do("POST", "/queues/%2F/post/get", wanted, status=200).json()
    assert (first["payload"], first["redelivered"], first["message_count"]) == ("hello", False, 0)
    assert first["properties"] == {"delivery_mode": 2, "headers": {"a": 1}}
    wanted["ackmode"] = "ack_requeue_false"
    (again,) = api.do("POST", "/queues/%2F/post/get", wanted, status=200).json()
    assert again["redelivered"]
    assert api.do("POST", "/queues/%2F/post/get", wanted, status=200).json() == []
    found = api.get("/queues/%2F/post")
    assert found["message_stats"]["publish"] == 1
    assert {"publish_details", "deliver_get_details"} <= found["message_stats"].keys()


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"count": 1, "ackmode": "never", "encoding": "auto"},
        {"count": 1, "ackmode": "ack_requeue_true", "encoding": "rot13"},
        {"count": "many", "ackmode": "ack_requeue_true"},
        {"count": 0, "ackmode": "ack_requeue_true"},
        {"count": 1, "ackmode": "ack_requeue_true", "truncate": -1},
    ],
)
def test_a_get_that_makes_no_sense_is_refused(api: Api, wanted: dict[str, object]):
    api.do("PUT", "/queues/%2F/sense", {}, status=201)
    assert api.do("POST", "/queues/%2F/sense/get", wanted, status=400).json()["error"] == "bad_request"
    api.do("DELETE", "/queues/%2F/sense", status=204)


def test_exchanges_and_bindings(api: Api):
    api.do("PUT", "/exchanges/%2F/news", {"type": "topic"}, status=201)
    api.do("PUT", "/exchanges/%2F/news", {"type": "topic"}, status=204)
    api.do("PUT", "/queues/%2F/sports", {}, status=201)
    bound = api.do("POST", "/bindings/%2F/e/news/q/sports", {"routing_key": "a/b.#"}, status=201)
    assert bound.headers["location"] == "sports/a%252Fb.%2523"
    api.do("POST", "/bindings/%2F/e/news/q/sports", {"routing_key": "x", "arguments": {"n": 1}}, status=201)
    plain, with_arguments = sorted(api.get("/bindings/%2F/e/news/q/sports"), key=lambda row: bool(row["arguments"]))
    assert plain["properties_key"] == "a%2Fb.%23"
    assert with_arguments["arguments"] == {"n": 1}
    assert api.get("/exchanges/%2F/news/bindings/source") == api.get("/bindings/%2F/e/news/q/sports")
    assert [row["source"] for row in api.get("/queues/%2F/sports/bindings")] == ["", "news", "news"]
    # As the answer named it, and encoded once more, as a tool does that takes the key out of a row.
    assert api.get("/bindings/%2F/e/news/q/sports/a%2Fb.%23") == plain
    api.do("DELETE", "/bindings/%2F/e/news/q/sports/a%252Fb.%2523", status=204)
    api.do("DELETE", "/bindings/%2F/e/news/q/sports/a%2Fb.%23", status=404)
    assert "in use" in api.do("DELETE", "/exchanges/%2F/news?if-unused=true", status=400).json()["reason"]
    api.do("DELETE", "/exchanges/%2F/news", status=204)
    assert [row["source"] for row in api.get("/queues/%2F/sports/bindings")] == [""]


def test_exchanges_are_bound_to_exchanges(api: Api):
    for name in ("up", "down"):
        api.do("PUT", f"/exchanges/%2F/{name}", {"type": "fanout"}, status=201)
    api.do("POST", "/bindings/%2F/e/up/e/down", {}, status=201)
    (row,) = api.get("/exchanges/%2F/down/bindings/destination")
    assert (row["source"], row["destination"], row["properties_key"]) == ("up", "down", "~")
    api.do("DELETE", "/bindings/%2F/e/up/e/down/~", status=204)


def test_the_default_exchange(api: Api):
    found = api.get("/exchanges/%2F/amq.default")
    assert (found["name"], found["type"], found["durable"]) == ("", "direct", True)
    api.do("PUT", "/queues/%2F/byname", {}, status=201)
    assert "byname" in [row["destination"] for row in api.get("/exchanges/%2F/amq.default/bindings/source")]
    assert api.do("PUT", "/exchanges/%2F/amq.default", {"type": "direct"}, status=401).json()["reason"]


def test_connections_channels_and_consumers(api: Api):
    parameters = pika.URLParameters(api.broker.url)
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.queue_declare("watched")
        channel.basic_qos(prefetch_count=7)
        channel.basic_consume("watched", lambda *_: None, consumer_tag="me")
        (row,) = api.get("/connections")
        assert (row["user"], row["vhost"], row["state"], row["channels"]) == ("guest", "/", "running", 1)
        name = row["name"].replace(" ", "%20")
        assert api.get(f"/connections/{name}")["client_properties"]["product"].startswith("Pika")
        (found,) = api.get(f"/connections/{name}/channels")
        assert (found["number"], found["consumer_count"], found["prefetch_count"]) == (1, 1, 7)
        shown = api.get("/channels/" + found["name"].replace(" ", "%20"))
        assert [each["consumer_tag"] for each in shown["consumer_details"]] == ["me"]
        (consumer,) = api.get("/consumers/%2F")
        assert consumer["queue"] == {"name": "watched", "vhost": "/"}
        assert consumer == api.get("/queues/%2F/watched")["consumer_details"][0]
        assert api.get("/overview")["object_totals"]["consumers"] == 1
        api.do("DELETE", f"/connections/{name}", status=204)
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="Closed via management plugin"):
            connection.process_data_events(time_limit=30)
    assert api.get("/connections") == []


def test_the_overview_counts(api: Api):
    api.do("PUT", "/queues/%2F/counted", {}, status=201)
    before = api.get("/overview")
    publish(api, "amq.default", "counted")
    after = api.get("/overview")
    assert after["queue_totals"]["messages_ready"] == before["queue_totals"]["messages_ready"] + 1
    assert after["message_stats"]["publish"] == before["message_stats"]["publish"] + 1
    assert after["object_totals"]["queues"] == len(api.get("/queues"))
    assert after["object_totals"]["exchanges"] == len(api.get("/exchanges"))
    assert {each["protocol"] for each in after["listeners"]} <= {"amqp", "amqp/ssl", "http"}


def test_health_checks(api: Api):
    for check in ("alarms", "local-alarms", "virtual-hosts", "is-in-service", "protocol-listener/amqp091"):
        assert api.get(f"/health/checks/{check}")["status"] == "ok"
    assert api.do("GET", "/health/checks/port-listener/1", status=503).json()["missing"] == 1
    port = api.get("/overview")["listeners"][0]["port"]
    assert api.get(f"/health/checks/port-listener/{port}") == {"status": "ok", "port": port}
    assert api.do("GET", "/health/checks/protocol-listener/mqtt", status=503).json()["reason"]


def test_definitions_go_out_and_in(api: Api):
    api.do("PUT", "/queues/%2F/defined", {"arguments": {"x-expires": 3_600_000}}, status=201)
    exported = api.get("/definitions")
    assert "defined" in [each["name"] for each in exported["queues"]]
    api.do("DELETE", "/queues/%2F/defined", status=204)
    api.do("POST", "/definitions", exported, status=204)
    assert api.get("/queues/%2F/defined")["arguments"] == {"x-expires": 3_600_000}
    assert "not JSON" in api("POST", "/definitions", user="guest").json()["reason"]


def test_definitions_are_planned_before_they_are_applied(api: Api):
    api.do("PUT", "/vhosts/planned", {}, status=201)
    api.do("PUT", "/queues/planned/here", {"arguments": {"x-max-length": 3}}, status=201)
    api.do("PUT", "/queues/planned/goes", {}, status=201)
    new = [
        {"name": f"new-{number:02}", "durable": True, "auto_delete": False, "arguments": {}} for number in range(15)
    ]
    other = {"name": "here", "durable": True, "auto_delete": False, "arguments": {"x-max-length": 4}}
    wanted = {"queues": [*new, other]}
    query = "vhost=planned&prune=true"
    plan = api.do("POST", f"/amqpd/definitions/plan?{query}", wanted, status=200).json()
    made, removed = plan["changes"]
    assert (made["section"], made["action"], made["count"], made["words"]) == ("queues", "create", 15, "15 queues")
    assert [each["thing"] for each in made["things"]] == [
        f"queue 'new-{number:02}' in 'planned'" for number in range(10)
    ]
    assert removed["action"] == "remove"
    assert [each["thing"] for each in removed["things"]] == ["queue 'goes' in 'planned'"]
    assert plan["conflicts"]["count"] == 1
    assert "x-max-length" in plan["conflicts"]["says"][0]
    full = api.do("POST", f"/amqpd/definitions/plan?{query}&full=true", wanted, status=200).json()
    assert len(full["changes"][0]["things"]) == 15
    refused = api.do("POST", f"/amqpd/definitions/apply?{query}", wanted, status=409).json()
    assert refused["error"] == "conflict"
    assert refused["changes"] == plan["changes"]
    assert {each["name"] for each in api.get("/queues/planned")} == {"here", "goes"}
    done = api.do("POST", f"/amqpd/definitions/apply?{query}&skip_conflicts=true", wanted, status=200).json()
    assert done["summary"].startswith("created 15 queues; removed 1 queue")
    assert len(api.get("/queues/planned")) == 16
    assert api.get("/queues/planned/here")["arguments"] == {"x-max-length": 3}
    assert api.do("POST", f"/amqpd/definitions/plan?{query}", wanted, status=200).json()["changes"] == []
    api.do("POST", "/amqpd/definitions/plan?vhost=none", wanted, status=404)
    assert "not JSON" in api("POST", "/amqpd/definitions/plan", user="guest").json()["reason"]
    api.do("DELETE", "/vhosts/planned", status=204)


def test_the_delivery_limit_of_a_quorum_queue_is_said(api: Api):
    quorum = {"x-queue-type": "quorum"}
    api.do("PUT", "/queues/%2F/limited-usual", {"arguments": quorum}, status=201)
    api.do("PUT", "/queues/%2F/limited-seven", {"arguments": {**quorum, "x-delivery-limit": 7}}, status=201)
    api.do("PUT", "/queues/%2F/limited-not", {"arguments": {}}, status=201)

    expected = {"limited-usual": 20, "limited-seven": 7, "limited-not": None}

    def limits(path: str) -> dict[str, object]:
        return {row["name"]: row.get("delivery_limit") for row in api.get(path) if row["name"] in expected}

    assert limits("/queues/%2F") == limits("/queues/%2F?disable_stats=true") == expected
    assert api.get("/queues/%2F/limited-seven")["delivery_limit"] == 7
    policy = {"pattern": "^limited-usual$", "definition": {"delivery-limit": -1}, "apply-to": "quorum_queues"}
    api.do("PUT", "/policies/%2F/limited", policy, status=201)
    assert api.get("/queues/%2F/limited-usual")["delivery_limit"] == "unlimited"
    api.do("DELETE", "/policies/%2F/limited", status=204)
    for name in expected:
        api.do("DELETE", f"/queues/%2F/{name}", status=204)


def test_feature_flags_are_those_of_rabbitmq_and_on(api: Api):
    flags = {flag["name"]: flag for flag in api.get("/feature-flags")}
    assert {"quorum_queue", "stream_queue", "khepri_db", "message_containers", "rabbitmq_4.2.0"} <= flags.keys()
    assert {flag["state"] for flag in flags.values()} == {"enabled"}
    assert {flag["stability"] for flag in flags.values()} == {"required", "stable"}
    assert {"desc", "doc_url", "provided_by"} <= flags["quorum_queue"].keys()
    api.do("PUT", "/feature-flags/khepri_db/enable", {}, status=204)
    api.do("PUT", "/feature-flags/none/enable", {}, status=400)
    api.do("PUT", "/feature-flags/khepri_db/enable", {}, user="watcher", status=401)


def test_what_is_not_there_has_no_bindings(api: Api):
    """As in RabbitMQ: rabbitmqadmin v2 asks so before it deletes a binding that may be gone."""
    for path in ("/queues/%2F/none/bindings", "/exchanges/%2F/none/bindings/source"):
        assert api.get(path) == [], path
    assert api.get("/exchanges/%2F/none/bindings/destination") == []
    for path in ("/queues/none/q/bindings", "/exchanges/none/x/bindings/source"):
        api.do("GET", path, status=404)
