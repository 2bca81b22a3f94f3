"""Consistent hashing: a member that comes or goes moves only what must move, whatever the order; shares follow the
weights."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from amqpd.exchanges.hash_slots import GONE_MAX, SLOTS, HashSlots, digest

KEYS = range(0, SLOTS, 331)

members = st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.integers(1, 20), min_size=1, max_size=8)


def slots_of(weights: dict[str, int]) -> HashSlots[str]:
    slots: HashSlots[str] = HashSlots(str.encode)
    for name, weight in weights.items():
        slots.set(name, weight)
    return slots


def winners(slots: HashSlots[str]) -> dict[int, str | None]:
    return {key: slots.pick(key) for key in KEYS}


@given(members)
def test_equal_members_give_equal_answers_in_whatever_order_they_came(weights: dict[str, int]) -> None:
    assert winners(slots_of(weights)) == winners(slots_of(dict(reversed(weights.items()))))


@given(members, st.text("xyz", min_size=1), st.integers(1, 20))
def test_one_that_comes_takes_from_others_and_moves_nothing_else(
    weights: dict[str, int], name: str, weight: int
) -> None:
    slots = slots_of(weights)
    before = winners(slots)
    slots.set(name, weight)
    assert all(after in (before[key], name) for key, after in winners(slots).items())


@given(members, st.data())
def test_one_that_goes_leaves_its_own_and_moves_nothing_else(weights: dict[str, int], data: st.DataObject) -> None:
    slots = slots_of(weights)
    before = winners(slots)
    gone = data.draw(st.sampled_from(sorted(weights)))
    slots.set(gone, 0)
    after = winners(slots)
    assert all(after[key] == before[key] for key in KEYS if before[key] != gone)
    assert gone not in after.values()
    slots.set(gone, weights[gone])
    assert winners(slots) == before


@given(members, st.data())
def test_a_larger_weight_only_gains(weights: dict[str, int], data: st.DataObject) -> None:
    slots = slots_of(weights)
    before = winners(slots)
    name = data.draw(st.sampled_from(sorted(weights)))
    slots.set(name, weights[name] + 5)
    assert all(after in (before[key], name) for key, after in winners(slots).items())
    assert all(slots.pick(key) == name for key in KEYS if before[key] == name)


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 3), st.lists(st.sampled_from(KEYS), max_size=4)),
        max_size=4 * GONE_MAX,
    )
)
def test_after_any_history_the_answers_are_those_of_the_members_alone(
    history: list[tuple[str, int, list[int]]],
) -> None:
    slots: HashSlots[str] = HashSlots(str.encode)
    weights: dict[str, int] = {}
    for name, weight, keys in history:
        slots.set(name, weight)
        weights.pop(name, None)
        if weight:
            weights[name] = weight
        for key in keys:
            slots.pick(key)
    assert winners(slots) == winners(slots_of(weights))


def test_many_changes_do_not_pile_up() -> None:
    slots = slots_of({"stays": 3})
    before = winners(slots)
    for i in range(10 * GONE_MAX):
        slots.set(f"visitor {i}", 1)
        slots.pick(i)
        slots.set(f"visitor {i}", 0)
    assert len(slots._race) <= 2 * GONE_MAX
    assert winners(slots) == before


def test_shares_follow_the_weights() -> None:
    weights = {"one": 1, "two": 2, "three": 3, "ten": 10}
    slots = slots_of(weights)
    counts = dict.fromkeys(weights, 0)
    for i in range(20_000):
        winner = slots.pick(digest(f"order-{i}".encode()))
        assert winner is not None
        counts[winner] += 1
    for name, weight in weights.items():
        expected = 20_000 * weight / 16
        assert abs(counts[name] - expected) < 0.1 * expected


def test_without_members_there_is_no_answer() -> None:
    slots: HashSlots[str] = HashSlots(str.encode)
    assert slots.pick(1) is None
    slots.set("a", 1)
    assert slots.pick(1) == "a"
    slots.set("a", 0)
    assert slots.pick(1) is None
