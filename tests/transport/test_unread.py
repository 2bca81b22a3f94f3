"""A client that does not read is dropped after a time; one that reads a little is not."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from amqpd.connection import Connection
from amqpd.transport.link import Link
from amqpd.transport.waiting_links import given_up, overdue
from amqpd.vocabulary.states import PeerAddress
from tests.harness.harness import Harness

TIMEOUT_S = 30.0


@pytest.fixture
def pair() -> Iterator[tuple[Link, socket.socket, Harness]]:
    """A link whose client has not read yet, and takes no more; and that client."""
    harness = Harness()
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    link = Link(ours, Connection(harness.node, PeerAddress("client", True), "c1", 0.0), None)
    while not link.pending:
        link.send(bytes(10_000))
    yield link, theirs, harness
    ours.close()
    theirs.close()


def test_who_takes_nothing_is_overdue_after_the_timeout_and_not_before(
    pair: tuple[Link, socket.socket, Harness],
) -> None:
    link = pair[0]
    assert [overdue([link], TIMEOUT_S, now) for now in (100.0, 110.0, 129.0)] == [[], [], []]
    assert overdue([link], TIMEOUT_S, 130.0) == [link]


def test_each_octet_that_is_taken_begins_the_time_again(pair: tuple[Link, socket.socket, Harness]) -> None:
    link, theirs, _ = pair
    link.send(bytes(1_000_000))
    for now in range(0, 600, 20):
        assert overdue([link], TIMEOUT_S, float(now)) == []
        theirs.recv(30_000)  # slow, but it reads
        link.send(b"")
    assert link.pending
    assert overdue([link], TIMEOUT_S, 600.0) == []
    assert overdue([link], TIMEOUT_S, 629.0) == []
    assert overdue([link], TIMEOUT_S, 630.0) == [link]


def test_who_has_nothing_to_read_is_not_overdue(pair: tuple[Link, socket.socket, Harness]) -> None:
    link, theirs, _ = pair
    assert overdue([link], TIMEOUT_S, 0.0) == []
    while link.pending:
        theirs.recv(1 << 20)
        link.send(b"")
    assert overdue([link], TIMEOUT_S, 100.0) == []
    while not link.pending:
        link.send(bytes(10_000))
    assert overdue([link], TIMEOUT_S, 101.0) == []
    assert overdue([link], TIMEOUT_S, 130.0) == []
    assert overdue([link], TIMEOUT_S, 131.0) == [link]


def test_who_is_given_up_is_in_the_log_and_nothing_is_kept_for_it(pair: tuple[Link, socket.socket, Harness]) -> None:
    link, _, harness = pair
    given_up([link], harness.node, 0.0)
    pending = link.pending_bytes
    assert given_up([link], harness.node, harness.limits.send_timeout_s) == [link]
    assert harness.logged[-1] == ("send_timeout", {"connection": "client", "pending_bytes": pending})
    assert not link.pending
    assert link.gone
