"""What the logs of both ends say of a link that cannot be: which node, at which address, in words, with a way out.

Not verified: that nobody is let in (`test_strangers.py`, `test_secret.py`).
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest
import structlog
import structlog.testing
import trio
import trio.testing
import trustme

from amqpd.peers.links import dialing
from amqpd.peers.links.accepting import QUIET_S, SAID_MAX, LinkAcceptor
from amqpd.peers.links.dialing import Dialer
from amqpd.peers.links.framing import Incoming
from amqpd.peers.links.handshake import Proven
from amqpd.peers.links.link import LinkLimits
from amqpd.peers.links.stream import Broken, NotListening, Stream
from amqpd.peers.links.tls import NO_TLS_THERE, ONE_AUTHORITY, TLS_THERE, LinkTls, of_tls
from amqpd.peers.messages import Refusal
from amqpd.vocabulary.endpoint import Endpoint
from tests.peers.links.forwarders import (
    OPEN,
    PATIENCE_S,
    SHORT,
    Certificates,
    Heard,
    Wire,
    forwarder,
    greeting,
    hello,
)

pytestmark = pytest.mark.trio

SECRET = b"a secret of the cluster's nodes"


class Lines(structlog.testing.LogCapture):
    """What is logged, and that it is."""

    def __init__(self) -> None:
        super().__init__()
        self.more = trio.Event()

    def __call__(self, *line: Any) -> NoReturn:
        try:
            super().__call__(*line)
        finally:
            self.more.set()

    async def first(self, event: str, **fields: str) -> Any:
        while True:
            for line in self.entries:
                if line["event"] == event and fields.items() <= line.items():
                    return line
            self.more = trio.Event()
            await self.more.wait()


@contextlib.contextmanager
def captured() -> Iterator[Lines]:
    lines, before = Lines(), structlog.get_config()["processors"]
    structlog.configure(processors=[lines])
    try:
        yield lines
    finally:
        structlog.configure(processors=before)


class Said(NamedTuple):
    """The first lines of a, which dials b, and of b."""

    dialer: dict[str, Any]
    acceptor: dict[str, Any]
    address: str


@contextlib.asynccontextmanager
async def two(
    tls: Sequence[LinkTls | None] = (None, None), secrets: Sequence[bytes] = (b"", b""), **of_b: Any
) -> AsyncIterator[Said]:
    limits = replace(SHORT, handshake_s=2.0)
    with captured() as lines:
        async with (
            forwarder(hello("a"), tls=tls[0], secret=secrets[0], limits=limits) as a,
            forwarder(hello("b", **of_b), tls=tls[1], secret=secrets[1], limits=limits) as b,
        ):
            b.links.peers_are({"a": ("127.0.0.1", 1)})
            a.links.peers_are({"b": b.address})
            with trio.fail_after(PATIENCE_S):
                dialer = await lines.first("no link to a node", peer="b")
                acceptor = await lines.first("a node is not let in")
            yield Said(dialer, acceptor, f"127.0.0.1:{b.address[1]}")
            # While both are there: one that ends is not reached by the other one any more.
            assert a.heard.all == b.heard.kinds("accepted") == []


def is_complete(said: Said, node: str = "a") -> None:
    """Both lines are warnings that say who and where."""
    assert said.dialer["log_level"] == said.acceptor["log_level"] == "warning"
    assert (said.dialer["peer"], said.dialer["address"]) == ("b", said.address)
    assert said.acceptor["node"] == node
    assert said.acceptor["address"].startswith("127.0.0.1:")


ONLY_ITS_ADDRESS = "maybe a, by its address"
AS_IT_SAYS = "maybe a, as it says"


async def test_a_secret_that_differs() -> None:
    async with two(secrets=(SECRET, SECRET + b" of others")) as said:
        is_complete(said, AS_IT_SAYS)
        assert said.dialer["reason"] == "it refuses: the cluster_secret there is another one"
        assert said.acceptor["reason"] == (
            "it says that it is a, and cannot prove it: its cluster_secret is another one (the file of "
            "cluster_secret_file is the same on all nodes), or it repeats what another one has said"
        )


async def test_a_secret_that_one_has() -> None:
    async with two(secrets=(SECRET, b"")) as said:
        is_complete(said, AS_IT_SAYS)
        assert said.dialer["reason"].startswith("this node has a cluster_secret and it has none: the file of")
        assert said.acceptor["reason"].startswith("it has a cluster_secret and this node has none: the file of")


async def test_another_cluster() -> None:
    async with two(cluster="shop2") as said:
        is_complete(said)
        assert "this is a node of the cluster 'shop2', not of 'shop'" in said.dialer["reason"]
        assert "this is a node of the cluster 'shop2', not of 'shop'" in said.acceptor["reason"]


async def test_another_authority(certificates: Certificates, tmp_path: Path) -> None:
    """Each end shows the other one a certificate that it does not know: who dials sees it first."""
    async with two(tls=(certificates.of("a"), Certificates(tmp_path).of("b"))) as said:
        is_complete(said, ONLY_ITS_ADDRESS)
        wrong = f"its certificate is of another authority than cluster_tls_ca here: {ONE_AUTHORITY} ("
        assert said.dialer["reason"].startswith(wrong)
        assert said.acceptor["reason"].startswith(
            "it takes this node's certificate for one of another authority: all"
        )


async def test_another_authority_that_the_dialing_end_does_not_see(certificates: Certificates) -> None:
    mine = certificates.of("a", authority=trustme.CA())
    async with two(tls=(mine, certificates.of("b"))) as said:
        is_complete(said, ONLY_ITS_ADDRESS)
        assert said.dialer["reason"].startswith("it takes this node's certificate for one of another authority: all")
        assert said.acceptor["reason"].startswith("its certificate is of another authority than cluster_tls_ca here")


async def test_a_name_that_is_not_in_the_certificate(certificates: Certificates) -> None:
    async with two(tls=(certificates.of("c"), certificates.of("b"))) as said:
        is_complete(said, AS_IT_SAYS)
        assert said.dialer["reason"] == "it refuses: the certificate is not of the node that dials"
        assert said.acceptor["reason"].startswith("its certificate names 'c', not 'a': it needs the alternative name")


async def test_another_ones_greeting_is_told_by_the_certificate_at_once(certificates: Certificates) -> None:
    """Who repeats it has no proof, and says nothing more; it stays."""
    limits = replace(SHORT, handshake_s=3600)
    with captured() as lines:
        async with forwarder(hello("b"), tls=certificates.of("b"), limits=limits) as b:
            connected = await trio.open_tcp_stream(*b.address)
            stranger = Wire(trio.SSLStream(connected, certificates.of("c").dialing, server_hostname="b"))
            await stranger.say(greeting(hello("a"), "b"))
            with trio.fail_after(PATIENCE_S):
                line = await lines.first("a node is not let in")
            assert line["node"] == AS_IT_SAYS
            assert line["reason"].startswith("its certificate names 'c', not 'a'")
            assert await stranger.hear() == Refusal("the certificate is not of the node that dials")
            await stranger.close()


async def test_a_handshake_that_ends_may_have_many_reasons() -> None:
    for error in (ConnectionResetError(104, "reset"), ssl.SSLEOFError(8, "[SSL: UNEXPECTED_EOF_WHILE_READING] EOF")):
        if isinstance(error, ssl.SSLError):
            error.reason = "UNEXPECTED_EOF_WHILE_READING"
        said = of_tls(error)
        assert said.startswith("it ended the TLS handshake: maybe one of the two nodes was stopped or slow")
        assert NO_TLS_THERE in said


async def test_tls_at_the_dialing_end_only(certificates: Certificates) -> None:
    async with two(tls=(certificates.of("a"), None)) as said:
        is_complete(said, ONLY_ITS_ADDRESS)
        assert NO_TLS_THERE in said.dialer["reason"]
        assert said.acceptor["reason"] == TLS_THERE


async def test_tls_at_the_accepting_end_only(certificates: Certificates) -> None:
    async with two(tls=(None, certificates.of("b"))) as said:
        is_complete(said, ONLY_ITS_ADDRESS)
        assert TLS_THERE in said.dialer["reason"]
        assert NO_TLS_THERE in said.acceptor["reason"]


async def test_what_is_not_known_is_said_as_openssl_says_it() -> None:
    assert of_tls(ssl.SSLError(1, "a novelty")) == "no TLS: a novelty"
    assert of_tls(ValueError("no socket")) == "no TLS: no socket"


# Nobody is there yet

STARTING_S = 30.0
LIMITS = LinkLimits(starting_s=STARTING_S)


class There:
    """Stands in for `connect`."""

    def __init__(self) -> None:
        self.failure = NotListening("Connection refused")

    async def connect(self, address: object, *, loopback_only: bool) -> None:
        await trio.lowlevel.checkpoint()
        raise self.failure


@pytest.fixture
async def there(monkeypatch: pytest.MonkeyPatch) -> There:
    made = There()
    monkeypatch.setattr(dialing, "connect", made.connect)
    return made


async def test_a_node_that_may_just_be_starting_is_a_warning_only_after_a_while_and_once(
    there: There, nursery: trio.Nursery, autojump_clock: object
) -> None:
    with structlog.testing.capture_logs() as lines:
        nursery.start_soon(Dialer("b", ("10.0.0.2", 5680), hello("a"), Heard(), OPEN, LIMITS, lambda: 1.0).run)
        await trio.sleep(STARTING_S - 1)
        [line] = lines
        assert line["log_level"] == "info"
        assert (line["peer"], line["address"]) == ("b", "10.0.0.2:5680")
        assert line["reason"] == "Connection refused: maybe it has not started yet"
        await trio.sleep(100)
    assert [(each["log_level"], each["reason"]) for each in lines[1:]] == [("warning", "Connection refused")]


async def test_what_does_not_mend_itself_is_a_warning_at_once(
    there: There, nursery: trio.Nursery, autojump_clock: object
) -> None:
    there.failure = Broken("its cluster_secret is another one")  # type: ignore[assignment]
    with structlog.testing.capture_logs() as lines:
        nursery.start_soon(Dialer("b", ("10.0.0.2", 5680), hello("a"), Heard(), OPEN, LIMITS, lambda: 1.0).run)
        await trio.sleep(1)
    assert [(each["log_level"], each["reason"]) for each in lines] == [
        ("warning", "its cluster_secret is another one")
    ]


async def test_a_stranger_that_comes_again_for_the_same_reason_is_told_of_once_in_ten_minutes(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def known(stream: Stream, incoming: Incoming, proven: Proven) -> None:
        raise AssertionError("it is not let in")

    acceptor = LinkAcceptor(hello("a"), OPEN, SHORT, lambda peer, purpose: "", known, lambda host: ())
    with structlog.testing.capture_logs() as lines:
        for second in range(601):
            acceptor._is_not_let_in(Endpoint("127.0.0.1", 40_000 + second), Broken("it is of another authority"))
            await trio.sleep(0.5)
            if second == 5:
                acceptor._is_not_let_in(Endpoint("127.0.0.1", 50_000), Broken("it is no node"))
            if second == 7:
                acceptor._is_not_let_in(Endpoint("127.0.0.2", 50_000), Broken("it is of another authority"))
            await trio.sleep(0.5)
    said = [(line["address"].partition(":")[0], line["reason"], line["times_since_said"]) for line in lines]
    assert said == [
        ("127.0.0.1", "it is of another authority", 0),
        ("127.0.0.1", "it is no node", 0),
        ("127.0.0.2", "it is of another authority", 0),
        ("127.0.0.1", "it is of another authority", 599),
    ]


async def test_the_strangers_that_are_remembered_are_bounded(autojump_clock: trio.testing.MockClock) -> None:
    async def known(stream: Stream, incoming: Incoming, proven: Proven) -> None:
        raise AssertionError("it is not let in")

    acceptor = LinkAcceptor(hello("a"), OPEN, SHORT, lambda peer, purpose: "", known, lambda host: ())
    with structlog.testing.capture_logs() as lines:
        for number in [*range(SAID_MAX + 1), SAID_MAX, 0]:
            acceptor._is_not_let_in(Endpoint("127.0.0.1", 50_000), Broken(f"reason {number}"))
            await trio.sleep(QUIET_S)
    assert [line["reason"] for line in lines[SAID_MAX:]] == [f"reason {SAID_MAX}", "reason 0"]
    assert len(acceptor._said) == SAID_MAX
