"""How fast connections and channels receive and send: rates of the last seconds, for people who look for a culprit.

What comes in: a look at each connection now and then, with the time. What goes out: rates.
Rules: 1. Nothing is counted here: what connections and channels count anyway is compared with the look before. 2. The
channels of a connection whose socket was silent since then are not looked at. 3. A rate is that between the last two
looks, and zero before the second one.
Not here: sums (`totals.py`), who looks, and when (`management/figures/sampling.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from amqpd.session.ports import ChannelBase, ConnectionBase

LOOK_MS_MIN = 1_000
"""A rate over less than this says little."""


@dataclass(slots=True)
class Rates:
    """The rates of one connection or channel per second: octets through the socket, messages that the client
    published."""

    octets_in: float = 0.0
    octets_out: float = 0.0
    published: float = 0.0
    confirmed: float = 0.0
    """of these, what the client was told to be safe"""


@dataclass(slots=True)
class _Seen:
    at_ms: int
    counts: tuple[int, int, int]
    channels: dict[int, tuple[int, int, int]]
    """deliveries, confirms and publishes of each, by its number"""
    confirmed: int
    rates: Rates = field(default_factory=Rates)
    channel_rates: dict[int, tuple[float, float, float]] = field(default_factory=dict)


NONE = Rates()
NOTHING = 0.0, 0.0, 0.0


class ConnectionRates:
    """The rates at which the connections of one node, and their channels, receive and send."""

    def __init__(self) -> None:
        self._seen: dict[ConnectionBase, _Seen] = {}

    def look(self, connection: ConnectionBase, now_ms: int) -> None:
        """As it is now."""
        counts = connection.bytes_in, connection.bytes_out, connection.published
        seen = self._seen.get(connection)
        if seen is None:
            self._seen[connection] = _Seen(now_ms, counts, _channels(connection), confirmed(connection))
            return
        if (passed_ms := now_ms - seen.at_ms) < LOOK_MS_MIN:
            return
        before, seen.at_ms, seen.counts = seen.counts, now_ms, counts
        if counts == before:
            seen.rates, seen.channel_rates = NONE, {}
            return
        seconds = passed_ms / 1000
        told, seen.confirmed = seen.confirmed, confirmed(connection)
        grown = (now - then for now, then in zip((*counts, seen.confirmed), (*before, told), strict=True))
        seen.rates = Rates(*(count / seconds for count in grown))
        known, seen.channels = seen.channels, _channels(connection)
        # A channel that was closed and opened again counts from the beginning.
        seen.channel_rates = {
            number: (
                max(0, now[0] - then[0]) / seconds,
                max(0, now[1] - then[1]) / seconds,
                max(0, now[2] - then[2]) / seconds,
            )
            for number, now in seen.channels.items()
            for then in (known.get(number, now),)
        }

    def gone(self, connection: ConnectionBase) -> None:
        """Once for each, at least."""
        self._seen.pop(connection, None)

    def of(self, connection: ConnectionBase) -> Rates:
        """Zeros of one that was not looked at twice."""
        seen = self._seen.get(connection)
        return NONE if seen is None else seen.rates

    def of_channel(self, channel: ChannelBase) -> tuple[float, float, float]:
        """Deliveries, confirms and publishes a second; zeros of one that was not looked at twice."""
        seen = self._seen.get(channel.connection)
        return NOTHING if seen is None else seen.channel_rates.get(channel.id, NOTHING)


def confirmed(connection: ConnectionBase) -> int:
    """How many of its publishes its client was told to be safe."""
    return connection.closed_confirmed + sum(told_safe(channel) for channel in list(connection.channels.values()))


def told_safe(channel: ChannelBase) -> int:
    """How many of its publishes its client was told to be safe."""
    return 0 if channel.confirms is None else channel.confirms.told


def _channels(connection: ConnectionBase) -> dict[int, tuple[int, int, int]]:
    return {
        number: (channel.next_tag, told_safe(channel), channel.published)
        for number, channel in list(connection.channels.items())
    }
