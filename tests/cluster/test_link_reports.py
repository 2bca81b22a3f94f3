"""Nodes of one process with real links and one store: what they say of a node that they refuse, and when.

What is verified: secrets and certificates that differ, by whom and why it is said in the store, that it is taken
back, that the store has nothing of it while all is well. Not verified here: what follows from it (`test_linkage.py`,
`test_choosing.py`), processes (`tests/faults/test_cluster_isolated.py`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing
import trustme

from amqpd.cluster.link_reports import LinkReports
from amqpd.cluster.records import PREFIX, LinksRecord
from amqpd.peers.links.link import PeerLink
from amqpd.peers.links.links import Links
from amqpd.peers.links.sockets import bind
from amqpd.peers.links.tls import link_tls
from amqpd.peers.links.troubles import CERTIFICATE, SECRET, UNREACHED
from amqpd.peers.links.trust import Trust
from amqpd.peers.messages import Message
from tests.cluster.directories import Member, Unsure, joined, member_record
from tests.peers.links.forwarders import PATIENCE_S, SHORT, Certificates, hello
from tests.topology.memory_store import MemorySpace, MemoryStore

pytestmark = pytest.mark.trio

SECRETS = {name: Trust(secret=b"a secret of the cluster's nodes") for name in "abc"}
OTHER = Trust(secret=b"another secret, of somebody else")
LEASE_S = 2.0
BEAT_S = 0.1
LOOKS_S = 0.01


class Dialed:
    """What a runner keeps of `LinkEvents`."""

    def __init__(self) -> None:
        self.dialed_to: set[str] = set()

    def dialed(self, link: PeerLink) -> None:
        self.dialed_to.add(link.peer.forwarder)

    def lost(self, link: PeerLink, why: str) -> None:
        self.dialed_to.discard(link.peer.forwarder)

    def refused(self, name: str) -> None: ...

    def accepted(self, link: PeerLink) -> None: ...

    def left(self, link: PeerLink) -> None: ...

    def received(self, link: PeerLink, message: Message) -> None: ...


class Node:
    def __init__(self, member: Member, links: Links, events: Dialed, nursery: trio.Nursery) -> None:
        self.member = member
        self.links = links
        self.events = events
        self.said = LinkReports(member.directory, LEASE_S, lambda task: nursery.start_soon(task))

    def beat(self, now_s: float) -> None:
        self.said.beat(self.events.dialed_to, self.links.troubles, now_s)


class Nodes(dict[str, Node]):
    """All of one cluster, with a clock of their own: links need as long as they need."""

    now_s = 100.0

    async def until(self, holds: Callable[[], object], passes_s: float = BEAT_S) -> None:
        """`passes_s`: with each look."""
        with trio.fail_after(PATIENCE_S):
            while not holds():
                self.now_s += passes_s
                for node in self.values():
                    node.beat(self.now_s)
                await trio.sleep(LOOKS_S)  # a handshake of sockets, and the store's watch

    def isolated(self) -> list[str]:
        """As each of them sees it."""
        return ["".join(sorted(node.said.linkage.isolated)) for node in self.values()]


@asynccontextmanager
async def cluster(trusts: dict[str, Trust], space: MemorySpace) -> AsyncIterator[Nodes]:
    nodes, addresses = Nodes(), {}
    async with AsyncExitStack() as stack:
        nursery = await stack.enter_async_context(trio.open_nursery())
        for name, trust in trusts.items():
            member = await joined(nursery, MemoryStore(space), member_record(name), LEASE_S)
            events, listeners = Dialed(), bind([("127.0.0.1", 0)])
            addresses[name] = listeners[0].getsockname()[:2]
            links = Links(hello(name), events, listeners, trust, SHORT, chance=lambda: 0.5)
            await nursery.start(links.run)
            nodes[name] = Node(member, links, events, nursery)
        for node in nodes.values():
            node.links.peers_are(addresses)
        yield nodes
        nursery.cancel_scope.cancel()


def words(space: MemorySpace) -> list[str]:
    """Keys of the store about links."""
    return sorted(key for key in space.entries if key.startswith(f"{PREFIX}links/"))


async def test_where_all_is_well_nothing_is_said() -> None:
    space = MemorySpace()
    async with cluster(SECRETS, space) as nodes:
        await nodes.until(lambda: all(len(node.events.dialed_to) == 2 for node in nodes.values()), 0.0)
        before = space.revision
        for _ in range(100):
            nodes.now_s += 1
            for node in nodes.values():
                node.beat(nodes.now_s)
        await trio.testing.wait_all_tasks_blocked()
        assert (words(space), space.revision, nodes.isolated()) == ([], before, ["", "", ""])


async def test_a_secret_that_differs_is_said_by_all_and_seen_by_all() -> None:
    space = MemorySpace()
    async with cluster({**SECRETS, "c": OTHER}, space) as nodes:
        await nodes.until(lambda: len(words(space)) == 3 and nodes.isolated() == ["c", "c", "c"])
        a = nodes["a"]
        [link] = a.member.directory.roster.links["a"].missing
        assert (link.peer, link.kind, link.reason) == ("c", SECRET, "the shared secret differs")
        await nodes.until(lambda: a.said.linkage.why("c") == "a and b refuse c: the shared secret differs")
        assert not a.said.isolated
        assert nodes["c"].said.isolated.startswith("node c has no link to a majority of the cluster's nodes (")
        # A command sees the same in the store.
        assert a.member.directory.roster.linkage.isolated == {"c"}


@pytest.mark.parametrize("other", [None, "authority", "name"])
async def test_a_certificate_that_is_refused_is_said_to_be_the_reason(tmp_path: Path, other: str | None) -> None:
    """None: c has a secret in the place of one."""
    certificates, space = Certificates(tmp_path), MemorySpace()
    trusts = {name: Trust(certificates.of(name)) for name in "abc"}
    if other == "authority":
        stranger = trustme.CA()
        ca = tmp_path / "other-ca.pem"
        stranger.cert_pem.write_to_path(ca)
        trusts["c"] = Trust(link_tls(ca, certificates.file_of("c", authority=stranger)))
    elif other == "name":
        trusts["c"] = Trust(certificates.of("z"))
    else:
        trusts["c"] = OTHER
    async with cluster(trusts, space) as nodes:
        # Nodes without TLS and those with it understand nothing of each other.
        await nodes.until(
            lambda: (
                nodes.isolated() == ["c", "c", "c"]
                and all(name in nodes[name].member.directory.roster.links for name in "ab")
            )
        )
        kinds = {link.kind for node in "ab" for link in nodes[node].member.directory.roster.links[node].missing}
        assert kinds <= ({CERTIFICATE} if other else {CERTIFICATE, UNREACHED})
        reason = nodes["a"].said.linkage.why("c")
        assert {"authority": "its certificate is of another authority", "name": "names 'z', not 'c'"}.get(
            other or "", ""
        ) in reason


async def test_a_link_that_is_there_again_takes_it_back() -> None:
    space = MemorySpace()
    async with cluster(SECRETS, space) as nodes:
        await nodes.until(lambda: all(len(node.events.dialed_to) == 2 for node in nodes.values()), 0.0)
        linked, nodes["c"].events.dialed_to = nodes["c"].events.dialed_to, set()
        await nodes.until(lambda: nodes.isolated() == ["c", "c", "c"])
        assert words(space) == [f"{PREFIX}links/c"]
        nodes["c"].events.dialed_to = linked
        await nodes.until(lambda: nodes.isolated() == ["", "", ""])
        await nodes.until(lambda: not words(space))


async def test_while_the_store_does_not_answer_a_node_believes_what_it_sees_and_says_it_later() -> None:
    space = MemorySpace()
    async with trio.open_nursery() as nursery:
        store = Unsure(space)
        member = await joined(nursery, store, member_record("a"), LEASE_S)
        other = await joined(nursery, MemoryStore(space), member_record("b"), LEASE_S)
        third = await joined(nursery, MemoryStore(space), member_record("c"), LEASE_S)
        await member.until(lambda directory: len(directory.roster.members) == 3)
        said = LinkReports(member.directory, LEASE_S, lambda task: nursery.start_soon(task))
        store.away = True
        for at_s in range(100, 110):
            said.beat((), {}, float(at_s))
            await trio.testing.wait_all_tasks_blocked()
        assert "does not reach" in said.isolated
        assert not words(space)
        store.away = False
        said.beat((), {}, 120.0)
        await other.until(lambda directory: directory.roster.linkage.isolated == {"a"})
        assert isinstance(third.directory.roster.links["a"], LinksRecord)
        nursery.cancel_scope.cancel()


async def test_what_a_member_said_goes_with_its_lease() -> None:
    space = MemorySpace()
    async with trio.open_nursery() as nursery:
        store = MemoryStore(space)
        member = await joined(nursery, store, member_record("a"), LEASE_S)
        await joined(nursery, MemoryStore(space), member_record("b"), LEASE_S)
        await member.until(lambda directory: len(directory.roster.members) == 2)
        said = LinkReports(member.directory, LEASE_S, lambda task: nursery.start_soon(task))
        for at_s in range(100, 110):
            said.beat((), {}, float(at_s))
        await member.until(lambda directory: "a" in directory.roster.links)
        member.scope.cancel()
        await store.aclose()
        assert not words(space)
        nursery.cancel_scope.cancel()
