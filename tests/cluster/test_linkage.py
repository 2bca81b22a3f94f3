"""Who has links to enough of the others: a minority isolates nobody but itself, and everybody finds the same."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqpd.cluster.linkage import WELL, Linkage, linkage_of
from amqpd.cluster.records import LinksRecord, MissingLink, decode, encode, links_key
from amqpd.peers.entry import Vote
from amqpd.peers.links.tls import ENDED
from amqpd.peers.links.troubles import CERTIFICATE, CHANGED, REFUSED, SECRET, UNREACHED
from amqpd.replication.commit import majority
from amqpd.replication.take_over import SourceRecord
from tests.cluster.directories import member_record

DIFFERS = (SECRET, "the shared secret differs")
SILENT = (UNREACHED, "timed out")
ALTERED = (CHANGED, "bytes change on the way")


def says(name: str, *others: str, kind: tuple[str, str] = DIFFERS, incarnation: int = 1) -> LinksRecord:
    return LinksRecord(name, incarnation, tuple(MissingLink(other, *kind) for other in others))


def source(number: int, members: str) -> SourceRecord:
    return SourceRecord(number, Vote(1, members[0], 1), tuple(members), tuple(map(ord, members)))


def linkage(living: str, *said: LinksRecord, kept: Iterable[str] = ()) -> Linkage:
    """`kept`: the sets of sources."""
    records = [source(number, members) for number, members in enumerate(kept, 1)]
    return linkage_of({name: member_record(name) for name in living}, {each.name: each for each in said}, records)


@pytest.mark.parametrize(
    ("living", "said", "kept", "isolated"),
    [
        ("abc", [], ["abc"], ""),
        ("abc", [says("a", "c"), says("b", "c"), says("c", "a", "b")], ["abc"], "c"),
        # One end is enough: the other one may be of a version that says nothing.
        ("abc", [says("a", "c"), says("b", "c")], ["abc"], "c"),
        ("abc", [says("c", "a", "b")], ["abc"], "c"),
        # One link of three is missing: all have a majority.
        ("abc", [says("a", "c"), says("c", "a")], ["abc"], ""),
        # Who says that all others are gone is alone with that.
        ("abcde", [says("e", *"abcd")], ["abcde"], "e"),
        ("abcde", [says("d", *"abc"), says("e", *"abc")], ["abc", "cde"], "de"),
        # Halves: none is a majority.
        ("abcd", [says("a", *"cd"), says("b", *"cd")], ["abcd"], "abcd"),
        ("ab", [says("a", "b"), says("b", "a")], ["ab"], "ab"),
        # A newcomer that nobody lets in takes nothing from those that were there, were there ten of it.
        ("ac", [says("a", "c"), says("c", "a")], ["a"], "c"),
        ("abcxyz", [says(name, *"xyz") for name in "abc"], ["abc"], "xyz"),
        ("abcwxyz", [says(name, *"wxyz") for name in "abc"], ["abc"], "wxyz"),
        ("abcxyz", [says("c", *"abxyz"), says("a", *"xyz"), says("b", *"xyz")], ["abc"], "cxyz"),
        # Nothing is kept anywhere yet.
        ("abc", [says("a", "c"), says("b", "c"), says("c", "a", "b")], [], "c"),
        # What an earlier process said, or is said of a node that is gone, counts no more.
        ("abc", [says("a", "c", incarnation=0), says("b", "c", incarnation=0)], ["abc"], ""),
        ("abc", [says("a", "d", "c"), says("b", "d")], ["abcd"], ""),
    ],
)
def test_who_has_no_link_to_a_majority_is_isolated(
    living: str, said: list[LinksRecord], kept: list[str], isolated: str
) -> None:
    assert linkage(living, *said, kept=kept).isolated == set(isolated)


def test_a_link_that_breaks_for_ever_is_said_by_the_end_that_knows_why() -> None:
    closed = (UNREACHED, "the peer closed the connection")
    found = linkage("abc", says("a", "c", kind=closed), says("c", "a", kind=ALTERED), kept=["abc"])
    [sentence] = found.sentences()
    assert sentence.startswith(
        "the link from c to a breaks again and again: bytes change on the way; what is kept on both has a copy less"
    )
    alone = linkage("abc", says("a", "c", kind=ALTERED), says("b", "c", kind=ALTERED), kept=["abc"])
    assert alone.why("c") == "the links from a and b to c break again and again: bytes change on the way"
    assert "between them" in alone.way_out("c")
    mine = linkage("abc", says("c", "a", "b", kind=ALTERED), kept=["abc"])
    assert mine.why("c") == "the links from c to a and b break again and again: bytes change on the way"


def test_where_no_link_is_missing_it_costs_nothing() -> None:
    assert linkage("abc", kept=["abc"]) is WELL


def test_newcomers_are_those_that_nothing_is_kept_on() -> None:
    found = linkage("abcd", says("a", "c", "d"), says("b", "c", "d"), kept=["abc"])
    assert (found.isolated, found.newcomers) == ({"c", "d"}, {"d"})


def test_usable_is_who_has_links_and_one_to_the_leader() -> None:
    living = {name: member_record(name) for name in "abcde"}
    found = linkage("abcde", says("a", "b", "e"), says("b", "e"), says("c", "e"), says("d", "e"), kept=["abcde"])
    assert found.isolated == {"e"}
    assert set(found.usable(living)) == set("abcd")
    assert set(found.usable(living, "a")) == set("acd"), "b is well, and has no link to a"
    assert not found.is_of_use("b", "a")
    assert found.is_of_use("b", "c")
    assert found.is_of_use("b", "e"), "an isolated leader says nothing of the others"
    assert not found.is_of_use("e", "")


def test_a_sentence_says_who_refuses_whom_why_and_the_way_out() -> None:
    found = linkage("abc", says("a", "c"), says("b", "c"), says("c", "a", "b", kind=(SECRET, "seen from c")))
    assert found.why("c") == "a and b refuse c: the shared secret differs"
    [sentence] = found.sentences()
    assert sentence == (
        "a and b refuse c: the shared secret differs; c counts for nothing while it has no link to a majority of the "
        "nodes: give c the cluster_secret of the others and start it again; or end it and take it out: amqpd cluster "
        "forget c"
    )


@pytest.mark.parametrize(
    ("kind", "words", "out"),
    [
        (DIFFERS, "a refuses c: the shared secret differs", "give c the cluster_secret of the others"),
        ((CERTIFICATE, "it is of x"), "a refuses c: it is of x", "give c a certificate of the cluster's authority"),
        ((REFUSED, "it is of the cluster 'z'"), "a refuses c: it is of the cluster 'z'", "the settings and the log"),
        (SILENT, "a does not reach c: timed out", "look at the network between them"),
        ((UNREACHED, ENDED), f"a does not reach c: {ENDED}", "look whether c has cluster_tls_ca"),
        (("of a later version", "no tea"), "a does not reach c: no tea", "the settings and the log of c"),
    ],
)
def test_each_kind_has_its_words_and_its_way_out(kind: tuple[str, str], words: str, out: str) -> None:
    found = linkage("abc", says("a", "c", kind=kind), says("b", "c", kind=kind))
    assert words.replace("a refuses", "a and b refuse").replace("a does", "a and b do") in found.why("c")
    assert out in found.way_out("c")


def test_what_only_the_isolated_node_says_is_said_from_its_side() -> None:
    assert linkage("abc", says("c", "a", "b")).why("c") == "c is refused by a and b: the shared secret differs"
    both = linkage("abc", says("a", "c"), says("c", "a", "b", kind=SILENT))
    assert both.why("c") == "a refuses c: the shared secret differs; c does not reach b: timed out"


def test_a_missing_link_between_two_that_count_is_said_once() -> None:
    found = linkage("abc", says("a", "c", kind=SILENT), says("c", "a", kind=SILENT), kept=["abc"])
    [sentence] = found.sentences()
    assert sentence.startswith("a does not reach c: timed out; what is kept on both has a copy less")


@given(st.integers(2, 7), st.data())
def test_a_minority_that_lies_isolates_nobody_else(count: int, data: st.DataObject) -> None:
    names = "abcdefg"[:count]
    liars = data.draw(st.sets(st.sampled_from(names), max_size=(count - 1) // 2))
    said = [says(liar, *data.draw(st.sets(st.sampled_from(names)))) for liar in sorted(liars)]
    kept = data.draw(st.sampled_from([[], [names]]))
    assert linkage(names, *said, kept=kept).isolated <= liars


@given(st.integers(1, 7), st.data())
def test_those_that_are_not_isolated_have_links_to_a_majority(count: int, data: st.DataObject) -> None:
    names = "abcdefg"[:count]
    pairs = data.draw(st.sets(st.sampled_from([*combinations(names, 2)] or [("a", "a")])))
    said = [says(name, *(other for pair in pairs for other in pair if name == pair[0] != other)) for name in names]
    found = linkage(names, *said, kept=[names])
    for name in names:
        linked = sum(not found.lacks(name, other) for other in names)
        assert (name in found.isolated) == (linked < majority(count))


def test_the_record_is_read_as_it_was_put_and_a_later_version_may_say_more() -> None:
    record = says("c@vm", "a@vm", "b@vm", kind=SILENT, incarnation=7)
    key = links_key("c@vm")
    assert decode(key, encode(record), 5) == record
    more = encode(record).replace('"reason"', '"since":1,"reason"')
    assert decode(key, more, 5) == replace(record)
