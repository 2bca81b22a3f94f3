"""State that a leader sends over a replica set: as a difference, in rounds, and what stands at the peer meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from amqpd.peers.entry import START, BrokenConnection, Frame, Vote, new_entry
from amqpd.peers.messages import OpenedSource, Opening, SnapshotPart
from amqpd.replication.leader import ReplicaSetLeader
from amqpd.replication.log import EntryHead, Log
from amqpd.replication.replica import (
    Replica,
    Replicas,
    StateBegin,
    StateDiscard,
    StateEnd,
    StateInstall,
    StatePart,
    VoteCast,
)
from tests.replication.test_replica_set import ALL_OF_11, MEMBERS, Peer, leader_of


def behind_with_base() -> tuple[ReplicaSetLeader, Peer]:
    """The peer knows (1, 11) to be committed, has (1, 12) of a leader that lost it, and lacks what is not kept."""
    old, peer = leader_of(1), Peer()
    peer.receiver.open(old.open("b"), peer.writes)
    peer.receiver.receive(old.cut(11, {1: b"committed"}), peer.writes)
    peer.receiver.told(11, peer.writes)
    peer.receiver.receive(old.cut(12, {1: b"lost"}), peer.writes)
    replica_set = ReplicaSetLeader(MEMBERS, 30)
    replica_set.begin(1, 4, (3, 25), [])
    peer.again("c")
    peer.writes.clear()
    return replica_set, peer


def test_state_is_a_difference_to_what_the_peer_has_committed() -> None:
    replica_set, peer = behind_with_base()
    answer = peer.receiver.open(replica_set.open("b"), peer.writes)
    assert answer.bases == {1: (1, 11)}
    assert replica_set.answered("b", answer) == ([], [1])
    assert replica_set.peers["b"].bases[1] == (1, 11)
    peer.writes.clear()
    state = SnapshotPart(1, 1, (3, 25), b"what follows", first=True, last=True, after=(1, 11))
    assert peer.receiver.replace(state, peer.writes).lacks == {}
    assert peer.writes == [
        StateBegin(1, (1, 11)),
        StatePart(1, b"what follows"),
        StateEnd(1, (3, 25)),
        StateInstall(1),
    ]


def test_what_the_peer_has_committed_may_pass_the_beginning_of_the_state() -> None:
    replica_set, peer = behind_with_base()
    peer.receiver.open(replica_set.open("b"), peer.writes)
    peer.writes.clear()
    state = SnapshotPart(1, 1, (3, 25), b"", first=True, last=True, after=(1, 7))
    assert peer.receiver.replace(state, peer.writes).lacks == {}
    assert peer.writes[0] == StateBegin(1, (1, 7))


def test_state_that_leaves_out_what_the_peer_has_not_breaks_the_connection() -> None:
    replica_set, peer = behind_with_base()
    peer.receiver.open(replica_set.open("b"), peer.writes)
    peer.writes.clear()
    with pytest.raises(BrokenConnection, match=r"goes on from \(1, 12\), and \(1, 11\) is committed"):
        peer.receiver.replace(SnapshotPart(1, 1, (3, 25), b"", first=True, last=True, after=(1, 12)), peer.writes)
    assert (peer.writes, peer.replicas[1].usable) == ([], True)


def test_vote_in_the_middle_of_a_difference_leaves_what_stood() -> None:
    replica_set, peer = behind_with_base()
    peer.receiver.open(replica_set.open("b"), peer.writes)
    peer.receiver.replace(SnapshotPart(1, 1, (3, 25), b"", first=True, last=False, after=(1, 11)), peer.writes)
    assert peer.replicas.cast_vote(1, Vote(9, "b", 1), peer.writes)
    assert (peer.replicas[1].log.base, peer.replicas[1].log.last) == ((1, 11), (1, 12))
    answer = peer.receiver.replace(
        SnapshotPart(1, 1, (3, 25), b"", first=False, last=True, after=(1, 11)), peer.writes
    )
    assert answer.fenced == {1: Vote(9, "b", 1)}
    assert peer.writes[-2:] == [StateDiscard(1), VoteCast(1, Vote(9, "b", 1))]


def test_state_catch_up_ends_although_more_is_committed_than_is_kept() -> None:
    replica_set, peer = ReplicaSetLeader(MEMBERS, 10, kept_bytes_max=20), Peer()
    replica_set.begin(1, 1, START, [])
    replica_set.open("c")
    commit_many(replica_set, range(11, 20))
    replica_set.answered("b", peer.receiver.open(replica_set.open("b"), peer.writes))
    transfer = replica_set.sends_state("b", 1, (1, 19))
    answer = peer.receiver.replace(SnapshotPart(1, transfer, (1, 19), b"", first=True, last=False), peer.writes)
    for frame in commit_many(replica_set, range(20, 40)):
        answer = peer.receiver.receive(frame, peer.writes)
    assert replica_set.answered("b", answer) == ([], [])
    assert replica_set.open_bytes <= 20
    answer = peer.receiver.replace(SnapshotPart(1, transfer, (1, 19), b"", first=False, last=True), peer.writes)
    missed, behind = replica_set.answered("b", answer)
    assert ([each.position[1] for each in missed[0]], behind) == ([*range(20, 40)], [])
    assert peer.receiver.repair(missed[0], peer.writes).lacks == {}


def commit_many(replica_set: ReplicaSetLeader, numbers: range) -> list[Frame]:
    """With the vote of c."""
    frames = []
    for number in numbers:
        frames.append(replica_set.cut(number, {1: bytes(10)}))
        replica_set.note_stored(number)
        replica_set.answered("c", replace(ALL_OF_11, number=number))
    return frames


def test_what_comes_during_a_state_and_is_too_much_to_be_kept_is_in_the_next_one() -> None:
    """Which is a difference to the first one: a large backlog is not sent twice."""
    replica_set, peer = ReplicaSetLeader(MEMBERS, 10, kept_bytes_max=20, behind_bytes_max=50), Peer()
    replica_set.begin(1, 1, START, [])
    replica_set.open("c")
    commit_many(replica_set, range(11, 20))
    replica_set.answered("b", peer.receiver.open(replica_set.open("b"), peer.writes))
    transfer = replica_set.sends_state("b", 1, (1, 19))
    answer = peer.receiver.replace(SnapshotPart(1, transfer, (1, 19), b"", first=True, last=False), peer.writes)
    for frame in commit_many(replica_set, range(20, 28)):
        answer = peer.receiver.receive(frame, peer.writes)
    assert replica_set.answered("b", answer) == ([], [])
    assert replica_set.sends("b", 1, transfer)
    assert replica_set.peers["b"].transfers[1].behind is None
    answer = peer.receiver.replace(SnapshotPart(1, transfer, (1, 19), b"", first=False, last=True), peer.writes)
    assert peer.writes[-1] == StateInstall(1)
    assert replica_set.answered("b", answer) == ([], [1])
    assert replica_set.peers["b"].bases[1] == (1, 19)
    assert not replica_set.has_all("b", 1)
    again = replica_set.sends_state("b", 1, (1, 27))
    assert (replica_set.sends("b", 1, transfer), replica_set.sends("b", 1, again)) == (False, True)
    peer.receiver.replace(SnapshotPart(1, again, (1, 27), b"", True, False, (1, 19)), peer.writes)
    [frame] = commit_many(replica_set, range(28, 29))
    peer.receiver.receive(frame, peer.writes)
    answer = peer.receiver.replace(SnapshotPart(1, again, (1, 27), b"", False, True, (1, 19)), peer.writes)
    missed, behind = replica_set.answered("b", answer)
    assert ([each.position for each in missed[0]], behind) == ([(1, 28)], [])
    answer = peer.receiver.repair(missed[0], peer.writes)
    replica_set.answered("b", answer)
    assert (answer.lacks, replica_set.has_all("b", 1)) == ({}, True)
    assert (
        replica_set.sent.transfers_begun,
        replica_set.sent.transfers_done,
        replica_set.sent.transfers_followed,
    ) == (2, 2, 1)


def test_a_state_stands_alone_only_if_it_has_what_was_acknowledged_to_an_older_leader() -> None:
    """It may be what a majority rests on."""
    peer = Peer()
    peer.replicas = Replicas([Replica(1, Log((1, 5), [EntryHead((2, 30), (1, 5), 7)]), Vote(2, "c", 1))])
    peer.again()
    peer.receiver.open(Opening(40, (OpenedSource(1, 3, (3, 40), None),), 0), peer.writes)
    whole = SnapshotPart(1, 1, (2, 20), b"", first=True, last=True, after=(1, 5))
    answer = peer.receiver.replace(whole, peer.writes)
    assert StateInstall(1) not in peer.writes
    assert answer.bases == {1: (1, 5)}
    answer = peer.receiver.replace(replace(whole, transfer=2, base=(3, 35)), peer.writes)
    assert peer.writes[-1] == StateInstall(1)
    assert (answer.lacks, answer.bases) == ({1: (3, 35)}, {1: (3, 35)})


def test_a_state_that_is_contradicted_does_not_take_its_place() -> None:
    peer = Peer()
    peer.replicas = Replicas([Replica(1, Log((1, 5), [EntryHead((2, 30), (1, 5), 7)]), Vote(2, "c", 1))])
    peer.again()
    peer.receiver.open(Opening(40, (OpenedSource(1, 3, (3, 40), None),), 0), peer.writes)
    peer.receiver.replace(SnapshotPart(1, 1, (2, 20), b"", first=True, last=True, after=(1, 5)), peer.writes)
    answer = peer.receiver.receive(Frame(41, 40, (new_entry(1, (3, 41), (2, 10), b""),), 0), peer.writes)
    assert answer.contradicted == {1}
    assert peer.writes[-1] == StateDiscard(1)
    assert StateInstall(1) not in peer.writes


def test_what_is_not_committed_ends_no_transfer_of_state() -> None:
    """It is kept in any case."""
    replica_set = ReplicaSetLeader(MEMBERS, 30, behind_bytes_max=50)
    replica_set.begin(1, 4, (3, 25), [])
    replica_set.open("b")
    transfer = replica_set.sends_state("b", 1, (3, 25))
    for number in range(31, 51):
        replica_set.cut(number, {1: bytes(10)})
    assert replica_set.sends("b", 1, transfer)


def test_nobody_knows_what_a_peer_lacks_that_needs_the_state() -> None:
    replica_set, peer = behind_with_base()
    replica_set.answered("b", peer.receiver.open(replica_set.open("b"), peer.writes))
    replica_set.sends_state("b", 1, (3, 25))
    assert replica_set.lacks_bytes("b", 1) is None
