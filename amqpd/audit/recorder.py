"""The recorder: publications, confirms, and what all books share.

What comes in: what channels publish, and what is confirmed to them; what the node publishes itself. What goes out:
a `Publication` for each run that is published; records in its `buffer`, which the shell writes down before the tick's
answers are sent, or later if none of it is urgent.
Rules: 1. While `active` is False nothing is recorded of messages, and asking costs one look. 2. `begin`, then the
queues that take the run, each with the publication, then `end`: a publication's columns are put once, with the first
queue's record if there is one. It may take several ticks, with others between. 3. A publication has a number of its
own; what a confirm covers is told by those numbers. 4. What is told of messages that somebody may rely on makes the
buffer urgent; what is published without confirms and may be lost with the process may wait for the end of the pump's
turn.
Not here: a publication on its way (`publication.py`), what happens in a queue (`book.py`), acts (`acts.py`), levels
of queues (`coverage/coverage.py`).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from amqpd.audit.kinds import CONFIRMED, PUBLISHED, REFUSED, RETURNED, UNROUTABLE
from amqpd.audit.party import Party
from amqpd.audit.publication import Address, ChannelConfirms, Confirming, Publication
from amqpd.audit.sample import SAMPLED_TOGETHER, STRETCH_MAX, hashed
from amqpd.audit.spool import SpoolBuffer
from amqpd.vocabulary.audit_levels import SHARE_FULL
from amqpd.vocabulary.client import Client

if TYPE_CHECKING:
    from amqpd.message.properties import Properties

# Exchanges, routing keys and reasons of what the node itself publishes; more are named again.
OWN_ORIGINS_MAX = 4096


class Recorder:
    """Writes what happens to messages into the spool's buffer, for all books of a node."""

    def __init__(self, clock_us: Callable[[], int]) -> None:
        """`clock_us`: since the epoch; asked once for each half of a tick."""
        self.buffer = SpoolBuffer()
        self.incarnation = 0
        self.active = False
        """something is recorded of messages"""
        self.acts = False
        """acts are, somewhere"""
        self.acts_in: dict[str, bool] = {}
        """whether they are in a virtual host, where that is not as `acts_elsewhere` says"""
        self.acts_elsewhere = False
        self.share = 0
        """of publications, that is recorded"""
        self.shares: dict[str, int] = {}
        """the same for virtual hosts that have their own"""
        self.watch: Callable[[dict[str, Any]], None] | None = None
        """somebody looks on: it is given each act that is recorded"""
        self._published = 0
        self._own: dict[tuple[str, str, str, str], Party] = {}
        self._clock_us = clock_us
        self._now_us = 0

    # Time

    def later(self) -> None:
        """What is recorded from here on has a time of its own."""
        self._now_us = 0

    def now(self) -> int:
        """us since the epoch"""
        if not self._now_us:
            self._now_us = self._clock_us()
        return self._now_us

    # Publications

    def begin(
        self,
        client: Client,
        channel: int,
        confirms: Confirming | None,
        transactional: bool,
        count: int,
        route: Address,
        properties: Properties,
    ) -> Publication:
        """A client publishes, on its channel of this number."""
        origin = route.origin
        if origin is None:
            columns = {
                "vhost": client.vhost,
                "exchange": route.exchange,
                "routing_key": route.routing_key,
                "user": client.user,
                "connection": client.name,
            }
            origin = route.origin = Party(columns, self.shares.get(client.vhost, self.share))
        publication = self._next(origin, count, properties, confirms is not None or transactional)
        publication.channel = channel
        if confirms is None:
            return publication
        publication.tag = confirms.published + 1
        recorded = confirms.recorded
        if recorded is None:
            party = Party({"vhost": client.vhost, "user": client.user, "connection": client.name})
            recorded = confirms.recorded = ChannelConfirms(party)
        publication.confirms = recorded
        return publication

    def begin_own(
        self, vhost: str, exchange: str, routing_key: str, reason: str, count: int, properties: Properties
    ) -> Publication:
        """The node itself publishes: a dead letter, what was delayed, what an operator moves."""
        key = (vhost, exchange, routing_key, reason)
        origin = self._own.get(key)
        if origin is None:
            if len(self._own) >= OWN_ORIGINS_MAX:
                self._own.clear()
            columns = {"vhost": vhost, "exchange": exchange, "routing_key": routing_key, "reason": reason}
            origin = self._own[key] = Party(columns, self.shares.get(vhost, self.share))
        return self._next(origin, count, properties, True)

    def _next(self, origin: Party, count: int, properties: Properties, promised: bool) -> Publication:
        """The next publications' numbers are these messages'."""
        first = self._published + 1
        self._published += count
        named = None if properties.message_id is None and properties.correlation_id is None else properties
        return Publication(first, count, origin, named, promised)

    def end(self, publication: Publication, body_bytes: int, routed: bool, told: bool = False) -> None:
        """No more queues follow. `routed`: there was one, or another receiver took it; `told`: it was mandatory."""
        origin, confirms, first = publication.origin, publication.confirms, publication.first
        if confirms is not None and (publication.noted or origin.share):
            # Of what is recorded nowhere, nobody asks whether it was confirmed.
            confirms.begin(publication.tag, publication.count, first)
        if not publication.unsaid and routed:
            return
        if not origin.share:
            return
        for low, high in self._sampled(origin.share, first, first + publication.count - 1):
            if publication.unsaid:
                self._of_publication(publication, PUBLISHED, low, high, body_bytes)
            if not routed:
                self._of_publication(publication, RETURNED if told else UNROUTABLE, low, high, body_bytes)
        publication.unsaid = 0

    def _of_publication(self, publication: Publication, kind: int, first: int, last: int, body_bytes: int) -> None:
        buffer = self.buffer
        tag = publication.tag + first - publication.first if publication.tag else 0
        name, text = publication.origin.name(buffer), publication.text_name(buffer)
        buffer.put(
            kind, 0, 1, self.now(), 0, last - first + 1, name, 0, first, tag, body_bytes, text, publication.channel
        )

    # Confirms

    def confirmed(self, confirms: Confirming, channel: int, tag: int) -> None:
        """The channel of this number is told that its publishes up to the tag are safe, except those that were
        refused."""
        recorded = confirms.recorded
        if recorded is None:
            return
        for first, last, publication in recorded.through(tag):
            start = first
            if recorded.refused:
                for low, high in recorded.refused:
                    if low <= last and high >= start:
                        self._told(CONFIRMED, recorded.party, channel, start, low - 1, publication + start - first)
                        start = high + 1
            self._told(CONFIRMED, recorded.party, channel, start, last, publication + start - first)
        if recorded.refused:
            recorded.forget()

    def refused(self, confirms: Confirming, channel: int, first: int, last: int) -> None:
        """The channel of this number is told that these publishes were not taken."""
        recorded = confirms.recorded
        if recorded is None:
            return
        for low, high, publication in recorded.waiting:
            if low <= last and high >= first:
                start = max(low, first)
                self._told(REFUSED, recorded.party, channel, start, min(high, last), publication + start - low)
        # Some may wait in front of what was refused before.
        insort(recorded.refused, (first, last))
        while recorded.waiting and first <= recorded.waiting[0][0] and recorded.waiting[0][1] <= last:
            recorded.waiting.popleft()
        recorded.forget()

    def _told(self, kind: int, party: Party, channel: int, first: int, last: int, publication: int) -> None:
        buffer, time_us, name = self.buffer, self.now(), party.name(self.buffer)
        buffer.urgent = True
        while first <= last:
            count = min(last - first + 1, STRETCH_MAX)
            buffer.put(kind, 0, 1, time_us, 0, count, name, 0, publication, first, 0, 0, channel)
            first += count
            publication += count

    def _sampled(self, share: int, first: int, last: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        while first <= last:
            block = first // SAMPLED_TOGETHER
            stop = min(last, (block + 1) * SAMPLED_TOGETHER - 1) if share < SHARE_FULL else last
            stop = min(stop, first + STRETCH_MAX - 1)
            if share >= SHARE_FULL or hashed(0, block) < share:
                found.append((first, stop))
            first = stop + 1
        return found

    # Acts

    def act(self, event: str, columns: dict[str, Any]) -> None:
        """What somebody did. `columns` are those of the log, without secrets."""
        vhost = columns.get("vhost")
        if self.acts or self.active if vhost is None else self.acts_in.get(vhost, self.acts_elsewhere):
            self.row(event, columns)
            if self.watch is not None:
                self.watch({"event": event, "time": self.now(), **columns})

    def row(self, event: str, columns: dict[str, Any]) -> None:
        """Whatever the levels say."""
        self.buffer.act({"event": event, "time": self.now(), **columns})
