"""What follows from the footers of a log's files, without a Spark: `inventory.judged`.

What is verified: ranges that do not meet, edges with and without `_log`, retention, declared rows, periods.
Not verified: reading footers (`test_exit_codes.py`, `test_log_holes.py`).
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zlib import crc32

import pytest

from amqpd_spark.footers import BROKER, UNKNOWN, Edge, File, edge, named
from amqpd_spark.inventory import Cut, Gap, Read, Removed, _meant, judged

SECOND = 1_000_000


def file(incarnation: int, first: int, last: int, node: str = "n1", rows: int | None = None, **more: object) -> File:
    """Row 1 is of the second 1."""
    path = f"/log/{node}-{incarnation}-{first}.parquet"
    many = last - first + 1 if rows is None else rows
    return File(path, 1, many, BROKER, node, incarnation, first, last, first * SECOND, last * SECOND, **more)  # type: ignore[arg-type]


def lost(*files: File, edge: Edge | None = None, **more: object) -> list[tuple[int, int, int]]:
    found = judged(files, [], [edge] if edge else [], **more)  # type: ignore[arg-type]
    return [(hole.incarnation, hole.first, hole.last) for hole in found.lost]


def reached(removed: tuple[int, int] | None = None, **incarnations: int) -> Edge:
    return Edge("n1", {int(incarnation[1:]): last for incarnation, last in incarnations.items()}, removed)


def test_ranges_that_meet_are_whole():
    assert lost(file(1, 1, 10), file(1, 11, 20), file(2, 1, 5)) == []


def test_a_file_between_two_is_a_hole_with_its_time():
    (hole,) = judged([file(1, 1, 10), file(1, 21, 30)], []).lost
    assert (hole.first, hole.last, hole.after_us, hole.before_us) == (11, 20, 10 * SECOND, 21 * SECOND)


def test_two_holes_are_two():
    assert lost(file(1, 1, 10), file(1, 21, 30), file(1, 41, 50)) == [(1, 11, 20), (1, 31, 40)]


def test_a_later_incarnation_begins_with_row_1():
    assert lost(file(1, 1, 10), file(2, 6, 9)) == [(2, 1, 5)]


def test_without_a_log_file_the_edges_are_not_held_against_anybody():
    assert lost(file(2, 500, 900)) == []


def test_the_newest_file_is_missed():
    assert lost(file(1, 1, 10), edge=reached(_1=30)) == [(1, 11, 30)]
    assert lost(file(1, 1, 10), file(2, 1, 5), edge=reached(_1=30, _2=5)) == [(1, 11, 30)]


def test_the_oldest_file_is_missed_and_a_whole_incarnation():
    assert lost(file(1, 11, 20), edge=reached(_1=20)) == [(1, 1, 10)]
    assert lost(file(1, 1, 9), file(3, 1, 9), edge=reached(_1=9, _2=7, _3=9)) == [(2, 1, 7)]
    assert lost(edge=reached(_1=9)) == [(1, 1, 9)]


def test_what_retention_took_is_no_hole():
    edge = reached((2, 50), _2=90, _3=5)
    assert lost(file(2, 51, 90), file(3, 1, 5), edge=edge) == []
    assert lost(file(2, 61, 90), file(3, 1, 5), edge=edge) == [(2, 51, 60)]


def test_a_kill_before_retention_unlinked_leaves_files_that_are_no_fault():
    edge = reached((2, 50), _2=90)
    assert lost(file(1, 40, 60), file(2, 1, 50), file(2, 51, 90), edge=edge) == []
    assert lost(file(2, 21, 50), file(2, 51, 90), edge=edge) == []


def test_a_log_file_that_was_made_again_says_nothing_of_the_oldest():
    assert lost(file(1, 11, 20), edge=reached((1, 10), _1=20)) == []
    assert lost(file(3, 1, 20), edge=reached((3, 0), _3=20)) == []


def test_an_older_copy_in_place_of_a_file_is_a_hole_and_a_duplicate():
    found = judged([file(1, 1, 10), file(1, 1, 10), file(2, 1, 4), file(2, 9, 12)], [])
    assert [(hole.incarnation, hole.first, hole.last) for hole in found.lost] == [(2, 5, 8)]


def test_what_the_broker_declared_is_no_hole():
    found = judged([file(1, 1, 10), file(1, 31, 40, declared=((11, 20), (25, 28)))], [])
    assert [(hole.first, hole.last, hole.declared) for hole in found.holes] == [
        *((11, 20, True), (21, 24, False), (25, 28, True), (29, 30, False)),
    ]


def test_fewer_rows_than_were_written_were_removed():
    (gone,) = judged([file(1, 1, 10, rows=7), file(1, 11, 20, rows=12)], []).removed_rows
    assert (gone.first, gone.last, gone.gone) == (1, 10, 3)


def test_beside_a_file_that_says_nothing_of_its_rows_others_are_missed():
    strange = File("/log/part-1.parquet", 1, 5, UNKNOWN)
    files = [file(1, 1, 10), file(1, 21, 30), strange]
    assert [(hole.first, hole.last) for hole in judged(files, []).lost] == [(11, 20)]


def of_rows(incarnation: int, first: int, last: int) -> File:
    return replace(file(incarnation, first, last), path="", made_by=UNKNOWN)


def test_rows_that_were_read_count_with_those_of_footers():
    files = [file(1, 1, 10), file(1, 21, 30)]
    assert judged(files, [], read=Read([of_rows(1, 11, 20)])).lost == []
    found = judged(files, [], read=Read([of_rows(1, 11, 14), of_rows(1, 17, 24)]))
    assert [(hole.first, hole.last) for hole in found.lost] == [(15, 16)]


def test_of_a_period_rows_that_were_read_have_no_edges():
    found = judged([], [], [reached(_1=90)], at(5), at(95), read=Read([of_rows(1, 11, 20)]))
    assert found.lost == []


def test_rows_taken_out_of_a_file_are_no_hole_as_far_as_they_are_enough():
    there = [of_rows(1, 1, 10), of_rows(1, 13, 20), of_rows(1, 24, 30)]
    changed = Removed("/log/part-1.parquet", "n1", 1, 1, 30, 2, 1 * SECOND, 30 * SECOND)
    found = judged([], [], read=Read(there, [changed]))
    assert [(hole.first, hole.last) for hole in found.lost] == [(21, 23)]
    assert found.removed_rows == [changed]


@pytest.mark.parametrize(
    ("gap", "declared"),
    [
        (Gap("n1", 1, 22, "disk_full"), True),
        (Gap("n1", 1, 29, "disk_full"), False),
        (Gap("n1", 2, 22, "disk_full"), False),
        (Gap("n2", 1, 22, "disk_full"), False),
        (Gap("n1", 1, 40, "damaged", file="n1-1-2.spool.damaged"), True),
        (Gap("n1", 1, 40, "damaged", file="n1-1-3.spool.damaged"), False),
        (Gap("n1", 2, 3, "damaged", 1, 11, 20), True),
        (Gap("n1", 2, 3, "damaged", 1, 11, None), True),
        (Gap("n1", 1, 3, "damaged", 2, 11, 20), False),
    ],
)
def test_rows_that_the_log_says_are_not_recorded_are_no_hole(gap: Gap, declared: bool):
    """As an earlier version said it: nothing in the footers."""
    found = judged([file(1, 1, 10, n=1), file(1, 21, 40, n=3)], [], read=Read(gaps=[gap]))
    assert [(hole.first, hole.last, hole.declared) for hole in found.holes] == [(11, 20, declared)]


def test_of_nodes_each_has_its_own():
    assert lost(file(1, 1, 10), file(1, 11, 20, node="n2"), file(1, 31, 40, node="n2")) == [(1, 21, 30)]


def at(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def test_a_hole_counts_when_it_meets_the_period():
    files = file(1, 1, 10), file(1, 21, 30)
    for since, until, count in ((15, None, 1), (22, None, 0), (None, 15, 1), (None, 10, 0), (None, 11, 1)):
        found = lost(*files, since=since and at(since), until=until and at(until))
        assert len(found) == count, (since, until)


def test_beyond_what_was_looked_at_nothing_is_missed():
    part = file(1, 11, 20), file(1, 21, 30)
    cut = Cut(frozenset([part[0].path]), frozenset([part[1].path]))
    assert lost(*part, edge=reached(_1=90), cut=cut) == []
    assert lost(*part, edge=reached(_1=90), cut=Cut(above=cut.above)) == [(1, 1, 10)]


def test_a_period_is_looked_at_with_one_file_on_each_side():
    begin = datetime(2026, 11, 22, tzinfo=UTC)
    hours = [begin + timedelta(hours=hour) for hour in range(20)]
    listed = [(f"/date={hour:%F}/hour={hour:%H}/n-1-{n:02}.parquet", 1) for n, hour in enumerate(hours, 1)]
    listed += [("/date=2026-11-21/hour=05/n-0-1.parquet", 1), ("/date=2026-11-21/hour=06/n-0-2.parquet", 1)]
    meant, cut = _meant(listed, hours[8], hours[10])
    assert [named(path)[1:3] for path, _ in meant] == [(1, n) for n in range(6, 13)] + [(0, 2)]
    assert {named(path)[2] for path in cut.below} == {6, 2}
    assert {named(path)[2] for path in cut.above} == {12}


@pytest.mark.parametrize("spoilt", ["", "{}", "[]", '{"format": 1, "crc": 1}'])
def test_a_log_file_that_is_damaged_counts_as_missing(spoilt: str):
    assert edge(spoilt) is None


def test_a_log_file_as_the_broker_writes_it():
    told = {"format": 1, "node": "n1", "incarnations": {"3": {"last": 9, "ended": True}}}
    told |= {"removed": {"incarnation": 1, "last": 5}, "from": "broker"}
    assert edge(json.dumps({**told, "crc": crc32(json.dumps(told).encode())})) == Edge("n1", {3: 9}, (1, 5))
    assert edge(json.dumps({**told, "crc": 1})) is None
