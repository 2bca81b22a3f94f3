"""What operators do to a cluster of real nodes: leaders and copies move, machines are replaced, a majority is given
up.

What is verified: commands end well, say what they did, and what was confirmed before is there afterwards. Not
verified here: clients that publish meanwhile, what is refused (`tests/commands`).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from ..harness.etcd import start_all
from .cluster import Cluster

pytest.importorskip("httpx2", reason="needs httpx2 (pip install 'amqpd[etcd]')")

LARGE, LARGE_BYTES = 120, 1 << 20
"""Messages of a backlog that takes longer to be sent than a dialer pauses."""
QUORUM = {"x-queue-type": "quorum"}
COMMAND_DEADLINE_S = 120.0
SEEN_DEADLINE_S = 60.0
BETWEEN_QUESTIONS_S = 0.1


class Operated(Cluster):
    """With commands, run beside a node; and what a client sees."""

    def run(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        broker = self.brokers[name]
        command = [sys.executable, "-m", "amqpd", "--data-dir", str(broker.data_dir), *words]
        return subprocess.run(
            command, env=broker.child_environment(), capture_output=True, text=True, timeout=COMMAND_DEADLINE_S
        )

    def ok(self, name: str, *words: str) -> str:
        result = self.run(name, *words)
        assert result.returncode == 0, f"{result.stdout}{result.stderr}\n{self.log}"
        return result.stdout

    def sources(self, name: str = "a") -> dict[int, dict[str, Any]]:
        return {row["source"]: row for row in json.loads(self.ok(name, "quorum", "status", "--json"))}

    def until(self, name: str, holds: Callable[[dict[int, dict[str, Any]]], bool]) -> dict[int, dict[str, Any]]:
        """What `amqpd quorum status` says there, once it is so."""
        deadline = time.monotonic() + SEEN_DEADLINE_S
        while not holds(found := self.sources(name)):
            assert time.monotonic() < deadline, f"{found}\n{self.log}"
            time.sleep(BETWEEN_QUESTIONS_S)  # only the broker knows how far its copies are
        return found

    def source_of(self, queue: str) -> int:
        said = self.ok("a", "quorum", "status", queue)
        return int(said.partition("is in source ")[2].partition(",")[0])

    @contextmanager
    def channel(self, name: str) -> Iterator[BlockingChannel]:
        connection = pika.BlockingConnection(pika.URLParameters(self.brokers[name].url))
        try:
            yield connection.channel()
        finally:
            connection.close()

    def declare_one(self, name: str, queue: str, **arguments: Any) -> None:
        with self.channel(name) as channel:
            channel.queue_declare(queue, durable=True, arguments={**QUORUM, **arguments})

    def publish(self, name: str, queue: str, bodies: list[bytes]) -> None:
        """All of them confirmed."""
        with self.channel(name) as channel:
            channel.confirm_delivery()
            for body in bodies:
                channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2), mandatory=True)

    def drain(self, queue: str) -> list[bytes]:
        found = []
        with self.channel(self.leader_of([queue])) as channel:
            while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
                found.append(got[2])
        return found


Make = Callable[..., Operated]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """A cluster of nodes of these names, of which those in `up` run."""
    made: list[Operated] = []

    def make(names: str, up: str) -> Operated:
        cluster = Operated(tmp_path, names, environment={"AMQPD_FAST_TAKEOVER": "true"})
        made.append(cluster)
        start_all(cluster.etcds)
        start(cluster, up)
        return cluster

    yield make
    for cluster in made:
        cluster.close()


def start(cluster: Operated, names: str) -> None:
    for name in names:
        cluster.brokers[name].spawn()
    for name in names:
        cluster.brokers[name].wait_ready()


def bodies(first: int, count: int = 50) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def node(row: dict[str, Any]) -> str:
    """The leader's short name."""
    return str(row["leader"]).partition("@")[0]


def names(members: list[str]) -> str:
    return "".join(sorted(member.partition("@")[0] for member in members))


@pytest.mark.heavy
def test_balanced_queues_are_spread_and_are_used_at_their_leaders(make: Make) -> None:
    cluster = make("abc", "abc")
    queues = [f"balanced{number}" for number in range(12)]
    with cluster.channel("a") as channel:
        balanced = {**QUORUM, "x-queue-leader-locator": "balanced"}
        for queue in queues:
            assert channel.queue_declare(queue, durable=True, arguments=balanced).method.message_count == 0
            channel.queue_bind(queue, "amq.fanout")
    cluster.declare_one("a", "single", **{"x-quorum-initial-group-size": 1})
    leaders = {queue: cluster.leader_of([queue]) for queue in queues}
    assert max(Counter(leaders.values()).values()) <= 5  # 12 / 3, and a quarter
    assert set(leaders.values()) == set("abc")
    queue, leader = next((queue, leader) for queue, leader in leaders.items() if leader != "a")
    with (
        cluster.channel("a") as channel,
        pytest.raises(pika.exceptions.ChannelClosedByBroker, match=f"home node '{leader}@") as refused,
    ):
        channel.basic_consume(queue, lambda *_: None)
    assert refused.value.reply_code == 404
    cluster.publish(leader, queue, bodies(0, 3))
    assert cluster.drain(queue) == bodies(0, 3)
    rows = cluster.sources()
    assert names(rows[cluster.source_of("single")]["members"]) == "a"
    assert all(row["well"] for row in rows.values())


@pytest.mark.heavy
def test_copies_and_leaders_move_and_nothing_confirmed_is_lost(make: Make) -> None:
    cluster = make("abcd", "abc")
    cluster.declare_one("a", "orders")
    source = cluster.source_of("orders")
    cluster.publish("a", "orders", bodies(0))

    start(cluster, "d")
    said = cluster.run("a", "quorum", "grow", "d", "--queue", "orders")
    assert (said.returncode, said.stdout) == (0, "done: 1 source changed\n"), said.stderr
    assert "4 copies survive the loss of 1, as 3 do" in said.stderr
    assert names(cluster.sources()[source]["members"]) == "abcd"
    cluster.publish("a", "orders", bodies(50))

    # The leader goes, too.
    cluster.ok("b", "quorum", "shrink", "a", "--source", str(source))
    assert names(cluster.sources()[source]["members"]) == "bcd"
    leader = cluster.leader_of(["orders"])
    cluster.publish(leader, "orders", bodies(100))

    target = "d" if leader != "d" else "c"
    cluster.ok("c", "quorum", "transfer", "orders", target)
    assert cluster.leader_of(["orders"]) == target
    assert node(cluster.sources()[source]) == target
    assert set(cluster.drain("orders")) == set(bodies(0, 150))


@pytest.mark.slow
def test_a_lost_machine_is_replaced_and_forgotten(make: Make) -> None:
    cluster = make("abcd", "abc")
    cluster.declare_one("c", "orders")
    cluster.declare_one("a", "bills")
    cluster.publish("c", "orders", bodies(0))
    cluster.publish("a", "bills", bodies(0))
    refused = cluster.run("a", "cluster", "forget", "c")
    assert refused.returncode == 1
    assert "no other node lives that could take the place of c@" in refused.stderr

    cluster.brokers["c"].kill()
    assert cluster.leader_of(["orders"]) in "ab"
    start(cluster, "d")
    deadline = time.monotonic() + SEEN_DEADLINE_S
    while "c@" not in cluster.ok("a", "cluster", "status").partition("gone: ")[2]:
        assert time.monotonic() < deadline
        time.sleep(BETWEEN_QUESTIONS_S)  # its lease runs out
    said = cluster.ok("a", "cluster", "forget", "c")
    assert said.endswith("is forgotten\n")
    rows = cluster.until("a", lambda rows: all(row["well"] for row in rows.values()))
    assert {names(row["members"]) for row in rows.values()} == {"abd"}
    assert "c@" not in cluster.ok("a", "cluster", "status")

    # The new node counts: without one of the old ones everything is there.
    cluster.brokers["b"].kill()
    assert set(cluster.drain("orders")) == set(bodies(0))
    assert set(cluster.drain("bills")) == set(bodies(0))


@pytest.mark.heavy
def test_a_machine_is_replaced_at_its_address(make: Make) -> None:
    """Nobody goes on dialing the old name there: each of those would end the new one's link, and with it the copy
    that is on its way."""
    cluster = make("abcd", "abc")
    listen = "AMQPD_CLUSTER_LISTEN"
    cluster.brokers["d"].environment[listen] = cluster.brokers["c"].environment[listen]
    cluster.declare_one("a", "orders")
    large = [number.to_bytes(4, "big") * (LARGE_BYTES // 4) for number in range(LARGE)]
    cluster.publish("a", "orders", large)
    cluster.brokers["c"].kill()
    start(cluster, "d")
    assert cluster.ok("a", "cluster", "forget", "c").endswith("is forgotten\n")
    rows = cluster.until("a", lambda rows: all(row["well"] for row in rows.values()))
    assert {names(row["members"]) for row in rows.values()} == {"abd"}
    for name in "ab":
        facts = json.loads(cluster.ok(name, "status", "--json"))["cluster"]
        assert facts["links_lost_total"] <= 2, "to c, and to d at most once while that comes"
        assert facts["state_bytes_sent_total"] < 2 * LARGE * LARGE_BYTES
    assert cluster.drain("orders") == large


@pytest.mark.heavy
def test_leaders_are_even_again_after_a_node_was_away(make: Make) -> None:
    cluster = make("abc", "abc")
    for name in "abc":
        cluster.declare_one(name, f"queue-{name}")
        cluster.publish(name, f"queue-{name}", bodies(0))
        cluster.declare_classic(name, [f"classic-{name}"])
        cluster.publish(name, f"classic-{name}", bodies(0))
    cluster.brokers["b"].kill()
    assert cluster.leader_of(["queue-b"]) in "ac"
    cluster.brokers["b"].restart()
    cluster.until("a", lambda rows: all(row["up_to_date"] in (None, 3) for row in rows.values()))
    cluster.until("c", lambda rows: all(row["up_to_date"] in (None, 3) for row in rows.values()))
    plan = cluster.ok("a", "quorum", "rebalance", "--dry-run")
    assert plan.endswith("1 of 3 sources would change; nothing was asked for\n")
    assert "to b@" in plan
    cluster.ok("a", "quorum", "rebalance")
    assert sorted(node(row) for row in cluster.sources().values()) == ["a", "b", "c"]
    for name in "abc":
        assert set(cluster.drain(f"queue-{name}")) == set(bodies(0))
        assert cluster.leader_of([f"classic-{name}"]) == name, "it does not move"
        assert cluster.drain(f"classic-{name}") == bodies(0)


@pytest.mark.slow
def test_a_majority_that_is_gone_for_good_is_given_up(make: Make) -> None:
    cluster = make("abcd", "abc")
    cluster.declare_one("b", "orders")
    cluster.publish("b", "orders", bodies(0))
    for name in "ab":
        cluster.declare_classic(name, [f"classic-{name}"])
        cluster.publish(name, f"classic-{name}", bodies(0))
    # A source without a queue may be there, led by another node: two nodes made it at the same time.
    cluster.until("b", lambda rows: all(row["up_to_date"] == 3 for row in rows.values() if row["queues"]))
    for name in "bc":
        cluster.brokers[name].kill()
    rows = cluster.until("a", lambda rows: not any(row["majority"] for row in rows.values())).values()
    [row] = [row for row in rows if row["queues"]]
    assert row["says"].startswith("stopped: b@")
    asked = cluster.run("a", "quorum", "force", "orders")
    assert asked.returncode == 1
    assert "what was confirmed after that may be lost" in asked.stdout
    assert "nothing was done: be sure that b@" in asked.stderr
    assert names(cluster.sources()[row["source"]]["members"]) == "abc"

    said = cluster.ok("a", "quorum", "force", "orders", "--yes")
    assert "1 source went on" in said
    assert cluster.leader_of(["orders"]) == "a"
    assert "majority_given_up" in cluster.brokers["a"].log
    # A classic queue needs no majority, and nobody else has one of a node that is gone.
    assert cluster.drain("classic-a") == bodies(0)
    with (
        cluster.channel("a") as channel,
        pytest.raises(pika.exceptions.ChannelClosedByBroker, match="is down or inaccessible"),
    ):
        channel.queue_declare("classic-b", passive=True)
    start(cluster, "d")
    cluster.ok("a", "quorum", "grow", "d", "--all")
    cluster.publish("a", "orders", bodies(50))
    cluster.ok("a", "quorum", "transfer", "orders", "d")
    assert cluster.leader_of(["orders"]) == "d"
    assert set(cluster.drain("orders")) == set(bodies(0, 100))
