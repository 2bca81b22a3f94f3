"""How fast users and virtual hosts may publish: over the limit, a publisher is slowed down and not cut off.

What comes in: the limits, as changes of the topology; publishes, before they are carried out; the time. What goes
out: connections that are not read on (`Intake.throttled`), and that are read again.
Rules: 1. A publish needs a token for each message and one for each byte, from the buckets of its user and of its
virtual host; a connection with all of its tokens goes on. 2. A run is cut at what is allowed, so that one read of a
socket does not take the tokens of minutes. A message that is larger than what is left goes, and the next one waits
for longer. 3. Connections that wait take turns. 4. A bucket exists while its owner has the limit: their number is
bounded by that of users and virtual hosts. 5. A bucket is exact: levels are counted in thousandths, so that a
millisecond adds a whole number whatever the rate. What is taken beyond the level is owed, and paid back before
anything is free again: so the long-run rate holds for messages larger than the burst too. The time is an argument, in
milliseconds, and never goes back.
Not here: names and values of limits (`topology/limit_keys.py`), reading and not reading
(`amqpd/session/intake.py`, `amqpd/pump.py`).

A connection that waits is not read at all, so the acks and the heartbeats behind its publishes wait too; as with
RabbitMQ's flow control, publish and consume on different connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from amqpd.topology.limit_keys import (
    PUBLISH_BYTES,
    PUBLISH_BYTES_BURST,
    PUBLISH_RATE,
    PUBLISH_RATE_BURST,
    VHOST_LIMITS,
    Owner,
    limits_of,
)
from amqpd.topology.state import Topology
from amqpd.vocabulary.client import Client
from amqpd.vocabulary.records import Change, Key, Put
from amqpd.vocabulary.states import ConnectionState

if TYPE_CHECKING:
    from amqpd.kernel import Run


# A connection that waits for tokens is looked at this often (`congestion.MEASURE_S`): a bucket that held less than
# comes in that time would overflow between two looks, and its owner would never reach the rate.
LOOK_MS = 100


class TokenBucket:
    """Tokens of one owner: they come at a rate, up to a burst."""

    __slots__ = ("_at_ms", "_level", "burst", "rate")

    def __init__(self, rate: int, burst: int, now_ms: int) -> None:
        """`rate` a second, `burst` at once, and at least what comes between two looks. Full at first."""
        self.rate = rate
        self.burst = max(1, burst, rate * LOOK_MS // 1000)
        self._level = self.burst * 1000
        self._at_ms = now_ms

    def available(self, now_ms: int) -> int:
        """Whole tokens; negative when some are owed."""
        self._fill(now_ms)
        return self._level // 1000

    def take(self, amount: int, now_ms: int) -> None:
        self._fill(now_ms)
        self._level -= amount * 1000

    def resize(self, rate: int, burst: int, now_ms: int) -> None:
        """Other limits from now on; what is owed stays owed."""
        self._fill(now_ms)
        self.rate = rate
        self.burst = max(1, burst, rate * LOOK_MS // 1000)
        self._level = min(self._level, self.burst * 1000)

    def _fill(self, now_ms: int) -> None:
        if now_ms > self._at_ms:
            self._level = min(self.burst * 1000, self._level + (now_ms - self._at_ms) * self.rate)
            self._at_ms = now_ms


class Quotas:
    """The rates at which users and virtual hosts may publish."""

    def __init__(self, topology: Topology, log: Callable[..., None]) -> None:
        self._topology = topology
        self._log = log
        self._messages: dict[tuple[Owner, str], TokenBucket] = {}
        self._bytes: dict[tuple[Owner, str], TokenBucket] = {}
        self.waiting: dict[Client, None] = {}
        """throttled connections; the one that waits longest first"""
        self._looked_ms = 0
        self.active = False
        """anybody has a quota: the way of a publish asks this before anything else"""

    def applied(self, changes: Iterable[Change], now_ms: int) -> None:
        """The topology has just changed so."""
        for change in changes:
            owner = _owner_of(change.record.key if isinstance(change, Put) else change.key)
            if owner is not None:
                limits = limits_of(self._topology, *owner)
                _renew(self._messages, owner, limits, PUBLISH_RATE, PUBLISH_RATE_BURST, now_ms)
                _renew(self._bytes, owner, limits, PUBLISH_BYTES, PUBLISH_BYTES_BURST, now_ms)
        self.active = bool(self._messages or self._bytes)

    def cut(self, connection: Client, run: Run, now_ms: int) -> Run | None:
        """What of the run may go now. None: nothing, and the connection waits."""
        allowed = self._allowed(connection, run.stride, now_ms)
        if allowed >= run.count:
            return run
        if allowed:
            return run.part(0, allowed)
        self._throttle(connection)
        return None

    def charge(self, connection: Client, run: Run, now_ms: int) -> None:
        """The run goes. If that was all there is, the connection waits from now on."""
        size = run.count * run.stride
        for owner in _owners(connection):
            messages, octets = self._messages.get(owner), self._bytes.get(owner)
            if messages is not None:
                messages.take(run.count, now_ms)
            if octets is not None:
                octets.take(size, now_ms)
        if not self._allowed(connection, 1, now_ms):
            self._throttle(connection)

    def look(self, now_ms: int) -> None:
        """Let those go on that have tokens again. May be called often; does something each tenth of a second."""
        if self.active and now_ms - self._looked_ms < LOOK_MS:
            return
        self._looked_ms = now_ms
        for connection in list(self.waiting):
            if connection.state in (ConnectionState.LINGERING, ConnectionState.CLOSED) or self._allowed(
                connection, 1, now_ms
            ):
                # Before it goes on: it may have to wait again, behind the others.
                del self.waiting[connection]
                connection.guard(connection.turn.go_on)

    def _allowed(self, connection: Client, stride: int, now_ms: int) -> int:
        """Messages of this size; as many as fit into a frame of any size when there is no limit."""
        allowed = _UNLIMITED
        for owner in _owners(connection):
            messages, octets = self._messages.get(owner), self._bytes.get(owner)
            if messages is not None:
                allowed = min(allowed, max(0, messages.available(now_ms)))
            if octets is not None:
                left = octets.available(now_ms)
                allowed = min(allowed, max(1, left // stride) if left > 0 else 0)
        return allowed

    def _throttle(self, connection: Client) -> None:
        turn = connection.turn
        turn.throttled = True
        self.waiting[connection] = None
        if not turn.told_slowed:
            # Once for each connection: it may happen ten times a second.
            turn.told_slowed = True
            self._log("publisher_slowed", connection=connection.name, user=connection.user, vhost=connection.vhost)


# More messages than a received buffer holds.
_UNLIMITED = 1 << 62


def _owners(connection: Client) -> tuple[tuple[Owner, str], tuple[Owner, str]]:
    return ("user", connection.user), ("vhost", connection.vhost)


def _owner_of(key: Key) -> tuple[Owner, str] | None:
    """Whose limits the record with this key may hold."""
    if key[0] == "user":
        return "user", key[1]
    if key[0] == "vhost" or key[:1] + key[2:3] == ("parameter", VHOST_LIMITS):
        return "vhost", key[1]
    return None


def _renew(
    buckets: dict[tuple[Owner, str], TokenBucket],
    owner: tuple[Owner, str],
    limits: Mapping[str, Any],
    rate_key: str,
    burst_key: str,
    now_ms: int,
) -> None:
    rate, burst = _positive(limits.get(rate_key)), _positive(limits.get(burst_key))
    bucket = buckets.get(owner)
    if rate is None:
        buckets.pop(owner, None)
    elif bucket is None:
        buckets[owner] = TokenBucket(rate, burst or rate, now_ms)
    else:
        bucket.resize(rate, burst or rate, now_ms)


def _positive(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
