"""Puts operators' wishes into the metadata store, and follows what becomes of them.

What comes in: the store, what sources are to be like. What goes out: wishes; a sentence for each thing that happens.
Rules: 1. A few at a time: each copy that moves is sent over the network. 2. A wish that was put stays when the
process that put it ends: the homes carry it out, and one that has been fulfilled is gone. 3. Another one's wish is
overwritten only as it was seen. 4. A store that does not answer is asked again: what is under way needs nobody who
looks.
Not here: what is to change (`moves.py`), carrying it out (`set_changes.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import trio

from amqpd.cluster.moves import Aim, Impossible, aim_of, is_nothing, wish_of
from amqpd.cluster.records import PREFIX, WishRecord
from amqpd.cluster.roster import Roster
from amqpd.cluster.swaps import Swaps
from amqpd.replication.take_over import SourceRecord
from amqpd.topology.metadata.store import Compacted, MetadataStore, StoreBusy, StoreUnreached

AT_ONCE = 8
"""Wishes that are open at a time: a node that joins is sent the queues of that many sources at once, not of all."""
RETRY_S = 0.5

Say = Callable[[str], None]


@dataclass(slots=True)
class _UnderWay:
    aim: Aim
    moves: bool
    """the home does"""
    revision: int
    """of the store, at which it was put"""
    reason: str = ""
    """why it cannot go on, as it was said last"""
    members: tuple[str, ...] = ()
    """of the source, as they were said last"""


class Wishing:
    """`roster` is what the store had when it was read last."""

    def __init__(self, store: MetadataStore, say: Say) -> None:
        self.roster = Roster()
        self._store = store
        self._swaps = Swaps(store)
        self._say = say

    async def look(self) -> Roster:
        """Read everything. Raises MetadataStoreError."""
        self.roster.load(await self._store.range(PREFIX))
        return self.roster

    async def look_again(self, within_s: float) -> Roster:
        """Wait until every node that is known has a lease, at most for this many seconds, then read everything.
        Raises MetadataStoreError."""
        with trio.move_on_after(within_s):
            await self.until(lambda now: not now.gone)
        return await self.look()

    async def put(self, source: int, aim: Aim) -> int:
        """The revision at which it was put; 0: the source is so already, and whatever else was wished is taken back.
        Raises Impossible when another one was wished meanwhile, MetadataStoreError."""
        record, before = self.roster.records[source], self.roster.wishes.get(source)
        wish = wish_of(aim, record, before)
        if not is_nothing(wish):
            found = await self._swaps.swap(wish)
            if found is not None:
                return found.revision
        elif before is None or await self._swaps.drop(before):
            return 0
        raise Impossible(f"somebody else has just wished something of source {source}: look, and try again")

    async def cancel(self, source: int) -> bool:
        """Whether there was a wish, which is taken back. Raises MetadataStoreError."""
        wish = self.roster.wishes.get(source)
        return wish is not None and await self._swaps.drop(wish)

    async def force(self, record: SourceRecord) -> None:
        """Put it in the place of what was read. Raises Impossible when that is another one by now,
        MetadataStoreError."""
        if await self._swaps.swap(record) is None:
            raise Impossible(f"source {record.source} has changed meanwhile: look, and try again")

    async def carry_out(self, aims: Mapping[int, Aim]) -> None:
        """Returns when all of it is so. Raises as `put`, and Impossible when a wish was taken back meanwhile."""
        waiting, under_way = sorted(aims, reverse=True), dict[int, _UnderWay]()

        async def step() -> bool:
            for source, each in list(under_way.items()):
                if self._has_ended(source, each):
                    del under_way[source]
                    done = len(aims) - len(waiting) - len(under_way)
                    self._say(f"source {source}: done ({done} of {len(aims)})")
            while waiting and len(under_way) < AT_ONCE:
                source = waiting.pop()
                moves = aims[source].home != self.roster.records[source].home.forwarder
                revision = await self.put(source, aims[source])
                self._say(f"source {source}: to be on {said(aims[source])}")
                if revision:
                    under_way[source] = _UnderWay(aims[source], moves, revision)
            return not under_way

        await self._follow(step)

    def _has_ended(self, source: int, each: _UnderWay) -> bool:
        """Its wish is fulfilled. Raises Impossible when it was taken back."""
        record, wish = self.roster.records.get(source), self.roster.wishes.get(source)
        if self.roster.revision < each.revision or record is None:
            return False
        if wish is not None and self._is_same(wish, each):
            if each.members and set(record.members) != set(each.members):
                self._say(f"source {source}: is on {', '.join(record.members)} now")
            each.members = record.members
            if wish.reason and wish.reason != each.reason:
                self._say(f"source {source}: waits, {wish.reason}")
            each.reason = wish.reason
            return False
        moved = not each.moves or record.home.forwarder in ("", each.aim.home)
        if set(record.members) != set(each.aim.members) or not moved:
            raise Impossible(f"what was wished of source {source} was taken back meanwhile")
        return True

    def _is_same(self, wish: WishRecord, each: _UnderWay) -> bool:
        """As it was put, whatever the source's home has said of it since."""
        return not wish.members or set(wish.members) == set(each.aim.members)

    async def until(self, holds: Callable[[Roster], bool]) -> None:
        """Raises MetadataStoreError."""

        async def step() -> bool:
            return holds(self.roster)

        await self._follow(step)

    async def _follow(self, step: Callable[[], Awaitable[bool]]) -> None:
        """Take a step now and after each change, until one says that it was the last."""
        ended = await step()
        while not ended:
            try:
                async for event in self._store.watch(self.roster.revision):
                    if self.roster.apply(event):
                        ended = await step()
                    if ended:
                        return
            except (StoreUnreached, StoreBusy) as error:
                self._say(f"{error}; asking again")
                await trio.sleep(RETRY_S)
            except Compacted:
                await self.look()
                ended = await step()


def said(aim: Aim) -> str:
    return f"{', '.join(aim.members)} with home {aim.home}" if aim.home else ", ".join(aim.members)


def as_it_is(roster: Roster, source: int) -> Aim:
    """Or as it is wished already."""
    return aim_of(roster.records[source], roster.wishes.get(source))
