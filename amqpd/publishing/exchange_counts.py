"""How many messages clients and operators publish to each exchange, and how many copies of them go to queues.

What comes in: runs, as they are accepted. What goes out: two counts for each exchange, and their rates.
Rules: 1. A message that goes to ten queues came in once and went out ten times. 2. What counts is the exchange that
the publisher named: those that it goes through behind it count nothing, and neither does what the node itself
publishes (dead letters). 3. The counts of an exchange go with it. 4. Somebody calls `Passed.sample` every few
seconds: rates are those between the last two calls.
Not here: what of that reached no queue (`unroutable.py`), what queues took (`queues/facts.py`).

Source of names and meaning: rabbit_channel.erl (`deliver_to_queues`, `exchange_stats`), rabbit_mgmt_stats.erl.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from amqpd.vocabulary.records import Change, Delete


class Passed:
    """The messages of one exchange, since it is there or since the start."""

    __slots__ = ("_sampled_in", "_sampled_out", "publish_in", "publish_out", "rate_in", "rate_out")

    def __init__(self) -> None:
        self.publish_in = self.publish_out = 0
        self._sampled_in = self._sampled_out = 0
        self.rate_in = self.rate_out = 0.0
        """messages a second, between the last two samples"""

    def count(self, messages: int, copies: int) -> None:
        """`messages` were published, which are `copies` in queues."""
        self.publish_in += messages
        self.publish_out += copies

    def sample(self, seconds: float) -> None:
        """So long after the last time."""
        self.rate_in = (self.publish_in - self._sampled_in) / seconds
        self.rate_out = (self.publish_out - self._sampled_out) / seconds
        self._sampled_in, self._sampled_out = self.publish_in, self.publish_out


class ExchangeCounts:
    """The counts of messages of all exchanges to which somebody has published."""

    def __init__(self) -> None:
        self._by_exchange: dict[tuple[str, str], Passed] = {}

    def of(self, vhost: str, exchange: str) -> Passed:
        """To be counted in. The exchange is there."""
        known = self._by_exchange.get((vhost, exchange))
        if known is None:
            known = self._by_exchange[vhost, exchange] = Passed()
        return known

    def known(self, vhost: str, exchange: str) -> Passed | None:
        """None: nobody has published there."""
        return self._by_exchange.get((vhost, exchange))

    def all(self) -> Collection[Passed]:
        """As they are now."""
        return list(self._by_exchange.values())

    def applied(self, changes: Iterable[Change]) -> None:
        """The topology has changed so."""
        for change in changes:
            if isinstance(change, Delete):
                match change.key:
                    case ("exchange", vhost, name):
                        self._by_exchange.pop((vhost, name), None)
                    case ("vhost", name):
                        for key in [key for key in self._by_exchange if key[0] == name]:
                            del self._by_exchange[key]
