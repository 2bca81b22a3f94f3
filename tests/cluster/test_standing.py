"""How sources stand, in words: what is wrong is said, and what nobody has said is not guessed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from amqpd.cluster.records import KnownRecord, WishRecord
from amqpd.cluster.roster import Roster
from amqpd.cluster.standing import said_bytes, standing
from amqpd.replication.seal import Seal
from amqpd.replication.take_over import SourceRecord
from tests.cluster.directories import member_record


def roster(living: str, record: SourceRecord, wish: WishRecord | None = None, known: str = "abc") -> Roster:
    found = Roster()
    found.members = {name: member_record(name, generation=ord(name)) for name in living}
    found.known = {name: KnownRecord(name, 1, ord(name)) for name in known}
    found.records = {record.source: record}
    found.wishes = {wish.source: wish} if wish is not None else {}
    return found


def source(members: str = "abc", home: str = "a") -> SourceRecord:
    return SourceRecord(7, Seal(3, home, 1), tuple(members), tuple(map(ord, members)))


def facts(copies: Mapping[str, tuple[str, int | None]], epoch: int = 3) -> dict[int, dict[str, Any]]:
    said = {name: {"is": what, "lacks_bytes": lacks} for name, (what, lacks) in copies.items()}
    return {7: {"source": 7, "epoch": epoch, "serving": True, "copies": said}}


FINE = ("counts", 0)


@pytest.mark.parametrize(
    ("copies", "sentence"),
    [
        ({"b": FINE, "c": FINE}, "home a; 3 of 3 copies up to date"),
        ({"b": FINE, "c": ("counts", 4 << 20)}, "home a; 2 of 3 copies up to date, node c is 4.0 MB behind"),
        ({"b": FINE, "c": ("behind", 4 << 20)}, "home a; 2 of 3 copies up to date, node c is 4.0 MB behind"),
        ({"b": FINE, "c": ("behind", 0)}, "home a; 2 of 3 copies up to date, node c is behind"),
        ({"b": FINE, "c": ("away", None)}, "home a; 2 of 3 copies up to date, node c is away"),
        (
            {"b": ("state", None), "c": ("other disk", 2048)},
            "home a; 1 of 3 copies up to date, node b was away for long and is sent all that it lacks, node c has "
            "another disk, which does not count until it has everything, 2.0 kB behind",
        ),
    ],
)
def test_how_far_copies_are_is_said_by_the_home(copies: dict[str, tuple[str, int | None]], sentence: str) -> None:
    found = standing(7, roster("abc", source()), facts(copies), 3)
    assert found.sentence == sentence
    assert found.is_well == (found.up_to_date == 3)


@pytest.mark.parametrize("said", [{}, facts({"b": FINE, "c": ("away", None)}, epoch=2)])
def test_without_the_homes_word_nothing_is_said_of_how_far_copies_are(said: dict[int, dict[str, Any]]) -> None:
    found = standing(7, roster("abc", source()), said, 3)
    assert (found.sentence, found.up_to_date, found.is_well) == ("home a; 3 copies", None, True)


def test_what_is_gone_is_said() -> None:
    assert standing(7, roster("ab", source()), {}, 3).sentence == "home a; 3 copies; c is gone"
    gone = standing(7, roster("bc", source()), {}, 3)
    assert gone.sentence == "home a is gone: another node is about to take it over; 3 copies; a is gone"
    assert not gone.is_well
    none = standing(7, roster("bc", source(home="")), {}, 3)
    assert none.sentence.startswith("no home now: one of the nodes is about to take it over")


def test_without_a_majority_it_is_stopped() -> None:
    alone = standing(7, roster("a", source()), {}, 3)
    assert alone.sentence == "stopped: b and c are gone, so 1 of 3 copies are no majority"
    assert not alone.has_majority
    replaced = roster("ab", source())
    replaced.members["b"] = member_record("b", generation=99)
    found = standing(7, replaced, {}, 3)
    assert found.sentence == "stopped: c is gone, b has another disk, so 1 of 3 copies are no majority"
    assert found.living == ("a",)


def test_fewer_copies_than_there_should_be_are_said() -> None:
    found = standing(7, roster("abc", source("ab")), {}, 3)
    assert found.sentence == "home a; 2 copies; under-replicated: 2 of 3 copies"
    # With two nodes there can be no more.
    assert standing(7, roster("ab", source("ab"), known="ab"), {}, 3).is_well
    assert standing(7, roster("abc", source("a")), {}, 1).sentence == "home a; 1 copy"


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (WishRecord(7, ("a", "b", "d")), "is to be on a, b, d"),
        (WishRecord(7, (), "b"), "is to be at home at b"),
        (
            WishRecord(7, ("d", "b", "a"), "d", "d does not live"),
            "is to be on a, b, d at home at d, and waits: d does not live",
        ),
    ],
)
def test_what_is_wished_is_said(wish: WishRecord, words: str) -> None:
    assert standing(7, roster("abc", source(), wish), {}, 3).says[-1] == words


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 kB"), (4 << 20, "4.0 MB"), (3 << 30, "3.0 GB")],
)
def test_bytes_are_said_shortly(nbytes: int, text: str) -> None:
    assert said_bytes(nbytes) == text
