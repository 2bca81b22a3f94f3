"""Wakes the pump, which sleeps until a socket is ready, for work that came another way.

What comes in: an epoll object, which the pump sleeps on. What goes out: a file descriptor that is ready in it after
`set`.
Rules: it costs nothing while it is not set.
Not here: what work that is (`pump.py`).
"""

from __future__ import annotations

import os
import select


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
