"""The management API of three real nodes: each of them shows the whole cluster.

What is verified: what one node has, quorum and classic queues, is seen at another one, with numbers; what may be done
there; a node that is killed or stopped does not keep the others from answering. Not verified here: each field
(`tests/admin`), what is asked over the links (`tests/management/across_nodes/`).
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pika
import pytest

from amqpd.__main__ import run
from tests.clients.broker_process import free_port
from tests.faults.cluster import Cluster

httpx2 = pytest.importorskip("httpx2", reason="needs httpx2 (pip install 'amqpd[etcd]')")

SEEN_DEADLINE_S = 60.0
BETWEEN_QUESTIONS_S = 0.1
ANSWERED_S = 20.0
"""What a busy machine may take for an answer that waits two seconds for a silent node: not for ever."""


class Managed(Cluster):
    """With an API at each node."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.ports = {name: free_port() for name in self.brokers}
        for name, broker in self.brokers.items():
            broker.environment |= {"AMQPD_HTTP_ENABLED": "true", "AMQPD_HTTP_PORT": str(self.ports[name])}

    def ask(self, at: str, path: str, method: str = "GET", user: str = "guest", **more: Any) -> Any:
        url = f"http://127.0.0.1:{self.ports[at]}/api{path}"
        return httpx2.request(method, url, auth=(user, user), timeout=ANSWERED_S, **more)

    def get(self, at: str, path: str, user: str = "guest", **params: object) -> Any:
        answer = self.ask(at, path, user=user, params=params)
        assert answer.status_code == 200, (answer.text, self.log)
        return answer.json()

    def until(self, at: str, path: str, holds: Callable[[Any], bool]) -> Any:
        """What is said there, once it is so: answers are kept for some seconds."""
        deadline = time.monotonic() + SEEN_DEADLINE_S
        while not holds(found := self.get(at, path)):
            assert time.monotonic() < deadline, (found, self.log)
            time.sleep(BETWEEN_QUESTIONS_S)  # what other nodes say is kept
        return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Managed]:
    """With a quorum queue, `orders`, and at the same node a classic one, `jobs`; and a user who may only look at its
    own."""
    cluster = Managed(tmp_path_factory.mktemp("managed"))
    try:
        cluster.start()
        cluster.declare_quorum("a", ["orders"])
        cluster.declare_classic(cluster.leader_of(["orders"]), ["jobs"])
        made = cluster.ask("b", "/users/clerk", "PUT", json={"password": "clerk", "tags": "management"})
        assert made.status_code == 201, made.text
        may = {"configure": "", "write": "", "read": ""}
        assert cluster.ask("b", "/permissions/%2F/clerk", "PUT", json=may).status_code == 201
        yield cluster
        assert "Traceback" not in "".join(broker.log for broker in cluster.brokers.values())
    finally:
        cluster.close()


both = pytest.mark.parametrize("queue", ["orders", "jobs"])


@pytest.fixture
def queue() -> str:
    return "orders"


@pytest.fixture
def leader(cluster: Managed, queue: str) -> str:
    return cluster.leader_of([queue])


@pytest.fixture
def other(leader: str) -> str:
    return "a" if leader != "a" else "b"


def row_of(rows: list[dict[str, Any]], name: str = "orders") -> dict[str, Any]:
    [found] = [row for row in rows if row["name"] == name]
    return found


def short(name: str) -> str:
    return name.partition("@")[0]


def connected(cluster: Managed, at: str) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.URLParameters(cluster.brokers[at].url))


def test_all_nodes_are_seen_at_each(cluster: Managed) -> None:
    for at in "abc":
        rows = cluster.until(at, "/nodes", lambda rows: len(rows) == 3 and all(row["running"] for row in rows))
        assert {short(row["name"]) for row in rows} == {"a", "b", "c"}
        assert short(cluster.get(at, "/overview")["node"]) == at
        assert len({row["os_pid"] for row in rows}) == 3
        for row in rows:
            assert cluster.get(at, f"/nodes/{quote(row['name'], safe='')}")["os_pid"] == row["os_pid"]
    ports = {row["port"] for row in cluster.get("a", "/overview")["listeners"] if row["protocol"] == "http"}
    assert ports == set(cluster.ports.values())


def test_metrics_are_written_at_each_node(cluster: Managed, leader: str) -> None:
    for at in "abc":
        url = f"http://127.0.0.1:{cluster.ports[at]}/metrics"
        answer = httpx2.get(url, auth=("guest", "guest"), timeout=ANSWERED_S)
        assert answer.status_code == 200, cluster.log
        lines = answer.text.splitlines()
        assert {"amqpd_cluster_unreadable 0.0", "amqpd_cluster_store_silent 0.0"} <= set(lines)
        assert any(line.startswith("amqpd_cluster_take_overs_total ") for line in lines)


CRITICAL = "/health/checks/node-is-quorum-critical"
LEADERS = "/health/checks/quorum-queues-without-elected-leaders"


def test_health_checks_of_quorum_queues_are_answered_in_a_cluster(cluster: Managed, leader: str) -> None:
    for at in "abc":
        asked = [CRITICAL, *(LEADERS + each for each in ("/all-vhosts/", "/all-vhosts/pattern/.%2A", "/vhost/%2F"))]
        for path in (*asked, f"{LEADERS}/vhost/%2F/pattern/.%2A"):
            assert cluster.get(at, path)["status"] == "ok"


def test_scripts_see_the_nodes_of_the_cluster(cluster: Managed, capsys: pytest.CaptureFixture[str]) -> None:
    """As rabbitmqctl says it."""
    ctl = ["--data-dir", str(cluster.brokers["b"].data_dir), "ctl"]
    cluster.until("b", "/nodes", lambda rows: len(rows) == 3 and all(row["running"] for row in rows))
    assert run([*ctl, "await_online_nodes", "3", "--timeout", "60"]) == 0
    capsys.readouterr()
    assert run([*ctl, "cluster_status", "--formatter", "json"]) == 0
    running = json.loads(capsys.readouterr().out)["running_nodes"]
    assert (short(running[0]), {short(name) for name in running}) == ("b", {"a", "b", "c"})
    assert run([*ctl, "await_online_nodes", "4", "--timeout", "1"]) == 65
    assert "3 of 4 nodes are there after 1 seconds" in capsys.readouterr().err


@both
def test_a_queue_has_the_numbers_of_its_leader(cluster: Managed, queue: str, leader: str, other: str) -> None:
    with connected(cluster, leader) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for body in (b"one", b"two"):
            channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2))
        channel.basic_consume(queue, lambda *_: None, consumer_tag="reader")
        connection.process_data_events(0)
        found = cluster.until(other, "/queues", lambda rows: row_of(rows, queue).get("messages_unacknowledged") == 2)
        row = row_of(found, queue)
        assert (row["messages"], row["message_bytes"], row["consumers"], row["state"]) == (2, 6, 1, "running")
        assert row["message_stats"]["publish"] == 2
        assert short(row["node"]) == leader
        if queue == "orders":
            assert short(row["leader"]) == leader
            assert sorted(map(short, row["members"])) == sorted(map(short, row["online"])) == ["a", "b", "c"]
        one = cluster.get(other, f"/queues/%2F/{queue}")
        assert [each["consumer_tag"] for each in one["consumer_details"]] == ["reader"]
        assert short(one["consumer_details"][0]["channel_details"]["node"]) == leader
        # Sorted and cut by what only its leader knows; without statistics, with numbers and without.
        page = cluster.get(other, "/queues", page=1, page_size=5, sort="messages", sort_reverse="true")
        assert (page["items"][0]["name"], page["items"][0]["messages"]) == (queue, 2)
        assert "nodes_missing" not in page
        bare = row_of(cluster.get(other, "/queues", disable_stats="true", enable_queue_totals="true"), queue)
        assert (bare["messages"], bare["state"]) == (2, "running")
        assert "messages" not in row_of(cluster.get(other, "/queues", disable_stats="true"), queue)
        totals = cluster.until(other, "/overview", lambda row: row["queue_totals"]["messages"] == 2)
        assert totals["object_totals"]["consumers"] == 1
        assert row_of(cluster.get(other, "/vhosts"), "/")["messages"] == 2
    with connected(cluster, leader) as connection:
        assert connection.channel().queue_purge(queue).method.message_count == 2


@both
def test_messages_are_taken_away_at_the_leader(cluster: Managed, queue: str, leader: str, other: str) -> None:
    with connected(cluster, leader) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", queue, b"x", pika.BasicProperties(delivery_mode=2))
        assert cluster.ask(other, f"/queues/%2F/{queue}/contents", "DELETE", user="clerk").status_code == 401
        assert channel.queue_declare(queue, passive=True).method.message_count > 0
        answer = cluster.ask(other, f"/queues/%2F/{queue}/contents", "DELETE")
        assert answer.status_code == 204, answer.text
        assert channel.queue_declare(queue, passive=True).method.message_count == 0
    refused = cluster.ask(
        *(other, f"/queues/%2F/{queue}/get", "POST"),
        json={"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"},
    )
    assert refused.status_code == 404
    assert f"home node '{leader}@" in refused.text or f"home node '{leader}'" in refused.text


def test_clients_of_all_nodes_are_seen_and_are_closed(cluster: Managed, leader: str, other: str) -> None:
    def users(at: str, user: str) -> set[str]:
        return {short(row["node"]) for row in cluster.get(at, "/connections", user=user)}

    with connected(cluster, leader) as there:
        there.channel().basic_consume("orders", lambda *_: None, consumer_tag="far")
        with connected(cluster, other) as here:
            here.channel()
            rows = cluster.until(other, "/connections", lambda rows: len({row["node"] for row in rows}) == 2)
            assert {short(row["node"]) for row in rows} == {leader, other}
            assert users(other, "clerk") == set()
            far = next(row for row in rows if short(row["node"]) == leader)
            assert far["client_properties"]["product"] == "Pika Python Client Library"
            path = f"/connections/{quote(far['name'], safe='')}"
            assert cluster.get(other, path)["name"] == far["name"]
            assert cluster.ask(other, path, user="clerk").status_code == 401
            [channel] = cluster.until(other, f"{path}/channels", lambda rows: len(rows) == 1)
            assert (short(channel["node"]), channel["consumer_count"]) == (leader, 1)
            whole = cluster.get(other, f"/channels/{quote(channel['name'], safe='')}")
            assert [each["consumer_tag"] for each in whole["consumer_details"]] == ["far"]
            assert "far" in [row["consumer_tag"] for row in cluster.get(other, "/consumers")]
            counts = cluster.until(other, "/overview", lambda row: row["object_totals"]["connections"] == 2)
            assert counts["object_totals"]["channels"] == 2
            assert cluster.get(other, "/overview", user="clerk")["object_totals"]["connections"] == 0
            assert cluster.ask(other, path, "DELETE", user="clerk").status_code == 401
            closed = cluster.ask(other, path, "DELETE", headers={"x-reason": "enough"})
            assert closed.status_code == 204, closed.text
            with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="enough"):
                there.process_data_events(5)
            assert far["name"] not in [row["name"] for row in cluster.get(other, "/connections")]


def test_a_node_that_is_silent_or_gone_keeps_nobody_waiting(cluster: Managed, leader: str) -> None:
    """The last one: the leader is stopped, then killed."""
    other, third = sorted(set("abc") - {leader})
    broker = cluster.brokers[leader]
    with connected(cluster, leader) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", "jobs", b"x", pika.BasicProperties(delivery_mode=2))
    broker.send_signal(signal.SIGSTOP)
    try:
        page = cluster.get(other, "/connections", page=1)
        # Its lease may have run out before it was asked.
        assert [short(each) for each in page.get("nodes_missing", [leader])] == [leader]
        rows = cluster.get(other, "/nodes")
        assert {short(row["name"]): row["running"] for row in rows} == {other: True, third: True, leader: False}
        # It was taken over, or nobody knows what is in it.
        row = row_of(cluster.get(third, "/queues"))
        assert short(row["node"]) != leader or "messages_ready" not in row
        row = row_of(cluster.get(third, "/queues"), "jobs")
        assert (short(row["node"]), row["state"], "messages_ready" in row) == (leader, "down", False)
    finally:
        broker.send_signal(signal.SIGCONT)
        broker.kill()
    cluster.leader_of(["orders"])
    for at in (other, third):  # two of three copies are left
        answer = cluster.ask(at, CRITICAL)
        assert answer.status_code == 503
        assert [each["name"] for each in answer.json()["queues"]] == ["orders"]
    rows = cluster.get(third, "/nodes")
    assert {short(row["name"]): row["running"] for row in rows} == {other: True, third: True, leader: False}
    row = row_of(cluster.until(other, "/queues", lambda rows: row_of(rows)["state"] == "running"))
    assert short(row["node"]) in (other, third)
    row = row_of(
        cluster.until(other, "/queues", lambda rows: leader not in map(short, row_of(rows)["online"])),
    )
    assert sorted(map(short, row["members"])) == ["a", "b", "c"]
    # The classic queue waits for its node.
    row = row_of(cluster.get(other, "/queues"), "jobs")
    assert (short(row["node"]), row["state"], "messages" in row) == (leader, "down", False)
    away = cluster.ask(other, "/queues/%2F/jobs/contents", "DELETE")
    assert (away.status_code, f"{leader}@" in away.text) == (404, True), away.text
    broker.start()
    row = row_of(cluster.until(other, "/queues", lambda rows: row_of(rows, "jobs")["state"] == "running"), "jobs")
    assert (short(row["node"]), row["messages"]) == (leader, 1)
    assert cluster.ask(other, "/queues/%2F/jobs", "DELETE").status_code == 204
    cluster.until(leader, "/queues", lambda rows: "jobs" not in [row["name"] for row in rows])
