"""Which queues have a book: levels, applied to what exists.

What comes in: levels of the node, of virtual hosts, of policies; queues that appear and change. What goes out: books
in their backlogs, anchors where recording begins.
Rules: 1. A queue's messages are recorded when its level says so, from the moment on in which it says so. 2. A book
that begins in the middle of a queue's history says what stands there. 3. So does each book of a source that begins
here; a queue whose leader is another node has none.
Not here: what a level means (`vocabulary/audit_levels.py`), writing anchors (`anchors.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from amqpd.audit.book import Book
from amqpd.audit.coverage.anchors import anchor
from amqpd.audit.epochs import Epochs, Eras, LeaderEpochs
from amqpd.audit.kinds import ANCHOR_LEVEL, ANCHOR_RECOVERED
from amqpd.audit.recorder import Recorder
from amqpd.vocabulary.audit_levels import COUNTS, Level, parse_level

if TYPE_CHECKING:
    from amqpd.audit.coverage.audited import Audited
    from amqpd.queues.messages import Messages


class Coverage:
    """Gives each queue the book that its level asks for, and takes it away when the level changes."""

    def __init__(
        self,
        recorder: Recorder,
        default: Level = COUNTS,
        vhosts: Mapping[str, Level] | None = None,
        epochs: Epochs | None = None,
    ) -> None:
        """`vhosts`: levels of virtual hosts that have their own."""
        self.recorder = recorder
        self.default = default
        self.vhosts = dict(vhosts or {})
        self.epochs = Epochs() if epochs is None else epochs
        self.leader_epochs = LeaderEpochs()
        self.recovering = False
        """queues appear that were there; they are looked at together, in the end"""
        self.kept_eras: dict[int, Eras] = {}
        self._recording = 0
        """queues with a book"""
        self.on_gone: Callable[[Audited], None] = lambda _: None
        """told of a queue that is deleted"""
        every = (default, *self.vhosts.values())
        recorder.acts = any(level.acts for level in every)
        recorder.acts_in = {name: level.acts for name, level in self.vhosts.items()}
        recorder.acts_elsewhere = default.acts
        recorder.share = default.share
        recorder.shares = {name: level.share for name, level in self.vhosts.items()}
        self._always = any(level.share for level in every)
        recorder.active = self._always

    def of_vhost(self, vhost: str) -> Level:
        return self.vhosts.get(vhost, self.default)

    @property
    def strongest(self) -> Level:
        """The level that records the largest share of messages: for those whose virtual host is not known."""
        return max((self.default, *self.vhosts.values()), key=lambda level: level.share)

    def level_of(self, queue: Audited) -> Level:
        """Raises nothing: a policy's level was checked when it was set."""
        own = queue.audit_level
        return self.of_vhost(queue.record.vhost) if own is None else parse_level(own)

    def apply_level(self, queue: Audited, recovered: bool = False) -> None:
        """Begin or end the records of a queue by its level: it is new, or its policy or record is another one.
        `recovered`: it was there at the start, and its anchor follows with all the others'."""
        if self.recovering:
            return
        level = self.level_of(queue)
        share = level.share
        if share == queue.recorded_share:
            return
        before, queue.recorded_share = queue.recorded_share, share
        self._recording += bool(share) - bool(before)
        self.recorder.active = self._always or self._recording > 0
        if not share:
            queue.keep_books(None)
            return
        queue.keep_books(partial(self._open, queue))
        # A queue that nothing ever entered has nothing to say. One that is empty again has: what of it is in the log
        # from earlier is not there any more.
        if not recovered and any(level.store.next_seq for level in queue.levels()):
            anchor(self.recorder, queue, ANCHOR_LEVEL)

    def recovered(self, queues: Sequence[Audited]) -> None:
        """All that was there at the start is there. `kept_eras` is for the next start then."""
        levels = [level for queue in queues for level in queue.levels()]
        self.kept_eras = self.epochs.recovered(
            (
                level.queue_id,
                level.store.next_seq,
                level.store.segments[0].first + level.store.segments[0].head if level.store.segments else None,
            )
            for level in levels
        )
        self.recovering = False
        for queue in queues:
            self.apply_level(queue, recovered=True)

    def source_begins(self, source: int, epoch: int, eras: Mapping[int, Eras], queues: int, messages: int) -> None:
        """It is led here, with this number of each. `eras`: see `LeaderEpochs.begin`."""
        self.leader_epochs.begin(source, epoch, eras)
        self._tell("source_begins", source, epoch, queues, messages)

    def queue_begins(self, queue: Audited) -> None:
        """The source of the queue has begun here, and the queue has what was there."""
        self.apply_level(queue, recovered=True)
        anchor(self.recorder, queue, ANCHOR_RECOVERED)

    def source_ends(self, source: int, queues: Sequence[Audited], unmade: int, waiting: int) -> None:
        """It is led here no more; what stood in these queues is at the next one, or was never safe. This number of
        its queues was not made yet, and `waiting` messages stand in those."""
        messages = waiting + sum(queue.ready_count + queue.unacked_count for queue in queues)
        self._tell("source_ends", source, self.leader_epochs.epochs[source], len(queues) + unmade, messages)
        for queue in queues:
            self.gone(queue)
        self.leader_epochs.end(source)

    def _tell(self, event: str, source: int, epoch: int, queues: int, messages: int) -> None:
        detail = json.dumps({"queues": queues, "messages": messages})
        self.recorder.act(event, {"source": source, "source_epoch": epoch, "detail": detail})

    def gone(self, queue: Audited) -> None:
        self.on_gone(queue)
        if queue.recorded_share:
            queue.recorded_share = 0
            self._recording -= 1
            self.recorder.active = self._always or self._recording > 0

    def _open(self, queue: Audited, level: Messages) -> Book:
        """The book of one of the queue's levels."""
        record = queue.record
        # The name of an orphan is none: a reader of the log knows the queue's from earlier rows about its number.
        vhost, name = (record.vhost, record.name) if record.vhost else (None, None)
        source = record.source
        eras = (self.leader_epochs if source else self.epochs).of(level.queue_id)
        # fmt: off
        book = Book(self.recorder, vhost, name, level.queue_id, level.backlog.first_of_incarnation, eras,
                    queue.recorded_share, source, self.leader_epochs.epochs.get(source, 0))
        # fmt: on
        book.next = book.promised = level.store.next_seq
        return book
