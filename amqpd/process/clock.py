"""The time of the broker: it never goes back, neither while it runs nor over a restart, as far as that is sane.

What comes in: what the journal says of the time when it was written last. What goes out: milliseconds and
microseconds since the epoch; how far that is ahead of the system's clock; lines of the log.
Rules: 1. While it runs: the wall clock as it was at the start, and what the monotonic clock counts from there.
Deadlines outlive a restart, but a clock that is set while the broker runs must not expire everything, or nothing.
2. At a start with a clock that was set back, it goes on from what was written last, and gives back one part in a
hundred until it meets the system's clock: lifetimes are a hundredth longer then, and not by a day. 3. More than
`AHEAD_MAX_S` is not made up for: who set that clock was wrong before, or is now, and nobody can tell.
Not here: what may ask (the pure modules are told), who keeps the time on the disk (`datadir/opening.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog
import trio

AHEAD_MAX_S = 2 * 86_400
"""A wrong zone is half a day, a wrong date mostly one. Given back within 200 days of running."""
GIVEN_BACK = 100
"""one part of this number: as Erlang's system time, which RabbitMQ goes by, does while it runs"""
LOOK_S = 10.0
TOLD_S = 5
"""A clock that was set by less, or that NTP has slowed down, is not told of."""

_S, _MS, _US = 1_000_000_000, 1_000_000, 1000

log = structlog.get_logger(component="clock")


class SteadyClock:
    """Time since the epoch that never goes back."""

    def __init__(
        self,
        last_ms: int = 0,
        wall_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """`last_ms`: a time that has been; 0: nobody knows."""
        self._wall_ns, self._monotonic_ns = wall_ns, monotonic_ns
        self._began_ns, now_ns = monotonic_ns(), wall_ns()
        self._offset_ns = now_ns - self._began_ns
        self.set_back_s = max(0, last_ms * _MS - now_ns) / _S
        """by how much the system's clock was behind at the start"""
        made_up_for = self.set_back_s <= AHEAD_MAX_S
        self._ahead_ns = max(0, last_ms * _MS - now_ns) if made_up_for else 0
        self._tell_start()

    def ms(self) -> int:
        return self._ns() // _MS

    def us(self) -> int:
        return self._ns() // _US

    def ahead_s(self) -> float:
        """Of the system's clock as it is now; below zero: behind it."""
        return (self._ns() - self._wall_ns()) / _S

    async def watch(self) -> None:
        """Until cancelled: a line of the log when the system's clock is set while the broker runs."""
        told_s = self.ahead_s()
        while True:
            await trio.sleep(LOOK_S)
            ahead_s = self.ahead_s()
            if abs(ahead_s - told_s) >= TOLD_S:
                log.warning(
                    "system clock set",
                    forward_by_s=round(told_s - ahead_s),
                    broker_ahead_s=round(ahead_s),
                    consequence="the broker keeps its own time until its next start"
                    + (": then what is to expire or is delayed falls due earlier by as much" if ahead_s < 0 else ""),
                )
                told_s = ahead_s

    def _tell_start(self) -> None:
        """A line of the log, if the system's clock was set back while no broker ran."""
        if self.set_back_s < TOLD_S:
            return
        behind = f"the system's clock is {self.set_back_s:,.0f} s behind the time when the journal was written last"
        if self._ahead_ns:
            log.warning(
                "clock set back",
                reason=behind,
                consequence="the broker goes on from that time and gives back 1 s in 100: lifetimes and delays hold",
                remedy="none, if the system's clock is right now",
            )
        else:
            log.error(
                "clock set back",
                reason=behind,
                consequence="that is too much to be made up for: messages from before expire, and delayed ones come, "
                "later by as much",
                remedy="set the system's clock and start the broker again, if it is wrong",
            )

    def _ns(self) -> int:
        now_ns = self._monotonic_ns()
        if not self._ahead_ns:
            return now_ns + self._offset_ns
        given_back_ns = min(self._ahead_ns, (now_ns - self._began_ns) // GIVEN_BACK)
        return now_ns + self._offset_ns + self._ahead_ns - given_back_ns
