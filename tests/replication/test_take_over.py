"""How a member becomes the home, step by step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from amqpd.replication.commit import majority, reached
from amqpd.replication.entry import START, LogEntry, Position, new_entry
from amqpd.replication.log import Link, Log
from amqpd.replication.replica import Appended, Replica, Replicas, Sealed, Undone, Write
from amqpd.replication.seal import Seal
from amqpd.replication.take_over import Ask, Ballot, Fetch, Phase, Request, SourceRecord, Swap, TakeOver

OLD = Seal(4, "c", 1)
RECORD = SourceRecord(1, OLD, ("a", "b", "c"), (1, 1, 2), 17)
DISK = {"a": 1, "b": 1, "c": 2}
FIRST = new_entry(1, (4, 1), START, b"first")
SECOND = new_entry(1, (4, 2), (4, 1), b"second")


def replica(*entries: LogEntry) -> Replica:
    return Replica(1, Log(START, [Link(each.position, each.before, each.checksum) for each in entries]), OLD)


def ballot(member: str, seal: Seal, last: Position, *, granted: bool = True) -> Ballot:
    return Ballot(granted, seal, last, DISK.get(member, 1))


def would(member: str, *, granted: bool = True, epoch: int = 4) -> Ballot:
    return ballot(member, Seal(epoch, "c", 1), (4, 1), granted=granted)


def swapped(own: Replica, writes: list[Write] | None = None) -> TakeOver:
    """As far as the store is asked, and said yes."""
    writes = [] if writes is None else writes
    attempt = TakeOver("a", 7, Replicas([own]), RECORD)
    assert attempt.begin() == Ask()
    attempt.would("a", would("a"))
    step = attempt.would("b", would("b"))
    assert isinstance(step, Swap)
    assert attempt.swapped(step.record, writes) == Request(Seal(5, "a", 7))
    return attempt


def test_store_is_not_asked_before_a_majority_would_seal() -> None:
    attempt = TakeOver("a", 7, Replicas([replica(FIRST)]), RECORD)
    attempt.begin()
    assert attempt.would("a", would("a")) is None
    assert attempt.would("b", would("b", granted=False)) is None
    assert attempt.would("c", would("c")) == Swap(replace(RECORD, home=Seal(5, "a", 7)))


def test_epoch_is_above_every_one_that_was_sealed() -> None:
    attempt = TakeOver("a", 7, Replicas([replica(FIRST)]), RECORD)
    attempt.begin()
    attempt.would("b", would("b", epoch=8))
    step = attempt.would("a", would("a"))
    assert isinstance(step, Swap)
    assert step.record.home == Seal(9, "a", 7)


def test_own_replica_seals_before_any_other_is_asked() -> None:
    own = replica(FIRST)
    assert own.seal == OLD
    swapped(own)
    assert own.seal == Seal(5, "a", 7)


def test_somebody_else_was_first() -> None:
    attempt = TakeOver("a", 7, Replicas([replica(FIRST)]), RECORD)
    for member in ("a", "b"):
        attempt.would(member, would(member))
    attempt.swapped(None, [])
    assert attempt.phase is Phase.LOST


def test_own_log_is_the_best() -> None:
    attempt = swapped(replica(FIRST, SECOND))
    assert attempt.sealed("b", attempt.seal, ballot("b", attempt.seal, (4, 1))) is None
    assert attempt.phase is Phase.SEALING
    attempt.sealed("a", attempt.seal, ballot("a", attempt.seal, (4, 2)))
    assert attempt.phase is Phase.WON


def test_two_others_are_no_majority_without_the_taker() -> None:
    attempt = swapped(replica(FIRST))
    for member in ("b", "c"):
        attempt.sealed(member, attempt.seal, ballot(member, attempt.seal, (4, 1)))
    assert attempt.phase is Phase.SEALING


def test_missing_entries_are_fetched_and_what_differs_is_undone() -> None:
    mine = new_entry(1, (3, 9), START, b"of a home that lost it")
    own = replica(mine)
    writes: list[Write] = []
    attempt = swapped(own, writes)
    attempt.sealed("a", attempt.seal, ballot("a", attempt.seal, (3, 9)))
    step = attempt.sealed("b", attempt.seal, ballot("b", attempt.seal, (4, 2)))
    assert step == Fetch("b", START)
    step = attempt.fetched("b", [FIRST], writes)
    assert step == Fetch("b", (4, 1))
    attempt.fetched("b", [SECOND], writes)
    assert attempt.phase is Phase.WON
    assert writes == [Sealed(1, attempt.seal), Undone(1, START), Appended(FIRST), Appended(SECOND)]


def test_higher_seal_ends_the_attempt() -> None:
    attempt = swapped(replica(FIRST))
    attempt.sealed("b", attempt.seal, ballot("b", Seal(6, "b", 1), (4, 1), granted=False))
    assert attempt.phase is Phase.LOST


def test_refusal_by_an_incomplete_replica_does_not() -> None:
    attempt = swapped(replica(FIRST))
    attempt.sealed("b", attempt.seal, ballot("b", OLD, START, granted=False))
    assert attempt.phase is Phase.SEALING


def test_late_answers_to_another_seal_count_for_nothing() -> None:
    attempt = swapped(replica(FIRST))
    attempt.sealed("a", attempt.seal, ballot("a", attempt.seal, (4, 1)))
    attempt.sealed("b", Seal(3, "a", 7), ballot("b", Seal(3, "a", 7), (4, 1)))
    attempt.sealed("d", attempt.seal, ballot("d", attempt.seal, (4, 1)))
    assert attempt.phase is Phase.SEALING


def test_disk_that_the_record_does_not_name_has_no_vote() -> None:
    attempt = swapped(replica(FIRST))
    attempt.sealed("a", attempt.seal, ballot("a", attempt.seal, (4, 1)))
    attempt.sealed("c", attempt.seal, replace(ballot("c", attempt.seal, START), generation=3))
    assert attempt.phase is Phase.SEALING
    admitted = RECORD.admitted("c", 3)
    assert admitted.counts("c", 3)
    assert not admitted.counts("c", 2)
    assert admitted.counts("b", 1)


def test_only_members_take_over() -> None:
    with pytest.raises(ValueError, match="d is no member"):
        TakeOver("d", 1, Replicas([replica()]), RECORD)


def test_majority_of_what_the_set_holds_now() -> None:
    assert [majority(members) for members in range(1, 8)] == [1, 2, 2, 3, 3, 4, 4]
    assert reached(9, [], 1) == 9
    assert reached(9, [8, 7], 3) == 8
    assert reached(5, [8, 7], 3) == 5
    assert reached(9, [8], 4) == 0
    assert reached(9, [3, 8, 7, 6], 5) == 7
