"""The judge of a cluster's disks and leaders, with fabricated evidence: what it must not overlook."""

from __future__ import annotations

import pytest

from amqpd.journal.records import RecoveredQueue, RecoveredRow

from .cluster_judge import _different, leaders_of, live, two_leaders


def taken(source: int, epoch: int) -> str:
    return f"level=info event=source_taken_over component=cluster source={source} epoch={epoch}\n"


def test_an_epoch_that_two_had_is_found() -> None:
    logs = {"a": taken(1, 2) + taken(2, 2), "b": "level=info event=started\n" + taken(1, 2), "c": taken(1, 3)}
    assert two_leaders(logs) == ["source 1 had 2 leaders in epoch 2: ['a', 'b']"]
    assert leaders_of(logs)[1, 3] == ["c"]


def test_two_processes_of_one_forwarder_are_two_leaders() -> None:
    assert two_leaders({"a": taken(7, 4) + "level=info event=started\n" + taken(7, 4)})


def test_what_is_live_does_not_depend_on_how_it_is_written() -> None:
    one = RecoveredQueue([RecoveredRow(1, 10, 0, [(3, 4), (10, 10)])], 20, 0, {5: 1})
    rows = [RecoveredRow(1, 4, 0, [(3, 4)]), RecoveredRow(5, 7, 0), RecoveredRow(8, 9, 0)]
    assert live(one) == live(RecoveredQueue(rows, 20, 3, {5: 1})) == ([(1, 2), (5, 9)], {5: 1})


@pytest.mark.parametrize("other", [{}, {7: ([(1, 3)], {})}, {7: ([(1, 2)], {1: 1})}, {8: ([(1, 2)], {})}])
def test_copies_that_differ_are_found(other: dict[int, tuple[list[tuple[int, int]], dict[int, int]]]) -> None:
    same = {1: {7: ([(1, 2)], {})}}
    assert _different(1, ["a", "b"], {"a": same, "b": same, "c": {1: other}}) == ""
    assert "queue 7 at c" in _different(1, ["a", "b", "c"], {"a": same, "b": same, "c": {1: other}})
