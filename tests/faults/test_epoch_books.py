"""The reconciler of `epoch_books.py` finds what it is for, on logs that are written by hand."""

from __future__ import annotations

from typing import Any

from .epoch_books import Account, Row, account_of

LEADERS = {1: "a", 2: "b", 3: "a"}


def row(event: str, leader_lease: int, number: int, first: int = 0, entered: int = 0, **columns: Any) -> Row:
    given = {"event": event, "source": 5, "source_epoch": leader_lease, "number": number, "first": first, "count": 1}
    given |= {
        "queue_id": 256,
        "epoch": entered or leader_lease,
        "node": LEADERS[leader_lease],
        "incarnation": leader_lease,
        "publication": 0,
    }
    return {**given, "reason": None, "detail": None, **columns}


def routed(leader_lease: int, number: int, first: int) -> Row:
    return row("routed", leader_lease, number, first, publication=first + 1)


def confirmed(leader_lease: int, number: int, first: int) -> Row:
    return row("confirmed", leader_lease, number, source=0, source_epoch=0, queue_id=0, publication=first + 1) | {
        "node": LEADERS[leader_lease],
        "incarnation": leader_lease,
    }


def anchor(leader_lease: int, number: int, *standing: tuple[int, int]) -> list[Row]:
    """Behind `number`; (epoch in which it came in, number of the message)."""
    head = row("standing", leader_lease, number, count=0, reason="recovered", detail=str(len(standing)))
    rows = [
        row("standing", leader_lease, number + at, first, entered) for at, (entered, first) in enumerate(standing, 1)
    ]
    return [row("source_begins", leader_lease, number - 1, queue_id=0), head, *rows]


def of(*rows: Row) -> Account:
    return account_of(rows)


def test_over_three_leaders_a_message_is_ended_once() -> None:
    found = of(
        *(routed(1, 2, 0), confirmed(1, 3, 0)),
        *anchor(2, 2, (1, 0)),
        *anchor(3, 2, (1, 0)),
        row("acked", 3, 9, 0, entered=1),
    )
    assert found == Account(confirmed=1, ended=1, epochs=2)


def test_what_was_confirmed_and_is_not_there_is_lost_and_what_was_not_is_unknown() -> None:
    found = of(routed(1, 2, 0), confirmed(1, 3, 0), routed(1, 4, 1), *anchor(2, 2))
    assert (found.lost, found.unknown) == ([(256, 1, 0)], 1)


def test_an_end_that_the_next_leader_contradicts_is_none() -> None:
    found = of(routed(1, 2, 0), row("acked", 1, 3), *anchor(2, 2, (1, 0)), row("acked", 2, 9, entered=1))
    assert (found.undone, found.ended, found.twice) == (1, 1, [])


def test_two_ends_are_twice() -> None:
    found = of(routed(1, 2, 0), row("acked", 1, 3), *anchor(2, 2), row("acked", 2, 9, entered=1))
    assert found.twice == [(256, 1, 0)]


def test_what_stands_behind_its_end_or_never_came_in_is_strange() -> None:
    found = of(routed(1, 2, 0), row("acked", 1, 3), *anchor(2, 2), *anchor(3, 2, (1, 0), (2, 7)))
    assert found.strange == [(256, 1, 0), (256, 2, 7)]


def test_the_order_is_that_of_epochs_whatever_the_logs_order_is() -> None:
    late = [row("acked", 1, 90), routed(1, 91, 5)]
    found = of(*anchor(2, 2, (1, 0)), routed(1, 2, 0), confirmed(1, 3, 0), *late)
    assert (found.lost, found.undone, found.unknown, found.standing) == ([], 1, 1, 1)
