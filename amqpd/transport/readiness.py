"""Waiting for what comes next: awake for a moment, then asleep, until a socket is ready or somebody wakes the pump.

What comes in: an epoll object, and how long to stay awake; work that came another way than by a socket. What goes
out: events, and a file descriptor that is ready after `Wakeup.set`.
Rules: 1. A processor that sleeps has to be woken by the sender, which takes longer than a lone small message takes
in all; so a pump that was busy just now stays awake a little (as the schedulers of Erlang do). 2. The interpreter
lock is given away at each look, and the whole wait is short: no task that needs this thread waits long. 3. Where
there is one processor, staying awake would keep it from the sender. 4. A wake-up costs nothing while it is not set.
Not here: what is done with events, and whether anything else wants the thread (`pump.py`).
"""

from __future__ import annotations

import os
import select
from time import perf_counter

# The smallest unit of `epoll.poll`, after which other tasks of the thread get their turn. By way of them each wait
# costs a tenth of what a lone small message costs in all.
SLEEP_S = 0.001


def busy_wait_s(wanted_us: int) -> float:
    """What is right here of the setting `busy_wait_us`: nothing on a single processor."""
    return wanted_us / 1_000_000 if len(os.sched_getaffinity(0)) > 1 else 0.0


def next_events(epoll: select.epoll, busy_s: float) -> list[tuple[int, int]]:
    """(file descriptor, mask) of what is ready within `busy_s` awake and SLEEP_S asleep; empty if nothing is."""
    return awake(epoll, perf_counter() + busy_s) or epoll.poll(SLEEP_S)


def awake(epoll: select.epoll, until_s: float) -> list[tuple[int, int]]:
    """(file descriptor, mask) of what is ready before this time of `perf_counter`; empty if nothing is."""
    while perf_counter() < until_s:
        events = epoll.poll(0)
        if events:
            return events
    return []


class Wakeup:
    """An eventfd in the pump's epoll: `set` from any thread ends its sleep."""

    def __init__(self, epoll: select.epoll) -> None:
        self._epoll = epoll
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._is_set = False
        epoll.register(self._fd, select.EPOLLIN)

    def set(self) -> None:
        if not self._is_set:
            self._is_set = True
            os.eventfd_write(self._fd, 1)

    def clear(self, fd: int) -> None:
        """The pump is awake, if it is this descriptor that was ready."""
        if fd == self._fd and self._is_set:
            # In this order: a thread that sets it in between finds the pump awake, and nothing is left unread.
            os.eventfd_read(self._fd)
            self._is_set = False

    def close(self) -> None:
        """The pump sleeps no more: `set` does nothing."""
        self._is_set = True
        self._epoll.unregister(self._fd)
        os.close(self._fd)
