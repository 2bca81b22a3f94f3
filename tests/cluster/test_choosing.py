"""Which source a new queue gets, and who keeps a new source: bounds, failure domains, the same on every node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqpd.cluster.choosing import Choices, Heard, new_set
from amqpd.cluster.linkage import linkage_of
from amqpd.cluster.placement import SLACK
from amqpd.cluster.records import SOURCES, KnownRecord, LinksRecord, MemberRecord, MissingLink
from amqpd.node.cluster import HERE, LOCAL, WantedSource
from amqpd.peers.entry import Vote
from amqpd.peers.links.troubles import SECRET
from amqpd.replication.take_over import SourceRecord
from tests.cluster.directories import member_record

NAMES = "abcdefgh"


def heard(
    living: str, known: str | None = None, me: str = "a", members: Mapping[str, MemberRecord] | None = None
) -> Heard:
    """`members`: those of the living that are something else than a name."""
    known = living if known is None else known
    return Heard(
        me,
        {name: (members or {}).get(name, member_record(name)) for name in living},
        {name: KnownRecord(name, 1, ord(name)) for name in known},
        {},
    )


def source(number: int, leader: str, members: str) -> SourceRecord:
    return SourceRecord(number, Vote(1, leader, 1), tuple(members), tuple(map(ord, members)))


def among(cluster: Heard, *records: SourceRecord) -> Heard:
    return replace(cluster, records={record.source: record for record in records})


def choose(
    wanted: WantedSource, cluster: Heard, queues: Mapping[int, int], served: Collection[int], copies: int
) -> tuple[int, str]:
    return Choices(cluster, queues, served, copies).choose(wanted)


def leader_for(wanted: WantedSource, cluster: Heard, queues: Mapping[int, int]) -> str:
    return Choices(cluster, queues, (), 0).leader_for(wanted)


# A queue's source


def test_a_queue_is_in_the_source_here_with_the_fewest_queues() -> None:
    cluster = among(heard("abc"), source(1, "a", "abc"), source(2, "a", "abc"), source(3, "b", "abc"))
    assert choose(HERE, cluster, {1: 5, 2: 4}, [1, 2], 3) == (2, "a")
    assert choose(HERE, cluster, {}, [], 3) == (LOCAL, "a")
    # The record says so already, and it is not served yet.
    assert choose(HERE, cluster, {}, [1], 3) == (1, "a")


def test_a_source_with_fewer_copies_than_there_may_be_gets_no_new_queues() -> None:
    cluster = among(heard("abc"), source(1, "a", "a"), source(2, "a", "abc"))
    assert choose(HERE, cluster, {2: 9}, [1], 3) == (LOCAL, "a")
    assert choose(HERE, cluster, {2: 9}, [1, 2], 3) == (2, "a")


def test_more_copies_than_the_cluster_has_are_for_those_who_ask() -> None:
    cluster = among(heard("abcde"), source(1, "a", "abcde"), source(2, "a", "abc"))
    assert choose(HERE, cluster, {2: 9}, [1, 2], 3) == (2, "a")
    assert choose(HERE, cluster, {}, [1], 3) == (1, "a")  # better than none
    assert choose(WantedSource(copies=5), cluster, {}, [1, 2], 3) == (1, "a")
    assert choose(WantedSource(copies=1), cluster, {}, [1, 2], 3) == (LOCAL, "a")


@pytest.mark.parametrize(
    ("asked", "nodes", "copies"),
    [(1, 5, 1), (2, 5, 3), (3, 5, 3), (4, 5, 5), (4, 4, 4), (9, 5, 5), (0, 5, 3), (0, 2, 2)],
)
def test_an_even_number_of_copies_is_one_more_and_never_more_than_there_are_nodes(
    asked: int, nodes: int, copies: int
) -> None:
    assert heard(NAMES[:nodes]).copies_of(WantedSource(copies=asked), 3) == copies


@given(st.lists(st.text(min_size=1), unique=True, max_size=60), st.integers(1, 8), st.integers(0, 7))
def test_balanced_queues_are_bounded_at_each_node_and_at_the_same_for_everybody(
    names: list[str], nodes: int, asked: int
) -> None:
    living = NAMES[:nodes]
    records = [source(at + 1, name, name) for at, name in enumerate(living)]
    queues: Counter[int] = Counter()
    for count, name in enumerate(names, 1):
        wanted = WantedSource(balanced=f"//{name}")
        leaders = {leader_for(wanted, among(heard(living, me=me), *records), queues) for me in living}
        [leader] = leaders
        queues[living.index(leader) + 1] += 1
        assert max(queues.values()) <= ceil((1 + SLACK) * Fraction(count, nodes))


def test_a_balanced_queue_goes_to_a_source_of_its_leader() -> None:
    cluster = among(heard("abc"), source(1, "a", "abc"), source(2, "b", "abc"), source(3, "c", "abc"))
    leaders = {choose(WantedSource(balanced=f"//{at}"), cluster, {}, [1], 3) for at in range(20)}
    assert leaders == {(1, "a"), (2, "b"), (3, "c")}


def test_a_node_that_is_away_gets_no_balanced_queues() -> None:
    cluster = among(heard("ab", "abc"), source(1, "a", "abc"), source(2, "b", "abc"), source(3, "c", "abc"))
    assert {choose(WantedSource(balanced=f"//{at}"), cluster, {}, [1], 3)[1] for at in range(20)} == {"a", "b"}


# A new set


@pytest.mark.parametrize(
    ("living", "known", "members"),
    [
        ("a", "a", ("a",)),
        ("ab", "abc", ("a", "b", "c")),
        ("abc", "abc", ("a", "b", "c")),
        ("abc", "abcd", ("a", "b", "c")),
        ("a", "abc", ()),
    ],
)
def test_a_set_counts_on_those_that_are_away_for_some_time(living: str, known: str, members: tuple[str, ...]) -> None:
    assert new_set(1, "a", heard(living, known), min(3, len(known))) == members


def test_a_set_is_of_nodes_that_do_not_fail_together() -> None:
    racks = {"a": "one", "b": "one", "c": "two", "d": "three"}
    cluster = heard(
        "abcd", members={name: replace(member_record(name), cluster=rack) for name, rack in racks.items()}
    )
    assert {new_set(at, "a", cluster, 3) for at in range(1, 20)} == {("a", "c", "d")}


def test_a_set_is_in_several_regions_where_racks_leave_the_choice() -> None:
    places = {"a": ("1", "eu"), "b": ("2", "eu"), "c": ("1", "us"), "d": ("2", "us"), "e": ("2", "us")}
    cluster = heard(
        "abcde",
        members={
            name: replace(member_record(name), cluster=rack, region=where) for name, (rack, where) in places.items()
        },
    )
    assert {new_set(at, "a", cluster, 2) for at in range(1, 40)} == {("a", "c"), ("a", "d"), ("a", "e")}


@given(st.integers(3, 8), st.integers(1, 60), st.sampled_from([1, 3]), st.integers(0, 200))
def test_copies_of_sets_that_are_made_one_after_the_other_are_bounded(
    nodes: int, count: int, copies: int, first: int
) -> None:
    """Whoever makes them: leaders take turns."""
    cluster, loads = heard(NAMES[:nodes]), Counter[str]()
    records: dict[int, SourceRecord] = {}
    for at in range(count):
        number, leader = (first + at) % SOURCES + 1, NAMES[at % nodes]
        members = new_set(number, leader, replace(cluster, records=records), copies)
        assert leader in members
        assert len(set(members)) == len(members) == copies
        records[number] = source(number, leader, "".join(members))
        loads.update(members)
        # A node that declares is in its own sets, however much it has: no other is above its bound.
        assert max(loads.values()) <= ceil((1 + SLACK) * Fraction(copies * (at + 1), nodes)) + 1


# Nodes without links


def without_links(cluster: Heard, *pairs: str) -> Heard:
    """Of each pair the first one says that it has no link to the second one."""
    said: dict[str, list[str]] = {}
    for pair in pairs:
        one, other = list(pair)
        said.setdefault(one, []).append(other)
    links = {
        name: LinksRecord(name, 1, tuple(MissingLink(other, SECRET, "it differs") for other in others))
        for name, others in said.items()
    }
    return replace(cluster, linkage=linkage_of(cluster.living, links, cluster.records.values()))


def test_a_node_that_nobody_lets_in_is_in_no_new_set_and_nobody_waits_for_it() -> None:
    cluster = without_links(heard("abc"), "ac", "bc")
    assert cluster.copies_of(HERE, 3) == 2
    assert new_set(1, "a", cluster, cluster.copies_of(HERE, 3)) == ("a", "b")
    assert cluster.copies_of(WantedSource(copies=5), 3) == 2


def test_a_first_node_goes_on_alone_while_it_refuses_the_second_one() -> None:
    cluster = without_links(among(heard("ac"), source(1, "a", "a")), "ac", "ca")
    assert cluster.copies_of(HERE, 3) == 1
    assert choose(HERE, cluster, {}, [1], 3) == (1, "a")
    assert new_set(2, "a", cluster, 1) == ("a",)


@pytest.mark.parametrize("number", range(1, 20))
def test_a_set_is_of_nodes_with_links_to_its_leader_as_far_as_that_goes(number: int) -> None:
    kept = among(heard("abcde"), source(200, "a", "abcde"))
    cut = without_links(kept, "ae", "be", "ce", "de")
    assert "e" not in new_set(number, "a", cut, 3)
    # One link only is missing: of each of the two the other one is avoided.
    half = without_links(kept, "ab")
    assert "b" not in new_set(number, "a", half, 3)
    assert "a" not in new_set(number, "b", half, 3)
    # All nodes are asked for: it is as one that is away, and comes back.
    assert new_set(number, "a", cut, 5) == ("a", "b", "c", "d", "e")
    # Too few are left.
    assert new_set(number, "a", without_links(kept, "ac", "ad", "ae"), 5) == ()


def test_a_queue_comes_into_a_source_without_nodes_that_lack_links_where_there_can_be_one() -> None:
    two = source(1, "a", "abe"), source(2, "a", "abc")
    assert choose(HERE, among(heard("abcde"), *two), {2: 9}, [1, 2], 3) == (1, "a")
    cut = without_links(among(heard("abcde"), *two), "ae", "be", "ce", "de")
    assert choose(HERE, cut, {2: 9}, [1, 2], 3) == (2, "a")
    assert choose(HERE, cut, {}, [1], 3) == (LOCAL, "a"), "another one is made"
    few = without_links(among(heard("abe"), source(1, "a", "abe")), "ae", "be")
    assert choose(HERE, few, {}, [1], 3) == (1, "a"), "no other one could be made"


def test_balanced_queues_go_to_nodes_with_links() -> None:
    cluster = without_links(among(heard("abc"), source(1, "a", "abc")), "ac", "bc")
    leaders = {leader_for(WantedSource(balanced=f"q{number}"), cluster, {}) for number in range(50)}
    assert leaders == {"a", "b"}
