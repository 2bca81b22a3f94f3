"""What well-known tools ask of RabbitMQ's management API, and the fields that they read of the answers.

What is verified: each request of theirs is answered, and each field is there, of the kind that they take it for. Not
verified: the tools themselves (rabbitmqadmin runs in `test_rabbitmqadmin.py`).

Sources, for which requests and fields: KEDA, pkg/scalers/rabbitmq_scaler.go; Flower, flower/utils/broker.py;
rabbitmq_exporter of kbudde, exporter_*.go; pyrabbit, pyrabbit/api.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import pika
import pytest

from tests.admin.conftest import Api

QUEUE = "tools.jobs"


@pytest.fixture(scope="module")
def jobs(api: Api) -> Iterator[None]:
    """A queue with two messages, one of them with a consumer."""
    client = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", api.broker.port, heartbeat=0))
    channel = client.channel()
    channel.queue_declare(QUEUE, durable=True, arguments={"x-max-length": 100})
    channel.confirm_delivery()
    for body in (b"one", b"two"):
        channel.basic_publish("", QUEUE, body)
    channel.basic_qos(prefetch_count=1)
    channel.basic_consume(QUEUE, lambda *_: None)
    client.process_data_events(0.1)
    yield
    client.close()
    api.do("DELETE", f"/queues/%2F/{QUEUE}", status=204)


def at(row: Mapping[str, Any], path: str) -> Any:
    """`message_stats.publish_details.rate` of it."""
    value: Any = row
    for name in path.split("."):
        value = value[name]
    return value


# KEDA


KEDA = ("messages", "messages_unacknowledged", "message_stats.publish_details.rate")


def test_keda_asks_for_one_queue(api: Api, jobs: None):
    found = api.get(f"/queues/%2F/{QUEUE}")
    assert [at(found, path) for path in KEDA[:2]] == [2, 1]
    assert at(found, KEDA[2]) >= 0
    assert found["name"] == QUEUE


@pytest.mark.parametrize("where", ["", "/%2F"])
def test_keda_asks_by_an_expression(api: Api, jobs: None, where: str):
    asked = f"page=1&use_regex=true&pagination=false&name={quote('^tools[.].*$', safe='')}&page_size=100"
    answer = api("GET", f"/queues{where}?{asked}").json()
    assert [(row["name"], row["messages"]) for row in answer["items"]] == [(QUEUE, 2)]
    assert all(at(row, path) >= 0 for row in answer["items"] for path in KEDA)


def test_keda_is_told_that_a_queue_is_not_there(api: Api):
    assert api("GET", "/queues/%2F/tools.nobody").status_code == 404


# Flower


def test_flower_asks_for_the_queues_of_a_virtual_host(api: Api, jobs: None):
    [row] = [row for row in api.get("/queues/%2F") if row["name"] == QUEUE]
    assert (row["messages"], row["messages_ready"], row["messages_unacknowledged"], row["consumers"]) == (2, 1, 1, 1)


# rabbitmq_exporter


EXPORTED = {
    "overview": (
        *("object_totals.channels", "object_totals.connections", "object_totals.consumers", "object_totals.queues"),
        *("object_totals.exchanges", "queue_totals.messages", "queue_totals.messages_ready"),
        *("queue_totals.messages_unacknowledged", "message_stats.publish_details.rate"),
    ),
    "nodes": (
        *("uptime", "running", "mem_used", "mem_limit", "mem_alarm", "disk_free", "disk_free_alarm"),
        *("disk_free_limit", "fd_used", "fd_total", "sockets_used"),
    ),
    "queues": (
        *("messages_ready", "messages_unacknowledged", "messages", "message_bytes", "message_bytes_ready"),
        *("message_bytes_unacknowledged", "consumers", "consumer_utilisation", "memory"),
        # Not `message_stats.deliver`: see docs/http.md, "What differs".
        *("message_stats.publish", "message_stats.deliver_get", "message_stats.redeliver", "message_stats.ack"),
        *("message_stats.publish_details.rate", "arguments.x-max-length"),
    ),
    "connections": ("channels", "recv_oct", "send_oct"),
}
LABELS = {
    "nodes": ("name",),
    "queues": ("vhost", "name", "state", "node"),
    "connections": ("vhost", "node", "peer_host", "user", "state"),
}


@pytest.mark.parametrize("endpoint", EXPORTED)
@pytest.mark.parametrize("accept", ["application/json", "application/bert, application/json;q=0.1"])
def test_an_exporter_finds_numbers(api: Api, jobs: None, endpoint: str, accept: str):
    answer = api("GET", f"/{endpoint}?sort=", headers={"accept": accept})
    assert answer.headers["content-type"].startswith("application/json")
    found = answer.json()
    rows = found if isinstance(found, list) else [found]
    if endpoint == "queues":
        rows = [row for row in rows if row["name"] == QUEUE]
    assert rows
    for row in rows:
        for path in EXPORTED[endpoint]:
            assert isinstance(at(row, path), int | float), path
        for name in LABELS.get(endpoint, ()):
            assert isinstance(row[name], str), name


def test_an_exporter_names_the_node(api: Api):
    found = api.get("/overview")
    for name in ("node", "erlang_version", "rabbitmq_version", "cluster_name"):
        assert isinstance(found[name], str)
    assert api.get("/nodes")[0]["name"] == found["node"]
    assert isinstance(api.get("/nodes")[0]["partitions"], list)


@pytest.mark.parametrize(
    "endpoint", ["exchanges", "channels", "shovels", "federation-links", "aliveness-test/%2F", "vhosts"]
)
def test_an_exporter_is_answered(api: Api, endpoint: str):
    assert api("GET", f"/{endpoint}").status_code == 200


# pyrabbit


def test_a_story_of_pyrabbit(api: Api):
    """With its bodies: a list where there are no arguments, `requeue` instead of an `ackmode`."""
    assert api.get("/aliveness-test/%2F") == {"status": "ok"}
    assert api.get("/whoami")["name"] == "guest"
    assert api("PUT", "/vhosts/tools", headers={"content-type": "application/json"}).status_code == 201
    assert "tools" in [row["name"] for row in api.get("/vhosts")]
    permissions = {"configure": ".*", "read": ".*", "write": ".*"}
    assert api("PUT", "/permissions/tools/guest", permissions).status_code in (201, 204)
    exchange = {"type": "direct", "auto_delete": False, "durable": True, "internal": False, "arguments": []}
    api.do("PUT", "/exchanges/tools/made", exchange, status=201)
    api.do("PUT", "/queues/tools/made", {}, status=201)
    bound = api.do("POST", "/bindings/tools/e/made/q/made", {"routing_key": "a", "arguments": []}, status=201)
    assert bound.headers["location"].endswith("/a")
    message = {"routing_key": "a", "payload": "hello", "payload_encoding": "string", "properties": {}}
    assert api("POST", "/exchanges/tools/made/publish", message).json()["routed"] is True
    wanted = {"count": 1, "requeue": False, "encoding": "auto"}
    assert [each["payload"] for each in api("POST", "/queues/tools/made/get", wanted).json()] == ["hello"]
    assert api.get("/queues/tools/made")["messages"] == 0
    api.do("DELETE", "/queues/tools/made/contents", status=204)
    api.do("DELETE", "/bindings/tools/e/made/q/made/a", status=204)
    api.do("PUT", "/users/toolsmith", {"password": "x", "tags": ""}, status=201)
    api.do("DELETE", "/users/toolsmith", status=204)
    api.do("DELETE", "/vhosts/tools", status=204)
