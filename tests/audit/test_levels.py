"""Levels as text, and the hash that decides on samples."""

from __future__ import annotations

import pytest

from amqpd.audit.sample import hashed
from amqpd.vocabulary.audit_levels import ADMIN, COUNTS, FULL, OFF, SHARE_FULL, Level, is_level, parse_level


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("off", OFF),
        ("admin", ADMIN),
        ("counts", COUNTS),
        (" Full ", FULL),
        ("sample(1)", FULL),
        ("sample(1.0)", FULL),
        ("sample(0.5)", Level("sample(0.5)", True, False, 1 << 31)),
        ("sample( .25 )", Level("sample(.25)", True, False, 1 << 30)),
        ("sample(1e-9)", Level("sample(1e-9)", True, False, 4)),
        ("sample(1e-30)", Level("sample(1e-30)", True, False, 1)),
    ],
)
def test_words_are_levels(text: str, level: Level) -> None:
    assert parse_level(text) == level
    assert parse_level(level.text) == level
    assert is_level(text)


@pytest.mark.parametrize("text", ["", "all", "sample", "sample()", "sample(0)", "sample(1.1)", "sample(-1)", 1, None])
def test_what_is_no_level_is_told_which_there_are(text: object) -> None:
    assert not is_level(text)
    with pytest.raises(ValueError, match=r"off, admin, counts, sample\(p\) with 0 < p <= 1, or full"):
        parse_level(text)


def test_each_level_has_what_the_ones_before_it_have() -> None:
    """Except for figures: what is recorded message by message can be counted."""
    levels = [OFF, ADMIN, COUNTS, parse_level("sample(0.1)"), FULL]
    assert [level.acts for level in levels] == [False, True, True, True, True]
    assert [level.counts for level in levels] == [False, False, True, False, False]
    assert [level.share for level in levels] == sorted(level.share for level in levels)


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9])
def test_the_hash_takes_the_share_that_was_asked_for(share: float) -> None:
    for queue_id in (0, 256, 257, 1 << 40):
        taken = sum(hashed(queue_id, block) < share * SHARE_FULL for block in range(10_000))
        assert abs(taken / 10_000 - share) < 0.02


def test_the_hash_is_the_same_for_ever() -> None:
    """Files of an old version and of a new one must agree on which messages are recorded."""
    assert [hashed(0, 0), hashed(256, 1), hashed(1 << 62, 1 << 40)] == [3793791033, 4131930650, 1480706910]
