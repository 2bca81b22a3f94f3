"""No error of accept ends anything, and what cannot be set up for one connection is that connection's."""

from __future__ import annotations

import errno
import select
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from amqpd.transport.acceptor import PAUSE_S, ClientAcceptor


class Listening(socket.socket):
    """A listener whose accept can be told to fail."""

    errors: list[OSError]

    def accept(self) -> tuple[socket.socket, Any]:
        if self.errors:
            raise self.errors.pop(0)
        return super().accept()


@pytest.fixture(params=[socket.AF_INET, socket.AF_INET6])
def listener(request: pytest.FixtureRequest) -> Iterator[Listening]:
    with Listening(request.param) as listening:
        listening.errors = []
        listening.bind(("127.0.0.1" if request.param == socket.AF_INET else "::1", 0))
        listening.listen()
        listening.setblocking(False)
        yield listening


class Taken:
    def __init__(self, listener: Listening) -> None:
        self.epoll = select.epoll()
        self.clients: list[socket.socket] = []
        self.error: Exception | None = None
        self.bugs: list[Exception] = []
        self.acceptor = ClientAcceptor(self.epoll, 100, self.accepted, self.bugs.append)
        self.listener = listener
        self.acceptor.add(listener, None)

    def accepted(self, client: socket.socket, *_: Any) -> None:
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        self.clients.append(client)

    def ready(self, timeout_s: float = 5.0) -> bool:
        return bool(self.epoll.poll(timeout_s))

    def accept(self, now: float) -> None:
        self.acceptor.accept(self.listener.fileno(), 0, now)


@pytest.fixture
def taken(listener: Listening) -> Iterator[Taken]:
    taken = Taken(listener)
    yield taken
    taken.epoll.close()
    for client in taken.clients:
        client.close()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOBUFS, errno.EINVAL, errno.EBADF, errno.EIO, 9999])
def test_an_error_of_accept_makes_the_listeners_pause(taken: Taken, listener: Listening, number: int) -> None:
    with socket.create_connection(listener.getsockname()[:2]):
        assert taken.ready()
        listener.errors = [OSError(number, "made up")]
        taken.accept(10.0)
        assert not taken.clients
        assert not taken.ready(0)
        taken.acceptor.on_timer(10.0 + PAUSE_S)
        assert taken.ready()
        taken.accept(11.0)
        assert len(taken.clients) == 1
    assert not taken.bugs


@pytest.mark.parametrize(
    "number", [errno.EPERM, errno.EPROTO, errno.ENETDOWN, errno.EHOSTUNREACH, errno.ECONNABORTED]
)
def test_an_error_of_one_connection_is_passed_over(taken: Taken, listener: Listening, number: int) -> None:
    with socket.create_connection(listener.getsockname()[:2]):
        assert taken.ready()
        listener.errors = [OSError(number, "made up")] * 3
        taken.accept(10.0)
        assert len(taken.clients) == 1


@pytest.mark.parametrize("error", [OSError(errno.ENOTCONN, "gone"), TypeError("tuple[str, int] expected")])
def test_a_connection_that_cannot_be_set_up_is_closed_and_the_next_one_taken(
    taken: Taken, listener: Listening, error: Exception
) -> None:
    taken.error = error
    with (
        socket.create_connection(listener.getsockname()[:2], timeout=60) as first,
        socket.create_connection(listener.getsockname()[:2], timeout=60) as second,
    ):
        assert taken.ready()
        taken.accept(10.0)
        assert first.recv(1) == b""
        assert [client.getpeername() for client in taken.clients] == [second.getsockname()]
    assert taken.bugs == ([] if isinstance(error, OSError) else [error])
