"""How sources stand, in words: what is wrong is said, and what nobody has said is not guessed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from amqpd.cluster.overview import member_rows, sentences
from amqpd.cluster.records import DesiredSetRecord, KnownRecord, LinksRecord, MissingLink
from amqpd.cluster.roster import Roster
from amqpd.cluster.source_status import bytes_text, source_status
from amqpd.peers.entry import Vote
from amqpd.peers.links.troubles import SECRET
from amqpd.replication.take_over import SourceRecord
from tests.cluster.directories import member_record


def roster(
    living: str, record: SourceRecord, desired_set: DesiredSetRecord | None = None, known: str = "abc"
) -> Roster:
    found = Roster()
    found.members = {name: member_record(name, generation=ord(name)) for name in living}
    found.known = {name: KnownRecord(name, 1, ord(name)) for name in known}
    found.records = {record.source: record}
    found.desired_sets = {desired_set.source: desired_set} if desired_set is not None else {}
    return found


def source(members: str = "abc", leader: str = "a") -> SourceRecord:
    return SourceRecord(7, Vote(3, leader, 1), tuple(members), tuple(map(ord, members)))


def facts(copies: Mapping[str, tuple[str, int | None]], epoch: int = 3) -> dict[int, dict[str, Any]]:
    said = {name: {"is": what, "lacks_bytes": lacks} for name, (what, lacks) in copies.items()}
    return {7: {"source": 7, "epoch": epoch, "serving": True, "copies": said}}


FINE = ("counts", 0)


@pytest.mark.parametrize(
    ("copies", "sentence"),
    [
        ({"b": FINE, "c": FINE}, "leader a; 3 of 3 copies up to date"),
        ({"b": FINE, "c": ("counts", 4 << 20)}, "leader a; 2 of 3 copies up to date, node c is 4.0 MB behind"),
        ({"b": FINE, "c": ("behind", 4 << 20)}, "leader a; 2 of 3 copies up to date, node c is 4.0 MB behind"),
        ({"b": FINE, "c": ("behind", 0)}, "leader a; 2 of 3 copies up to date, node c is behind"),
        ({"b": FINE, "c": ("away", None)}, "leader a; 2 of 3 copies up to date, node c is away"),
        ({"b": FINE, "c": ("silent", 0)}, "leader a; 2 of 3 copies up to date, node c does not answer"),
        (
            {"b": FINE, "c": ("silent", 4 << 20)},
            "leader a; 2 of 3 copies up to date, node c does not answer, 4.0 MB behind",
        ),
        (
            {"b": ("state", None), "c": ("other disk", 2048)},
            "leader a; 1 of 3 copies up to date, node b was away for long and is sent all that it lacks, node c has "
            "another disk, which does not count until it has everything, 2.0 kB behind",
        ),
    ],
)
def test_how_far_copies_are_is_said_by_the_leader(copies: dict[str, tuple[str, int | None]], sentence: str) -> None:
    found = source_status(7, roster("abc", source()), facts(copies), 3)
    assert found.sentence == sentence
    assert found.is_well == (found.up_to_date == 3)


@pytest.mark.parametrize("said", [{}, facts({"b": FINE, "c": ("away", None)}, epoch=2)])
def test_without_the_leaders_word_nothing_is_said_of_how_far_copies_are(said: dict[int, dict[str, Any]]) -> None:
    found = source_status(7, roster("abc", source()), said, 3)
    assert (found.sentence, found.up_to_date, found.is_well) == ("leader a; 3 copies", None, True)


def test_what_is_gone_is_said() -> None:
    assert source_status(7, roster("ab", source()), {}, 3).sentence == "leader a; 3 copies; c is gone"
    gone = source_status(7, roster("bc", source()), {}, 3)
    assert gone.sentence == "leader a is gone: another node is about to take it over; 3 copies; a is gone"
    assert not gone.is_well
    none = source_status(7, roster("bc", source(leader="")), {}, 3)
    assert none.sentence.startswith("no leader now: one of the nodes is about to take it over")


@pytest.mark.parametrize("copy", [FINE, ("silent", 0), ("away", None)])
def test_a_copy_of_a_node_that_is_gone_is_not_up_to_date_whatever_the_leader_knows_of_it(
    copy: tuple[str, int | None],
) -> None:
    """A process that is stopped keeps its connections, and its lease runs out."""
    found = source_status(7, roster("ab", source()), facts({"b": FINE, "c": copy}), 3)
    assert found.sentence == "leader a; 2 of 3 copies up to date, c is gone"
    assert (found.up_to_date, found.is_well) == (2, False)


def test_without_a_majority_it_is_stopped() -> None:
    alone = source_status(7, roster("a", source()), {}, 3)
    assert alone.sentence == "stopped: b and c are gone, so 1 of 3 copies are no majority"
    assert not alone.has_majority
    replaced = roster("ab", source())
    replaced.members["b"] = member_record("b", generation=99)
    found = source_status(7, replaced, {}, 3)
    assert found.sentence == "stopped: c is gone, b has another disk, so 1 of 3 copies are no majority"
    assert found.living == ("a",)


def refused(found: Roster, name: str, *by: str) -> Roster:
    """These say that they refuse this one."""
    for each in by:
        found.links[each] = LinksRecord(each, 1, (MissingLink(name, SECRET, "the shared secret differs"),))
    return found


def test_a_copy_on_a_node_that_the_others_refuse_is_none() -> None:
    cut = refused(roster("abc", source()), "c", "a", "b")
    found = source_status(7, cut, {}, 3)
    assert found.sentence == ("leader a; 2 of 3 copies have links; a and b refuse c: the shared secret differs")
    assert (found.living, found.has_majority, found.is_well) == (("a", "b"), True, False)
    said = source_status(7, cut, facts({"b": FINE, "c": ("away", None)}), 3)
    assert said.sentence == "leader a; 2 of 3 copies up to date, a and b refuse c: the shared secret differs"


def test_a_source_whose_other_nodes_are_gone_or_refused_is_stopped_and_says_by_whom() -> None:
    cut = refused(roster("acde", source()), "c", "a", "d", "e")
    cut.records[8] = SourceRecord(8, Vote(1, "d", 1), tuple("acde"), tuple(map(ord, "acde")))
    found = source_status(7, cut, {}, 3)
    assert found.sentence == (
        "stopped: b is gone, a, d and e refuse c: the shared secret differs, so 1 of 3 copies are no majority"
    )
    assert not found.has_majority


def test_a_leader_that_is_cut_off_is_said_to_be() -> None:
    cut = refused(roster("abc", source()), "a", "b", "c")
    found = source_status(7, cut, {}, 3)
    assert found.sentence == (
        "leader a is cut off (b and c refuse a: the shared secret differs): another node is about to take it over; "
        "2 of 3 copies have links"
    )
    assert found.living == ("b", "c")


def test_the_overview_says_who_is_isolated_and_is_not_well() -> None:
    cut = refused(roster("abc", source()), "c", "a", "b")
    said = sentences(cut, [source_status(7, cut, {}, 3)], now_ms=0)
    assert said[0] == "3 nodes live, isolated: c."
    assert said[1].startswith("a and b refuse c: the shared secret differs; c counts for nothing while")
    assert len(said) == 2, "nothing is called well"
    rows = {row["name"]: row for row in member_rows(cut)}
    assert {name: row["isolated"] for name, row in rows.items()} == {"a": False, "b": False, "c": True}
    assert rows["c"]["missing_links"] == [
        {"node": by, "says": by, "kind": "secret", "reason": "the shared secret differs"} for by in "ab"
    ]
    assert rows["a"]["missing_links"] == [
        {"node": "c", "says": "a", "kind": "secret", "reason": "the shared secret differs"}
    ]


def test_fewer_copies_than_there_should_be_are_said() -> None:
    found = source_status(7, roster("abc", source("ab")), {}, 3)
    assert found.sentence == "leader a; 2 copies; under-replicated: 2 of 3 copies"
    # With two nodes there can be no more.
    assert source_status(7, roster("ab", source("ab"), known="ab"), {}, 3).is_well
    assert source_status(7, roster("abc", source("a")), {}, 1).sentence == "leader a; 1 copy"


@pytest.mark.parametrize(
    ("desired_set", "words"),
    [
        (DesiredSetRecord(7, ("a", "b", "d")), "is to be on a, b, d"),
        (DesiredSetRecord(7, (), "b"), "is to be led by b"),
        (
            DesiredSetRecord(7, ("d", "b", "a"), "d", "d does not live"),
            "is to be on a, b, d led by d, and waits: d does not live",
        ),
    ],
)
def test_what_is_desired_is_said(desired_set: DesiredSetRecord, words: str) -> None:
    assert source_status(7, roster("abc", source(), desired_set), {}, 3).says[-1] == words


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 kB"), (4 << 20, "4.0 MB"), (3 << 30, "3.0 GB")],
)
def test_bytes_are_said_shortly(nbytes: int, text: str) -> None:
    assert bytes_text(nbytes) == text
