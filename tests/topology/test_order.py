"""Whose binding or removal has its turn, when many wait."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from amqpd.topology import plans
from amqpd.topology.order import BINDINGS_MAX, CHANGES_MAX, ChangeOrder, OrderedRequest, Resume
from amqpd.topology.state import Topology
from amqpd.vocabulary.records import BindingRecord, Change, Delete, ExchangeRecord, Key, Put, QueueRecord


class World:
    """A topology whose changes take effect when `commit` is called. Owners are only compared: numbers will do."""

    def __init__(self) -> None:
        self.topology = Topology()
        self.topology.apply(plans.create_vhost("/"))
        self.queue = QueueRecord("/", "q", 1)
        self.topology.apply([Put(self.queue), Put(ExchangeRecord("/", "x", "direct"))])
        self.submitted: list[tuple[Sequence[Change], Resume]] = []
        self.bugs: list[Exception] = []
        self.order = ChangeOrder(self.topology, self.submit, self.bugs.append)
        self.done: list[str] = []
        self.largest = 0
        """changes in one transaction"""

    def submit(
        self, changes: Sequence[Change], resume: Resume, _: Iterable[Key], requests: Sequence[OrderedRequest]
    ) -> None:
        assert requests
        if any(isinstance(change, Delete) for change in changes):
            assert not self.submitted, "a removal beside others"
        self.largest = max(self.largest, len(changes))
        self.submitted.append((changes, resume))

    def commit(self) -> None:
        """Everything that was submitted until now."""
        submitted, self.submitted = self.submitted, []
        for changes, _ in submitted:
            self.topology.apply(changes)
        for _, resume in submitted:
            resume(True)

    def bind(self, key: str, owner: Any) -> None:
        self.order.bind(BindingRecord("/", "x", "q", "queue", key), lambda _: self.done.append(key), owner)

    def unbind(self, key: str, owner: Any) -> None:
        record = BindingRecord("/", "x", "q", "queue", key)
        self.order.remove(record, lambda _: self.done.append("-" + key), owner=owner)

    def commits_until(self, done: str) -> int:
        for commits in range(10_000):
            if done in self.done:
                return commits
            self.commit()
        raise AssertionError(f"{done} never comes")


def flooded(world: World) -> None:
    """Six clients that bind and unbind by turns on two thousand channels each."""
    for owner in range(6):
        for number in range(1_000):
            world.bind(f"{owner}.{number}", owner)
            world.unbind(f"{owner}.{number}", owner)


def test_who_has_thousands_waiting_delays_another_binding_by_four_commits() -> None:
    world = World()
    flooded(world)
    world.bind("mine", 7)
    assert world.commits_until("mine") <= 4


def test_who_has_thousands_waiting_delays_another_removal_by_four_commits() -> None:
    world = World()
    flooded(world)
    world.order.remove(world.queue, lambda _: world.done.append("gone"), owner=7)
    assert world.commits_until("gone") <= 4
    assert "q" not in world.topology.vhosts["/"].queues


def test_bindings_that_come_again_and_again_do_not_keep_a_removal_waiting() -> None:
    world = World()
    for number in range(3 * BINDINGS_MAX):
        world.bind(str(number), 1)
    assert len(world.submitted) == BINDINGS_MAX
    world.unbind("0", 2)
    for number in range(4):
        world.commit()
        world.bind(f"more {number}", 3)
    assert "-0" in world.done


def test_of_one_connection_they_stay_in_their_order_and_all_are_done() -> None:
    world = World()
    flooded(world)
    while world.submitted:
        world.commit()
    for owner in range(6):
        mine = [each for each in world.done if each.lstrip("-").startswith(f"{owner}.")]
        assert mine == [sign + f"{owner}.{number}" for number in range(1_000) for sign in ("", "-")]
    assert not world.bugs
    assert not world.topology.vhosts["/"].bindings_from("x")


def test_removals_of_one_connection_are_one_commit() -> None:
    world = World()
    for number in range(100):
        world.bind(str(number), 1)
    world.commit()
    for number in range(100):
        world.unbind(str(number), 1)
    # The first one goes at once, and the others when it is done.
    assert world.commits_until("-99") == 2


def test_what_has_very_many_bindings_goes_in_several_commits_and_with_the_last() -> None:
    world = World()
    keys = [str(number) for number in range(5 * CHANGES_MAX)]
    world.topology.apply([Put(BindingRecord("/", "x", "q", "queue", key)) for key in keys])
    world.order.remove(world.queue, lambda _: world.done.append("gone"))
    for left in range(4, -1, -1):
        assert "q" in world.topology.vhosts["/"].queues
        world.commit()
        assert len(world.topology.vhosts["/"].bindings_from("x")) == left * CHANGES_MAX
    world.commit()
    assert world.done == ["gone"]
    assert "q" not in world.topology.vhosts["/"].queues
    assert world.largest == CHANGES_MAX


def test_an_exchange_that_goes_with_its_last_binding_loses_those_to_it_first() -> None:
    world = World()
    world.topology.apply([Put(ExchangeRecord("/", "auto", "fanout", auto_delete=True))])
    keys = [str(number) for number in range(2 * CHANGES_MAX)]
    world.topology.apply([Put(BindingRecord("/", "x", "auto", "exchange", key)) for key in keys])
    last = BindingRecord("/", "auto", "q", "queue", "")
    world.topology.apply([Put(last)])
    world.order.remove(last, lambda _: world.done.append("gone"))
    world.commit()
    assert "auto" in world.topology.vhosts["/"].exchanges
    assert world.commits_until("gone") == 2
    assert "auto" not in world.topology.vhosts["/"].exchanges
    assert not list(world.topology.vhosts["/"].bindings())
    assert world.largest == CHANGES_MAX


def test_a_condition_counts_once_when_its_turn_comes() -> None:
    """What was bound is being let go; a message that comes meanwhile does not keep the queue."""
    world = World()
    keys = [str(number) for number in range(2 * CHANGES_MAX)]
    world.topology.apply([Put(BindingRecord("/", "x", "q", "queue", key)) for key in keys])
    asked: list[bool] = []

    def empty() -> bool:
        asked.append(True)
        return len(asked) == 1

    world.order.remove(world.queue, lambda gone: world.done.append(str(gone)), empty)
    assert world.commits_until("True") == 3
    assert asked == [True]


def test_a_queue_that_has_another_ones_name_keeps_its_bindings() -> None:
    world = World()
    keys = [str(number) for number in range(2 * CHANGES_MAX)]
    world.topology.apply([Put(BindingRecord("/", "x", "q", "queue", key)) for key in keys])
    world.order.remove(QueueRecord("/", "q", 2), lambda _: world.done.append("gone"))
    assert world.done == ["gone"]
    assert not world.submitted
