"""What a lane keeps of a source, when nobody who is connected asks for it any more."""

from __future__ import annotations

from dataclasses import replace

from amqpd.replication.entry import START
from amqpd.replication.home import HomeLane
from tests.replication.test_lane import ALL_OF_11, MEMBERS


def test_source_that_has_a_majority_again_does_not_keep_what_only_a_peer_that_is_away_lacks() -> None:
    lane = HomeLane(MEMBERS, 10, kept_bytes_max=50)
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
    before, lane = HomeLane(MEMBERS, 10), HomeLane(MEMBERS, 15, kept_bytes_max=50)
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
