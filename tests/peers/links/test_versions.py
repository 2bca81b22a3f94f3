"""Which version of the messages two nodes use: the highest that both speak, or a sentence that names both.

What is verified: neighbours in both directions, the version before as it is (it refuses all but its own number), a
later one that says more than is known here; lies about versions; that nothing goes over a link in another version
than the one that both ends use. Not verified here: the bytes of each version (`tests/peers/test_encoding.py`), what a
set of several nodes uses (`tests/peers/test_versions.py`).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from amqpd.peers.links.framing import framed
from amqpd.peers.links.link import PeerLink
from amqpd.peers.links.trust import Trust
from amqpd.peers.messages import Greeting, Heartbeat, Hello, Proof
from amqpd.peers.versions import HIGHEST, OWN, Versions
from tests.peers.links.forwarders import Peer, Wire, dial, forwarder, greeting, hello

pytestmark = pytest.mark.trio

SECRET = b"of all nodes that are tested"
BEFORE = Hello(4, "shop", "b", 1, 7, 4)
TOLD = Heartbeat(1, 1, 1, 99)


@pytest.mark.parametrize("secret", [b"", SECRET], ids=["open", "secret"])
async def test_nodes_of_this_version_use_it(secret: bytes) -> None:
    async with forwarder(hello("a"), secret=secret) as a, forwarder(hello("b"), secret=secret) as b:
        a.links.peers_are({"b": b.address})
        link, accepted = await a.heard.next_link("dialed"), await b.heard.next_link("accepted")
        assert link.version == accepted.version == HIGHEST
        link.send(TOLD)
        assert (await b.heard.next("received")).what == TOLD


async def answer_as_before(there: Peer, trust: Trust) -> tuple[Wire, Greeting]:
    """As a node does that speaks version 4 only: a Greeting of any other is answered with its own, and the end."""
    refused = await there.accept()
    first = await refused.hear()
    assert isinstance(first, Greeting)
    assert first.hello.versions == OWN
    await refused.say(greeting(Hello(4, "", "", 0, 0, 4), trust=trust))
    await refused.wait_closed()
    await refused.close()
    wire = await there.accept()
    asked = await wire.hear()
    assert isinstance(asked, Greeting)
    await wire.say(greeting(Hello(4, "", "", 0, 0, 4), trust=trust))
    assert isinstance(await wire.hear(), Proof)
    await wire.say(greeting(BEFORE, asked.hello.forwarder, trust))
    await wire.say(Proof(trust.proof(b"acceptor", wire.transcript_digest)))
    wire.incoming.begin(trust.check(b"dialer", wire.transcript_digest), 4)
    wire.check = trust.check(b"acceptor", wire.transcript_digest)
    return wire, asked


@pytest.mark.parametrize("secret", [b"", SECRET], ids=["open", "secret"])
async def test_a_node_of_the_version_before_is_dialed_again_in_its_own(secret: bytes) -> None:
    there, trust = Peer(), Trust(None, secret)
    async with forwarder(hello("a"), secret=secret) as a:
        a.links.peers_are({"b": there.address})
        wire, asked = await answer_as_before(there, trust)
        assert asked.hello == Hello(4, "shop", "a", 1, 7, 4)
        link = await a.heard.next_link("dialed")
        assert (link.version, link.peer) == (4, BEFORE)
        link.send(TOLD)
        assert await wire.hear() == replace(TOLD, revision=0)
        assert a.heard.kinds("refused", "lost") == []
        await wire.close()
    await there.close()


@pytest.mark.parametrize("secret", [b"", SECRET], ids=["open", "secret"])
async def test_a_node_of_the_version_before_dials_and_is_answered_in_its_own(secret: bytes) -> None:
    trust = Trust(None, secret)
    async with forwarder(hello("a"), secret=secret) as a:
        wire = await dial(a.address)
        await wire.say(greeting(BEFORE, "a", trust))
        first = await wire.hear()
        assert isinstance(first, Greeting)
        assert first.hello == Hello(4, "", "", 0, 0, 4), "what it does not know it would not read"
        await wire.say(Proof(trust.proof(b"dialer", wire.transcript_digest)))
        answer = await wire.hear()
        assert isinstance(answer, Greeting)
        assert answer.hello == Hello(4, "shop", "a", 1, 7, 4)
        assert isinstance(await wire.hear(), Proof)
        assert (await a.heard.next_link("accepted")).version == 4
        await wire.close()


async def test_a_later_version_that_says_more_is_understood_as_far_as_both_speak() -> None:
    """Both ends prove all of what was said, also what one of them did not understand."""
    later, trust = replace(hello("b"), version=9, lowest=5), Trust(None, SECRET)
    async with forwarder(hello("a"), secret=SECRET) as a:
        wire = await dial(a.address)
        await wire.say(replace(greeting(later, "a", trust), more=b"what version 9 says, too"))
        assert isinstance(await wire.hear(), Greeting)
        await wire.say(Proof(trust.proof(b"dialer", wire.transcript_digest)))
        assert isinstance(await wire.hear(), Greeting)
        link: PeerLink = await a.heard.next_link("accepted")
        assert (link.version, link.peer.versions) == (HIGHEST, Versions(5, 9))
        await wire.close()


@pytest.mark.parametrize("spoken", [(7, 8), (3, 3)], ids=["later", "earlier"])
async def test_without_a_common_version_the_reason_names_both_and_the_way_out(spoken: tuple[int, int]) -> None:
    there = Peer()
    async with forwarder(hello("a")) as a:
        a.links.peers_are({"b": there.address})
        wire = await there.accept()
        assert isinstance(await wire.hear(), Greeting)
        lowest, highest = spoken
        await wire.say(greeting(Hello(highest, "", "", 0, 0, lowest)))
        await wire.wait_closed()
        other = await there.accept()  # the next attempt: the one before has its reason
        reason = a.links.troubles["b"].reason
        assert str(Versions(lowest, highest)) in reason
        assert "this node 4 to 6" in reason
        assert "run the same amqpd on both" in reason
        await wire.close()
        await other.close()
    await there.close()


async def test_a_node_that_says_one_range_and_then_another_is_not_believed() -> None:
    there = Peer()
    async with forwarder(hello("a")) as a:
        a.links.peers_are({"b": there.address})
        wire = await there.accept()
        assert isinstance(await wire.hear(), Greeting)
        await wire.say(greeting(Hello(5, "", "", 0, 0, 5)))
        assert isinstance(await wire.hear(), Proof)
        await wire.say(greeting(Hello(5, "shop", "b", 1, 7, 4), "a"))
        await wire.say(Proof(b""))
        await wire.wait_closed()
        assert a.heard.kinds("dialed") == []
        await wire.close()
    await there.close()


async def test_a_message_of_another_version_than_the_link_uses_ends_it() -> None:
    """Nothing of it is taken, and nothing is guessed."""
    async with forwarder(hello("a")) as a:
        wire = await dial(a.address, hello("b"))
        assert (await a.heard.next_link("accepted")).version == HIGHEST
        await wire.stream.send_all(b"".join(framed(TOLD, wire.check, 4)))
        await wire.wait_closed()
        assert a.heard.kinds("received") == []
        await wire.close()
