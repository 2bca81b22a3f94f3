"""What a member makes of a metadata store that does not answer: from when on it is silent, and how long in doubt."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from amqpd.cluster.directory import LEASE_S, RETRY_S
from tests.cluster.directories import Unsure, joined, member_record
from tests.topology.memory_store import MemorySpace

pytestmark = pytest.mark.trio


async def test_a_store_is_silent_when_the_lease_has_run_out_and_in_doubt_until_others_have_renewed_theirs(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    store = Unsure(MemorySpace())
    member = (await joined(nursery, store, member_record("a@x"))).directory
    await trio.sleep(LEASE_S)
    assert (member.silent_s, member.is_doubtful) == (0, False)
    store.away = True
    await trio.sleep(LEASE_S + RETRY_S)
    assert member.silent_s, "it is told of when the lease has run out"
    await trio.sleep(LEASE_S - RETRY_S)
    assert 2 * LEASE_S <= member.silent_s < 3 * LEASE_S, "from the last renewal on"
    assert member.is_doubtful
    store.away = False
    await trio.sleep(LEASE_S)
    assert (member.silent_s, member.is_doubtful) == (0, True), "others may not have renewed theirs yet"
    await trio.sleep(2 * LEASE_S)
    assert (member.silent_s, member.is_doubtful) == (0, False)


async def test_a_store_that_was_replaced_is_told_from_one_that_is_silent(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    store = Unsure(MemorySpace())
    member = (await joined(nursery, store, member_record("a@x"))).directory
    assert member.store_replaced == ""
    store.replaced = "it was emptied"
    await trio.sleep(LEASE_S)
    assert member.store_replaced == "it was emptied"
    store.replaced, store.away = "", True
    await trio.sleep(LEASE_S)
    assert member.store_replaced == ""
