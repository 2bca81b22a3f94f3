"""A broker in this process, for counting: real pump, node and journal on real sockets, nothing left to chance.

What comes in: clients, which act when the pump would wait. What goes out: what the pump asked of the system.
Rules: 1. Everything runs in one thread, in one order: clients act inside of the pump's poll, a commit is done before
the next read, the clock stands still. So two runs do the same, to the instruction. 2. Sockets, epoll and SQLite are
real; log-ins and the metadata store are the harness's.
Not here: what the clients send (`loads.py`), counting (`counting.py`).
"""

from __future__ import annotations

import math
import os
import select
import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio

from amqpd.audit.coverage.coverage import Coverage
from amqpd.journal.sqlite.disk import SqliteDisk
from amqpd.pump import Pump
from amqpd.vocabulary.audit_levels import FULL
from amqpd.vocabulary.limits import Limits
from tests.harness.harness import Harness

# Nothing is to be paged out while it is counted.
ROOMY = Limits(queue_memory_bytes=1 << 30, backlog_memory_bytes=1 << 30)
# A send of either side goes through whole: what the other end takes of a stream would be up to the system otherwise.
SOCKET_BYTES = 1 << 20
CLOCK_MS = 1_700_000_000_000
RESERVE_BYTES = 1 << 20


class CountedSocket(socket.socket):
    """A client's socket as the pump has it. `calls` counts what is asked of the system."""

    calls: Counter[str]

    def recv_into(self, *arguments: Any) -> int:
        self.calls["recv"] += 1
        return super().recv_into(*arguments)

    def recv(self, *arguments: Any) -> bytes:
        self.calls["recv"] += 1
        return super().recv(*arguments)

    def send(self, *arguments: Any) -> int:
        self.calls["send"] += 1
        return super().send(*arguments)


class CountedListener(socket.socket):
    calls: Counter[str]

    def accept(self) -> tuple[socket.socket, Any]:
        client, address = super().accept()
        counted = CountedSocket(fileno=client.detach())
        counted.calls = self.calls
        return counted, address


class CountedEpoll:
    """The pump's epoll. When it has nothing to report, `react` lets the clients act, and then it may have."""

    def __init__(self, epoll: select.epoll, calls: Counter[str], react: Callable[[bool], bool]) -> None:
        self._epoll = epoll
        self._calls = calls
        self._react = react
        self.fileno = epoll.fileno
        self.unregister = epoll.unregister
        self.register = epoll.register
        self.close = epoll.close

    def poll(self, timeout: float = 0) -> list[tuple[int, int]]:
        self._calls["poll"] += 1
        events = self._epoll.poll(0)
        if not events and self._react(timeout > 0):
            events = self._epoll.poll(1)
        return events

    def modify(self, fd: int, events: int) -> None:
        self._calls["modify"] += 1
        self._epoll.modify(fd, events)


class StillClock(trio.abc.Clock):
    """No time passes, so no turn of the pump is over before its work is. (trio.testing has one too, and imports all
    of pytest: many seconds under valgrind.)"""

    def start_clock(self) -> None: ...

    def current_time(self) -> float:
        return 0.0

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return 0.0 if deadline <= 0 else math.inf


class Rig:
    """Make it, and call everything, inside of `trio.run(..., clock=StillClock())`. `react` is set by a load: called
    when nothing is ready, with whether the pump would wait now; True when a client has sent something."""

    def __init__(self, directory: Path) -> None:
        self.calls: Counter[str] = Counter()
        """recv, send, poll, modify, commit: how often, since the start"""
        self.react: Callable[[bool], bool] = lambda waits: False
        self.recording = False
        """clients keep all that they hear, for who wants to check it"""
        self.harness = Harness(ROOMY, automatic=False)
        self.node = self.harness.node
        self.disk = SqliteDisk(directory, reserve_bytes=RESERVE_BYTES)
        self.disk.recover()
        self._commit_wanted = False
        self._opened: list[int] = []
        self.pump = Pump(
            self.node,
            connections_max=1000,
            new_connection_id=self.harness.token,
            certificate_user=lambda certificate: None,
            want_reads=self.harness.reads.extend,
            want_commit=self._want_commit,
            clock_ms=lambda: CLOCK_MS,
            alone=lambda: True,
            commit_now=self._commit,
        )
        self._epoll = self.pump._epoll
        self.pump._epoll = CountedEpoll(self._epoll, self.calls, self._waits)  # type: ignore[assignment]
        listener = CountedListener()
        listener.calls = self.calls
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            listener.setsockopt(socket.SOL_SOCKET, option, SOCKET_BYTES)
        listener.bind(("127.0.0.1", 0))
        listener.listen(100)
        listener.setblocking(False)
        self.address = listener.getsockname()
        self.pump.acceptor.add(listener, None)

    def record_all(self) -> None:
        """From now on, at the level `full`. What would go to a file goes nowhere, by a write."""
        node = self.node
        node.books = Coverage(node.audit, FULL)
        node.audit.acts = False  # connections would be most of it
        nowhere = os.open(os.devnull, os.O_WRONLY)
        self._opened.append(nowhere)
        self.pump._record = lambda: self._write(nowhere, node.audit.buffer.take())

    def _write(self, nowhere: int, block: bytes) -> None:
        os.write(nowhere, block)

    def turn(self) -> None:
        """Everything that has come is carried out; for preparations, while the pump does not run."""
        while (events := self._epoll.poll(0)) or self._serve():
            self.pump._tick(events)

    def close(self) -> None:
        self.pump.close()
        self.disk.close()
        for descriptor in self._opened:
            os.close(descriptor)
        assert not self.harness.bugs, self.harness.bugs

    def _want_commit(self) -> None:
        self._commit_wanted = True

    def _waits(self, waits: bool) -> bool:
        if self._serve():
            return False
        return self.react(waits)

    def _serve(self) -> bool:
        """The disk and the metadata store do what they were asked for; whether there was something."""
        harness, journal = self.harness, self.node.journal
        served = False
        if harness._submitted or harness._logins:
            harness.answer()
            served = True
        while self._commit_wanted and journal.pending:
            self._commit()
            served = True
        assert not harness.reads, "a load was to stay in memory"
        if served:
            self.pump.run_effects()
        return served

    def _commit(self) -> bool:
        """On the pump's thread, as it is where one client at a time waits for it."""
        journal = self.node.journal
        self._commit_wanted = False
        transaction = journal.take()
        self.calls["commit"] += 1
        self.disk.commit(transaction)
        journal.stored(transaction.index)
        journal.committed(transaction.index)
        self.node.reported(journal.lane)
        self.pump.run_effects()
        return True


async def serve(rig: Rig, work: Callable[[], Any]) -> None:
    """Run the pump while the coroutine function `work` runs."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.pump.run)
        await work()
        nursery.cancel_scope.cancel()
