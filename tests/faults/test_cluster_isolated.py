"""A node that all the others refuse: it lives in the store, and takes no part; every face says so, and why.

What is verified, with real nodes: a wrong secret, a certificate of another authority, and both mended. Not verified
here: who counts as isolated (`tests/cluster/test_linkage.py`), links that come and go
(`tests/cluster/test_link_watch.py`), real links in one process (`tests/cluster/test_link_reports.py`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pika.exceptions
import pytest
import trustme

from amqpd.setting_types import host_name
from tests.peers.links.forwarders import Certificates

from ..harness.etcd import free_ports, start_all
from .test_cluster_operators import BETWEEN_QUESTIONS_S, SEEN_DEADLINE_S, Operated

REFUSED_DEADLINE_S = 8.0
"""of a declaration: one that nobody can carry out is given up after ten seconds anyhow"""


def node(name: str) -> str:
    return f"{name}@{host_name()}"


class Refusing(Operated):
    """Nodes a and b refuse c, until `mend`."""

    def __init__(self, directory: Path, way: str) -> None:
        super().__init__(directory)
        (directory / "tls").mkdir()
        self.way = way
        self.right: dict[str, str] = {}
        """settings of c"""
        certificates = Certificates(directory / "tls")
        for (name, broker), port in zip(self.brokers.items(), free_ports(3), strict=True):
            broker.environment |= {"AMQPD_HTTP_ENABLED": "true", "AMQPD_HTTP_PORT": str(port)}
            if way == "certificate":
                path = certificates.file_of(node(name))
                broker.environment |= {
                    "AMQPD_CLUSTER_SECRET": "",
                    "AMQPD_CLUSTER_TLS_CA": str(certificates.ca),
                    "AMQPD_CLUSTER_TLS_CERTIFICATE": str(path),
                }
        c = self.brokers["c"].environment
        if way == "certificate":
            other = trustme.CA()
            ca = directory / "tls" / "other.pem"
            other.cert_pem.write_to_path(ca)
            path = certificates.file_of(node("c"), authority=other)
            wrong = {"AMQPD_CLUSTER_TLS_CA": str(ca), "AMQPD_CLUSTER_TLS_CERTIFICATE": str(path)}
        else:
            wrong = {"AMQPD_CLUSTER_SECRET": "another one of these tests"}
        self.right = {name: c[name] for name in wrong}
        c.update(wrong)

    def start(self) -> None:
        """Also nodes that are not ready for clients."""
        start_all(self.etcds)
        for broker in self.brokers.values():
            broker.spawn()
        for broker in self.brokers.values():
            broker.wait_ready()

    def mend(self) -> None:
        broker = self.brokers["c"]
        broker.environment.update(self.right)
        broker.restart()

    def ready(self, name: str) -> tuple[int, dict[str, Any]]:
        answer = httpx2.get(f"http://127.0.0.1:{self.brokers[name].environment['AMQPD_HTTP_PORT']}/readyz")
        return answer.status_code, answer.json()

    def member(self, name: str) -> dict[str, Any]:
        [row] = [row for row in self.status()["members"] if row["name"] == node(name)]
        return dict(row)

    def needs(self, name: str) -> dict[str, str]:
        """By kind."""
        found = json.loads(self.ok(name, "status", "--json"))["needs_attention"]
        return {need["kind"]: need["says"] for need in found}

    def says_isolated(self, name: str) -> str:
        """What that node has first among what needs attention; empty: nothing of this kind."""
        return self.needs(name).get("isolated", "")


def until(cluster: Refusing, holds: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + SEEN_DEADLINE_S
    while not (found := holds()):
        assert time.monotonic() < deadline, cluster.log
        time.sleep(BETWEEN_QUESTIONS_S)  # only the nodes know whether they have links
    return found


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Refusing]:
    cluster = Refusing(tmp_path, request.param)
    try:
        cluster.start()
        yield cluster
    except BaseException:
        print(cluster.log)
        raise
    finally:
        cluster.close()


def refused_there(cluster: Refusing, name: str, end: str) -> bool:
    """A client of this node is told so of the classic queue of c; false: the node does not know it yet."""
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused, cluster.channel(name) as channel:
        channel.queue_declare("own", passive=True)
    said = str(refused.value.reply_text)
    return f"home node '{node('c')}'" in said and said.endswith(end)


SAID = {
    "secret": f"{node('a')} and {node('b')} refuse {node('c')}: the shared secret differs",
    "certificate": f"{node('a')} and {node('b')} refuse {node('c')}: its certificate is of another authority",
}
OUT = {"secret": "give {} the cluster_secret of the others", "certificate": "give {} a certificate of the cluster's"}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("cluster", SAID, indirect=True)
def test_a_node_that_all_refuse_takes_no_part_and_every_face_says_why(cluster: Refusing) -> None:
    c, why, out = node("c"), SAID[cluster.way], OUT[cluster.way].format(node("c"))
    # At c nothing can be declared, and nothing is left behind.
    begun = time.monotonic()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        cluster.declare_one("c", "nowhere")
    assert time.monotonic() - begun < REFUSED_DEADLINE_S, "at once, when it is known"
    assert refused.value.reply_code == 406
    assert "has no link to a majority of the cluster's nodes" in refused.value.reply_text
    assert not cluster.status()["sources"], "no empty source is left"

    # A classic queue needs nobody else, and the others know of it.
    cluster.declare_classic("c", ["own"])
    cluster.publish("c", "own", [b"one"])
    for name in "ab":
        until(cluster, partial(refused_there, cluster, name, "is another node: connect to that one"))

    status, answer = cluster.ready("c")
    assert (status, answer["status"]) == (503, "failed")
    assert "has no link to a majority" in answer["reason"]
    assert [cluster.ready(name)[0] for name in "ab"] == [200, 200]

    # At the others all goes on, without it.
    until(cluster, lambda: cluster.member("c")["isolated"])
    cluster.declare_one("a", "orders")
    cluster.publish("a", "orders", [b"one"])
    cluster.declare_one("b", "spread", **{"x-queue-leader-locator": "balanced"})
    sources = cluster.sources("a")
    assert sources
    assert all(c not in (row["leader"], *row["members"]) for row in sources.values()), sources

    # Everybody says who refuses it, why, and what to do; also c itself.
    until(cluster, lambda: why in cluster.ok("a", "cluster", "status"))
    for name in "abc":
        said = cluster.ok(name, "cluster", "status")
        assert f"3 nodes live, isolated: {c}." in said
        assert out in said
        assert why in until(cluster, partial(cluster.says_isolated, name))
    assert "isolated" in cluster.ok("a", "cluster", "status").partition(c)[2].splitlines()[0]
    grown = cluster.run("a", "quorum", "grow", "c", "--all")
    assert (grown.returncode, why in grown.stderr) == (1, True)
    statistics = json.loads(cluster.ok("c", "status", "--json"))["cluster"]
    assert statistics["take_overs_begun_total"] == 0, "it does not stand as a candidate"

    cluster.mend()
    until(cluster, lambda: not cluster.member("c")["isolated"] and cluster.ready("c")[0] == 200)
    assert "isolated" not in cluster.needs("a")
    cluster.declare_one("c", "here")
    assert cluster.drain("own") == [b"one"]
    cluster.ok("a", "quorum", "grow", "c", "--all", "--timeout", "60")
    assert all(c in row["members"] for row in cluster.sources("a").values())
