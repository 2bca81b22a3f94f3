"""Operators' wishes: put a few at a time, followed until the homes have fulfilled them; each step is said.

What is verified: with a store in memory and a home that does what a test says. Not verified here: real homes
(`tests/faults/test_cluster_operators.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
import trio
import trio.testing

from amqpd.cluster.moves import Aim, Impossible
from amqpd.cluster.records import PREFIX, WishRecord, encode, source_key, wish_key
from amqpd.cluster.roster import Roster
from amqpd.cluster.wishing import AT_ONCE, Wishing
from amqpd.replication.seal import Seal
from amqpd.replication.take_over import SourceRecord
from amqpd.topology.metadata.events import Watch
from amqpd.topology.metadata.memory import MemorySpace, MemoryStore
from amqpd.topology.metadata.store import Compacted, DeleteKey, PutKey
from tests.cluster.directories import Unsure

ABC, ABD = ("a", "b", "c"), ("a", "b", "d")


class Scene:
    """An operator's `wishing` and the homes' end of the same store."""

    def __init__(self, sources: int = 1, store: type[Unsure] = Unsure) -> None:
        space = MemorySpace()
        self.store = store(space)
        self.homes = MemoryStore(space)
        self.said: list[str] = []
        self.wishing = Wishing(self.store, self.said.append)
        self.sources = range(1, sources + 1)

    async def begin(self) -> None:
        records = [SourceRecord(each, Seal(1, "a", 1), ABC, (1, 2, 3)) for each in self.sources]
        await self.homes.transact([], [PutKey(source_key(each.source), encode(each)) for each in records])
        await self.wishing.look()

    async def seen(self) -> Roster:
        await trio.testing.wait_all_tasks_blocked()
        roster = Roster()
        roster.load(await self.homes.range(PREFIX))
        return roster

    async def becomes(self, source: int, members: tuple[str, ...] = ABC, home: str = "a") -> None:
        record = SourceRecord(source, Seal(1, home, 1), members, tuple(range(len(members))))
        await self.homes.transact([], [PutKey(source_key(source), encode(record))])

    async def waits(self, source: int, reason: str) -> None:
        wish = (await self.seen()).wishes[source]
        await self.homes.transact([], [PutKey(wish_key(source), encode(replace(wish, reason=reason)))])

    async def ends(self, source: int) -> None:
        await self.homes.transact([], [DeleteKey(wish_key(source))])


def run(scene: Scene, aims: dict[int, Aim], homes: Callable[[], Awaitable[None]]) -> str:
    """The operator's wish and what the homes do, side by side; what the operator is refused with."""
    refused: list[str] = []

    async def operator() -> None:
        try:
            await scene.wishing.carry_out(aims)
        except Impossible as error:
            refused.append(str(error))

    async def main() -> None:
        await scene.begin()
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(operator)
                await trio.testing.wait_all_tasks_blocked()
                await homes()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0.01))
    return "".join(refused)


def test_a_wish_is_followed_until_it_is_fulfilled() -> None:
    scene = Scene()

    async def homes() -> None:
        assert (await scene.seen()).wishes[1].members == ABD
        await scene.waits(1, "d does not live")
        await scene.waits(1, "d does not live")
        await scene.becomes(1, ("a", "b", "c", "d"))
        await scene.becomes(1, ABD)
        await scene.seen()
        assert scene.said[-1] == "source 1: is on a, b, d now"
        await scene.ends(1)

    run(scene, {1: Aim(ABD, "a")}, homes)
    assert scene.said == [
        "source 1: to be on a, b, d with home a",
        "source 1: waits, d does not live",
        "source 1: is on a, b, c, d now",
        "source 1: is on a, b, d now",
        "source 1: done (1 of 1)",
    ]


def test_only_what_changes_is_wished() -> None:
    scene = Scene(2)

    async def homes() -> None:
        wishes = (await scene.seen()).wishes
        assert (wishes[1].members, wishes[1].home) == ((), "b")
        assert (wishes[2].members, wishes[2].home) == (ABD, "")
        await scene.becomes(1, home="b")
        await scene.becomes(2, ABD)
        await scene.ends(2)
        await scene.ends(1)

    run(scene, {1: Aim(ABC, "b"), 2: Aim(ABD, "a")}, homes)


def test_only_a_few_wishes_are_open_at_a_time() -> None:
    scene = Scene(3 * AT_ONCE)
    most = 0

    async def homes() -> None:
        nonlocal most
        while wishes := (await scene.seen()).wishes:
            most = max(most, len(wishes))
            source = min(wishes)
            await scene.becomes(source, ABD)
            await scene.ends(source)

    run(scene, dict.fromkeys(scene.sources, Aim(ABD, "a")), homes)
    assert most == AT_ONCE
    assert scene.said[-1] == f"source {3 * AT_ONCE}: done ({3 * AT_ONCE} of {3 * AT_ONCE})"


@pytest.mark.parametrize("aim", [Aim(ABD, "a"), Aim(ABC, "b")])
def test_a_wish_that_was_taken_back_is_not_taken_for_done(aim: Aim) -> None:
    scene = Scene()

    async def homes() -> None:
        await scene.ends(1)

    assert run(scene, {1: aim}, homes) == "what was wished of source 1 was taken back meanwhile"


def test_what_was_wished_already_is_not_overwritten_unseen() -> None:
    scene = Scene()

    async def main() -> None:
        await scene.begin()
        other = WishRecord(1, (), "c")
        await scene.homes.transact([], [PutKey(wish_key(1), encode(other))])
        with pytest.raises(Impossible, match="somebody else has just wished something of source 1"):
            await scene.wishing.put(1, Aim(ABC, "b"))
        await scene.wishing.look()
        assert await scene.wishing.put(1, Aim(ABC, "b")) > 0
        assert (await scene.seen()).wishes[1].home == "b"

    trio.run(main)


def test_back_to_what_it_is_takes_the_wish_back() -> None:
    scene = Scene()

    async def main() -> None:
        await scene.begin()
        await scene.wishing.put(1, Aim(ABC, "b"))
        await scene.wishing.look()
        assert await scene.wishing.put(1, Aim(ABC, "a")) == 0
        assert (await scene.seen()).wishes == {}

    trio.run(main)


def test_a_wish_is_cancelled_once() -> None:
    scene = Scene()

    async def main() -> None:
        await scene.begin()
        await scene.wishing.put(1, Aim(ABC, "b"))
        await scene.wishing.look()
        assert await scene.wishing.cancel(1)
        await scene.wishing.look()
        assert not await scene.wishing.cancel(1)

    trio.run(main)


def test_a_source_that_was_forced_by_another_one_is_looked_at_again() -> None:
    scene = Scene()

    async def main() -> None:
        await scene.begin()
        record = scene.wishing.roster.records[1]
        await scene.becomes(1, ("a",))
        with pytest.raises(Impossible, match="source 1 has changed meanwhile"):
            await scene.wishing.force(replace(record, members=("b",), generations=(2,)))

    trio.run(main)


class Forgetful(Unsure):
    """Its first watch is of what is not kept any more."""

    asked = False

    def watch(self, after: int) -> Watch:
        if not self.asked:
            self.asked = True
            raise Compacted
        return super().watch(after)


def test_a_store_that_has_forgotten_the_changes_is_read_again() -> None:
    scene = Scene(store=Forgetful)

    async def homes() -> None:
        await scene.becomes(1, ABD)
        await scene.ends(1)

    run(scene, {1: Aim(ABD, "a")}, homes)
    assert scene.said[-1] == "source 1: done (1 of 1)"
