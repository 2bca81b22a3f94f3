"""A leader that is cut off from the other nodes and from etcd, as a real process on a machine of its own: what its
clients are told, and when.

What is verified: who waits for the queue is told `connection.blocked` with the reason, and closed with 320 after the
bound; who comes is refused with a 404 and a way out; what cannot be made without etcd is refused in time; `/readyz`
is 503 with the reason and `/healthz` 200; the others serve the queue meanwhile, with what was confirmed; and when the
cut is mended the node serves again. A classic queue of the node needs nobody else: there it is used as before, and
the others say that its node is down. Not verified: loads and other cuts (`test_cluster_network.py`).
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pamqp import commands

from amqpd.cluster.led_sources import GIVES_UP_LEASES

from ..clients.broker_process import free_port
from ..clients.wire import Wire, publish_bytes
from ..harness.namespaces import HERE, Machines
from .cluster import Cluster

pytest.importorskip("httpx2", reason="needs httpx2 (pip install 'amqpd[etcd]')")
pytestmark = pytest.mark.slow

NAMES = "abc"
LEASE_S = 2.0
QUEUE, CLASSIC = "orders", "jobs"
SLOW_MACHINE = 6


@pytest.fixture
def http_port() -> int:
    return free_port()


@pytest.fixture
def cluster(tmp_path: Path, http_port: int) -> Iterator[Cluster]:
    machines = Machines(NAMES)
    try:
        environment = {
            "AMQPD_CLUSTER_LEASE_S": str(LEASE_S),
            "AMQPD_HTTP_ENABLED": "true",
            "AMQPD_HTTP_PORT": str(http_port),
        }
        made = Cluster(tmp_path, NAMES, environment, machines)
        try:
            made.start()
            yield made
        except BaseException:
            print(made.log)
            raise
        finally:
            made.close()
    finally:
        machines.close()


@pytest.mark.timeout(600)
def test_what_clients_of_a_leader_that_is_cut_off_are_told(cluster: Cluster, http_port: int) -> None:
    cluster.declare_quorum("a", [QUEUE])
    former = cluster.leader_of([QUEUE])
    cluster.declare_classic(former, [CLASSIC])
    others = [name for name in NAMES if name != former]
    port = cluster.brokers[former].port
    assert cluster.machines is not None
    with cluster.inside(former):  # a socket stays where it was made
        waiting = Wire(port)
        assert answer(http_port, "/readyz")[0] == 200
    with waiting:
        waiting.open()
        waiting.open_channel()
        waiting.call(commands.Confirm.Select(), channel=1)
        waiting.send_bytes(publish_bytes(1, "", QUEUE, b"confirmed"))
        waiting.expect(commands.Basic.Ack)
        cut_at = time.monotonic()
        cluster.machines.part([[former], [*others, HERE]])
        waiting.send_bytes(publish_bytes(1, "", QUEUE, b"nobody knows"))
        blocked = waiting.expect(commands.Connection.Blocked)
        told_s = time.monotonic() - cut_at
        assert "majority" in blocked.reason
        with cluster.inside(former):
            refuses_who_comes(port, http_port)
            serves_what_is_its_own(port)
        closed = waiting.closed("connection")
        closed_s = time.monotonic() - cut_at
        assert closed.reply_code == 320
        assert "majority" in closed.reply_text
    with cluster.inside(former):
        refuses_what_needs_etcd(port)
    assert told_s < SLOW_MACHINE * 1.5 * LEASE_S
    assert GIVES_UP_LEASES * LEASE_S <= closed_s < SLOW_MACHINE * (GIVES_UP_LEASES + 1) * LEASE_S
    assert cluster.leader_of([QUEUE]) in others
    for name in others:
        assert f"home node '{former}@" in (said := refused_there(cluster, name))
        assert said.endswith("is down or inaccessible")
    cluster.machines.heal()
    with cluster.inside(former):
        while answer(http_port, "/readyz")[0] != 200:
            time.sleep(0.1)
    leader = cluster.leader_of([QUEUE])
    with cluster.inside(leader):
        assert b"confirmed" in taken(cluster.brokers[leader].port, QUEUE)
    assert cluster.leader_of([CLASSIC]) == former
    assert refused_there(cluster, others[0]).endswith("is another node: connect to that one")
    with cluster.inside(former):
        assert taken(port, CLASSIC) == [b"while it was cut off"]


def refuses_who_comes(port: int, http_port: int) -> None:
    with Wire(port) as late:
        late.open()
        late.open_channel()
        refused = late.call(commands.Queue.Declare(queue=QUEUE, passive=True), channel=1)
        assert isinstance(refused, commands.Channel.Close)
        assert refused.reply_code == 404
        assert "down or inaccessible: a majority of the nodes that keep it does not answer" in refused.reply_text
        late.send(commands.Channel.CloseOk(), channel=1)
    code, said = answer(http_port, "/readyz")
    assert (code, said["status"]) == (503, "failed")
    assert "the node is cut off: no majority of the nodes that keep its quorum queues answers" in said["reason"]
    assert answer(http_port, "/healthz") == (200, {"status": "ok", "cut_off": said["cut_off"]})


def serves_what_is_its_own(port: int) -> None:
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for body in (b"taken", b"while it was cut off"):
            channel.basic_publish("", CLASSIC, body, pika.BasicProperties(delivery_mode=2))
        assert channel.basic_get(CLASSIC, auto_ack=True)[2] == b"taken"
        assert channel.queue_declare(CLASSIC, durable=True).method.message_count == 1


def refused_there(cluster: Cluster, name: str) -> str:
    """What a client of this node is told of the classic queue."""
    with cluster.inside(name), Wire(cluster.brokers[name].port) as wire:
        wire.open()
        wire.open_channel()
        refused = wire.call(commands.Queue.Declare(queue=CLASSIC, passive=True), channel=1)
        assert isinstance(refused, commands.Channel.Close)
        return str(refused.reply_text)


def refuses_what_needs_etcd(port: int) -> None:
    with Wire(port) as later:
        later.open()
        later.open_channel()
        made = later.call(commands.Queue.Declare(queue="new", durable=True), channel=1)
        assert isinstance(made, commands.Channel.Close)
        assert "the metadata store does not answer: nothing can be declared or bound now" in made.reply_text


def answer(port: int, path: str) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as found:
            return found.status, json.load(found)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def taken(port: int, queue: str) -> list[bytes]:
    """All that is in it."""
    found = []
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
        channel = connection.channel()
        while True:
            got, _, body = channel.basic_get(queue, auto_ack=True)
            if got is None:
                return found
            found.append(body)
