"""What a replica set keeps of a source, when nobody who is connected asks for it any more."""

from __future__ import annotations

from dataclasses import replace

from amqpd.peers.entry import START, Position, new_entry
from amqpd.replication.leader import ReplicaSetLeader
from tests.replication.test_replica_set import ALL_OF_11, MEMBERS


def test_source_that_has_a_majority_again_does_not_keep_what_only_a_peer_that_is_away_lacks() -> None:
    replica_set = ReplicaSetLeader(MEMBERS, 10, kept_bytes_max=50)
    for source in (1, 2):
        replica_set.begin(source, 1, START, [])
    replica_set.open("b")
    for number in range(11, 31):
        replica_set.cut(number, {1: bytes(10), 2: bytes(10)})
        replica_set.note_stored(number)
        replica_set.answered("b", replace(ALL_OF_11, number=number, lacks={1: START}))
    assert (replica_set.left_out, replica_set.open_bytes_of(1)) == ({1: 10}, 200)
    replica_set.answered("b", replace(ALL_OF_11, number=30))
    assert (replica_set.left_out, replica_set.committed_of(1)) == ({}, 30)
    assert replica_set.open_bytes_of(1) <= 50


def test_what_a_source_brings_with_it_is_not_kept_for_a_peer_that_is_away() -> None:
    before, replica_set = ReplicaSetLeader(MEMBERS, 10), ReplicaSetLeader(MEMBERS, 15, kept_bytes_max=50)
    before.begin(1, 1, START, [])
    for number in range(11, 16):
        before.cut(number, {1: bytes(20)})
    replica_set.open("b")
    replica_set.adopt(1, before.release(1), 16)
    replica_set.note_stored(15)
    replica_set.answered("b", replace(ALL_OF_11, number=15))
    assert replica_set.open_bytes_of(1) == 100
    replica_set.cut(16, {1: b"one"})
    replica_set.note_stored(16)
    replica_set.answered("b", replace(ALL_OF_11, number=16))
    assert (replica_set.committed_of(1), replica_set.open_bytes_of(1)) == (16, 0)


def again_in(
    replica_set: ReplicaSetLeader, peer: str, number: int, lacks: dict[int, Position]
) -> tuple[list[Position], list[int]]:
    """What the peer is sent when it says this; and sources whose state it needs."""
    missed, behind = replica_set.answered(peer, replace(ALL_OF_11, number=number, lacks=lacks))
    return [entry.position for each in missed for entry in each], behind


def test_a_peer_that_has_not_answered_since_a_source_began_again_may_lack_something_of_it() -> None:
    """Numbers of before were taken for an answer, and it was sent the state in the place of one entry."""
    replica_set = ReplicaSetLeader(MEMBERS, 10)
    replica_set.begin(1, 1, START, [])
    for name in ("b", "c"):
        replica_set.open(name)
    [first] = replica_set.cut(11, {1: b"one"}).entries
    replica_set.note_stored(11)
    replica_set.answered("b", ALL_OF_11)
    replica_set.answered("c", replace(ALL_OF_11, lacks={1: START}))
    replica_set.end(1)
    replica_set.begin(1, 3, START, [first, new_entry(1, (2, 7), first.position, b"of another leader")])
    replica_set.answered("c", ALL_OF_11)  # on its way before the opening
    replica_set.cut(12, {1: b"two"})
    replica_set.note_stored(12)
    replica_set.answered("b", replace(ALL_OF_11, number=12))
    assert replica_set.committed_of(1) == 12
    assert again_in(replica_set, "c", 12, {1: (1, 11)}) == ([(2, 7), (3, 12)], [])
    assert again_in(replica_set, "c", 12, {}) == ([], [])
    assert replica_set.open_bytes_of(1) == 0


def connects_again(nbytes: int) -> ReplicaSetLeader:
    """`c` lacks all of two sources, of which there are 48 bytes and this once more of each, and has just connected
    again; `b` has everything."""
    replica_set = ReplicaSetLeader(MEMBERS, 10, kept_bytes_max=50)
    for source in (1, 2):
        replica_set.begin(source, 1, START, [])
    for name in ("b", "c"):
        replica_set.open(name)
    for number in (11, 12, 13):
        replica_set.cut(number, {1: bytes(8), 2: bytes(8)})
        replica_set.note_stored(number)
        replica_set.answered("b", replace(ALL_OF_11, number=number))
        replica_set.answered("c", replace(ALL_OF_11, number=number, lacks={1: START, 2: START}))
    replica_set.close("c")
    replica_set.open("c")
    replica_set.cut(14, {1: bytes(nbytes), 2: bytes(nbytes)})
    replica_set.note_stored(14)
    replica_set.answered("b", replace(ALL_OF_11, number=14))
    assert (replica_set.committed_of(1), replica_set.committed_of(2)) == (14, 14)
    return replica_set


def test_a_peer_that_has_just_connected_may_lack_what_it_lacked() -> None:
    replica_set = connects_again(8)
    assert again_in(replica_set, "c", 14, {1: START}) == ([(1, 11), (1, 12), (1, 13), (1, 14)], [])
    assert (replica_set.open_bytes_of(1), replica_set.open_bytes_of(2)) == (32, 0)


def test_a_peer_that_does_not_answer_is_waited_for_with_a_bound() -> None:
    replica_set = connects_again(16)
    assert replica_set.open_bytes_of(1) + replica_set.open_bytes_of(2) <= 50
