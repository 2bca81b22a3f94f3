"""What a socket does not take at once waits in order, and does not hold more memory than it is."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import pytest

from amqpd.transport.link import (
    LITTLE_BYTES,
    LITTLES_MIN,
    PENDING_JOINED_BYTES,
    PIECES_AT_ONCE,
    RECEIVE_BYTES,
    RECEIVE_BYTES_MAX,
    Link,
    connection_name,
    is_loopback,
)
from amqpd.vocabulary.limits import Limits
from tests.harness.harness import Harness, publish_bytes

KIB, MIB = 1024, 1024 * 1024
LARGE = 64 * KIB


class Taking:
    """A socket that takes as many bytes as it is told to, and knows how often it was asked."""

    def __init__(self) -> None:
        self.space = 0
        self.taken = bytearray()
        self.calls = 0

    def sendmsg(self, pieces: list[Any]) -> int:
        self.calls += 1
        assert 0 < len(pieces) <= PIECES_AT_ONCE
        if not self.space:
            raise BlockingIOError
        data = b"".join(pieces)[: self.space]
        self.taken += data
        self.space -= len(data)
        return len(data)

    def send(self, data: Any) -> int:
        return self.sendmsg([data])


@pytest.fixture
def taking() -> Taking:
    return Taking()


def link_of(client: Any, stride: int = 0, missing: int = 0) -> Link:
    """Of an open connection, that has to get this many bytes of a frame that it has the beginning of."""
    connection = Harness().client().connection
    if missing:
        connection.receive(publish_bytes(bytes(2 * missing))[:-missing])
    connection.stride = stride
    assert connection.missing == missing
    return Link(client, connection, None)


def octets(size: int) -> bytes:
    return random.Random(size).randbytes(size)


@pytest.mark.parametrize("seed", range(20))
def test_everything_goes_out_in_order_whatever_the_socket_takes(seed: int, taking: Taking) -> None:
    chance, link, sent = random.Random(seed), link_of(taking), bytearray()
    for _ in range(60):
        taking.space = chance.choice([0, 1, 70, 5000, LARGE, 1 << 30])
        buffer = octets(chance.choice([1, 30, 5000, 4 * LARGE]))
        if chance.random() < 0.5:
            link.send(buffer)
            sent += buffer
        else:
            view = memoryview(buffer)
            pieces: list[Any] = [b"head", view[: len(view) // 2], bytearray(b"more"), view[len(view) // 2 :]]
            pieces = [piece for piece in pieces if piece] * chance.choice([1, 40])
            sent += b"".join(pieces)
            link.send(pieces)
        assert link.pending_bytes == sum(map(len, waiting(link))) == len(sent) - len(taking.taken)
    taking.space = 1 << 30
    link.send(b"")
    assert taking.taken == sent
    assert (link.pending_bytes, link.pending) == (0, None)


def test_a_socket_with_room_is_asked_once_for_many_pieces(taking: Taking) -> None:
    link, view = link_of(taking), memoryview(octets(4 * LARGE))
    taking.space = 1 << 30
    link.send([piece for at in range(4) for piece in (b"head", view[at * LARGE : (at + 1) * LARGE])])
    assert taking.calls == 1
    assert not link.pending


def test_small_pieces_that_wait_are_joined(taking: Taking) -> None:
    link = link_of(taking)
    for _ in range(1000):
        link.send(b"confirm of some octets")
        link.send([b"frame of others", b"and more"])
    assert len(waiting(link)) <= 1.1 * link.pending_bytes / PENDING_JOINED_BYTES + 1


def waiting(link: Link) -> list[memoryview]:
    return list(link.pending or ())


def held(link: Link) -> int:
    """The bytes that are kept in memory because of what is pending."""
    return sum({id(view.obj): len(view.obj) for view in waiting(link)}.values())  # type: ignore[arg-type]


def test_what_waits_for_a_slow_consumer_does_not_hold_its_neighbours_memory(taking: Taking) -> None:
    """One of sixteen in each buffer goes to a client that does not read: not the buffers wait, but the one of
    each."""
    link = link_of(taking)
    for _ in range(10):
        view = memoryview(octets(16 * 16 * KIB))
        link.send([b"head", view[5 * 16 * KIB : 6 * 16 * KIB]])
    assert link.pending_bytes == 10 * (16 * KIB + 4)
    assert held(link) < 1.1 * link.pending_bytes


def test_a_buffer_that_waits_as_a_whole_is_not_copied(taking: Taking) -> None:
    link, buffer = link_of(taking), octets(4 * LARGE)
    view = memoryview(buffer)
    link.send([piece for at in range(4) for piece in (b"head", view[at * LARGE : (at + 1) * LARGE])])
    assert sum(each.obj is buffer for each in waiting(link)) == 4


@pytest.mark.parametrize("size", [16 * KIB, LARGE, 300_000])
def test_a_consumer_of_large_messages_that_does_not_read_is_given_no_more_than_its_outbox_may_hold(
    size: int, taking: Taking
) -> None:
    """Eight consumers share a queue and seven of them read: what the eighth is not given, and the neighbours of what
    it was, is gone from memory."""
    harness = Harness(Limits(outbox_bytes_max=MIB))
    publisher, *consumers = (harness.client() for _ in range(9))
    publisher.declare("q")
    for each in consumers:
        each.consume("q", no_ack=True)
    slow = Link(taking, consumers[0].connection, None)  # type: ignore[arg-type]  # no socket, but what we need of one
    one = publish_bytes(bytes(size))
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(10 * 8 * MIB // RECEIVE_BYTES):
        publisher.connection.receive(one * max(RECEIVE_BYTES // len(one), 1))
        harness.step()
        for each in consumers:
            pieces, each.connection.outbox = each.connection.outbox, []
            if each is consumers[0]:
                if pieces:
                    slow.send(pieces)
                each.connection.sent(slow.pending_bytes)
            else:
                each.connection.sent(0)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert MIB < slow.pending_bytes < MIB + 2 * max(RECEIVE_BYTES, size)
    assert not harness.node.queues["/", "q"].backlog.ready
    assert grown < 2 * slow.pending_bytes + MIB // 4, f"{grown / MIB:.1f} MiB"


# Receiving what is large


class Giving:
    """A socket that has this many bytes to give."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes

    def recv(self, size: int) -> bytes:
        size = min(size, self.nbytes)
        self.nbytes -= size
        return bytes(size)


@pytest.mark.parametrize("stride", [16 * KIB, 30_000, 65_597, 300_000, 1_000_000, 5_000_000])
@pytest.mark.parametrize("missing", [0, 12_345])
def test_whole_messages_are_received_and_what_completes_one_that_was_cut(stride: int, missing: int) -> None:
    link = link_of(Giving(1 << 30), stride, missing)
    nbytes = len(link.receive_large())
    assert nbytes <= RECEIVE_BYTES_MAX
    assert nbytes == RECEIVE_BYTES_MAX or (nbytes - missing) % stride == 0
    assert nbytes >= min(missing + stride, RECEIVE_BYTES // 2)


def test_large_buffers_are_not_for_small_messages() -> None:
    link = link_of(Giving(20_000), 20_000)
    assert len(link.receive_large()) == 20_000
    assert link.connection.stride == 20_000
    link.socket.nbytes = 100  # type: ignore[attr-defined]
    assert len(link.receive_large()) == 100
    assert link.connection.stride == 0


def test_little_is_received_in_little_memory_until_more_comes() -> None:
    link = link_of(Giving(LITTLE_BYTES + 100))
    link.littles = LITTLES_MIN
    assert len(link.receive_little()) == LITTLE_BYTES
    assert not link.littles
    link.littles = LITTLES_MIN
    assert len(link.receive_little()) == 100
    assert link.littles == LITTLES_MIN


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("192.0.2.1", False),
        ("::ffff:192.0.2.1", False),
        ("fe80::1%eth0", False),
        ("::", False),
        ("::ffff:7f00", False),
    ],
)
def test_loopback_is_127_and_1_and_127_in_an_ipv6_address(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


@pytest.mark.parametrize(
    ("client", "server", "name"),
    [
        (("127.0.0.1", 4711), ("127.0.0.1", 5672), "127.0.0.1:4711 -> 127.0.0.1:5672"),
        (("::1", 4711, 0, 0), ("::1", 5672, 0, 0), "[::1]:4711 -> [::1]:5672"),
        (("::ffff:10.0.0.1", 4711, 0, 0), ("::ffff:10.0.0.2", 5672, 0, 0), "10.0.0.1:4711 -> 10.0.0.2:5672"),
        (("fe80::1%eth0", 4711, 0, 2), ("fe80::2%eth0", 1, 0, 2), "[fe80::1%eth0]:4711 -> [fe80::2%eth0]:1"),
    ],
)
def test_a_connection_has_rabbitmqs_name(client: tuple[Any, ...], server: tuple[Any, ...], name: str) -> None:
    assert connection_name(client, server) == name
