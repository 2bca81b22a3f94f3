"""The store's recent events in memory, and the watches that read them.

What comes in: events, ascending. What goes out: the same, to each watch from where it stands.
Rules: 1. No gap is ever silent: a watch that stands before the oldest kept event gets `Compacted`.
2. The history is bounded, in events and in bytes that were read; it never waits for a slow watch.
Not here: where events come from (`sqlite/store.py`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from operator import attrgetter
from weakref import WeakSet

import trio

from amqpd.topology.metadata.store import Compacted, Event, bytes_of

# What every watch has read is of no use but to one that begins in the past, and that may read everything again. Above
# this, events that were read are dropped, however few they are: each holds keys and values.
EVENTS_BYTES_MAX = 4 * 1024 * 1024
# What an event takes beside its keys and values.
EVENT_BYTES = 512
# A watch is a task that does nothing but apply; one that lags by this many transactions is stuck or was
# stopped.
EVENTS_MAX = 10_000

# What a watch is given before everything else has a turn: one at a time, the changes of a hundred declarations took
# as many turns of a client that declares thousands more.
OPERATIONS_AT_ONCE = 25


class WatchHistory:
    """The recent events of a metadata store, in memory, for the watches that read them. Revisions greater than
    `floor` are all in it; of those at or below it some may be gone. What came before `begun_at` never was in it, and
    may be kept somewhere else."""

    def __init__(self, floor: int, events_max: int = EVENTS_MAX) -> None:
        self.floor = floor
        self.begun_at = floor
        self._events: deque[Event] = deque()
        self._events_max = events_max
        self._dropped = 0
        self._watches: WeakSet[EventWatch] = WeakSet()
        self.nbytes = 0
        self._news = trio.Event()
        self._failure: BaseException | None = None

    def publish(self, events: Iterable[Event]) -> None:
        for event in events:
            self._events.append(event)
            self.nbytes += _bytes_of(event)
        while len(self._events) > self._events_max:
            self._drop_oldest()
        self.drop_read()
        self._wake()

    def joined(self, watch: EventWatch) -> None:
        """The watch reads from now on."""
        self._watches.add(watch)

    def drop_read(self) -> None:
        """Drop what all watches have read, as far as it is more than is kept."""
        if self.nbytes > EVENTS_BYTES_MAX:
            read = min((watch.position for watch in self._watches), default=self._dropped + len(self._events))
            while self._events and self.nbytes > EVENTS_BYTES_MAX and self._dropped < read:
                self._drop_oldest()

    def _drop_oldest(self) -> None:
        event = self._events.popleft()
        self.floor = event.revision
        self.nbytes -= _bytes_of(event)
        self._dropped += 1

    def reset(self, floor: int) -> None:
        """Forget everything: what lies between the newest event and `floor` was missed."""
        # One more than there were: a watch that stood at the end has missed something too.
        self._dropped += len(self._events) + 1
        self._events.clear()
        self.nbytes = 0
        self.floor = floor
        self.begun_at = 0
        self._wake()

    def fail(self, failure: BaseException) -> None:
        """Watches raise this as soon as they have read what is there."""
        self._failure = failure
        self._wake()

    def position_after(self, revision: int) -> int:
        """The position of the first event greater than `revision`. Raises Compacted."""
        if revision < self.floor:
            raise Compacted(f"revisions up to {self.floor} are gone, {revision} was asked for")
        return self._dropped + bisect_right(self._events, revision, key=attrgetter("revision"))

    def read(self, position: int) -> Event | None:
        """The event at `position`, None when it has not come yet. Raises Compacted, or what `fail` was
        given."""
        index = position - self._dropped
        if index < 0:
            raise Compacted(f"revisions up to {self.floor} are gone")
        if index < len(self._events):
            return self._events[index]
        if self._failure is not None:
            raise self._failure
        return None

    async def wait_news(self) -> None:
        await self._news.wait()

    def _wake(self) -> None:
        self._news.set()
        self._news = trio.Event()


class EventWatch:
    """An endless asynchronous iterator over the events of a store. `catch_up` brings the history up to date, and is
    called whenever no event came for `poll_s` seconds (for stores that other processes write to). `backlog` reads
    the events greater than a revision, up to the beginning of the history, from where they are kept for longer."""

    def __init__(
        self,
        history: WatchHistory,
        after: int,
        *,
        poll_s: float = float("inf"),
        catch_up: Callable[[], Awaitable[object]] | None = None,
        backlog: Callable[[int], Awaitable[list[Event]]] | None = None,
    ) -> None:
        self._history = history
        self._after = after
        self._poll_s = poll_s
        self._catch_up = catch_up
        self._backlog = backlog
        self._older: deque[Event] = deque()
        self._given = 0
        """operations since others had a turn"""
        self._position: int | None = None
        history.joined(self)

    @property
    def position(self) -> int:
        """Of the event that it reads next; 0 as long as that is not known."""
        return self._position or 0

    def __aiter__(self) -> EventWatch:
        return self

    async def __anext__(self) -> Event:
        if self._position is None:
            await trio.lowlevel.checkpoint()
            await self._take_position()
        if self._given >= OPERATIONS_AT_ONCE:
            await trio.lowlevel.checkpoint()
            self._given = 0
        if self._older:
            event = self._older.popleft()
        else:
            while (event := await self._next()).revision <= self._after:
                pass  # the history had not come this far when the watch began
        self._given += max(1, len(event.operations))
        return event

    async def _next(self) -> Event:
        assert self._position is not None
        event = self._history.read(self._position)
        while event is None:
            self._given = 0
            with trio.move_on_after(self._poll_s):
                await self._history.wait_news()
                event = self._history.read(self._position)
                continue
            if self._catch_up is not None:
                await self._catch_up()
            event = self._history.read(self._position)
        self._position += 1
        self._history.drop_read()
        return event

    async def _take_position(self) -> None:
        if self._after < self._history.begun_at and self._backlog is not None:
            begun_at = self._history.begun_at
            self._older.extend(await self._backlog(self._after))
            self._after = begun_at
        self._position = self._history.position_after(self._after)


def _bytes_of(event: Event) -> int:
    return EVENT_BYTES + bytes_of(event.operations)
