"""Log matching: what an entry is to a replica's log."""

from __future__ import annotations

import pytest

from amqpd.peers.entry import START, LogEntry, new_entry
from amqpd.replication.log import EntryHead, Log, Match


def entries(*positions: tuple[int, int], after: tuple[int, int] = START) -> list[LogEntry]:
    """A chain of them."""
    made = []
    for position in positions:
        made.append(new_entry(1, position, after, b"%d-%d" % position))
        after = position
    return made


def log_of(*made: LogEntry, base: tuple[int, int] = START) -> Log:
    return Log(base, [EntryHead(each.position, each.before, each.checksum) for each in made])


FIRST, SECOND, THIRD = entries((1, 1), (1, 2), (1, 5))


def test_next_follows() -> None:
    assert log_of(FIRST, SECOND).match(THIRD) is Match.FOLLOWS


def test_same_is_held_also_with_more_behind_it() -> None:
    log = log_of(FIRST, SECOND, THIRD)
    assert log.match(SECOND) is Match.HELD
    log.held(SECOND.position)
    assert (log.matched, log.last) == ((1, 2), (1, 5))


def test_gap_is_ahead_and_says_from_where() -> None:
    log = log_of(FIRST)
    assert log.match(THIRD) is Match.AHEAD
    assert log.nearest(THIRD.before) == (1, 1)


def test_same_position_with_other_content_differs() -> None:
    other = new_entry(1, SECOND.position, SECOND.before, b"other")
    assert log_of(FIRST, SECOND, THIRD).match(other) is Match.DIFFERS


def test_same_idx_of_another_epoch_differs() -> None:
    (other,) = entries((2, 2), after=(1, 1))
    assert log_of(FIRST, SECOND, THIRD).match(other) is Match.DIFFERS


def test_what_is_committed_is_held_whatever_it_says() -> None:
    log = log_of(THIRD, base=(1, 2))
    assert log.match(new_entry(1, (1, 2), START, b"unknown by now")) is Match.HELD


def test_entry_in_place_of_what_is_committed_contradicts() -> None:
    log = log_of(base=(1, 2))
    (other,) = entries((2, 2), after=(1, 1))
    assert log.match(other) is Match.CONTRADICTS


def test_undo_stops_at_the_base() -> None:
    log = log_of(THIRD, base=(1, 2))
    log.undo((1, 2))
    assert log.last == (1, 2)
    with pytest.raises(ValueError, match=r"no undo to \(1, 1\): \(1, 2\) is committed"):
        log.undo((1, 1))


def test_commit_takes_only_what_was_matched() -> None:
    log = log_of(FIRST, SECOND, THIRD)
    log.held(SECOND.position)
    assert log.commit((1, 9)) == (1, 2)
    assert log.last == (1, 5)


def test_what_an_older_leader_left_waits_for_an_entry_of_the_present_one() -> None:
    log = log_of(FIRST, SECOND)
    log.held(SECOND.position)
    assert log.commit((2, 3)) == START
    (own,) = entries((2, 4), after=(1, 2))
    log.append(own)
    assert log.commit((2, 4)) == (2, 4)


def test_new_leader_has_matched_nothing_but_the_base() -> None:
    log = log_of(SECOND, THIRD, base=(1, 1))
    log.held(THIRD.position)
    log.new_leader()
    assert log.matched == (1, 1)


def test_entry_does_not_precede_what_it_follows() -> None:
    with pytest.raises(ValueError, match=r"entry \(1, 4\) of source 1 does not follow \(1, 5\)"):
        new_entry(1, (1, 4), (1, 5), b"")


def test_flipped_bit_shows() -> None:
    assert SECOND.sound
    assert not LogEntry(1, SECOND.position, SECOND.before, b"1-3", SECOND.checksum).sound
    assert not LogEntry(2, SECOND.position, SECOND.before, SECOND.payload, SECOND.checksum).sound
