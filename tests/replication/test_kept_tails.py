"""What a lane keeps of a source, when nobody who is connected asks for it any more."""

from __future__ import annotations

from dataclasses import replace

from amqpd.peers.entry import START, Position, new_entry
from amqpd.replication.leader import LeaderLane
from tests.replication.test_lane import ALL_OF_11, MEMBERS


def test_source_that_has_a_majority_again_does_not_keep_what_only_a_peer_that_is_away_lacks() -> None:
    lane = LeaderLane(MEMBERS, 10, kept_bytes_max=50)
    for source in (1, 2):
        lane.begin(source, 1, START, [])
    lane.open("b")
    for number in range(11, 31):
        lane.cut(number, {1: bytes(10), 2: bytes(10)})
        lane.is_stored(number)
        lane.answered("b", replace(ALL_OF_11, number=number, lacks={1: START}))
    assert (lane.left_out, lane.open_bytes_of(1)) == ({1: 10}, 200)
    lane.answered("b", replace(ALL_OF_11, number=30))
    assert (lane.left_out, lane.committed_of(1)) == ({}, 30)
    assert lane.open_bytes_of(1) <= 50


def test_what_a_source_brings_with_it_is_not_kept_for_a_peer_that_is_away() -> None:
    before, lane = LeaderLane(MEMBERS, 10), LeaderLane(MEMBERS, 15, kept_bytes_max=50)
    before.begin(1, 1, START, [])
    for number in range(11, 16):
        before.cut(number, {1: bytes(20)})
    lane.open("b")
    lane.adopt(1, before.release(1), 16)
    lane.is_stored(15)
    lane.answered("b", replace(ALL_OF_11, number=15))
    assert lane.open_bytes_of(1) == 100
    lane.cut(16, {1: b"one"})
    lane.is_stored(16)
    lane.answered("b", replace(ALL_OF_11, number=16))
    assert (lane.committed_of(1), lane.open_bytes_of(1)) == (16, 0)


def again_in(
    lane: LeaderLane, peer: str, number: int, lacks: dict[int, Position]
) -> tuple[list[Position], list[int]]:
    """What the peer is sent when it says this; and sources whose state it needs."""
    missed, behind = lane.answered(peer, replace(ALL_OF_11, number=number, lacks=lacks))
    return [entry.position for each in missed for entry in each], behind


def test_a_peer_that_has_not_answered_since_a_source_began_again_may_lack_something_of_it() -> None:
    """Numbers of before were taken for an answer, and it was sent the state in the place of one entry."""
    lane = LeaderLane(MEMBERS, 10)
    lane.begin(1, 1, START, [])
    for name in ("b", "c"):
        lane.open(name)
    [first] = lane.cut(11, {1: b"one"}).entries
    lane.is_stored(11)
    lane.answered("b", ALL_OF_11)
    lane.answered("c", replace(ALL_OF_11, lacks={1: START}))
    lane.end(1)
    lane.begin(1, 3, START, [first, new_entry(1, (2, 7), first.position, b"of another leader")])
    lane.answered("c", ALL_OF_11)  # on its way before the opening
    lane.cut(12, {1: b"two"})
    lane.is_stored(12)
    lane.answered("b", replace(ALL_OF_11, number=12))
    assert lane.committed_of(1) == 12
    assert again_in(lane, "c", 12, {1: (1, 11)}) == ([(2, 7), (3, 12)], [])
    assert again_in(lane, "c", 12, {}) == ([], [])
    assert lane.open_bytes_of(1) == 0


def connects_again(nbytes: int) -> LeaderLane:
    """`c` lacks all of two sources, of which there are 48 bytes and this once more of each, and has just connected
    again; `b` has everything."""
    lane = LeaderLane(MEMBERS, 10, kept_bytes_max=50)
    for source in (1, 2):
        lane.begin(source, 1, START, [])
    for name in ("b", "c"):
        lane.open(name)
    for number in (11, 12, 13):
        lane.cut(number, {1: bytes(8), 2: bytes(8)})
        lane.is_stored(number)
        lane.answered("b", replace(ALL_OF_11, number=number))
        lane.answered("c", replace(ALL_OF_11, number=number, lacks={1: START, 2: START}))
    lane.close("c")
    lane.open("c")
    lane.cut(14, {1: bytes(nbytes), 2: bytes(nbytes)})
    lane.is_stored(14)
    lane.answered("b", replace(ALL_OF_11, number=14))
    assert (lane.committed_of(1), lane.committed_of(2)) == (14, 14)
    return lane


def test_a_peer_that_has_just_connected_may_lack_what_it_lacked() -> None:
    lane = connects_again(8)
    assert again_in(lane, "c", 14, {1: START}) == ([(1, 11), (1, 12), (1, 13), (1, 14)], [])
    assert (lane.open_bytes_of(1), lane.open_bytes_of(2)) == (32, 0)


def test_a_peer_that_does_not_answer_is_waited_for_with_a_bound() -> None:
    lane = connects_again(16)
    assert lane.open_bytes_of(1) + lane.open_bytes_of(2) <= 50
