"""Very many connections that end at the same moment: everybody else is served in between.

What comes in: a pump on real sockets, whose clients do nothing, or go. What goes out: how many connections one tick,
or one stretch of the timers, has ended.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from amqpd.connection import Connection
from amqpd.flow.turns import TURN_WORK_MAX
from amqpd.pump import Pump
from tests.harness.harness import Harness
from tests.test_pump import pump_of

CONNECTIONS = 400
# Of these, in one go: 5 ms by the count.
AT_ONCE_MAX = 60


@asynccontextmanager
async def connected(pump: Pump) -> AsyncIterator[list[socket.socket]]:
    """So many clients that have said nothing."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=CONNECTIONS)
    listener.setblocking(False)
    pump.acceptor.add(listener, None)
    clients: list[socket.socket] = []
    try:
        for _ in range(CONNECTIONS):
            clients.append(socket.create_connection(listener.getsockname()))
            pump._tick(pump._epoll.poll(1))
        assert pump.link_count == CONNECTIONS
        yield clients
    finally:
        for client in clients:
            client.close()
        pump.close()


def test_a_tick_ends_few_of_the_connections_that_are_lost() -> None:
    """A thousand sockets are reported at once; each end takes a tenth of a millisecond."""

    async def main() -> None:
        pump = pump_of(Harness(), connections_max=CONNECTIONS)
        async with connected(pump) as clients:
            for client in clients:
                client.close()
            left = CONNECTIONS
            while left:
                pump._tick(pump._epoll.poll(0))
                assert left - AT_ONCE_MAX <= pump.link_count < left
                left = pump.link_count

    trio.run(main)


@pytest.mark.parametrize("handshake", [True, False], ids=["handshake", "heartbeat"])
def test_the_timers_end_few_connections_between_two_tasks_of_others(handshake: bool) -> None:
    """They came together, so their time is up together."""
    alive: list[int] = []
    clock = MockClock()

    async def main() -> None:
        harness = Harness()
        pump = pump_of(harness, connections_max=CONNECTIONS)
        async with connected(pump), trio.open_nursery() as nursery:
            if not handshake:
                for connection in list(harness.node.connections.values()):
                    connection.vhost, connection.user = "/", "guest"
                    connection.opened()
                    connection.heartbeat_s = 5

            nursery.start_soon(pump.run_timers)
            for _ in range(4):
                await wait_all_tasks_blocked()
                clock.jump(5)
                # The clock stands still from here on: the timers do what is due now, and nothing else is.
                alive.append(len(harness.node.connections))
                for _ in range(CONNECTIONS):
                    await trio.lowlevel.checkpoint()
                    alive.append(len(harness.node.connections))
            nursery.cancel_scope.cancel()

    trio.run(main, clock=clock)
    ended = [before - after for before, after in pairwise(alive)]
    assert sum(ended) == CONNECTIONS
    # trio takes the tasks that are ready in any order, so another one may come behind two stretches.
    assert max(ended) <= 2 * AT_ONCE_MAX, ended


def test_what_is_left_when_the_broker_closes_all_is_still_carried_out() -> None:
    """A disk may take seconds for the last commits. Meanwhile the pump goes on with what the connections left; its
    epoll was closed then, and the broker ended with a fault in the middle of writing."""
    steps = 20

    async def main() -> None:
        harness = Harness()
        pump = pump_of(harness, connections_max=CONNECTIONS)
        done: list[int] = []

        def left(connection: Connection) -> Iterator[None]:
            for step in range(steps):
                done.append(step)
                pump.node.turns.charge(connection, TURN_WORK_MAX)
                yield

        async with connected(pump), trio.open_nursery() as nursery:
            connection = next(iter(harness.node.connections.values()))
            nursery.start_soon(pump.run)
            connection.intake.begin_apart(left(connection))
            pump.end()
            assert (pump.link_count, len(done)) == (0, 1)
            while len(done) < steps:
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()

    trio.run(main)
