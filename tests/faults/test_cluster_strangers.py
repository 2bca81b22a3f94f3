"""Programs at the port where nodes listen for each other, and a node that lies: refused, and nobody ends.

What is verified, with real nodes and each way of proof: any name, the last epoch, what was said before, flipped bits,
a thousand connections; afterwards all nodes run, their epochs are small, and a confirmed message is there. Not
verified here: each number of each message (`tests/cluster/test_lies.py`), what a secret keeps out
(`tests/peers/links/test_secret.py`).
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pika
import pytest
import trio

from amqpd.peers.entry import EPOCH_MAX, START, Frame, Vote, new_entry
from amqpd.peers.links.framing import Crc, framed, framed_word
from amqpd.peers.links.sockets import Address
from amqpd.peers.links.trust import DIALER, Trust
from amqpd.peers.messages import (
    Cut,
    DataHeartbeat,
    Greeting,
    Hello,
    Message,
    OpenedSource,
    Opening,
    OpenReplicaSet,
    Proof,
    Purpose,
    Refusal,
    RequestVote,
    ToEdge,
    ToLeader,
)
from amqpd.peers.versions import HIGHEST
from amqpd.setting_types import host_name
from tests.peers.links.forwarders import OPEN, Certificates, Wire, greeting

from ..harness.slow import slow_but
from .cluster import SECRET, Cluster

pytest.importorskip("httpx2", reason="needs httpx2 (pip install 'amqpd[etcd]')")

WITH_SECRET = Trust(secret=SECRET.encode())
CONNECTIONS = 1000
QUEUE, CLASSIC = "orders", "jobs"


def node(name: str) -> str:
    return f"{name}@{host_name()}"


def hello(name: str) -> Hello:
    return Hello(HIGHEST, "test", name, 1, 1)


class Strangers:
    """Of one cluster, and what its nodes trust."""

    def __init__(self, cluster: Cluster, trust: Trust) -> None:
        self.cluster = cluster
        self.trust = trust
        self.address: Address = ("127.0.0.1", cluster.links["a"])

    async def connect(self, trust: Trust) -> Wire:
        stream: trio.abc.Stream = await trio.open_tcp_stream(*self.address)
        if trust.tls is not None:
            stream = trio.SSLStream(stream, trust.tls.dialing, server_hostname="a")
        return Wire(stream)

    async def refused(self, me: Hello, target: str, trust: Trust) -> str:
        """Why this one is not let in."""
        wire = await self.connect(trust)
        answer = await wire.greet(me, target, trust)
        assert isinstance(answer, Refusal)
        await wire.wait_closed()
        await wire.close()
        return answer.reason

    async def say_as(
        self, name: str, *messages: Message, flip: bool = False, purpose: Purpose = Purpose.REPLICATION
    ) -> None:
        """As a node that has all proofs; the link is closed because of the last one."""
        wire = await self.connect(self.trust)
        assert isinstance(await wire.greet(hello(name), node("a"), self.trust, purpose), Greeting)
        words = bytearray(b"".join(b"".join(framed(each, wire.check)) for each in messages))
        if flip:
            words[-20] ^= 4
        await wire.stream.send_all(bytes(words))
        await wire.wait_closed()
        await wire.close()

    async def without_a_proof(self) -> None:
        """It has no secret, and no certificate that it says."""
        for name in ("b", "zzz"):
            wire = Wire(await trio.open_tcp_stream(*self.address))
            asked = framed_word(greeting(hello(node(name)), node("a"), OPEN))
            vote = RequestVote(1, 1, Vote(2**63 - 1, node(name), 1))
            words = asked + framed_word(Proof(b"")) + b"".join(framed(vote, Crc()))
            await wire.stream.send_all(words)
            if self.trust.tls is None:
                answer = await wire.hear()
                assert isinstance(answer, Greeting)
                assert answer.hello == Hello(HIGHEST, "", "", 0, 0)
            await wire.wait_closed()
            await wire.close()

    async def said_before(self) -> None:
        """What somebody with the secret has said, again."""
        first = await self.connect(self.trust)
        asked = greeting(hello(node("b")), node("c"), self.trust)
        await first.say(asked)
        await first.hear()
        proof = Proof(self.trust.proof(DIALER, first.transcript_digest))
        await first.say(proof)
        assert isinstance(await first.hear(), Refusal)  # it is not c
        again = await self.connect(self.trust)
        await again.stream.send_all(framed_word(asked) + framed_word(proof))
        assert isinstance(await again.hear(), Greeting)
        assert await again.hear() == Refusal("the cluster_secret there is another one")
        for wire in (first, again):
            await wire.close()

    async def lie(self) -> None:
        """A node whose proof is right."""
        source, b = 1, node("b")
        bad = new_entry(source, (9, 9), START, b"no payload")
        await self.say_as(b, RequestVote(1, source, Vote(EPOCH_MAX, b, 1)))
        await self.say_as(b, RequestVote(1, source, Vote(2**63 - 1, b, 1)))
        await self.say_as(b, RequestVote(1, source, Vote(9, node("c"), 1)))
        await self.say_as(b, RequestVote(1, source, Vote(9, b, 1)), flip=True)
        await self.say_as(b, OpenReplicaSet(1, 1, Opening(8, (OpenedSource(source, EPOCH_MAX, START, None),), 0)))
        opening = OpenReplicaSet(1, 1, Opening(8, (OpenedSource(200, 9, START, None),), 0))
        unusable = new_entry(200, (9, 9), bad.before, bad.payload)
        await self.say_as(b, opening, Cut(1, 2, Frame(9, 8, (unusable,), 0)))
        # Links of one purpose take nothing of the other.
        await self.say_as(b, DataHeartbeat(), RequestVote(1, source, Vote(9, b, 1)), purpose=Purpose.DATA)
        await self.say_as(b, DataHeartbeat(), ToEdge(source, 1, 1, (b"no leader of it",)), purpose=Purpose.DATA)
        await self.say_as(b, ToLeader(source, 1, 1, 1, (b"no session",)))

    def hold(self, sockets: ExitStack) -> None:
        """A thousand connections that say nothing."""
        for _ in range(CONNECTIONS):
            sockets.enter_context(socket.create_connection(self.address))


def mode(name: str, folder: Path) -> tuple[dict[str, str], Trust]:
    """The settings of all nodes, and what a node of them has."""
    if name == "secret":
        return {}, WITH_SECRET
    none = {"AMQPD_CLUSTER_SECRET": ""}
    if name == "loopback":
        return none, OPEN
    certificates = Certificates(folder)
    path = certificates.file_of(*map(node, "abc"))
    files = {"AMQPD_CLUSTER_TLS_CA": str(certificates.ca), "AMQPD_CLUSTER_TLS_CERTIFICATE": str(path)}
    return none | files, Trust(certificates.of(node("b")))


@pytest.fixture
def strangers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Strangers]:
    (tmp_path / "tls").mkdir()
    environment, trust = mode(request.param, tmp_path / "tls")
    cluster = Cluster(tmp_path, environment=environment)
    try:
        cluster.start()
        yield Strangers(cluster, trust)
    except BaseException:
        print(cluster.log)
        raise
    finally:
        cluster.close()


def judge(cluster: Cluster, number: int) -> None:
    """All run, and a confirmed message is there, in queues of both kinds."""
    for broker in cluster.brokers.values():
        assert broker.running
    body = b"message %d" % number
    for queue in (QUEUE, CLASSIC):
        leader = cluster.leader_of([queue])
        with pika.BlockingConnection(pika.URLParameters(cluster.brokers[leader].url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2))
            assert channel.basic_get(queue, auto_ack=True)[2] == body


@pytest.mark.timeout(300)
@pytest.mark.parametrize("strangers", slow_but(["secret"], ["secret", "tls", "loopback"]), indirect=True)
def test_strangers_and_liars_are_refused_and_nobody_ends(strangers: Strangers) -> None:
    cluster, trust = strangers.cluster, strangers.trust
    cluster.declare_quorum("a", [QUEUE])
    cluster.declare_classic("a", [CLASSIC])
    unknown, replaced = node("d"), node("old")
    tries: list[Any] = []
    if trust.tls is None:
        tries.append((hello(unknown), node("a"), f"the store of this cluster has no node {unknown!r}"))
    else:
        tries.append((hello(node("c")), node("a"), "the certificate is not of the node that dials"))
    tries.append((hello(node("b")), replaced, f"this is the node {node('a')!r}, not {replaced!r}"))
    for me, target, reason in tries:
        assert reason in trio.run(strangers.refused, me, target, trust)
    if not trust.is_loopback_only:
        trio.run(strangers.without_a_proof)
    if trust.secret:
        trio.run(strangers.said_before)
    judge(cluster, 1)
    trio.run(strangers.lie)
    judge(cluster, 2)
    with ExitStack() as sockets:
        strangers.hold(sockets)
        lost = next(name for name in cluster.brokers if name not in ("a", cluster.leader_of([QUEUE])))
        cluster.brokers[lost].kill()
        cluster.brokers[lost].start()
        judge(cluster, 3)
    assert max(each["epoch"] for each in cluster.status()["sources"]) < 1000
