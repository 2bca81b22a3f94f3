"""The book of one queue, or of one level of a priority queue: what comes in, goes out, and stands in it.

What comes in: what the queue does with stretches of its messages. What goes out: records, into the recorder's buffer.
Rules: 1. The queue tells, the book never asks it. 2. Numbers are those of the queue's backlog; since a restart may
give out again those of messages that never reached the disk, each has its epoch, the incarnation in which it entered;
of a queue that several nodes keep, it is the epoch of its source. 3. With a sample, SAMPLED_TOGETHER numbers are
recorded or not, from the first event to the last.
Not here: publications (`publication.py`, `recorder.py`), what stands there at a start or an end
(`coverage/anchors.py`).
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from amqpd.audit.kinds import (
    AUTO_ACKED,
    DELIVERED,
    PERSISTENT,
    REQUEUED,
    ROUTED,
    WITH_ACKED,
    WITH_PUBLISHED,
)
from amqpd.audit.party import Party
from amqpd.audit.publication import Publication
from amqpd.audit.recorder import Recorder
from amqpd.audit.sample import SAMPLED_TOGETHER, STRETCH_MAX, hashed
from amqpd.vocabulary.audit_levels import SHARE_FULL


class Book:
    """The audit log's account of one queue, or of one level: what came in, what left, and what stands in it."""

    __slots__ = (
        "_columns",
        "_eras",
        "_name",
        "_named_in",
        "_old_names",
        "_plain",
        "epoch",
        "next",
        "promised",
        "queue_id",
        "recorder",
        "share",
        "since",
    )

    def __init__(
        self,
        recorder: Recorder,
        vhost: str | None,
        queue: str | None,
        queue_id: int,
        since: int,
        eras: list[tuple[int, int]],
        share: int,
        source: int = 0,
        epoch: int = 0,
    ) -> None:
        """`since`: the first number of this incarnation; `eras`: (incarnation, first number) of those before it,
        ascending.
        `source`: whose queue it is, and its `epoch`, which is in place of the incarnation then; 0: of this node
        alone."""
        self.recorder = recorder
        self.epoch = epoch or recorder.incarnation
        """of what comes in now"""
        self.queue_id = queue_id
        self.since = since
        self.next = since
        """the number of what comes in next"""
        self.promised = since
        """below it there are messages that are persistent, or were to be confirmed"""
        self.share = share
        self._eras = eras
        self._plain = share >= SHARE_FULL
        self._columns: dict[str, Any] = {"vhost": vhost, "queue": queue, "queue_id": queue_id}
        if source:
            self._columns |= {"source": source, "source_epoch": epoch}
        self._name = 0
        self._named_in = 0
        self._old_names: dict[int, tuple[int, int]] = {}
        """epoch -> (generation, name)"""

    def routed(self, publication: Publication | None, count: int, body_bytes: int, persistent: bool) -> None:
        """The publication's first `count` messages are the queue's next ones. None: nothing was recorded yet when
        it began, so all that is known of it is that it came."""
        recorder, first = self.recorder, self.next
        self.next = first + count
        buffer = recorder.buffer
        flags = 0
        if persistent:
            # It may be in the journal's next commit.
            flags = PERSISTENT
            buffer.urgent = True
            self.promised = self.next
        elif publication is None or publication.promised:
            self.promised = self.next
        name = number = tag = text = channel = 0
        rows = 1
        if publication is not None:
            number, tag, channel = publication.first, publication.tag, publication.channel
        if self._plain:
            if publication is not None:
                name, text = publication.origin.name(buffer), publication.text_name(buffer)
                publication.noted = True
                if publication.unsaid == count:
                    flags |= WITH_PUBLISHED
                    rows = 2
                    publication.unsaid = 0
            if self._named_in != buffer.generation:
                self._say()
            # fmt: off
            buffer.put(ROUTED, flags, rows, recorder.now(), first, count, name, self._name, number, tag, body_bytes,
                       text, channel)
            # fmt: on
            return
        for low, high in self.sampled(first, self.next - 1):
            of, tag_of, queue = 0, 0, self.name_of(self.epoch)
            if publication is not None:
                name, text = publication.origin.name(buffer), publication.text_name(buffer)
                publication.noted = True
                of, tag_of = number + low - first, tag + low - first if tag else 0
            # fmt: off
            buffer.put(ROUTED, flags, 1, recorder.now(), low, high - low + 1, name, queue, of, tag_of, body_bytes,
                       text, channel)
            # fmt: on

    def delivered(
        self, first: int, count: int, flags: int, party: Party | None, channel: int, body_bytes: int
    ) -> None:
        """To the party, if it is known; `flags`: REDELIVERED, WITH_ACKED; `body_bytes` of each message, as for
        `routed`."""
        name = 0 if party is None else party.name(self.recorder.buffer)
        self._put(DELIVERED, flags, 2 if flags & WITH_ACKED else 1, first, count, name, 0, channel, body_bytes)

    def requeued(self, first: int, last: int) -> None:
        self._put(REQUEUED, 0, 1, first, last - first + 1, 0, 0, 0)

    def ended(self, first: int, last: int, cause: int, instead: int = 0) -> None:
        """They left the queue; `cause` is one of the ends in `kinds`. `instead`: the publication of what was
        published instead of the first of them (dead letters ...), the others' follow; 0: of nothing."""
        if cause != AUTO_ACKED:
            self._put(cause, 0, 1, first, last - first + 1, 0, instead, 0)

    def _put(
        self,
        kind: int,
        flags: int,
        rows: int,
        first: int,
        count: int,
        name: int,
        publication: int,
        channel: int,
        body_bytes: int = 0,
    ) -> None:
        recorder = self.recorder
        buffer = recorder.buffer
        if first < self.promised:
            buffer.urgent = True
        if self._plain and first >= self.since and count <= STRETCH_MAX:
            if self._named_in != buffer.generation:
                self._say()
            # fmt: off
            buffer.put(kind, flags, rows, recorder.now(), first, count, name, self._name, publication, 0, body_bytes,
                       0, channel)
            # fmt: on
            return
        time_us = recorder.now()
        for epoch, low, high in self.stretches(first, first + count - 1):
            shifted = publication + low - first if publication else 0
            queue = self.name_of(epoch)
            # fmt: off
            buffer.put(kind, flags, rows, time_us, low, high - low + 1, name, queue, shifted, 0, body_bytes, 0,
                       channel)
            # fmt: on

    def stretches(self, first: int, last: int) -> list[tuple[int, int, int]]:
        """(epoch, first, last) of what is to be recorded of first..last, none longer than STRETCH_MAX."""
        found: list[tuple[int, int, int]] = []
        for low, high in [(first, last)] if self._plain else self.sampled(first, last):
            while low <= high:
                epoch, end = self._era(low)
                stop = min(high, end, low + STRETCH_MAX - 1)
                found.append((epoch, low, stop))
                low = stop + 1
        return found

    def sampled(self, first: int, last: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        while first <= last:
            block = first // SAMPLED_TOGETHER
            stop = min(last, (block + 1) * SAMPLED_TOGETHER - 1)
            if hashed(self.queue_id, block) < self.share:
                if found and found[-1][1] + 1 == first:
                    found[-1] = (found[-1][0], stop)
                else:
                    found.append((first, stop))
            first = stop + 1
        return found

    def _era(self, seq: int) -> tuple[int, int]:
        """The epoch of the message, and the last number of it."""
        if seq >= self.since:
            return self.epoch, 1 << 62
        index = bisect_right(self._eras, seq, key=lambda era: era[1])
        end = (self._eras[index][1] if index < len(self._eras) else self.since) - 1
        # Before the first era that is known it has been there from its queue's beginning.
        return self._eras[index - 1][0] if index else 0, end

    def name_of(self, epoch: int) -> int:
        """The number of the queue's name, with that epoch, in the file of now."""
        if epoch == self.epoch:
            if self._named_in != self.recorder.buffer.generation:
                self._say()
            return self._name
        generation, name = self._old_names.get(epoch, (0, 0))
        if generation != self.recorder.buffer.generation:
            name = self.recorder.buffer.name({**self._columns, "epoch": epoch})
            self._old_names[epoch] = self.recorder.buffer.generation, name
        return name

    def _say(self) -> None:
        buffer = self.recorder.buffer
        self._name = buffer.name({**self._columns, "epoch": self.epoch})
        self._named_in = buffer.generation
