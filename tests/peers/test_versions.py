"""Which version of the messages a pair of nodes uses, and which one a set."""

from __future__ import annotations

import pytest

from amqpd.peers.versions import HIGHEST, LOWEST, Versions, none_in_common, of_set


@pytest.mark.parametrize(
    ("own", "peer", "used"),
    [
        ((4, 5), (4, 5), 5),
        ((4, 5), (4, 4), 4),
        ((4, 5), (5, 6), 5),
        ((4, 5), (1, 9), 5),
        ((4, 5), (6, 7), None),
        ((4, 5), (3, 3), None),
        ((7, 8), (4, 6), None),
    ],
)
def test_a_pair_uses_the_highest_version_that_both_speak(
    own: tuple[int, int], peer: tuple[int, int], used: int | None
) -> None:
    assert Versions(*own).common(Versions(*peer)) == Versions(*peer).common(Versions(*own)) == used


def test_a_set_uses_the_lowest_of_its_members_and_who_is_unknown_has_the_lowest_of_all() -> None:
    assert of_set(["b", "c"], {"b": 5, "c": 5}) == 5
    assert of_set(["b", "c"], {"b": 6, "c": 6}) == 6
    assert of_set(["b", "c"], {"b": 5, "c": 4}) == 4
    assert of_set(["b", "c"], {"b": 5}) == LOWEST
    assert of_set(["b"], {"b": 9, "c": 4}) == HIGHEST
    assert of_set([], {}) == HIGHEST


def test_without_a_common_version_the_older_one_is_to_be_upgraded() -> None:
    assert "upgrade the one there" in none_in_common(Versions(4, 5), Versions(3, 3))
    assert "upgrade the one here" in none_in_common(Versions(4, 5), Versions(6, 7))
