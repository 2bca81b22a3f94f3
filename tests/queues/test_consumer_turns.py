"""Consumers of a queue, in turn: the structure that is used against one in lists, which visits everybody."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from amqpd.queues.consumer import Subscriber
from amqpd.queues.turns import ConsumerTurns


class Eater(Subscriber):
    """A subscriber with so much credit."""

    def __init__(self, number: int, priority: int, credit: int = 1) -> None:
        self.number = number
        self.priority = priority
        self.no_ack = self.exclusive = False
        self.left = credit
        self.unacked = 0
        self.parked = False
        self.asked = 0

    def __repr__(self) -> str:
        return f"{self.number}@{self.priority}"

    def credit(self) -> int:
        self.asked += 1
        return self.left

    def wait_for_credit(self) -> None:
        assert self.left <= 0

    def deliver(self, *args: Any) -> None: ...

    def pass_on(self, *args: Any) -> int:
        return 0

    def record(self, *args: Any) -> None: ...

    def cancelled(self) -> None: ...


class Lists:
    """What `ConsumerTurns` promises, in lists: who is found without credit waits aside, and comes back at the end."""

    def __init__(self) -> None:
        self.rotation: list[Eater] = []
        self.aside: list[Eater] = []

    def serve(self) -> Eater | None:
        for eater in sorted(self.rotation, key=lambda each: -each.priority):
            self.rotation.remove(eater)
            if eater.left > 0:
                self.rotation.append(eater)
                return eater
            self.aside.append(eater)
        return None

    def restore(self, eater: Eater) -> None:
        if eater in self.aside:
            self.aside.remove(eater)
            self.rotation.append(eater)


class Before:
    """As it was until consumers were parked: who has no credit is visited, and goes to the end, each time."""

    def __init__(self) -> None:
        self.here: list[Eater] = []

    def serve(self) -> Eater | None:
        for priority in sorted({each.priority for each in self.here}, reverse=True):
            for eater in [each for each in self.here if each.priority == priority]:
                self.here.remove(eater)
                self.here.append(eater)
                if eater.left > 0:
                    return eater
        return None


def serve(turns: ConsumerTurns) -> Eater | None:
    """One message, as `Queue` does it."""
    while (group := turns.next_group) is not None:
        eater = next(iter(group.rotation))
        assert isinstance(eater, Eater)
        if eater.credit() > 0:
            group.rotation.move_to_end(eater)
            return eater
        turns.park(group, eater)
    return None


kinds = st.sampled_from(["add", "add", "remove", "serve", "serve", "serve", "take", "give", "sum"])


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(kinds, st.integers(0, 7), st.integers(0, 3)), max_size=60))
def test_consumers_take_turns_as_in_lists(steps: list[tuple[str, int, int]]) -> None:
    turns, lists = ConsumerTurns(), Lists()
    here: list[Eater] = []
    for number, (step, at, value) in enumerate(steps):
        eater = here[at % len(here)] if here else None
        if step == "add":
            here.append(Eater(number, value - 1, at % 3))
            turns.add(here[-1])
            lists.rotation.append(here[-1])
        elif step == "serve":
            served = serve(turns)
            assert served is lists.serve()
            if served is not None:
                served.left -= 1
        elif step == "sum":
            # What publishers of a full queue ask: it parks who has nothing, in the order of the rotation.
            have = [each.left for each in lists.rotation if each.left > 0]
            assert turns.credit(1 << 30) == sum(have)
            lists.aside += [each for each in lists.rotation if each.left <= 0]
            lists.rotation = [each for each in lists.rotation if each.left > 0]
        elif eater is None:
            continue
        elif step == "remove":
            here.remove(eater)
            assert turns.remove(eater)
            assert not turns.remove(eater)
            for place in (lists.rotation, lists.aside):
                if eater in place:
                    place.remove(eater)
        elif step == "take":
            eater.left = 0
        else:
            eater.left = value + 1
            if eater.parked:
                turns.restore(eater)
                lists.restore(eater)
        assert {each.number for each in here if each.parked} == {each.number for each in lists.aside}
        assert len(turns) == len(here)
        assert {id(each) for each in turns} == {id(each) for each in here}
        assert [each.priority for each in turns] == sorted((each.priority for each in here), reverse=True)
        assert turns.sole is (here[0] if len(here) == 1 else None)
        assert (turns.next_group is None) == (not lists.rotation)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4)), max_size=8), st.integers(0, 40))
def test_the_order_is_as_before_while_nobody_gets_credit_back(eaters: list[tuple[int, int]], messages: int) -> None:
    turns, before = ConsumerTurns(), Before()
    for number, (priority, credit) in enumerate(eaters):
        turns.add(Eater(number, priority, credit))
        before.here.append(Eater(number, priority, credit))
    for _ in range(messages):
        one, other = serve(turns), before.serve()
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert one.number == other.number
            one.left -= 1
            other.left -= 1


def test_a_consumer_without_credit_is_asked_once() -> None:
    turns = ConsumerTurns()
    eaters = [Eater(number, 0, 0) for number in range(1000)]
    for eater in eaters:
        turns.add(eater)
    for _ in range(10):
        assert serve(turns) is None
        assert turns.credit(1) == 0
    assert {eater.asked for eater in eaters} == {1}


@settings(max_examples=300, deadline=None)
@given(
    st.booleans(),
    st.lists(
        st.tuples(st.sampled_from(["add", "add", "remove", "busy", "idle", "park", "restore"]), st.integers(0, 5)),
        max_size=30,
    ),
)
def test_one_of_them_is_active(gives_way: bool, steps: list[tuple[str, int]]) -> None:
    turns = ConsumerTurns(True, gives_way)
    here: list[Eater] = []
    for number, (step, value) in enumerate(steps):
        eater = here[value % len(here)] if here else None
        if step == "add":
            here.append(Eater(number, value % 3))
            turns.add(here[-1])
        elif eater is None:
            continue
        elif step == "remove":
            here.remove(eater)
            assert turns.remove(eater)
            assert not turns.remove(eater)
        elif step == "park":
            group = turns.next_group
            if group is not None and turns.active is not None:
                turns.active.left = 0  # type: ignore[attr-defined]
                turns.park(group, turns.active)
        elif step == "restore":
            if eater.parked:
                eater.left = 1
                turns.restore(eater)
        else:
            eater.unacked = int(step == "busy")
        before = turns.active
        turns.hand_over()
        assert len(turns) == len(here)
        assert [each.priority for each in turns] == sorted((each.priority for each in here), reverse=True)
        best = max((each.priority for each in here), default=0)
        first = next((each for each in here if each.priority == best), None)
        assert (turns.active is not None) == bool(here)
        group = turns.next_group
        served = list(group.rotation) if group is not None else []
        assert served == [turns.active] or not served
        active = turns.active
        if active is None:
            continue
        if not gives_way:
            assert active is before
            assert bool(served) == (not active.parked)
        else:
            waits = active.priority < best
            assert not (waits and not active.unacked), "who has nothing hands over"
            assert turns.served != waits
            assert bool(served) == (not waits and not active.parked)
            if active is not before:
                assert active is first
