"""The command line at three real nodes: whichever is asked, the whole cluster is seen, or who is missing is said.

What is verified: clients of all nodes are listed and closed at another one; quorum and classic queues are purged, and
deleted on conditions, through a node that does not lead them; each command that looks ends with a sentence when a
node is stopped, gone, or etcd is silent. Not verified here: fields (`tests/management/`), the HTTP API
(`test_cluster_management.py`).
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pika
import pytest

from amqpd.__main__ import run
from tests.faults.cluster import SECRET, Cluster

pytest.importorskip("httpx2", reason="needs httpx2 (pip install 'amqpd[etcd]')")

SEEN_DEADLINE_S = 60.0
BETWEEN_LOOKS_S = 0.1

OF_NODE = (
    *("status", "queue list", "queue show orders", "queue why orders", "queue show jobs", "queue why jobs"),
    *("consumer list", "connection list"),
    *("channel list", "exchange list", "binding list", "top --once", "alarm list", "trace list", "orphans list"),
    *("ctl status", "ctl list_queues", "ctl list_connections", "ctl list_channels", "ctl list_consumers"),
    *("ctl list_exchanges", "ctl list_bindings"),
)
"""only the running broker is asked"""
OF_STORE = (
    *("cluster status", "quorum status", "quorum status orders", "vhost list", "user list", "policy list"),
    "ctl list_users",
)
"""etcd is asked, too"""


class Said(NamedTuple):
    code: int
    out: str
    err: str


Command = Callable[[str, str], Said]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """With a quorum queue `orders`, and at the node that leads it a classic one, `jobs`, with a message."""
    cluster = Cluster(tmp_path_factory.mktemp("commands"))
    try:
        cluster.start()
        cluster.declare_quorum("a", ["orders"])
        leader = cluster.leader_of(["orders"])
        cluster.declare_classic(leader, ["jobs"])
        with connected(cluster, leader) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.basic_publish("", "jobs", b"x", pika.BasicProperties(delivery_mode=2))
        yield cluster
        assert "Traceback" not in "".join(broker.log for broker in cluster.brokers.values())
    finally:
        cluster.close()


@pytest.fixture
def command(cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """A command at a node, with that node's settings."""

    def told(at: str, words: str) -> Said:
        broker = cluster.brokers[at]
        settings = {"node_name": at, "data_dir": str(broker.data_dir), "cluster_secret": SECRET} | {
            "cluster_store": broker.environment["AMQPD_CLUSTER_STORE"],
            "cluster_listen": broker.environment["AMQPD_CLUSTER_LISTEN"],
        }
        config = tmp_path / f"{at}.toml"
        config.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
        config.chmod(0o600)
        capsys.readouterr()
        try:
            code = run(["--config", str(config), *words.split()])
        except SystemExit as end:
            code = int(str(end.code))
        return Said(code, *capsys.readouterr())

    return told


def connected(cluster: Cluster, at: str, name: str = "") -> pika.BlockingConnection:
    parameters = pika.URLParameters(cluster.brokers[at].url)
    parameters.client_properties = {"connection_name": name}
    return pika.BlockingConnection(parameters)


def until(command: Command, at: str, words: str, holds: Callable[[Said], bool]) -> Said:
    """What other nodes said is kept for some seconds."""
    deadline = time.monotonic() + SEEN_DEADLINE_S
    while not holds(said := command(at, words)):
        assert time.monotonic() < deadline, said
        time.sleep(BETWEEN_LOOKS_S)  # nobody tells that an answer is kept no longer
    return said


def until_told(command: Command, at: str, words: str, sentence: str) -> None:
    """Beside what it answers. Others on a busy machine may be late, and have sentences of their own."""
    until(command, at, words, lambda said: sentence in said.err)


def nodes_in(said: Said) -> list[str]:
    """Of each row."""
    return sorted(row["node"].partition("@")[0] for row in json.loads(said.out))


def test_clients_of_all_nodes_are_listed_and_closed_at_any(cluster: Cluster, command: Command) -> None:
    leader = cluster.leader_of(["orders"])
    other = "a" if leader != "a" else "b"
    with connected(cluster, leader, "far") as far, connected(cluster, other, "near") as near:
        far.channel().basic_consume("orders", lambda *_: None, consumer_tag="reader")
        near.channel()
        both = sorted((leader, other))
        for of in ("connection", "channel"):
            # Who looked where the leader is may be listed for some seconds.
            said = until(command, other, f"{of} list --json", lambda said: nodes_in(said) == both)
            assert said.err == ""
        found = until(command, other, "consumer list --json", lambda said: nodes_in(said) == [leader])
        assert json.loads(found.out)[0]["consumer_tag"] == "reader"
        lines = command(other, "connection list").out.splitlines()
        assert sorted(line.split()[0].partition("@")[0] for line in lines) == sorted(("node", leader, other))
        listed = command(other, "ctl list_connections pid -s")
        rows = json.loads(command(other, "connection list --json").out)
        assert sorted(listed.out.split()) == sorted(row["id"] for row in rows)
        [which] = [row["id"] for row in rows if row["client_properties"].get("connection_name") == "far"]
        assert command(other, f"connection close {which} --reason enough") == Said(0, "closed 1 connection\n", "")
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="enough"):
            far.process_data_events(5)
        missing = command(other, f"connection close {which}")
        assert (missing.code, "there is no connection" in missing.err) == (1, True)
        assert near.is_open
    with connected(cluster, leader) as far, connected(cluster, other) as near:
        assert command(other, "connection close --user guest").out == "closed 2 connections\n"
        for connection in (far, near):
            with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
                connection.process_data_events(5)


@pytest.mark.parametrize("kind", ["quorum", "classic"])
def test_queues_are_purged_and_deleted_as_empty_through_a_node_that_does_not_lead_them(
    cluster: Cluster, command: Command, kind: str
) -> None:
    queues = [f"{kind}-{each}" for each in ("empty", "full", "used")]
    if kind == "quorum":
        cluster.declare_quorum("a", queues)
    else:
        cluster.declare_classic("a", queues)
    empty, full, used = queues
    leader = cluster.leader_of(queues)
    other = "a" if leader != "a" else "b"
    until(command, other, f"queue show {used}", lambda said: said.code == 0)
    with connected(cluster, leader) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", full, b"x", pika.BasicProperties(delivery_mode=2))
        channel.basic_consume(used, lambda *_: None)
        many = f"--matching ^{kind}- --yes --json"
        rows = json.loads(command(other, f"queue delete {many} --only empty --only unused").out)
        done = {row["name"]: row["refused"] or row["messages"] for row in rows}
        assert done.pop(empty) == 0
        assert all("in use" in str(why) for why in done.values()), "its leader looks again"
        assert full not in done
        for name, condition, said in ((full, "--if-empty", "not empty"), (used, "--if-unused", "in use")):
            kept = command(other, f"queue delete {name} {condition}")
            wrong = "not supported by quorum queues" if kind == "quorum" else said
            assert (kept.code, wrong in kept.err) == (1, True), kept
        assert "1 message waits" in command(other, f"queue why {full}").out
        assert "1 ready message is gone" in command(other, f"queue purge {full}").out
        assert json.loads(command(other, f"queue show {full} --json").out)["messages"] == 0
    for name in (full, used):
        assert command(other, f"queue delete {name}{' --if-empty' * (kind == 'classic')}").code == 0
    assert [command(at, f"queue show {used}").code for at in (other, leader)] == [1, 1]


@pytest.mark.parametrize("words", [*OF_NODE, *OF_STORE])
def test_each_command_looks_at_a_node_that_does_not_lead(cluster: Cluster, command: Command, words: str) -> None:
    other = "b" if cluster.leader_of(["orders"]) != "b" else "c"
    said = command(other, words)
    assert (said.code, "Traceback" in said.err, "?" in said.out) == (0, False, False), said


def test_a_node_has_one_incarnation_whichever_command_says_it(cluster: Cluster, command: Command) -> None:
    cluster.brokers["c"].restart()
    at_node = {name: json.loads(command(name, "status --json").out)["incarnation"] for name in cluster.brokers}
    rows = json.loads(command("a", "cluster status --json").out)["members"]
    assert at_node == {row["name"].partition("@")[0]: row["incarnation"] for row in rows}


def test_the_copy_of_a_stopped_node_is_not_up_to_date(cluster: Cluster, command: Command) -> None:
    """Nobody closes its connections, and nothing is published that it could be said to lack."""
    leader = cluster.leader_of(["orders"])
    broker = cluster.brokers["a" if leader != "a" else "b"]
    until(command, leader, "quorum status orders", lambda said: "3 of 3 copies up to date" in said.out)
    broker.send_signal(signal.SIGSTOP)
    try:
        said = until(command, leader, "quorum status orders", lambda said: " is gone" in said.out)
        assert "; 2 of 3 copies up to date, " in said.out
    finally:
        broker.send_signal(signal.SIGCONT)
    until(command, leader, "quorum status orders", lambda said: "3 of 3 copies up to date" in said.out)


def test_a_stopped_node_is_named_and_then_one_that_is_gone(cluster: Cluster, command: Command) -> None:
    """Behind all that need three nodes."""
    leader = cluster.leader_of(["orders"])
    at = "a" if leader != "a" else "b"
    broker = cluster.brokers[leader]
    with connected(cluster, leader, "far"):
        until(command, at, "connection list --json", lambda said: leader in nodes_in(said))
        broker.send_signal(signal.SIGSTOP)
        try:
            for of in ("connection", "channel", "consumer"):
                until_told(command, at, f"{of} list", f"(not in this list: {of}s of node {leader}@")
            for words in OF_NODE:
                assert (said := command(at, words)).code == 0, said
            stopped = command(leader, "status")
            assert (stopped.code, "is stopped (SIGSTOP" in stopped.err) == (1, True)
        finally:
            broker.send_signal(signal.SIGCONT)
    broker.kill()
    assert "which is away" in until(command, at, "connection list", lambda said: "away" in said.err).err
    for words in (*OF_NODE, *OF_STORE):
        assert (said := command(at, words)).code == 0, said
    assert f"ode {leader}@" in command(at, "status").out
    assert command(at, "cluster status --problems").code == 1
    closed = command(at, "connection close --all")
    assert (closed.code, f"(not closed: those of node {leader}@" in closed.err) == (1, True)
    assert "no broker runs" in command(leader, "status").err
    # What the node leads alone waits for it, and is not said to be empty.
    rows = {row["name"]: row for row in json.loads(command(at, "queue list --json").out)}
    assert (rows["jobs"]["node"].partition("@")[0], rows["jobs"]["state"], rows["jobs"]["messages"]) == (
        *(leader, "down"),
        None,
    )
    assert f"its node '{leader}@" in command(at, "queue why jobs").out
    purged = command(at, "queue purge jobs")
    assert (purged.code, f"home node '{leader}@" in purged.err) == (1, True), purged
    kept = command(at, "queue delete jobs --if-empty")
    assert (kept.code, f"home node '{leader}@" in kept.err) == (1, True), kept


def test_without_etcd_the_node_says_so_and_goes_on(cluster: Cluster, command: Command) -> None:
    """The last one."""
    at = next(name for name, broker in cluster.brokers.items() if broker.running)
    cluster.etcd.pause()
    try:
        silent = "The metadata store (etcd) does not answer this node"
        until(command, at, "status", lambda said: silent in said.out)
        for words in OF_NODE:
            assert (said := command(at, words)).code == 0, said
        # It waits for etcd, for ten seconds, and says so beside what it was asked for.
        said = command(at, "user list --json")
        assert (said.code, said.out) == (1, ""), said
        assert all("the metadata store (etcd) does not answer" in line for line in said.err.splitlines())
    finally:
        cluster.etcd.go_on()
