"""What a shared secret keeps out: any name, what was heard of another connection, changed and repeated messages.

What is verified: nobody who has not the secret is told of, learns a name, or ends anything. Not verified: that the
digests are strong.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from amqpd.peers.entry import Vote
from amqpd.peers.links.framing import Mac, framed, framed_word
from amqpd.peers.links.trust import DIALER, Trust
from amqpd.peers.messages import Greeting, Hello, Proof, Refusal, RequestPreVote, RequestVote
from tests.peers.links.forwarders import OPEN, PATIENCE_S, Forwarder, Peer, Wire, dial, forwarder, greeting, hello

pytestmark = pytest.mark.trio

SECRET = b"a secret of the cluster's nodes"
OTHER = b"another secret, of somebody else"
TRUST = Trust(secret=SECRET)


@asynccontextmanager
async def two() -> AsyncIterator[tuple[Forwarder, Forwarder]]:
    """Each knows the other."""
    async with forwarder(hello("a"), secret=SECRET) as a, forwarder(hello("b"), secret=SECRET) as b:
        a.links.peers_are({"b": b.address})
        b.links.peers_are({"a": a.address})
        yield a, b


async def serves_others(a: Forwarder) -> None:
    """And has told of nobody before."""
    assert a.heard.all == []
    wire = await dial(a.address, hello("c"), trust=TRUST)
    assert (await a.heard.next_link("accepted")).peer == hello("c")
    await wire.close()


async def test_nodes_with_the_same_secret_talk() -> None:
    async with two() as (a, b):
        link, other_end = await a.heard.next_link("dialed"), await b.heard.next_link("accepted")
        for number in range(5):
            link.send(RequestPreVote(number, 1))
            assert (await b.heard.next("received"))[1:] == (other_end, RequestPreVote(number, 1))


@pytest.mark.parametrize("peer", [hello("b"), hello("a"), hello("zzz")])
@pytest.mark.parametrize("trust", [Trust(secret=OTHER), OPEN])
async def test_who_has_not_the_secret_is_told_nothing_and_takes_no_place(peer: Hello, trust: Trust) -> None:
    async with forwarder(hello("a"), secret=SECRET) as a:
        good = await dial(a.address, hello("b"), trust=TRUST)
        link = await a.heard.next_link("accepted")
        wire = await dial(a.address)
        await wire.say(greeting(peer, "a", trust))
        answer = await wire.hear()
        assert isinstance(answer, Greeting)
        assert answer.hello == Hello(peer.version, "", "", 0, 0)
        if trust.secret:
            await wire.say(Proof(trust.proof(DIALER, wire.transcript_digest)))
            assert await wire.hear() == Refusal("the cluster_secret there is another one")
        await wire.wait_closed()
        assert not link.ended
        assert a.heard.kinds("accepted", "left") == ["accepted"]
        await wire.close()
        await good.close()


async def test_one_who_listens_at_a_peers_address_without_the_secret_is_not_believed() -> None:
    there = Peer()
    async with forwarder(hello("a"), secret=SECRET) as a:
        a.links.peers_are({"b": there.address})
        for trust in (Trust(secret=OTHER), Trust(secret=OTHER)):
            wire = await there.accept(hello("b"), trust)
            await wire.wait_closed()
            await wire.close()
        await serves_others(a)
    await there.close()


async def test_what_was_heard_of_a_handshake_proves_nothing() -> None:
    """All that a node said to another one, said again."""
    async with forwarder(hello("a"), secret=SECRET) as a:
        honest = await dial(a.address)
        words = [framed_word(greeting(hello("b"), "a", TRUST))]
        await honest.say(greeting(hello("b"), "a", TRUST))
        await honest.hear()
        proof = Proof(TRUST.proof(DIALER, honest.transcript_digest))
        words.append(framed_word(proof))
        await honest.say(proof)
        for _ in range(2):
            await honest.hear()
        await a.heard.next("accepted")
        wire = await dial(a.address)
        for word in words:
            await wire.stream.send_all(word)
        assert isinstance(await wire.hear(), Greeting)
        assert await wire.hear() == Refusal("the cluster_secret there is another one")
        await wire.wait_closed()
        assert a.heard.kinds("accepted", "left") == ["accepted"]
        await wire.close()
        await honest.close()


async def pass_on(source: Wire, sink: Wire) -> None:
    with trio.fail_after(PATIENCE_S):
        await sink.stream.send_all(await source.stream.receive_some(4096))


async def test_a_handshake_that_is_passed_on_to_another_node_is_not_for_it() -> None:
    """b dials c, and is led to a: both have the secret."""
    there = Peer()
    async with forwarder(hello("a"), secret=SECRET) as a, forwarder(hello("b"), secret=SECRET) as b:
        b.links.peers_are({"c": there.address})
        mine, to_a = await there.accept(), await dial(a.address)
        for _ in range(2):
            await pass_on(mine, to_a)
            await pass_on(to_a, mine)
        await to_a.close()
        await mine.close()
        assert a.heard.all == b.heard.all == []
        await serves_others(a)
    await there.close()


VOTE = RequestVote(1, 5, Vote(2**62, "b", 1))


@pytest.mark.parametrize("what", ["flipped", "repeated", "left out", "swapped", "of another key", "without a key"])
async def test_a_message_that_is_not_as_it_was_sent_ends_the_link_and_is_not_told(what: str) -> None:
    async with forwarder(hello("a"), secret=SECRET) as a:
        wire = await dial(a.address, hello("b"), trust=TRUST)
        await a.heard.next("accepted")
        first, second = (b"".join(framed(each, wire.check)) for each in (RequestPreVote(1, 1), VOTE))
        changed = bytearray(second)
        changed[12] ^= 1
        words = {
            "flipped": [first, bytes(changed)],
            "repeated": [first, first],
            "left out": [second],
            "swapped": [second, first],
            "of another key": [b"".join(framed(VOTE, Mac(bytes(32))))],
            "without a key": [b"".join(framed(VOTE, OPEN.check(DIALER, b"")))],
        }[what]
        await wire.stream.send_all(b"".join(words))
        assert (await a.heard.next("left")).what is None
        assert [each.what for each in a.heard.all if each.kind == "received"] in ([], [RequestPreVote(1, 1)])
        await wire.close()


@pytest.mark.parametrize("target", ["c", "", "b"])
async def test_who_means_another_node_is_told_who_this_is_and_takes_no_place(target: str) -> None:
    """A machine was replaced, say: the others dial the old name at its address."""
    async with forwarder(hello("a"), secret=SECRET) as a:
        good = await dial(a.address, hello("b"), trust=TRUST)
        link = await a.heard.next_link("accepted")
        wire = await dial(a.address)
        assert await wire.greet(hello("b"), target, TRUST) == Refusal(f"this is the node 'a', not {target!r}")
        await wire.wait_closed()
        assert not link.ended
        await wire.close()
        await good.close()


async def test_who_is_not_in_the_store_is_not_let_in_until_it_is() -> None:
    names: set[str] = set()
    knows = names.__contains__
    async with forwarder(hello("a"), secret=SECRET, knows=knows) as a, forwarder(hello("b"), secret=SECRET) as b:
        b.links.peers_are({"a": a.address})
        wire = await dial(a.address)
        answer = await wire.greet(hello("b"), "a", TRUST)
        assert isinstance(answer, Refusal)
        assert "has no node 'b'" in answer.reason
        assert a.heard.all == []
        names.add("b")
        assert (await a.heard.next_link("accepted")).peer == hello("b")
        await wire.close()
