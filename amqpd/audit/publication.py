"""A publication: one run of messages that a client or the node itself publishes, while queues take it.

What comes in: publisher, route and count, from `Recorder.begin` and `begin_own`. What goes out: the columns of its
records, for the books of the queues that take it; which publications a channel's confirm tags are.
Rules: 1. It is handed to each queue that takes the run, and ended once (`Recorder.end`): others may begin and end
meanwhile. 2. Its messages have consecutive numbers, from `first` on.
Not here: the records (`recorder.py`, `book.py`).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from amqpd.audit.party import Party
from amqpd.audit.spool import SpoolBuffer

if TYPE_CHECKING:
    from amqpd.message.properties import Properties


class ChannelConfirms:
    """The publications of one channel by their confirm tags, until the channel is told of each."""

    __slots__ = ("party", "refused", "waiting")

    def __init__(self, party: Party) -> None:
        self.party = party
        self.waiting: deque[tuple[int, int, int]] = deque()
        """(first tag, last tag, publication of the first), ascending"""
        self.refused: list[tuple[int, int]] = []
        """tags that were refused and that a later confirm may cover, ascending"""

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
    """The confirm mode of one channel, as far as the audit log is concerned."""

    __slots__ = ("published", "recorded")

    def __init__(self) -> None:
        self.published = 0
        """publishes since confirm.select"""
        self.recorded: ChannelConfirms | None = None
        """what is needed to name what is confirmed"""


class Address:
    """The exchange and the routing key of publications, with the columns of the log that follow from them."""

    __slots__ = ("exchange", "origin", "routing_key")

    def __init__(self, exchange: str, routing_key: str) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        self.origin: Party | None = None
        """once something with it is recorded"""


class Publication:
    """One run of publishes, with what the log has to know of it until its last queue has it."""

    __slots__ = (
        "_properties",
        "_text",
        "_text_in",
        "channel",
        "confirms",
        "count",
        "first",
        "noted",
        "origin",
        "promised",
        "tag",
        "unsaid",
    )

    def __init__(self, first: int, count: int, origin: Party, properties: Properties | None, promised: bool) -> None:
        """`properties`: if they have ids that the publisher gave the messages."""
        self.first = first
        """the number of its first message's publication"""
        self.count = count
        self.origin = origin
        self.promised = promised
        """the publisher will be told that it is safe, or the node itself publishes"""
        self.tag = 0
        """what the publisher calls its first message in confirms; 0: it has none"""
        self.channel = 0
        self.confirms: ChannelConfirms | None = None
        """of the publication's channel, if it is to be confirmed"""
        self.unsaid = count
        """how many of its messages are not in a record yet that says that they were published"""
        self.noted = False
        """some of it is in a book"""
        self._properties = properties
        self._text = 0
        self._text_in = 0

    def part(self, at: int, count: int) -> Publication:
        """Messages at..at+count-1 of what the node itself publishes, as a publication of their own: they go other
        ways than the rest. Ended instead of this one."""
        return Publication(self.first + at, count, self.origin, self._properties, self.promised)

    def text_name(self, buffer: SpoolBuffer) -> int:
        """Of the ids that the publisher gave the messages; 0 without."""
        properties = self._properties
        if properties is None:
            return 0
        if self._text_in != buffer.generation:
            self._text_in = buffer.generation
            ids = {"message_id": properties.message_id, "correlation_id": properties.correlation_id}
            self._text = buffer.name(ids)
        return self._text
