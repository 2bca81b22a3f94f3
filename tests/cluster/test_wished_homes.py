"""A wished home that could not take over: when it is asked again."""

from __future__ import annotations

from amqpd.cluster.records import WishRecord
from amqpd.cluster.wished_homes import AGAIN_S, AGAIN_S_MAX, WishedHomes
from amqpd.replication.seal import NONE, Seal

WISH = WishRecord(5, home="c")
HANDED_OVER = Seal(3, "", 0)


def test_the_time_doubles_up_to_a_bound() -> None:
    homes, now_s, waited = WishedHomes("a"), 0.0, list[float]()
    for _ in range(8):
        homes.took_over(WISH, HANDED_OVER, now_s)
        after_s = AGAIN_S
        while homes.waits(WISH, now_s + after_s):
            after_s *= 2
        assert homes.waits(WISH, now_s + after_s - 0.1) != ""
        waited.append(after_s)
        now_s += after_s
    assert waited == [30, 60, 120, 240, 480, 960, AGAIN_S_MAX, AGAIN_S_MAX]


def test_what_is_no_failure_of_the_wished_home_lets_nobody_wait() -> None:
    homes = WishedHomes("a")
    for before in (NONE, Seal(3, "b", 1), Seal(3, "a", 1)):
        homes.took_over(WISH, before, 0)
    homes.took_over(WishRecord(5, ("a", "b")), HANDED_OVER, 0)
    homes.took_over(WishRecord(5, home="a"), HANDED_OVER, 0)
    assert homes.waits(WISH, 1) == homes.waits(WishRecord(5, ("a", "b")), 1) == ""


def test_a_wished_home_that_had_it_and_lost_it_is_asked_later() -> None:
    homes = WishedHomes("a")
    homes.took_over(WISH, Seal(3, "c", 1), 0)
    assert "c could not" in homes.waits(WISH, 1)


def test_whoever_was_to_have_it_when_this_one_is_to_leave_is_asked_later() -> None:
    homes, wish = WishedHomes("a"), WishRecord(5, ("b", "c"))
    homes.took_over(wish, HANDED_OVER, 0)
    assert "no other member could" in homes.waits(wish, 1)


def test_it_is_forgotten_with_the_wish_and_when_the_home_comes_here() -> None:
    homes = WishedHomes("a")
    homes.took_over(WISH, HANDED_OVER, 0)
    homes.wishes_are({5: WISH})
    assert homes.waits(WISH, 1) != ""
    assert homes.waits(WishRecord(5, home="b"), 1) == ""
    homes.wishes_are({5: WishRecord(5, home="b")})
    assert homes.waits(WISH, 1) == ""
    homes.took_over(WISH, HANDED_OVER, 0)
    homes.took_over(WishRecord(5, home="a"), HANDED_OVER, 0)
    assert homes.waits(WISH, 1) == ""
