"""A replica set between a leader and one peer: `ReplicaSetLeader` and `Receiver`, message by message."""

from __future__ import annotations

from dataclasses import replace

import pytest

from amqpd.peers.entry import START, BrokenConnection, Frame, Vote
from amqpd.peers.messages import Acknowledgement, SnapshotPart
from amqpd.replication.leader import ReplicaSetLeader
from amqpd.replication.log import Log
from amqpd.replication.receiver import Receiver
from amqpd.replication.replica import (
    Appended,
    Replica,
    Replicas,
    StateBegin,
    StateDiscard,
    StateEnd,
    StateInstall,
    StatePart,
    Undone,
    VoteCast,
    Write,
)

MEMBERS = ("a", "b", "c")
ALL_OF_11 = Acknowledgement(11, {}, {}, frozenset(), frozenset())


class Peer:
    """The peer's end, with an empty log of sources 1 and 2."""

    def __init__(self, leader: str = "a", incarnation: int = 1) -> None:
        self.replicas = Replicas(Replica(source, Log(START)) for source in (1, 2))
        self.writes: list[Write] = []
        self.receiver = Receiver(leader, incarnation, self.replicas)

    def again(self, leader: str = "a", incarnation: int = 1) -> None:
        """A new connection."""
        self.receiver = Receiver(leader, incarnation, self.replicas)


def leader_of(*sources: int, epoch: int = 1, number: int = 10) -> ReplicaSetLeader:
    replica_set = ReplicaSetLeader(MEMBERS, number)
    for source in sources:
        replica_set.begin(source, epoch, START, [])
    return replica_set


def test_frame_is_committed_when_the_leader_and_one_of_two_peers_have_it() -> None:
    replica_set, peer = leader_of(1, 2), Peer()
    opened = peer.receiver.open(replica_set.open("b"), peer.writes)
    replica_set.answered("b", opened)
    frame = replica_set.cut(11, {1: b"one", 2: b"two"})
    answer = peer.receiver.receive(frame, peer.writes)
    replica_set.answered("b", answer)
    assert replica_set.committed == 10
    replica_set.note_stored(11)
    assert replica_set.committed == 11
    assert peer.writes == [
        VoteCast(1, Vote(1, "a", 1)),
        VoteCast(2, Vote(1, "a", 1)),
        *(Appended(entry) for entry in frame.entries),
    ]


def test_peers_alone_commit_nothing() -> None:
    replica_set = leader_of(1)
    for name in ("b", "c"):
        replica_set.open(name)
    replica_set.cut(11, {1: b""})
    for name in ("b", "c"):
        replica_set.answered(name, ALL_OF_11)
    assert replica_set.committed == 10


def test_lost_frame_ends_the_connection() -> None:
    replica_set, peer = leader_of(1), Peer()
    peer.receiver.open(replica_set.open("b"), peer.writes)
    replica_set.cut(11, {1: b"lost"})
    with pytest.raises(ValueError, match="frame 12 follows 11, the last one here is 10"):
        peer.receiver.receive(replica_set.cut(12, {1: b""}), peer.writes)


def test_what_was_lost_with_a_connection_comes_over_the_next_one() -> None:
    replica_set, peer = leader_of(1, 2), Peer()
    peer.receiver.open(replica_set.open("b"), peer.writes)
    lost = replica_set.cut(11, {1: b"lost"})
    replica_set.close("b")
    replica_set.note_stored(11)
    peer.again()
    answer = peer.receiver.open(replica_set.open("b"), peer.writes)
    assert answer.lacks == {1: START}
    missed, behind = replica_set.answered("b", answer)
    assert replica_set.committed == 10
    assert (missed, behind) == ([lost.entries], [])
    repaired = peer.receiver.repair(missed[0], peer.writes)
    assert repaired.lacks == {}
    replica_set.answered("b", repaired)
    assert replica_set.committed == 11


def test_source_that_does_not_match_holds_up_only_what_needs_it() -> None:
    replica_set, peer = leader_of(1, 2), Peer()
    replica_set.cut(11, {1: b"before the peer came"})
    replica_set.note_stored(11)
    answer = peer.receiver.open(replica_set.open("b"), peer.writes)
    replica_set.answered("b", answer)
    replica_set.answered("b", peer.receiver.receive(replica_set.cut(12, {2: b""}), peer.writes))
    replica_set.note_stored(12)
    # Source 1 has one copy of frame 11, so the replica set cannot pass it.
    assert replica_set.committed == 10
    replica_set.open("c")
    replica_set.answered("c", replace(ALL_OF_11, number=12))
    assert replica_set.committed == 12


def test_first_of_several_gaps_says_from_where_to_send() -> None:
    replica_set, peer = leader_of(1), Peer()
    chain = [replica_set.cut(number, {1: b"%d" % number}).entries[0] for number in range(11, 16)]
    opening = replica_set.open("b")
    peer.receiver.open(opening, peer.writes)
    for entry in chain[:1]:
        peer.replicas[1].take(Vote(1, "a", 1), entry, peer.writes)
    for number in (16, 17):
        answer = peer.receiver.receive(replica_set.cut(number, {1: b""}), peer.writes)
        assert answer.lacks == {1: START}
    missed, _ = replica_set.answered("b", answer)
    assert peer.receiver.repair(missed[0], peer.writes).lacks == {}


def test_divergent_tail_is_undone_where_it_differs() -> None:
    old, new, peer = leader_of(1), ReplicaSetLeader(MEMBERS, 20), Peer()
    peer.receiver.open(old.open("b"), peer.writes)
    shared = old.cut(11, {1: b"shared"})
    for frame in (shared, old.cut(12, {1: b"of the old leader only"})):
        peer.receiver.receive(frame, peer.writes)
    new.begin(1, 2, START, shared.entries)
    peer.again("c")
    peer.receiver.open(new.open("b"), peer.writes)
    peer.writes.clear()
    frame = new.cut(21, {1: b"instead"})
    answer = peer.receiver.receive(frame, peer.writes)
    assert answer.lacks == {}
    assert peer.writes == [Undone(1, (1, 11)), Appended(frame.entries[0])]


def test_fenced_leader_is_told_by_whom() -> None:
    replica_set, peer = leader_of(1, 2), Peer()
    peer.receiver.open(replica_set.open("b"), peer.writes)
    assert peer.replicas.cast_vote(1, Vote(5, "c", 3), peer.writes)
    answer = peer.receiver.receive(replica_set.cut(11, {1: b"", 2: b""}), peer.writes)
    assert answer.fenced == {1: Vote(5, "c", 3)}
    replica_set.answered("b", answer)
    assert replica_set.fenced == {1: 5}


def test_each_answer_says_what_was_voted_for_before_it() -> None:
    replica_set, peer = leader_of(1, 2), Peer()
    peer.receiver.open(replica_set.open("b"), peer.writes)
    peer.replicas.cast_vote(1, Vote(5, "c", 3), peer.writes)
    assert peer.receiver.told(10, peer.writes).fenced == {1: Vote(5, "c", 3)}
    assert not peer.receiver.follows(1, Vote(1, "a", 1))
    assert peer.receiver.follows(2, Vote(1, "a", 1))


def test_leader_that_ended_its_leader_lease_is_not_waited_for() -> None:
    replica_set, peer = leader_of(1, 2), Peer()
    peer.receiver.open(replica_set.open("b"), peer.writes)
    peer.receiver.ended(1, 1)
    assert not peer.receiver.follows(1, Vote(1, "a", 1))
    assert peer.receiver.sources == {2: Vote(1, "a", 1)}


def test_leader_that_was_fenced_and_won_again_is_heard_over_the_same_connection() -> None:
    replica_set, peer = leader_of(1), Peer()
    peer.receiver.open(replica_set.open("b"), peer.writes)
    peer.replicas.cast_vote(1, Vote(2, "c", 1), peer.writes)
    assert peer.receiver.receive(replica_set.cut(11, {1: b""}), peer.writes).fenced
    replica_set.end(1)
    peer.receiver.open(replica_set.begin(1, 3, START, []), peer.writes)
    answer = peer.receiver.receive(replica_set.cut(12, {1: b""}), peer.writes)
    assert (answer.fenced, answer.lacks) == ({}, {})


def test_second_leader_of_one_epoch_is_fenced() -> None:
    replica_set, peer = leader_of(1), Peer("c")
    peer.replicas.cast_vote(1, Vote(1, "b", 1), peer.writes)
    assert peer.receiver.open(replica_set.open("b"), peer.writes).fenced == {1: Vote(1, "b", 1)}


def test_peer_that_lacks_more_than_is_kept_is_caught_up_by_state() -> None:
    replica_set, peer = ReplicaSetLeader(MEMBERS, 30), Peer()
    replica_set.begin(1, 4, (3, 25), [])
    answer = peer.receiver.open(replica_set.open("b"), peer.writes)
    answer = peer.receiver.receive(replica_set.cut(31, {1: b""}), peer.writes)
    assert replica_set.answered("b", answer) == ([], [1])
    replica_set.sends_state("b", 1, (3, 25))
    assert replica_set.answered("b", answer) == ([], [])
    peer.writes.clear()
    for part, first in ((b"rows", True), (b"more", False)):
        answer = peer.receiver.replace(SnapshotPart(1, 4, (3, 25), part, first, not first), peer.writes)
    state = [StateBegin(1), StatePart(1, b"rows"), StatePart(1, b"more"), StateEnd(1, (3, 25))]
    assert peer.writes == [*state, StateInstall(1)]
    missed, behind = replica_set.answered("b", answer)
    assert (len(missed), behind) == (1, [])
    assert peer.receiver.repair(missed[0], peer.writes).lacks == {}


def test_peer_in_the_middle_of_that_votes_with_what_it_had() -> None:
    replica_set, peer = leader_of(1), Peer()
    peer.receiver.open(replica_set.open("b"), peer.writes)
    peer.receiver.receive(replica_set.cut(11, {1: b"had"}), peer.writes)
    replica_set.cut(12, {1: b"lacks"})
    peer.again()
    peer.receiver.open(replica_set.open("b"), peer.writes)
    peer.receiver.replace(SnapshotPart(1, 1, (1, 11), b"rows", first=True, last=False), peer.writes)
    answer = peer.receiver.receive(replica_set.cut(13, {1: b""}), peer.writes)
    assert answer.incomplete == {1}
    assert peer.replicas[1].log.last == (1, 11)
    peer.writes.clear()
    assert peer.replicas.cast_vote(1, Vote(9, "c", 1), peer.writes)
    assert peer.writes == [StateDiscard(1), VoteCast(1, Vote(9, "c", 1))]


def test_state_that_is_not_lacked_any_more_is_passed_over() -> None:
    """It was sent after an old answer; the peer has acknowledged more since."""
    replica_set, peer = leader_of(1), Peer()
    peer.receiver.open(replica_set.open("b"), peer.writes)
    peer.receiver.receive(replica_set.cut(11, {1: b"acknowledged"}), peer.writes)
    peer.writes.clear()
    answer = peer.receiver.replace(SnapshotPart(1, 1, START, b"", first=True, last=True), peer.writes)
    assert (peer.writes, peer.replicas[1].log.last) == ([], (1, 11))
    assert answer.lacks == {}


def test_state_of_an_epoch_that_has_ended_does_not_mix_with_the_next() -> None:
    replica_set, peer = ReplicaSetLeader(MEMBERS, 30), Peer()
    peer.receiver.open(replica_set.open("b"), peer.writes)
    for epoch, base in ((4, (3, 25)), (5, (3, 28))):
        peer.receiver.open(replica_set.begin(1, epoch, base, []), peer.writes)
        peer.receiver.replace(
            SnapshotPart(1, epoch, base, b"first of %d" % epoch, first=True, last=False), peer.writes
        )
        replica_set.end(1)
    peer.writes.clear()
    peer.receiver.replace(SnapshotPart(1, 4, (3, 25), b"last of 4", first=False, last=True), peer.writes)
    assert peer.writes == []
    peer.receiver.replace(SnapshotPart(1, 5, (3, 28), b"last of 5", first=False, last=True), peer.writes)
    assert peer.writes == [StatePart(1, b"last of 5"), StateEnd(1, (3, 28)), StateInstall(1)]


def test_state_of_an_older_connection_does_not_mix_with_that_of_the_next() -> None:
    replica_set, peer = ReplicaSetLeader(MEMBERS, 30), Peer()
    replica_set.begin(1, 4, (3, 25), [])
    state = SnapshotPart(1, 4, (3, 25), b"old", first=True, last=False)
    peer.receiver.open(replica_set.open("b"), peer.writes)
    peer.receiver.replace(state, peer.writes)
    older = peer.receiver
    peer.again()
    peer.receiver.open(replica_set.open("b"), peer.writes)
    peer.receiver.replace(replace(state, part=b"new"), peer.writes)
    peer.writes.clear()
    older.replace(replace(state, first=False, last=True), peer.writes)
    assert peer.writes == []
    peer.receiver.replace(replace(state, part=b"newer", first=False, last=True), peer.writes)
    assert peer.writes == [StatePart(1, b"newer"), StateEnd(1, (3, 25)), StateInstall(1)]


def test_what_was_acknowledged_is_had_again_before_state_takes_its_place() -> None:
    replica_set, peer = leader_of(1), Peer()
    peer.receiver.open(replica_set.open("b"), peer.writes)
    peer.receiver.receive(replica_set.cut(11, {1: b"acknowledged"}), peer.writes)
    replica_set.cut(12, {1: b"missed"})
    peer.again()
    peer.receiver.open(replica_set.open("b"), peer.writes)
    answer = peer.receiver.replace(SnapshotPart(1, 1, START, b"", first=True, last=True), peer.writes)
    assert peer.replicas[1].log.last == (1, 11)
    missed, _ = replica_set.answered("b", answer)
    peer.receiver.repair(missed[0], peer.writes)
    assert peer.writes[-1] == StateInstall(1)
    assert peer.replicas[1].log.last == (1, 12)


def test_empty_disk_is_behind_a_leader_that_keeps_nothing() -> None:
    replica_set, peer = ReplicaSetLeader(MEMBERS, 30), Peer()
    replica_set.begin(1, 4, (3, 25), [])
    answer = peer.receiver.open(replica_set.open("b", [1]), peer.writes)
    assert answer.lacks == {1: START}
    assert replica_set.answered("b", answer) == ([], [1])
    assert replica_set.admissible("b") == set()


def test_committed_frames_are_known_at_the_peer_with_the_next_one() -> None:
    replica_set, peer = leader_of(1), Peer()
    peer.receiver.open(replica_set.open("b"), peer.writes)
    peer.receiver.receive(replica_set.cut(11, {1: b""}), peer.writes)
    assert peer.replicas[1].log.base == START
    peer.receiver.receive(Frame(12, 11, (), 11), peer.writes)
    assert peer.replicas[1].log.base == (1, 11)


def test_disk_that_the_record_does_not_name_counts_when_it_is_admitted() -> None:
    replica_set = leader_of(1, 2)
    replica_set.open("b", [1])
    replica_set.cut(11, {1: b""})
    replica_set.note_stored(11)
    assert replica_set.admissible("b") == set()
    replica_set.answered("b", replace(ALL_OF_11, number=10))
    assert replica_set.admissible("b") == set()
    replica_set.answered("b", ALL_OF_11)
    assert replica_set.committed == 10
    assert replica_set.admissible("b") == {1}
    assert (replica_set.uncounted_at(1), replica_set.uncounted_at(2)) == ({"b"}, set())
    replica_set.admit("b", 1)
    assert replica_set.uncounted_at(1) == set()
    assert replica_set.committed == 11


def test_entries_for_a_peer_that_is_away_are_bounded() -> None:
    replica_set, peer = ReplicaSetLeader(MEMBERS, 10, kept_bytes_max=50), Peer()
    replica_set.begin(1, 1, START, [])
    replica_set.open("c")
    for number in range(11, 31):
        replica_set.cut(number, {1: bytes(10)})
        replica_set.note_stored(number)
    assert replica_set.open_bytes == 200
    replica_set.answered("c", replace(ALL_OF_11, number=30))
    assert (replica_set.committed, replica_set.open_bytes) == (30, 20)
    answer = peer.receiver.open(replica_set.open("b"), peer.writes)
    assert replica_set.answered("b", answer) == ([], [1])


def test_what_every_member_has_is_not_kept() -> None:
    replica_set = leader_of(1)
    for name in ("b", "c"):
        replica_set.open(name)
    replica_set.cut(11, {1: bytes(10)})
    replica_set.note_stored(11)
    replica_set.answered("b", ALL_OF_11)
    assert replica_set.open_bytes == 10
    replica_set.answered("c", ALL_OF_11)
    assert replica_set.open_bytes == 0


def test_what_a_peer_lacks_is_known_in_bytes() -> None:
    replica_set, peer = leader_of(1, 2), Peer()
    assert replica_set.lacks_bytes("b", 1) is None  # it is away
    replica_set.answered("b", peer.receiver.open(replica_set.open("b"), peer.writes))
    first, second = replica_set.cut(11, {1: b"four"}), replica_set.cut(12, {1: b"fives", 2: b""})
    replica_set.note_stored(12)
    assert (replica_set.lacks_bytes("b", 1), replica_set.lacks_bytes("b", 2)) == (9, 0)
    replica_set.answered("b", peer.receiver.receive(first, peer.writes))
    assert replica_set.lacks_bytes("b", 1) == 5
    replica_set.answered("b", peer.receiver.receive(second, peer.writes))
    assert replica_set.lacks_bytes("b", 1) == 0
    # What it lacked when it connected again is sent again, and counted as far as it has answered.
    replica_set.close("b")
    replica_set.cut(13, {1: b"sevens!"})
    peer.again()
    missed, _ = replica_set.answered("b", peer.receiver.open(replica_set.open("b"), peer.writes))
    assert replica_set.lacks_bytes("b", 1) == 7
    replica_set.answered("b", peer.receiver.repair(missed[0], peer.writes))
    assert replica_set.lacks_bytes("b", 1) == 0


def test_only_members_get_a_lane() -> None:
    with pytest.raises(ValueError, match="d is no member"):
        leader_of(1).open("d")


def test_what_a_peer_lacks_is_sent_once_as_far_as_it_answers() -> None:
    replica_set, peer = ReplicaSetLeader(MEMBERS, 10, missed_bytes_max=1), Peer()
    replica_set.begin(1, 1, START, [])
    for number in range(11, 31):
        replica_set.cut(number, {1: b"1"})
    opened = peer.receiver.open(replica_set.open("b"), peer.writes)
    missed, _ = replica_set.answered("b", opened)
    assert [each[0].position[1] for each in missed] == [11, 12, 13, 14]
    assert replica_set.answered("b", opened) == ([], [])
    more, _ = replica_set.answered("b", peer.receiver.repair(missed[0], peer.writes))
    assert [each[0].position[1] for each in more] == [15]


def test_report_of_a_lower_position_is_answered_from_there() -> None:
    """The peer has something of an older leader up to the first one, which the leader cannot know."""
    replica_set = leader_of(1)
    shared = replica_set.cut(11, {1: b"shared"})
    replica_set.cut(13, {1: b"lacks"})
    replica_set.open("b")
    for position in ((1, 12), (1, 10)):
        missed, _ = replica_set.answered("b", replace(ALL_OF_11, lacks={1: position}))
    assert missed[0][0] == shared.entries[0]


def test_entries_of_a_source_apart_at_a_connected_peer_are_bounded() -> None:
    replica_set = ReplicaSetLeader(MEMBERS, 10, kept_bytes_max=50)
    for source in (1, 2):
        replica_set.begin(source, 1, START, [])
    for name in ("b", "c"):
        replica_set.open(name)
    apart = replace(ALL_OF_11, lacks={1: START})
    for number in range(11, 31):
        replica_set.cut(number, {1: bytes(10), 2: bytes(10)})
        replica_set.note_stored(number)
        replica_set.answered("b", replace(apart, number=number))
        replica_set.answered("c", replace(ALL_OF_11, number=number))
        assert replica_set.open_bytes_of(1) <= 60
    assert (replica_set.open_bytes_of(2), replica_set.open_bytes) == (0, 0)
    replica_set.open("b")
    assert replica_set.answered("b", apart) == ([], [1])


def test_source_without_a_majority_does_not_stop_its_lane() -> None:
    replica_set, peer = leader_of(1, 2), Peer()
    replica_set.cut(11, {1: b"before the peer came"})
    replica_set.note_stored(11)
    replica_set.answered("b", peer.receiver.open(replica_set.open("b"), peer.writes))
    for number in (12, 13):
        answer = peer.receiver.receive(replica_set.cut(number, {2: b"", 1: b""}), peer.writes)
        replica_set.note_stored(number)
        replica_set.answered("b", answer)
    assert (replica_set.committed, replica_set.committed_of(1), replica_set.committed_of(2)) == (10, 10, 13)
    peer.receiver.receive(replica_set.cut(14, {}), peer.writes)
    assert peer.replicas[2].log.base == (1, 13)
    replica_set.close("b")
    assert (replica_set.committed, replica_set.committed_of(1), replica_set.committed_of(2)) == (10, 10, 13)
    replica_set.open("c")
    replica_set.answered("c", replace(ALL_OF_11, number=13))
    assert (replica_set.committed, replica_set.left_out) == (13, {})


def test_peer_commits_nothing_of_a_source_that_is_left_out() -> None:
    replica_set, peer = leader_of(1, 2), Peer()
    peer.receiver.open(replica_set.open("b"), peer.writes)
    frame = replica_set.cut(11, {1: b"", 2: b""})
    peer.receiver.receive(frame, peer.writes)
    peer.receiver.receive(Frame(12, 11, (), committed=10, passed=11, left_out=(1,)), peer.writes)
    assert (peer.replicas[1].log.base, peer.replicas[2].log.base) == (START, (1, 11))
    peer.receiver.receive(Frame(13, 12, (), committed=11), peer.writes)
    assert peer.replicas[1].log.base == (1, 11)


def test_left_out_source_is_kept_until_it_has_a_majority() -> None:
    replica_set = ReplicaSetLeader(MEMBERS, 10, kept_bytes_max=50)
    for source in (1, 2):
        replica_set.begin(source, 1, START, [])
    for name in ("b", "c"):
        replica_set.open(name)
    for number in range(11, 31):
        replica_set.cut(number, {1: bytes(10), 2: bytes(10)})
        replica_set.note_stored(number)
        for name in ("b", "c"):
            replica_set.answered(name, replace(ALL_OF_11, number=number, contradicted=frozenset([1])))
    assert (replica_set.committed_of(1), replica_set.committed_of(2)) == (10, 30)
    assert (replica_set.open_bytes_of(1), replica_set.open_bytes_of(2), replica_set.open_bytes) == (200, 0, 0)


def test_damaged_entry_breaks_the_connection_and_nothing_of_its_frame_is_taken() -> None:
    replica_set, peer = leader_of(1, 2), Peer()
    peer.receiver.open(replica_set.open("b"), peer.writes)
    peer.writes.clear()
    frame = replica_set.cut(11, {1: b"whole", 2: b"damaged"})
    whole, damaged = frame.entries[0], replace(frame.entries[1], payload=b"damagee")
    with pytest.raises(BrokenConnection, match=r"entry \(1, 11\) of source 2 is not what its checksum says"):
        peer.receiver.receive(replace(frame, entries=(whole, damaged)), peer.writes)
    with pytest.raises(BrokenConnection):
        peer.receiver.repair((damaged,), peer.writes)
    assert peer.writes == []
