"""Operators' desired sets: put a few at a time, followed until the leaders have fulfilled them; each step is said.

What is verified: with a store in memory and a leader that does what a test says. Not verified here: real leaders
(`tests/faults/test_cluster_operators.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
import trio
import trio.testing

from amqpd.cluster.moves import Aim, MoveImpossible
from amqpd.cluster.records import PREFIX, DesiredSetRecord, desired_set_key, encode, source_key
from amqpd.cluster.roster import Roster
from amqpd.cluster.set_requests import AT_ONCE, SetRequests
from amqpd.peers.entry import Vote
from amqpd.replication.take_over import SourceRecord
from amqpd.topology.metadata.events import EventWatch
from amqpd.topology.metadata.store import Compacted, DeleteKey, PutKey
from tests.cluster.directories import Unsure
from tests.topology.memory_store import MemorySpace, MemoryStore

ABC, ABD = ("a", "b", "c"), ("a", "b", "d")


class Scene:
    """An operator's `set_requests` and the leaders' end of the same store."""

    def __init__(self, sources: int = 1, store: type[Unsure] = Unsure) -> None:
        space = MemorySpace()
        self.store = store(space)
        self.leaders = MemoryStore(space)
        self.said: list[str] = []
        self.set_requests = SetRequests(self.store, self.said.append)
        self.sources = range(1, sources + 1)

    async def begin(self) -> None:
        records = [SourceRecord(each, Vote(1, "a", 1), ABC, (1, 2, 3)) for each in self.sources]
        await self.leaders.transact([], [PutKey(source_key(each.source), encode(each)) for each in records])
        await self.set_requests.look()

    async def seen(self) -> Roster:
        await trio.testing.wait_all_tasks_blocked()
        roster = Roster()
        roster.load(await self.leaders.range(PREFIX))
        return roster

    async def becomes(self, source: int, members: tuple[str, ...] = ABC, leader: str = "a") -> None:
        record = SourceRecord(source, Vote(1, leader, 1), members, tuple(range(len(members))))
        await self.leaders.transact([], [PutKey(source_key(source), encode(record))])

    async def waits(self, source: int, reason: str) -> None:
        desired_set = (await self.seen()).desired_sets[source]
        await self.leaders.transact(
            [], [PutKey(desired_set_key(source), encode(replace(desired_set, reason=reason)))]
        )

    async def ends(self, source: int) -> None:
        await self.leaders.transact([], [DeleteKey(desired_set_key(source))])


def run(scene: Scene, aims: dict[int, Aim], leaders: Callable[[], Awaitable[None]]) -> str:
    """The operator's desired set and what the leaders do, side by side; what the operator is refused with."""
    refused: list[str] = []

    async def operator() -> None:
        try:
            await scene.set_requests.carry_out(aims)
        except MoveImpossible as error:
            refused.append(str(error))

    async def main() -> None:
        await scene.begin()
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(operator)
                await trio.testing.wait_all_tasks_blocked()
                await leaders()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0.01))
    return "".join(refused)


def test_a_desired_set_is_followed_until_it_is_fulfilled() -> None:
    scene = Scene()

    async def leaders() -> None:
        assert (await scene.seen()).desired_sets[1].members == ABD
        await scene.waits(1, "d does not live")
        await scene.waits(1, "d does not live")
        await scene.becomes(1, ("a", "b", "c", "d"))
        await scene.becomes(1, ABD)
        await scene.seen()
        assert scene.said[-1] == "source 1: is on a, b, d now"
        await scene.ends(1)

    run(scene, {1: Aim(ABD, "a")}, leaders)
    assert scene.said == [
        "source 1: to be on a, b, d with leader a",
        "source 1: waits, d does not live",
        "source 1: is on a, b, c, d now",
        "source 1: is on a, b, d now",
        "source 1: done (1 of 1)",
    ]


def test_only_what_changes_is_desired() -> None:
    scene = Scene(2)

    async def leaders() -> None:
        desired_sets = (await scene.seen()).desired_sets
        assert (desired_sets[1].members, desired_sets[1].leader) == ((), "b")
        assert (desired_sets[2].members, desired_sets[2].leader) == (ABD, "")
        await scene.becomes(1, leader="b")
        await scene.becomes(2, ABD)
        await scene.ends(2)
        await scene.ends(1)

    run(scene, {1: Aim(ABC, "b"), 2: Aim(ABD, "a")}, leaders)


def test_only_a_few_desired_sets_are_open_at_a_time() -> None:
    scene = Scene(3 * AT_ONCE)
    most = 0

    async def leaders() -> None:
        nonlocal most
        while desired_sets := (await scene.seen()).desired_sets:
            most = max(most, len(desired_sets))
            source = min(desired_sets)
            await scene.becomes(source, ABD)
            await scene.ends(source)

    run(scene, dict.fromkeys(scene.sources, Aim(ABD, "a")), leaders)
    assert most == AT_ONCE
    assert scene.said[-1] == f"source {3 * AT_ONCE}: done ({3 * AT_ONCE} of {3 * AT_ONCE})"


@pytest.mark.parametrize("aim", [Aim(ABD, "a"), Aim(ABC, "b")])
def test_a_desired_set_that_was_taken_back_is_not_taken_for_done(aim: Aim) -> None:
    scene = Scene()

    async def leaders() -> None:
        await scene.ends(1)

    assert run(scene, {1: aim}, leaders) == "what was asked of source 1 was taken back meanwhile"


def test_what_was_desired_already_is_not_overwritten_unseen() -> None:
    scene = Scene()

    async def main() -> None:
        await scene.begin()
        other = DesiredSetRecord(1, (), "c")
        await scene.leaders.transact([], [PutKey(desired_set_key(1), encode(other))])
        with pytest.raises(MoveImpossible, match="somebody else has just asked for something of source 1"):
            await scene.set_requests.put(1, Aim(ABC, "b"))
        await scene.set_requests.look()
        assert await scene.set_requests.put(1, Aim(ABC, "b")) > 0
        assert (await scene.seen()).desired_sets[1].leader == "b"

    trio.run(main)


def test_back_to_what_it_is_takes_the_desired_set_back() -> None:
    scene = Scene()

    async def main() -> None:
        await scene.begin()
        await scene.set_requests.put(1, Aim(ABC, "b"))
        await scene.set_requests.look()
        assert await scene.set_requests.put(1, Aim(ABC, "a")) == 0
        assert (await scene.seen()).desired_sets == {}

    trio.run(main)


def test_a_desired_set_is_cancelled_once() -> None:
    scene = Scene()

    async def main() -> None:
        await scene.begin()
        await scene.set_requests.put(1, Aim(ABC, "b"))
        await scene.set_requests.look()
        assert await scene.set_requests.cancel(1)
        await scene.set_requests.look()
        assert not await scene.set_requests.cancel(1)

    trio.run(main)


def test_a_source_that_was_forced_by_another_one_is_looked_at_again() -> None:
    scene = Scene()

    async def main() -> None:
        await scene.begin()
        record = scene.set_requests.roster.records[1]
        await scene.becomes(1, ("a",))
        with pytest.raises(MoveImpossible, match="source 1 has changed meanwhile"):
            await scene.set_requests.force(replace(record, members=("b",), generations=(2,)))

    trio.run(main)


class Forgetful(Unsure):
    """Its first watch is of what is not kept any more."""

    asked = False

    def watch(self, after: int) -> EventWatch:
        if not self.asked:
            self.asked = True
            raise Compacted
        return super().watch(after)


def test_a_store_that_has_forgotten_the_changes_is_read_again() -> None:
    scene = Scene(store=Forgetful)

    async def leaders() -> None:
        await scene.becomes(1, ABD)
        await scene.ends(1)

    run(scene, {1: Aim(ABD, "a")}, leaders)
    assert scene.said[-1] == "source 1: done (1 of 1)"
