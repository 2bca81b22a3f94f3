"""Which node claims which classic queue that no node leads, and when it looks for them."""

from __future__ import annotations

from collections import Counter

import pytest
import trio
import trio.testing

from amqpd.cluster.records import ForgottenRecord, KnownRecord
from amqpd.cluster.roster import Roster
from amqpd.cluster.unclaimed_queues import UnclaimedQueues, share_of
from amqpd.topology.metadata.store import MetadataEntry, StoreUnreached
from amqpd.vocabulary.identity import Identity
from amqpd.vocabulary.records import QueueRecord
from tests.cluster.directories import member_record
from tests.node.test_identity import space_with, started
from tests.topology.memory_store import MemoryStore

QUEUES = [QueueRecord("/", f"q{number}", number << 8) for number in range(1, 101)]
NAMES = "a@x", "b@x", "c@x"


def roster_of(members: tuple[str, ...], known: tuple[str, ...] = NAMES, forgotten: tuple[str, ...] = ()) -> Roster:
    roster = Roster()
    roster.members = {name: member_record(name) for name in members}
    roster.known = {name: KnownRecord(name, 1, 1) for name in known}
    roster.forgotten = {name: ForgottenRecord(name, (1,)) for name in forgotten}
    return roster


def shares(roster: Roster, of: str) -> dict[str, list[QueueRecord]]:
    """By node, of queues that name the node `of`."""
    return {name: share_of(name, roster, lambda node: QUEUES if node == of else []) for name in NAMES}


def test_when_all_have_been_started_each_claims_its_share_and_no_two_the_same() -> None:
    found = shares(roster_of(NAMES), "")
    assert sorted(record.id for share in found.values() for record in share) == [each.id for each in QUEUES]
    assert all(20 < count < 50 for count in Counter({name: len(share) for name, share in found.items()}).values())


def test_while_a_known_node_has_not_started_it_may_have_their_messages() -> None:
    assert shares(roster_of(("a@x", "b@x")), "") == {name: [] for name in NAMES}
    forgotten = shares(roster_of(("a@x", "b@x"), ("a@x", "b@x"), ("c@x",)), "")
    assert sum(map(len, forgotten.values())) == len(QUEUES)


@pytest.mark.parametrize("members", [("a@x", "b@x"), ("b@x",)], ids=["all", "another_one_away"])
def test_the_queues_of_a_forgotten_node_are_claimed_by_those_that_live(members: tuple[str, ...]) -> None:
    found = shares(roster_of(members, ("a@x", "b@x"), ("c@x",)), "c@x")
    assert [name for name, share in found.items() if share] == list(members)
    assert sum(map(len, found.values())) == len(QUEUES)


def test_a_new_machine_of_a_forgotten_name_has_the_queues_of_that_name() -> None:
    assert shares(roster_of(NAMES, NAMES, ("c@x",)), "c@x") == {name: [] for name in NAMES}


class Silent(MemoryStore):
    """Does not answer the first time."""

    silent = True

    async def get(self, key: str) -> MetadataEntry | None:
        if self.silent:
            self.silent = False
            raise StoreUnreached("no answer")
        return await super().get(key)


@pytest.mark.trio
async def test_they_are_looked_for_when_there_is_news_and_again_after_a_store_that_did_not_answer() -> None:
    space = await space_with(QUEUES[0])
    roster, unclaimed, store = roster_of(("a@x",), ("a@x",)), UnclaimedQueues(), Silent(space)
    assert not unclaimed.begins()
    async with trio.open_nursery() as nursery:
        stored = await started(space, Identity("a@x", "11" * 16), nursery)
        assert stored.cluster.with_queues == [""]
        unclaimed.look()
        assert unclaimed.begins()
        await unclaimed.claim_share(stored.node, store, roster)
        assert unclaimed.begins(), "the store did not answer"
        assert ("/", "q1") not in stored.node.queues
        await unclaimed.claim_share(stored.node, store, roster)
        assert not unclaimed.begins()
        await trio.testing.wait_all_tasks_blocked()
        assert stored.node.queues["/", "q1"].record.node == "a@x"
        nursery.cancel_scope.cancel()
