"""How a member becomes the leader, step by step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from amqpd.peers.entry import START, LogEntry, Position, Vote, new_entry
from amqpd.peers.messages import Ballot, SnapshotPart
from amqpd.replication.commit import majority, reached
from amqpd.replication.log import EntryHead, Log
from amqpd.replication.replica import (
    Appended,
    Replica,
    Replicas,
    StaleLeader,
    StateBegin,
    StateEnd,
    StateInstall,
    StatePart,
    Undone,
    VoteCast,
    Write,
)
from amqpd.replication.take_over import Ask, Fetch, FetchState, Phase, Request, SourceRecord, Step, Swap, TakeOver

OLD = Vote(4, "c", 1)
RECORD = SourceRecord(1, OLD, ("a", "b", "c"), (1, 1, 2), 17)
DISK = {"a": 1, "b": 1, "c": 2}
FIRST = new_entry(1, (4, 1), START, b"first")
SECOND = new_entry(1, (4, 2), (4, 1), b"second")


def replica(*entries: LogEntry) -> Replica:
    return Replica(1, Log(START, [EntryHead(each.position, each.before, each.checksum) for each in entries]), OLD)


def ballot(member: str, vote: Vote, last: Position, *, granted: bool = True) -> Ballot:
    return Ballot(granted, vote, last, DISK.get(member, 1))


def would(member: str, *, granted: bool = True, epoch: int = 4) -> Ballot:
    return ballot(member, Vote(epoch, "c", 1), (4, 1), granted=granted)


def swapped(own: Replica, writes: list[Write] | None = None) -> TakeOver:
    """As far as the store is asked, and said yes."""
    writes = [] if writes is None else writes
    attempt = TakeOver("a", 7, Replicas([own]), RECORD)
    assert attempt.begin() == Ask()
    attempt.would("a", would("a"))
    step = attempt.would("b", would("b"))
    assert isinstance(step, Swap)
    assert attempt.swapped(step.record, writes) == Request(Vote(5, "a", 7))
    return attempt


def test_store_is_not_asked_before_a_majority_would_vote() -> None:
    attempt = TakeOver("a", 7, Replicas([replica(FIRST)]), RECORD)
    attempt.begin()
    assert attempt.would("a", would("a")) is None
    assert attempt.would("b", would("b", granted=False)) is None
    assert attempt.would("c", would("c")) == Swap(replace(RECORD, leader=Vote(5, "a", 7)))


def test_epoch_is_above_every_one_that_was_voted_for() -> None:
    attempt = TakeOver("a", 7, Replicas([replica(FIRST)]), RECORD)
    attempt.begin()
    attempt.would("b", would("b", epoch=8))
    step = attempt.would("a", would("a"))
    assert isinstance(step, Swap)
    assert step.record.leader == Vote(9, "a", 7)


def test_own_replica_votes_before_any_other_is_asked() -> None:
    own = replica(FIRST)
    assert own.vote == OLD
    swapped(own)
    assert own.vote == Vote(5, "a", 7)


def test_somebody_else_was_first() -> None:
    attempt = TakeOver("a", 7, Replicas([replica(FIRST)]), RECORD)
    for member in ("a", "b"):
        attempt.would(member, would(member))
    attempt.swapped(None, [])
    assert attempt.phase is Phase.LOST


def test_own_log_is_the_best() -> None:
    attempt = swapped(replica(FIRST, SECOND))
    assert attempt.voted("b", attempt.vote, ballot("b", attempt.vote, (4, 1))) is None
    assert attempt.phase is Phase.VOTING
    attempt.voted("a", attempt.vote, ballot("a", attempt.vote, (4, 2)))
    assert attempt.phase is Phase.WON


def test_two_others_are_no_majority_without_the_taker() -> None:
    attempt = swapped(replica(FIRST))
    for member in ("b", "c"):
        attempt.voted(member, attempt.vote, ballot(member, attempt.vote, (4, 1)))
    assert attempt.phase is Phase.VOTING


def test_missing_entries_are_fetched_and_what_differs_is_undone() -> None:
    mine = new_entry(1, (3, 9), START, b"of a leader that lost it")
    own = replica(mine)
    writes: list[Write] = []
    attempt = swapped(own, writes)
    attempt.voted("a", attempt.vote, ballot("a", attempt.vote, (3, 9)))
    step = attempt.voted("b", attempt.vote, ballot("b", attempt.vote, (4, 2)))
    assert step == Fetch("b", START)
    step = attempt.fetched("b", [FIRST], writes)
    assert step == Fetch("b", (4, 1))
    attempt.fetched("b", [SECOND], writes)
    assert attempt.phase is Phase.WON
    assert writes == [VoteCast(1, attempt.vote), Undone(1, START), Appended(FIRST), Appended(SECOND)]


def test_higher_vote_ends_the_attempt() -> None:
    attempt = swapped(replica(FIRST))
    attempt.voted("b", attempt.vote, ballot("b", Vote(6, "b", 1), (4, 1), granted=False))
    assert attempt.phase is Phase.LOST


def test_refusal_by_an_incomplete_replica_does_not() -> None:
    attempt = swapped(replica(FIRST))
    attempt.voted("b", attempt.vote, ballot("b", OLD, START, granted=False))
    assert attempt.phase is Phase.VOTING


def test_late_answers_to_another_vote_count_for_nothing() -> None:
    attempt = swapped(replica(FIRST))
    attempt.voted("a", attempt.vote, ballot("a", attempt.vote, (4, 1)))
    attempt.voted("b", Vote(3, "a", 7), ballot("b", Vote(3, "a", 7), (4, 1)))
    attempt.voted("d", attempt.vote, ballot("d", attempt.vote, (4, 1)))
    assert attempt.phase is Phase.VOTING


def test_disk_that_the_record_does_not_name_has_no_vote() -> None:
    attempt = swapped(replica(FIRST))
    attempt.voted("a", attempt.vote, ballot("a", attempt.vote, (4, 1)))
    attempt.voted("c", attempt.vote, replace(ballot("c", attempt.vote, START), generation=3))
    assert attempt.phase is Phase.VOTING
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


THIRD = new_entry(1, (4, 3), (4, 2), b"third")


def fetching(own: Replica, writes: list[Write], base: Position = START) -> tuple[TakeOver, Step | None]:
    """b has up to THIRD, and knows what is up to `base` to be committed."""
    attempt = swapped(own, writes)
    last = own.log.last
    attempt.voted("a", attempt.vote, ballot("a", attempt.vote, last))
    step = attempt.voted("b", attempt.vote, replace(ballot("b", attempt.vote, THIRD.position), base=base))
    writes.clear()
    return attempt, step


def test_entries_that_follow_what_the_member_knows_to_be_committed_are_enough_if_that_is_here() -> None:
    writes: list[Write] = []
    attempt, step = fetching(replica(FIRST, SECOND), writes, SECOND.position)
    assert step == Fetch("b", SECOND.position)
    attempt.fetched("b", [THIRD], writes)
    assert (attempt.phase, writes) == (Phase.WON, [Appended(THIRD)])


def test_what_the_member_has_not_kept_as_entries_comes_as_state() -> None:
    writes: list[Write] = []
    own = replica(FIRST)
    attempt, step = fetching(own, writes, SECOND.position)
    assert step == FetchState("b", START)
    state = SnapshotPart(1, 1, SECOND.position, b"rows", first=True, last=False)
    assert attempt.fetched_state("b", state, writes) is None
    assert own.log.last == FIRST.position
    step = attempt.fetched_state("b", replace(state, part=b"more", first=False, last=True), writes)
    assert step == Fetch("b", SECOND.position)
    attempt.fetched("b", [THIRD], writes)
    assert attempt.phase is Phase.WON
    assert writes == [
        StateBegin(1, START),
        StatePart(1, b"rows"),
        StatePart(1, b"more"),
        StateEnd(1, SECOND.position),
        Appended(THIRD),
        StateInstall(1),
    ]
    assert (own.log.base, own.log.last) == (SECOND.position, THIRD.position)


def test_state_alone_is_enough_if_nothing_follows_it() -> None:
    writes: list[Write] = []
    own = replica(FIRST)
    attempt, _ = fetching(own, writes, THIRD.position)
    attempt.fetched_state("b", SnapshotPart(1, 1, THIRD.position, b"", first=True, last=True), writes)
    assert (attempt.phase, writes[-1]) == (Phase.WON, StateInstall(1))


def test_fetch_without_progress_is_lost_with_a_reason() -> None:
    writes: list[Write] = []
    attempt, _ = fetching(replica(FIRST), writes)
    assert attempt.fetched("b", [], writes) is None
    assert attempt.phase is Phase.LOST
    assert attempt.reason == "b has no sound entry that follows (0, 0)"


def test_damaged_entry_is_not_taken() -> None:
    writes: list[Write] = []
    attempt, _ = fetching(replica(FIRST), writes)
    attempt.fetched("b", [FIRST, replace(SECOND, payload=b"secone")], writes)
    assert writes == []
    assert attempt.phase is Phase.FETCHING
    attempt.fetched("b", [replace(SECOND, payload=b"secone")], writes)
    assert (attempt.phase, writes) == (Phase.LOST, [])


def test_member_that_does_not_get_it_on_is_left_for_the_next() -> None:
    writes: list[Write] = []
    attempt = swapped(replica(FIRST))
    attempt.voted("a", attempt.vote, ballot("a", attempt.vote, START))
    attempt.phase = Phase.VOTING
    attempt._ballots = {
        "a": ballot("a", attempt.vote, FIRST.position),
        "b": replace(ballot("b", attempt.vote, THIRD.position), base=SECOND.position),
    }
    step = attempt.voted("c", attempt.vote, ballot("c", attempt.vote, THIRD.position))
    # Entries before state.
    assert step == Fetch("c", START)
    assert attempt.fetched("c", [THIRD], writes) == FetchState("b", START)


def test_late_answer_to_an_earlier_fetch_is_no_lack_of_progress() -> None:
    writes: list[Write] = []
    attempt, _ = fetching(replica(), writes)
    assert attempt.fetched("b", [FIRST], writes) == Fetch("b", FIRST.position)
    assert attempt.fetched("b", [FIRST], writes) is None
    assert attempt.fetched("b", [SECOND, THIRD], writes) is None
    assert attempt.phase is Phase.WON


def test_state_that_does_not_fit_is_not_taken() -> None:
    writes: list[Write] = []
    attempt, _ = fetching(replica(FIRST), writes, SECOND.position)
    state = SnapshotPart(1, 1, SECOND.position, b"", first=True, last=True, after=FIRST.position)
    assert attempt.fetched_state("b", state, writes) is None
    assert (attempt.phase, writes) == (Phase.LOST, [])
    assert attempt.reason == "the state of b goes from (4, 1) to (4, 2)"


def test_late_answer_leaves_what_a_later_leader_has_staged() -> None:
    writes: list[Write] = []
    own = replica(FIRST)
    attempt, _ = fetching(own, writes)
    own.stage(Vote(9, "c", 1), writes)
    with pytest.raises(StaleLeader):
        attempt.fetched("b", [], writes)
    assert own.staged is not None
