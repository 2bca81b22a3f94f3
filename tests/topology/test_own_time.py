"""Waiting for a store counts the time in which the process ran: one that was stopped asks once more."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from amqpd.topology.metadata.etcd.patience import WAIT_S, EtcdPatience
from amqpd.topology.metadata.own_time import PIECE_S, OwnTime, RanOut
from amqpd.topology.metadata.store import StoreUnavailable

pytestmark = pytest.mark.trio


def patience(wait_s: float = WAIT_S) -> EtcdPatience:
    return EtcdPatience(wait_s, lambda: StoreUnavailable("etcd1:2379: no answer yet"))


@pytest.mark.parametrize("stopped_s", [WAIT_S - 0.1, WAIT_S, 10 * WAIT_S])
async def test_an_answer_that_came_while_the_process_was_stopped_is_taken(
    autojump_clock: trio.testing.MockClock, stopped_s: float
) -> None:
    async def attempt() -> str:
        autojump_clock.jump(stopped_s)
        await trio.sleep(0.2)
        return "an answer"

    assert await patience().keep_trying(attempt) == "an answer"


async def test_what_gave_up_because_the_process_was_stopped_is_asked_once_more(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The HTTP client has its own time-outs, which count all time."""
    asked = 0

    async def attempt() -> str:
        nonlocal asked
        asked += 1
        if asked == 1:
            autojump_clock.jump(3 * WAIT_S)
            raise StoreUnavailable("no answer in 8 s")
        return "an answer"

    assert await patience().keep_trying(attempt) == "an answer"


async def test_it_may_be_stopped_again_and_again(autojump_clock: trio.testing.MockClock) -> None:
    async def attempt() -> str:
        for _ in range(5):
            autojump_clock.jump(WAIT_S)
            await trio.sleep(PIECE_S / 2)
        return "an answer"

    assert await patience().keep_trying(attempt) == "an answer"


async def test_a_store_that_is_silent_is_given_up_in_time_with_who_was_asked(
    autojump_clock: trio.testing.MockClock,
) -> None:
    begun_at = trio.current_time()
    with pytest.raises(StoreUnavailable, match="etcd1:2379: no answer yet"):
        await patience().keep_trying(trio.sleep_forever)
    assert WAIT_S <= trio.current_time() - begun_at < WAIT_S + PIECE_S


async def test_what_comes_instead_of_an_answer_is_tried_again_until_then(
    autojump_clock: trio.testing.MockClock,
) -> None:
    begun_at, asked = trio.current_time(), 0

    async def attempt() -> None:
        nonlocal asked
        asked += 1
        raise StoreUnavailable(f"refused {asked}")

    with pytest.raises(StoreUnavailable, match=r"refused \d+"):
        await patience().keep_trying(attempt)
    assert asked > WAIT_S
    assert WAIT_S - PIECE_S <= trio.current_time() - begun_at < WAIT_S + PIECE_S


async def test_what_is_waited_for_raises_as_it_is(autojump_clock: trio.testing.MockClock) -> None:
    async def attempt() -> None:
        raise ValueError("too large")

    with pytest.raises(ValueError, match="too large"):
        await OwnTime(1).within(attempt)
    with pytest.raises(RanOut):
        await OwnTime(1).within(trio.sleep_forever)


async def test_a_cancellation_from_outside_is_no_silence(autojump_clock: trio.testing.MockClock) -> None:
    with trio.move_on_after(1) as scope:
        await OwnTime(60).within(trio.sleep_forever)
    assert scope.cancelled_caught
