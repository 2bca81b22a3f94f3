"""The recorder: publications, confirms, and what all books share.

What comes in: what channels publish, and what is confirmed to them; what the node publishes itself. What goes out:
records in its `buffer`, which the shell writes down before the tick's answers are sent, or later if
none of it is urgent.
Rules: 1. While `active` is False nothing is recorded of messages, and asking costs one look. 2. `begin`, then the
queues that take the run, then `end`: a publication's columns are put once, with the first queue's record if there is
one. 3. A publication has a number of its own; what a confirm covers is told by those numbers. 4. What is told of
messages that somebody may rely on makes the buffer urgent; what is published without confirms and may be lost with
the process may wait for the end of the pump's turn.
Not here: what happens in a queue (`book.py`), acts (`acts.py`), levels of queues (`coverage/coverage.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from amqpd.audit.kinds import CONFIRMED, PUBLISHED, REFUSED, RETURNED, UNROUTABLE
from amqpd.audit.sample import SAMPLED_TOGETHER, STRETCH_MAX, hashed
from amqpd.audit.spool import SpoolBuffer
from amqpd.vocabulary.audit_levels import SHARE_FULL
from amqpd.vocabulary.client import Client

if TYPE_CHECKING:
    from amqpd.message.properties import Properties

# Exchanges, routing keys and reasons of what the node itself publishes; more are named again.
OWN_ORIGINS_MAX = 4096


class Party:
    """Columns that many records share, named once in each file: who publishes what, who consumes, whom a confirm
    tells."""

    __slots__ = ("_columns", "_generation", "_name", "share")

    def __init__(self, columns: dict[str, Any], share: int = 0) -> None:
        """`share`: of its publications that are recorded whoever takes them."""
        self._columns = columns
        self._generation = 0
        self._name = 0
        self.share = share

    def name(self, buffer: SpoolBuffer) -> int:
        if self._generation != buffer.generation:
            self._generation = buffer.generation
            self._name = buffer.name(self._columns)
        return self._name


def consuming(connection: Client, tag: str) -> Party:
    """Who gets deliveries; basic.get has no consumer tag."""
    return Party({"connection": connection.name, "user": connection.user, "consumer": tag})


class ChannelConfirms:
    """Which publications a channel's confirm tags are, of those that it was not told of yet."""

    __slots__ = ("party", "refused", "waiting")

    def __init__(self, party: Party) -> None:
        self.party = party
        self.waiting: deque[tuple[int, int, int]] = deque()
        """(first tag, last tag, publication of the first), ascending"""
        self.refused: list[tuple[int, int]] = []
        """tags that were refused and that a later confirm may cover"""

    def begin(self, tag: int, count: int, publication: int) -> None:
        waiting = self.waiting
        if waiting:
            first, last, of = waiting[-1]
            if last + 1 == tag and of + tag - first == publication:
                waiting[-1] = (first, tag + count - 1, of)
                return
        waiting.append((tag, tag + count - 1, publication))

    def through(self, tag: int) -> list[tuple[int, int, int]]:
        """Those up to the tag, which are not waiting any more."""
        found: list[tuple[int, int, int]] = []
        waiting = self.waiting
        while waiting and waiting[0][0] <= tag:
            first, last, of = waiting.popleft()
            if last > tag:
                waiting.appendleft((tag + 1, last, of + tag + 1 - first))
                last = tag
            found.append((first, last, of))
        return found

    def forget(self) -> None:
        """What was refused and does not wait."""
        waiting = self.waiting
        self.refused = [part for part in self.refused if waiting and part[1] >= waiting[0][0]]


class Confirming:
    """Confirms of one channel, as far as the log is concerned."""

    __slots__ = ("published", "recorded")

    def __init__(self) -> None:
        self.published = 0
        """publishes since confirm.select"""
        self.recorded: ChannelConfirms | None = None
        """what is needed to name what is confirmed"""


class Address:
    """What a publication's columns are the same for: an exchange and a routing key."""

    __slots__ = ("exchange", "origin", "routing_key")

    def __init__(self, exchange: str, routing_key: str) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        self.origin: Party | None = None
        """once something with it is recorded"""


Saved = tuple[int, int, int, int, bool, bool, int, "Party | None", "Properties | None", "ChannelConfirms | None"]
"""a publication that goes on later"""


class Recorder:
    """Writes what happens to messages into the spool's buffer, for all books of a node."""

    def __init__(self, clock_us: Callable[[], int]) -> None:
        """`clock_us`: since the epoch; asked once for each half of a tick."""
        self.buffer = SpoolBuffer()
        self.life = 0
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
        self.letter = 0
        """the publication of what was published last instead of messages that are about to leave a queue; 0: none"""
        self.publication = 0
        self.tag = 0
        self.channel = 0
        self.unsaid = 0
        """so many messages of the publication are not in a record yet that says that it was published"""
        self.noted = False
        """some of the publication is in a book"""
        self.promised = False
        """the publisher will be told that it is safe, or the node itself publishes"""
        self._published = 0
        self._confirms: ChannelConfirms | None = None
        """of the publication's channel, if it is to be confirmed"""
        self._origin: Party | None = None
        self._properties: Properties | None = None
        self._text = 0
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
    ) -> None:
        """A client publishes, on its channel of this number; the queues that take it follow."""
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
        self._next(origin, count, properties)
        self.channel = channel
        if confirms is None:
            self.promised = transactional
            self.tag = 0
            self._confirms = None
            return
        self.promised = True
        self.tag = confirms.published + 1
        recorded = confirms.recorded
        if recorded is None:
            party = Party({"vhost": client.vhost, "user": client.user, "connection": client.name})
            recorded = confirms.recorded = ChannelConfirms(party)
        self._confirms = recorded

    def begin_own(
        self, vhost: str, exchange: str, routing_key: str, reason: str, count: int, properties: Properties
    ) -> int:
        """The node itself publishes: a dead letter, what was delayed, what an operator moves. Its publication."""
        key = (vhost, exchange, routing_key, reason)
        origin = self._own.get(key)
        if origin is None:
            if len(self._own) >= OWN_ORIGINS_MAX:
                self._own.clear()
            columns = {"vhost": vhost, "exchange": exchange, "routing_key": routing_key, "reason": reason}
            origin = self._own[key] = Party(columns, self.shares.get(vhost, self.share))
        self._next(origin, count, properties)
        self.promised = True
        self._confirms = None
        self.channel = self.tag = 0
        return self.publication

    def _next(self, origin: Party, count: int, properties: Properties) -> None:
        """The next publications' numbers are these messages'."""
        self.publication = self._published + 1
        self._published += count
        self._origin = origin
        self._properties = None if properties.message_id is None and properties.correlation_id is None else properties
        self._text = 0
        self.unsaid = count
        self.noted = False

    def save(self) -> Saved:
        """What `restore` brings back: other publications may come in between, of messages that die of this one."""
        # fmt: off
        return (self.publication, self.tag, self.channel, self.unsaid, self.noted, self.promised, self._text,
                self._origin, self._properties, self._confirms)
        # fmt: on

    def restore(self, saved: Saved) -> None:
        # fmt: off
        (self.publication, self.tag, self.channel, self.unsaid, self.noted, self.promised, self._text,
         self._origin, self._properties, self._confirms) = saved
        # fmt: on

    def end(self, count: int, body_bytes: int, routed: bool, told: bool = False) -> None:
        """No more queues follow. `routed`: there was one, or somebody else who took it; `told`: it was mandatory."""
        origin, confirms = self._origin, self._confirms
        assert origin is not None
        if confirms is not None and (self.noted or origin.share):
            # Of what is recorded nowhere, nobody asks whether it was confirmed.
            confirms.begin(self.tag, count, self.publication)
        if not self.unsaid and routed:
            return
        if not origin.share:
            return
        for first, last in self._sampled(origin.share, self.publication, self.publication + count - 1):
            if self.unsaid:
                self._of_publication(PUBLISHED, first, last, body_bytes)
            if not routed:
                self._of_publication(RETURNED if told else UNROUTABLE, first, last, body_bytes)
        self.unsaid = 0

    def _of_publication(self, kind: int, first: int, last: int, body_bytes: int) -> None:
        tag = self.tag + first - self.publication if self.tag else 0
        name, text = self.origin_name(), self.text_name()
        self.buffer.put(
            kind, 0, 1, self.now(), 0, last - first + 1, name, 0, first, tag, body_bytes, text, self.channel
        )

    def origin_name(self) -> int:
        assert self._origin is not None
        return self._origin.name(self.buffer)

    def text_name(self) -> int:
        """Of the ids that the publisher gave the messages; 0 without."""
        properties = self._properties
        if properties is None:
            return 0
        if not self._text:
            ids = {"message_id": properties.message_id, "correlation_id": properties.correlation_id}
            self._text = self.buffer.name(ids)
        return self._text

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
        recorded.refused.append((first, last))
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

    def row(self, event: str, columns: dict[str, Any]) -> None:
        """Whatever the levels say."""
        self.buffer.act({"event": event, "time": self.now(), **columns})


def recorder_off() -> Recorder:
    """Of a node without an audit log."""
    return Recorder(lambda: 0)
