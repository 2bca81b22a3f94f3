"""Puts operators' desired sets into the metadata store, and follows what becomes of them.

What comes in: the store, what sources are to be like. What goes out: desired sets; a sentence for each thing that
happens.
Rules: 1. A few at a time: each copy that moves is sent over the network. 2. A desired set that was put stays when the
process that put it ends: the leaders carry it out, and one that has been fulfilled is gone. 3. Another one's desired
set is overwritten only as it was seen. 4. A store that does not answer is asked again: what is under way needs nobody
who looks.
Not here: what is to change (`moves.py`), carrying it out (`set_changes.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import trio

from amqpd.cluster.moves import Aim, MoveImpossible, aim_of, desired_set_of, is_nothing
from amqpd.cluster.records import PREFIX
from amqpd.cluster.roster import Roster
from amqpd.cluster.swaps import Swaps
from amqpd.replication.take_over import SourceRecord
from amqpd.topology.metadata.store import Compacted, MetadataStore, StoreBusy, StoreUnreached

AT_ONCE = 8
"""Desired sets that are open at a time: a node that joins is sent the queues of that many sources at once, not of
all."""
RETRY_S = 0.5

Say = Callable[[str], None]


@dataclass(slots=True)
class _UnderWay:
    aim: Aim
    moves: bool
    """the leader does"""
    revision: int
    """of the store, at which it was put"""
    reason: str = ""
    """why it cannot go on, as it was said last"""
    members: tuple[str, ...] = ()
    """of the source, as they were said last"""


class SetRequests:
    """Puts operators' desired sets into the metadata store, and follows them. `roster` is what the store had when
    it was read last."""

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
        """The revision at which it was put; 0: the source is so already, and whatever else was desired is taken back.
        Raises Impossible when another one was desired meanwhile, MetadataStoreError."""
        record, before = self.roster.records[source], self.roster.desired_sets.get(source)
        desired_set = desired_set_of(aim, record, before)
        if not is_nothing(desired_set):
            found = await self._swaps.swap(desired_set)
            if found is not None:
                return found.revision
        elif before is None or await self._swaps.drop(before):
            return 0
        raise MoveImpossible(f"somebody else has just asked for something of source {source}: look, and try again")

    async def cancel(self, source: int) -> bool:
        """Whether there was a desired set, which is taken back. Raises MetadataStoreError."""
        desired_set = self.roster.desired_sets.get(source)
        return desired_set is not None and await self._swaps.drop(desired_set)

    async def force(self, record: SourceRecord) -> None:
        """Put it in the place of what was read. Raises Impossible when that is another one by now,
        MetadataStoreError."""
        if await self._swaps.swap(record) is None:
            raise MoveImpossible(f"source {record.source} has changed meanwhile: look, and try again")

    async def carry_out(self, aims: Mapping[int, Aim]) -> None:
        """Returns when all of it is so. Raises as `put`, and Impossible when a desired set was taken back
        meanwhile."""
        waiting, under_way = sorted(aims, reverse=True), dict[int, _UnderWay]()

        async def step() -> bool:
            for source, each in list(under_way.items()):
                if self._has_ended(source, each):
                    del under_way[source]
                    done = len(aims) - len(waiting) - len(under_way)
                    self._say(f"source {source}: done ({done} of {len(aims)})")
            while waiting and len(under_way) < AT_ONCE:
                source = waiting.pop()
                moves = aims[source].leader != self.roster.records[source].leader.forwarder
                revision = await self.put(source, aims[source])
                self._say(f"source {source}: to be on {aim_text(aims[source])}")
                if revision:
                    under_way[source] = _UnderWay(aims[source], moves, revision)
            return not under_way

        await self._follow(step)

    def _has_ended(self, source: int, each: _UnderWay) -> bool:
        """Its desired set is fulfilled. Raises Impossible when it was taken back."""
        record, desired_set = self.roster.records.get(source), self.roster.desired_sets.get(source)
        if self.roster.revision < each.revision or record is None:
            return False
        # Whatever the source's leader has said of it since.
        if desired_set is not None and (not desired_set.members or set(desired_set.members) == set(each.aim.members)):
            if each.members and set(record.members) != set(each.members):
                self._say(f"source {source}: is on {', '.join(record.members)} now")
            each.members = record.members
            if desired_set.reason and desired_set.reason != each.reason:
                self._say(f"source {source}: waits, {desired_set.reason}")
            each.reason = desired_set.reason
            return False
        moved = not each.moves or record.leader.forwarder in ("", each.aim.leader)
        if set(record.members) != set(each.aim.members) or not moved:
            raise MoveImpossible(f"what was asked of source {source} was taken back meanwhile")
        return True

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


def aim_text(aim: Aim) -> str:
    return f"{', '.join(aim.members)} with leader {aim.leader}" if aim.leader else ", ".join(aim.members)


def as_it_is(roster: Roster, source: int) -> Aim:
    """Or as it is asked for already."""
    return aim_of(roster.records[source], roster.desired_sets.get(source))
