"""Metrics: their text, their values against what was done, who may read them; whether the node lives and is ready."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pika
import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

import amqpd
from amqpd.flow.alarms import Alarms
from amqpd.node.sources import ServedSources
from amqpd_admin.metrics.families import COUNTER, GAUGE, Family, Part, one, written
from amqpd_admin.metrics.text import SLICE, text
from amqpd_admin.routes.metrics import alive, ready
from tests.admin.conftest import USERS, Api
from tests.clients.broker_process import BrokerProcess, free_port
from tests.harness.cluster import ClusterByHand

ROOT = Path(__file__).parents[2]
DASHBOARD = Path(__file__).with_name("overview_dashboard_metrics.txt").read_text().split()
ENDPOINTS = ("", "/per-object", "/detailed")
GLOBAL = "rabbitmq_global_messages_"

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def fetch(api: Api, path: str = "", user: str = "guest") -> httpx2.Response:
    return httpx2.get(f"{api.url}/metrics{path}", auth=(user, user) if user else None, timeout=60)


def samples(api: Api, path: str = "") -> Samples:
    """By name and labels; each once."""
    answer = fetch(api, path)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    found: Samples = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, key
            found[key] = sample.value
    assert answer.text.count("# TYPE ") == len(set(re.findall(r"# TYPE (\S+)", answer.text))), "a head came twice"
    return found


def value(found: Samples, name: str, **labels: str) -> float:
    """Of all samples with these labels together."""
    wanted = frozenset(labels.items())
    values = [value for (of, has), value in found.items() if of == name and wanted <= has]
    assert values, f"{name} {labels} is not served"
    return sum(values)


def names(found: Samples) -> set[str]:
    return {name for name, _ in found}


def connect(api: Api) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", api.broker.port))


# What was done


def test_what_happens_to_messages_is_counted(api: Api):
    before = samples(api)
    connection = connect(api)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("metrics-done")
    for _ in range(7):
        channel.basic_publish("", "metrics-done", b"12345")
    channel.basic_publish("", "metrics-nowhere", b"lost")
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("", "metrics-nowhere", b"back", mandatory=True)
    channel.basic_get("metrics-done", auto_ack=True)
    method, _, _ = channel.basic_get("metrics-done")
    channel.basic_nack(method.delivery_tag, requeue=True)
    tags: list[int] = []
    channel.basic_consume("metrics-done", lambda _, method, *rest: tags.append(method.delivery_tag), consumer_tag="t")
    while len(tags) < 6:
        connection.process_data_events(1)
    channel.basic_ack(tags[2], multiple=True)
    channel.basic_cancel("t")
    channel.basic_nack(tags[5], multiple=True, requeue=True)
    for _ in channel.consume("metrics-done", auto_ack=True):
        break
    channel.cancel()
    assert channel.basic_get("metrics-done")[0] is None
    channel.queue_delete("metrics-done")
    connection.close()
    after = samples(api)

    def grown(name: str) -> float:
        return value(after, name) - value(before, name)

    assert {
        name: grown(f"{GLOBAL}{name}_total") for name in ("received", "received_confirm", "confirmed", "routed")
    } == {
        "received": 9,
        "received_confirm": 9,
        "confirmed": 9,
        "routed": 7,
    }
    assert grown(f"{GLOBAL}unroutable_dropped_total") == grown(f"{GLOBAL}unroutable_returned_total") == 1
    assert grown(f"{GLOBAL}delivered_get_auto_ack_total") == grown(f"{GLOBAL}delivered_get_manual_ack_total") == 1
    assert grown(f"{GLOBAL}get_empty_total") == 1
    assert grown(f"{GLOBAL}acknowledged_total") == 3
    ways = ("consume_manual_ack", "consume_auto_ack", "get_manual_ack", "get_auto_ack")
    assert grown(f"{GLOBAL}delivered_total") == sum(grown(f"{GLOBAL}delivered_{way}_total") for way in ways)
    # Six came, of which three were given back and came again without acknowledgement.
    assert grown(f"{GLOBAL}delivered_consume_manual_ack_total") == 6
    assert grown(f"{GLOBAL}delivered_consume_auto_ack_total") == 3
    assert grown(f"{GLOBAL}redelivered_total") == 1 + 3
    assert grown("rabbitmq_message_size_bytes_count") == 9
    assert grown("rabbitmq_message_size_bytes_sum") == 7 * 5 + 4 + 4
    assert value(after, "amqpd_time_in_queue_seconds_bucket", le="+Inf") - value(
        before, "amqpd_time_in_queue_seconds_bucket", le="+Inf"
    ) == grown(f"{GLOBAL}delivered_total")
    for churn in ("connections_opened", "connections_closed", "channels_opened", "channels_closed"):
        assert grown(f"rabbitmq_{churn}_total") == 1, churn
    for churn in ("queues_declared", "queues_created", "queues_deleted"):
        assert grown(f"rabbitmq_{churn}_total") == 1, churn
    assert grown("rabbitmq_connection_incoming_bytes_total") > 9 * 5
    assert grown("rabbitmq_connection_outgoing_bytes_total") > 9 * 5


def test_what_is_there_is_said(api: Api):
    before = samples(api)
    connection = connect(api)
    channel = connection.channel()
    channel.basic_qos(prefetch_count=2)
    channel.queue_declare("metrics-there")
    for _ in range(5):
        channel.basic_publish("", "metrics-there", b"1234")
    channel.basic_consume("metrics-there", lambda *_: None)
    connection.process_data_events(0)
    channel.queue_declare("metrics-there", passive=True)
    after, each = samples(api), samples(api, "/per-object")
    try:
        for name, grown in {
            "rabbitmq_connections": 1,
            "rabbitmq_channels": 1,
            "rabbitmq_consumers": 1,
            "rabbitmq_global_consumers": 1,
            "rabbitmq_global_publishers": 1,
            "rabbitmq_queues": 1,
            "rabbitmq_queue_messages": 5,
            "rabbitmq_queue_messages_ready": 3,
            "rabbitmq_queue_messages_unacked": 2,
            "rabbitmq_queue_messages_bytes": 20,
            "rabbitmq_queue_messages_ready_bytes": 12,
            "rabbitmq_channel_messages_unacked": 2,
        }.items():
            assert value(after, name) - value(before, name) == grown, name
        this = {"vhost": "/", "queue": "metrics-there"}
        assert value(each, "rabbitmq_queue_messages_ready", **this) == 3
        assert value(each, "rabbitmq_queue_messages_unacked", **this) == 2
        assert value(each, "rabbitmq_queue_consumers", **this) == 1
        assert value(each, "rabbitmq_queue_messages_published_total", **this) == 5
        assert value(each, "rabbitmq_queue_messages_delivered_ack_total", **this) == 2
        assert value(each, "rabbitmq_queue_info", **this, queue_type="rabbit_classic_queue", membership="leader") == 1
        assert 0 <= value(each, "amqpd_queue_oldest_message_age_seconds", **this) < 60
        assert value(after, "amqpd_oldest_message_age_seconds") >= 0
        assert any(
            name == "rabbitmq_consumer_prefetch" and number == 2 and dict(labels)["channel"].endswith(" (1)")
            for (name, labels), number in each.items()
        )
    finally:
        channel.queue_delete("metrics-there")
        connection.close()


def test_the_node_says_what_it_is(api: Api):
    found = samples(api)
    assert value(found, "rabbitmq_build_info", product_name="amqpd") == 1
    identity = next(dict(labels) for name, labels in found if name == "rabbitmq_identity_info")
    overview = api.get("/overview")
    assert (identity["rabbitmq_node"], identity["rabbitmq_cluster"]) == (overview["node"], overview["cluster_name"])
    assert value(found, "amqpd_kernel_info", kernel=amqpd.KERNEL) == 1
    assert value(found, "rabbitmq_process_max_fds") > value(found, "rabbitmq_process_open_fds") > 0
    assert value(found, "rabbitmq_resident_memory_limit_bytes") > value(
        found, "rabbitmq_process_resident_memory_bytes"
    )
    assert value(found, "rabbitmq_disk_space_available_bytes") > 0
    assert value(found, "rabbitmq_erlang_uptime_seconds") > 0


# What is asked for


def test_each_family_alone(api: Api):
    assert names(samples(api, "/detailed")) == {"rabbitmq_build_info", "rabbitmq_identity_info"}
    api.do("PUT", "/queues/%2F/metrics-a", {}, status=201)
    api.do("PUT", "/queues/%2F/metrics-b", {}, status=201)
    api.do("PUT", "/queues/closed/metrics-a", {}, status=201)
    found = samples(api, "/detailed?family=queue_coarse_metrics&vhost=%2F&queue=metrics-[ab]")
    assert names(found) >= {"rabbitmq_detailed_queue_messages_ready", "rabbitmq_detailed_queue_info"}
    assert "rabbitmq_detailed_queue_consumers" not in names(found)
    queues = {
        (dict(labels)["vhost"], dict(labels)["queue"])
        for name, labels in found
        if name == "rabbitmq_detailed_queue_messages"
    }
    assert queues == {("/", "metrics-a"), ("/", "metrics-b")}
    both = samples(api, "/detailed?family=queue_consumer_count&family=vhost_status&vhost=closed")
    assert value(both, "rabbitmq_cluster_vhost_status", vhost="closed") == 1
    assert {dict(labels).get("vhost", "closed") for _, labels in both} == {"closed"}
    assert len(samples(api, "/detailed?family=queue_coarse_metrics&vhost=never")) == 2
    assert len(samples(api, "/detailed?family=never")) == 2
    api.do("DELETE", "/queues/closed/metrics-a", status=204)  # others of this broker's tests look for none there


@pytest.mark.parametrize("query", ["queue=(", f"queue={'x' * 2001}", "queue=a&queue=b"])
def test_an_expression_that_is_none_is_refused(api: Api, query: str):
    answer = fetch(api, f"/detailed?family=queue_coarse_metrics&{query}")
    assert (answer.status_code, answer.json()["error"]) == (400, "bad_request")


# Names


def served(api: Api) -> set[str]:
    """Names of samples, with those of all families of `/metrics/detailed`."""
    api.do("PUT", "/queues/%2F/metrics-named", {}, status=201)
    connection = connect(api)
    channel = connection.channel()
    channel.basic_publish("", "metrics-named", b"x")
    channel.queue_declare("metrics-named", passive=True)
    try:
        families = re.findall(r"^\| `([a-z_]+)` \|", section("One by one"), re.MULTILINE)
        assert len(families) > 10
        detailed = "/detailed?" + "&".join(f"family={family}" for family in families)
        found = names(samples(api)) | names(samples(api, "/per-object")) | names(samples(api, detailed))
        for family in families:
            assert len(names(samples(api, f"/detailed?family={family}"))) > 2, family
    finally:
        connection.close()
        api.do("DELETE", "/queues/%2F/metrics-named", status=204)
    return found


def document() -> str:
    return (ROOT / "docs" / "metrics.md").read_text()


def section(title: str) -> str:
    return document().partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_all_that_is_served_is_in_the_documents_and_nothing_else_is(api: Api):
    """A histogram and a summary stand there under the name of their family; of a cluster nothing is served here."""
    found = {re.sub(r"^(rabbitmq|amqpd)_detailed_", r"\1_", name) for name in served(api)}
    found = {re.sub(r"_(bucket|count|sum)$", "", name) for name in found}
    table = document().partition("## One by one")[0]
    assert set(re.findall(r"^\| `((?:rabbitmq|amqpd)_[a-z_]+)` \|", table, re.MULTILINE)) == found


def test_rabbitmq_s_overview_dashboard_finds_its_names(api: Api):
    found, left_out = names(samples(api)), section("Left out")
    assert len(DASHBOARD) == 40
    for name in DASHBOARD:
        assert name in found or f"`{name}`" in left_out, f"{name} is neither served nor left out for a reason"
    missing = [name for name in DASHBOARD if name not in found]
    assert missing == ["rabbitmq_message_size_bytes_bucket"]


# Text


ODD = ['a "quoted" \\ name', "two\nlines", "\udcff\udcfe", "b\u00fccher", "{}", 'x="y",z="', "\\n"]


def test_labels_are_escaped():
    family = Family("rabbitmq_queue_messages", GAUGE, "with\na line", ("queue",))
    found = written(family, [((name,), number) for number, name in enumerate(ODD)], True).decode()
    (parsed,) = text_string_to_metric_families(found)
    expected = [r"\xff\xfe" if name == "\udcff\udcfe" else name for name in ODD]
    assert [sample.labels["queue"] for sample in parsed.samples] == expected
    assert found.count("\n") == 2 + len(ODD)


@pytest.mark.parametrize("name", [name for name in ODD if "\n" not in name and name.isprintable()])
def test_a_queue_with_an_odd_name(api: Api, name: str):
    connection = connect(api)
    connection.channel().queue_declare(name)
    try:
        assert value(samples(api, "/per-object"), "rabbitmq_queue_messages", queue=name) == 0
    finally:
        connection.channel().queue_delete(name)
        connection.close()


@pytest.mark.trio
async def test_long_families_come_in_pieces_and_others_go_on_in_between():
    many = 50 * SLICE
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    taken = 0

    def rows() -> Iterator[Any]:
        nonlocal taken
        for number in range(many):
            taken += 1
            yield (f"q{number}",), number

    async def parts() -> Any:
        part: Part = Family("rabbitmq_queue_messages_acked", COUNTER, "Some", ("queue",)), rows()
        for each in (one("rabbitmq_queues", GAUGE, "How many", many), part, one("amqpd_none", GAUGE, "None", None)):
            yield each

    pieces: list[bytes] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        async for piece in text(parts()):
            if not pieces:
                assert taken < many, "all rows were taken before the first was sent"
            pieces.append(piece)
        nursery.cancel_scope.cancel()
    assert turns > many // SLICE // 2
    assert len(pieces) > 3
    first, second = text_string_to_metric_families(b"".join(pieces).decode())
    assert [sample.value for sample in first.samples] == [many]
    assert [sample.value for sample in second.samples] == list(range(many))


# Who may


@pytest.mark.parametrize("path", ENDPOINTS)
def test_metrics_need_the_tag_monitoring(api: Api, path: str):
    for user in ("", "unheard-of-3", "nobody", USERS["management"], USERS["policymaker"]):
        assert fetch(api, path, user).status_code == 401, user
    for user in (USERS["monitoring"], USERS["administrator"]):
        assert fetch(api, path, user).status_code == 200, user


def test_health_needs_no_password(api: Api):
    for path in ("healthz", "readyz"):
        answer = httpx2.get(f"{api.url}/{path}")
        assert (answer.status_code, answer.json()["status"]) == (200, "ok")


@pytest.mark.trio
async def test_a_node_that_is_shut_down_is_not_ready():
    cluster = ClusterByHand()
    sources = ServedSources(cluster)
    alarms = Alarms(lambda: None, lambda kind, on: None)
    node = SimpleNamespace(draining=True, cluster=cluster, sources=sources, alarms=alarms, cut_off_lanes=frozenset())
    state = SimpleNamespace(parts=SimpleNamespace(on=SimpleNamespace(node=node)))
    assert (await ready(SimpleNamespace(app=SimpleNamespace(state=state)))).status_code == 503  # type: ignore[arg-type]
    node.draining = False
    assert (await ready(SimpleNamespace(app=SimpleNamespace(state=state)))).status_code == 200  # type: ignore[arg-type]
    # Its cluster does without it, whatever it serves.
    cluster.isolated = "node a@x has no link to a majority of the cluster's nodes (b@x refuses a@x: x)"
    answer = await ready(SimpleNamespace(app=SimpleNamespace(state=state)))  # type: ignore[arg-type]
    assert answer.status_code == 503
    assert b"b@x refuses a@x" in answer.body
    assert (await alive(SimpleNamespace(app=SimpleNamespace(state=state)))).status_code == 200  # type: ignore[arg-type]
    cluster.isolated = ""
    # It led three sources, and no majority of the nodes answers.
    cluster.cut_off = 3
    assert (await ready(SimpleNamespace(app=SimpleNamespace(state=state)))).status_code == 503  # type: ignore[arg-type]
    assert (await alive(SimpleNamespace(app=SimpleNamespace(state=state)))).status_code == 200  # type: ignore[arg-type]
    # It serves others.
    sources.serving[7] = None
    assert (await ready(SimpleNamespace(app=SimpleNamespace(state=state)))).status_code == 200  # type: ignore[arg-type]


def test_metrics_that_are_open_and_a_node_with_an_alarm(tmp_path: Path):
    """An alarm stops publishers and nobody else: it is named, and the node is ready."""
    port = free_port()
    settings = {"AMQPD_HTTP_ENABLED": "true", "AMQPD_HTTP_PORT": str(port), "AMQPD_HTTP_METRICS_OPEN": "true"}
    broker = BrokerProcess(tmp_path / "data", environment={**settings, "AMQPD_DISK_FREE_BYTES_MIN": "1000TiB"})
    broker.start()
    api = Api(broker, port)
    try:
        for path in ENDPOINTS:
            assert fetch(api, path, "").status_code == 200
        assert httpx2.get(f"{api.url}/api/overview").status_code == 401
        found = samples(api)
        assert value(found, "rabbitmq_alarms_free_disk_space_watermark") == 1
        assert value(found, "rabbitmq_alarms_memory_used_watermark") == 0
        assert value(found, "amqpd_alarm", kind="disk") == 1
        answer = httpx2.get(f"{api.url}/readyz")
        assert (answer.status_code, answer.json()) == (200, {"status": "ok", "alarms": ["disk"]})
    finally:
        broker.close()
