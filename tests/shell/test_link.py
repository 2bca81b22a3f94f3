"""What a socket does not take at once waits in order, and does not hold more memory than it is."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from amqpd.link import PENDING_JOINED_BYTES, PIECES_AT_ONCE, Link

KIB = 1024
LARGE = 64 * KIB


class Taking:
    """A socket that takes as many bytes as it is told to, and knows how often it was asked."""

    def __init__(self) -> None:
        self.room = 0
        self.taken = bytearray()
        self.calls = 0

    def sendmsg(self, pieces: list[Any]) -> int:
        self.calls += 1
        assert 0 < len(pieces) <= PIECES_AT_ONCE
        if not self.room:
            raise BlockingIOError
        data = b"".join(pieces)[: self.room]
        self.taken += data
        self.room -= len(data)
        return len(data)

    def send(self, data: Any) -> int:
        return self.sendmsg([data])


@pytest.fixture
def taking() -> Taking:
    return Taking()


def link_of(client: Any, **connection: int) -> Link:
    return Link(client, SimpleNamespace(**connection), None)  # type: ignore[arg-type]


def octets(size: int) -> bytes:
    return random.Random(size).randbytes(size)


@pytest.mark.parametrize("seed", range(20))
def test_everything_goes_out_in_order_whatever_the_socket_takes(seed: int, taking: Taking) -> None:
    chance, link, sent = random.Random(seed), link_of(taking), bytearray()
    for _ in range(60):
        taking.room = chance.choice([0, 1, 70, 5000, LARGE, 1 << 30])
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
        assert link.pending_bytes == sum(map(len, link.pending)) == len(sent) - len(taking.taken)
    taking.room = 1 << 30
    link.send(b"")
    assert taking.taken == sent
    assert (link.pending_bytes, len(link.pending)) == (0, 0)


def test_a_socket_with_room_is_asked_once_for_many_pieces(taking: Taking) -> None:
    link, view = link_of(taking), memoryview(octets(4 * LARGE))
    taking.room = 1 << 30
    link.send([piece for at in range(4) for piece in (b"head", view[at * LARGE : (at + 1) * LARGE])])
    assert taking.calls == 1
    assert not link.pending


def test_small_pieces_that_wait_are_joined(taking: Taking) -> None:
    link = link_of(taking)
    for _ in range(1000):
        link.send(b"confirm of some octets")
        link.send([b"frame of others", b"and more"])
    assert len(link.pending) <= 1.1 * link.pending_bytes / PENDING_JOINED_BYTES + 1


def held(link: Link) -> int:
    """The bytes that are kept in memory because of what is pending."""
    return sum({id(view.obj): len(view.obj) for view in link.pending}.values())  # type: ignore[arg-type]


def test_what_waits_for_a_slow_consumer_does_not_hold_its_neighbours_memory(taking: Taking) -> None:
    """One of sixteen in each buffer goes to who does not read: not the buffers wait, but the one of each."""
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
    assert sum(each.obj is buffer for each in link.pending) == 4


# Receiving what is large


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def test_whole_messages_are_received_and_what_completes_one_that_was_cut(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = ends
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    link = link_of(ours, stride=30_000, missing=12_345)
    theirs.setblocking(False)
    assert theirs.send(bytes(400_000)) == 400_000
    data = link.receive_large()
    assert (len(data) - 12_345) % 30_000 == 0
    assert len(data) > 200_000
    link.connection.missing = 0
    rest = 400_000 - len(data)
    assert len(link.receive_large()) == rest
    assert link.connection.stride == 30_000
    with pytest.raises(BlockingIOError):
        link.receive_large()
    theirs.send(b"small")
    assert link.receive_large() == b"small"
    assert link.connection.stride == 0, "large buffers for small messages"
