"""The last of what goes by."""

from __future__ import annotations

from threading import Thread

from hypothesis import given
from hypothesis import strategies as st

from amqpd.management.figures.recent import Recent


def kept(recent: Recent[str], after: int = 0) -> str:
    return "".join(thing for _, thing in recent.after(after))


def test_who_asks_again_is_told_what_came_since() -> None:
    recent: Recent[str] = Recent(10, 1000)
    assert recent.after(0) == []
    for letter in "abc":
        recent.add(letter, 1)
    assert recent.after(0) == [(1, "a"), (2, "b"), (3, "c")]
    assert recent.after(2) == [(3, "c")]
    assert recent.after(3) == []
    assert recent.last == 3


def test_the_oldest_go() -> None:
    recent: Recent[str] = Recent(3, 1000)
    for letter in "abcde":
        recent.add(letter, 1)
    assert recent.after(0) == recent.after(1) == [(3, "c"), (4, "d"), (5, "e")]
    assert recent.after(4) == [(5, "e")]


def test_the_size_of_all_has_a_bound_and_the_last_one_is_kept() -> None:
    recent: Recent[str] = Recent(10, 5)
    for letter in "abc":
        recent.add(letter, 2)
    assert kept(recent) == "bc"
    recent.add("d", 100)
    assert kept(recent) == "d"
    recent.add("e", 1)
    assert kept(recent) == "e"


def test_a_number_of_the_future_is_of_an_earlier_run() -> None:
    recent: Recent[str] = Recent(10, 100)
    recent.add("a", 1)
    assert recent.after(17) == [(1, "a")]


@given(st.integers(1, 5), st.lists(st.integers(0, 4), max_size=20), st.integers(0, 25))
def test_it_is_the_end_of_all_that_came(count_max: int, sizes: list[int], after: int) -> None:
    recent: Recent[int] = Recent(count_max, 6)
    for at, size in enumerate(sizes, 1):
        recent.add(at, size)
    found = [thing for _, thing in recent.after(0)]
    assert found == list(range(len(sizes) - len(found) + 1, len(sizes) + 1))
    assert len(found) <= count_max
    # As many as fit.
    more = sizes[-len(found) - 1 :] if len(found) < len(sizes) else []
    assert not more or len(more) > count_max or sum(more) > 6
    assert recent.after(0) == [(each, each) for each in found]
    wanted = [each for each in found if each > after] if after <= len(sizes) else found
    assert [thing for _, thing in recent.after(after)] == wanted


def test_lines_of_several_threads() -> None:
    recent: Recent[str] = Recent(100_000, 1 << 30)
    threads = [Thread(target=lambda: [recent.add("x", 1) for _ in range(2000)]) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [number for number, _ in recent.after(0)] == list(range(1, 8001))
