"""Numbers of delayed messages: one for each node and virtual host, found again without being stored."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from amqpd.vocabulary.journal_numbers import delayed_id, delayed_numbers, dropped_on, tombstones_of, vhost_number

NODES = ("0" * 32, "1" * 32, "a7" * 16)
VHOSTS = ("/", "v", "", "ü / x", "\udcff")


def test_each_node_and_virtual_host_has_its_own() -> None:
    numbers = {delayed_id(node, vhost) for node, vhost in product(NODES, VHOSTS)}
    assert len(numbers | {vhost_number(vhost) for vhost in VHOSTS}) == len(VHOSTS) * (len(NODES) + 1)
    assert all(0 <= number < 1 << 63 for number in numbers)


def test_the_numbers_never_change() -> None:
    """They are in journals and in lists of deletions."""
    assert vhost_number("/") == 1352951164783606537
    assert delayed_numbers("0" * 32, "/") == (4234416961130668456, 1352951164783606537)


@given(st.text(max_size=5), st.sets(st.integers(0, (1 << 63) - 1), max_size=5))
def test_a_deleted_virtual_host_is_recognised_on_each_node_and_as_it_was_before(vhost: str, others: set[int]) -> None:
    dropped = frozenset({vhost_number(vhost)})
    for node in NODES:
        numbers = {*delayed_numbers(node, vhost), *others}
        assert dropped_on(node, dropped, numbers) == set(delayed_numbers(node, vhost))
        assert dropped_on(node, [*dropped], numbers) == set(delayed_numbers(node, vhost))
        assert vhost_number(vhost) in tombstones_of(node, [delayed_id(node, vhost)])


def test_a_deletion_here_says_nothing_of_another_nodes_number() -> None:
    here, there = NODES[:2]
    assert delayed_id(there, "v") not in dropped_on(here, {vhost_number("v")}, [delayed_id(there, "v")])
