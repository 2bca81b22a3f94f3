"""The judge of damages is given outcomes that nobody played: what is not allowed must be found, by its name."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import pytest

from .damage.__main__ import ROUNDS, numbers_of
from .damage.books import Book, body_of
from .damage.judge import (
    FENCED,
    NOT_ALLOWED,
    PARKED,
    RECOVERED,
    REFUSED,
    Delivered,
    Outcome,
    judge,
    judge_accepted,
)

DUE = [f"a:{number}" for number in (3, 4, 5, 6, 7)]
INFO = 'time=2026-01-01T00:00:00Z level=info event=READY component=broker reason="Traceback is a word"'
CRITICAL = 'time=2026-01-01T00:00:00Z level=critical event="node stopped" reason="the journal is damaged"'


def book(**changes: Any) -> Book:
    made = {"due": {"a": DUE, "b": ["b:0"], "letters": []}, "settled": {"a": ["a:0", "a:1", "a:2"]}, "gone": ["old"]}
    made["delayed"] = ["a"]
    return Book(**{"kind": "fabricated", "dead_letters": {"b": "letters"}, **made, **changes})


def rows(*, fenced: tuple[str, ...] = (), names: tuple[str, ...] = ("a", "b", "letters"), held: int = 0) -> Any:
    return {name: {"messages": held if name in fenced else 0, "fenced": name in fenced} for name in names}


def seen(
    a: list[str] = DUE, b: list[str] | None = None, dead_letters: list[str] | None = None, **others: Any
) -> Outcome:
    came = {"a": a, "b": ["b:0"] if b is None else b, "letters": dead_letters or []}
    return Outcome(
        deliveries={queue: [Delivered(message) for message in messages] for queue, messages in came.items()},
        **{"rows": rows(), "log": [INFO], **others},
    )


def parked(messages: list[str], left: int = 0) -> Any:
    adopted = {"7": [Delivered(message) for message in messages]}
    return {"orphans": [{"id": "7", "messages": len(messages) + left}], "adopted": adopted, "left": left}


def refused(*lines: str, **others: Any) -> Outcome:
    return Outcome(exit_code=1, log=[INFO, *(lines or ["amqpd: the journal is damaged: restore it"])], **others)


@pytest.mark.parametrize(
    ("outcome", "ruling"),
    [
        (seen(), RECOVERED),
        (seen(b=[], dead_letters=["b:0"]), RECOVERED),
        (refused(), REFUSED),
        (refused(CRITICAL), REFUSED),
        (seen(DUE[:2], rows=rows(fenced=("a",), held=3)), FENCED),
        (seen(b=[], rows=rows(fenced=("letters",), held=1)), FENCED),
        (seen(DUE[:2], delayed_fenced=3), FENCED),
        (seen([], rows=rows(names=("b", "letters")), **parked(DUE)), PARKED),
        (seen([], rows=rows(names=("b", "letters")), **parked(DUE[:2], left=3)), PARKED),
        (seen(DUE[:2], **parked(DUE[2:])), PARKED),
    ],
)
def test_what_is_allowed(outcome: Outcome, ruling: str) -> None:
    assert judge(book(), outcome) == (ruling, [])


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (seen(DUE[1:]), r"lost from a: 1 (a 3)"),
        (seen(DUE[:-1]), "lost from a: 1 (a 7)"),
        (seen(b=[]), "lost from b"),
        (seen(b=[], delayed_fenced=1), "lost from b"),
        (seen(DUE[:2], delayed_fenced=2), "lost from a: 3 (a 5-7)"),
        (seen(DUE[:2], rows=rows(fenced=("b",), held=9)), "lost from a: 3 (a 5-7)"),
        (seen(DUE[:2], rows=rows(fenced=("a",), held=2)), "fenced a holds 2 messages, 3 are missing"),
        (
            seen([*DUE[:2], DUE[4]], rows=rows(fenced=("a",), held=9)),
            "gave messages behind its first missing one a:5",
        ),
        (seen([], rows=rows(names=("b", "letters")), **parked(DUE[1:])), "lost from a: 1 (a 3)"),
        (seen([], rows=rows(names=("b", "letters")), **parked(DUE[:2], left=2)), "lost from a: 3 (a 5-7)"),
        (seen([], **parked(DUE[:2], left=9)), "lost from a"),
        (seen([], **parked(["a:0", *DUE])), "not due, and in orphan 7: 1 (a 0)"),
        (seen([], **parked(DUE[::-1])), "out of order in orphan 7"),
        (seen(**parked(DUE[:1])), "adopted, and elsewhere too: 1 (a 3)"),
        (seen(["a:0", *DUE]), "settled messages back in a: 1 (a 0)"),
        (seen(b=["b:0", "a:1"]), "settled elsewhere in b: 1 (a 1)"),
        (seen([*DUE, "a:99"]), "unexpected in a: 1 (a 99)"),
        (seen([*DUE, DUE[-1]]), "twice out of a: 1 (a 7)"),
        (seen(dead_letters=["b:0"]), "twice out of b"),
        (seen([DUE[1], DUE[0], *DUE[2:]]), "out of order in a"),
        (seen(wrong=["the body of a:3"]), "wrong: the body of a:3"),
        (seen(again={"a": [Delivered("a:3")]}), "taken, and back after a restart in a"),
        (seen(rows=rows(names=("a", "b", "letters", "old"))), "deleted queue is back: old"),
        (seen(rows=rows(names=("a", "b"))), "definitions are gone, and nothing is said: letters"),
        (seen(unbound=["exchange x"]), "definitions are gone, and nothing is said: exchange x"),
        (seen(ended=[70]), "ended while serving, exit codes [70]"),
        (seen(ended=[70, 70, 70]), "a restart loop"),
        (seen(hung="no READY"), "a hang: no READY"),
        (seen(log=["Traceback (most recent call last):"]), "a traceback"),
        (refused("Traceback (most recent call last):", "KeyError: 1"), "a traceback"),
        (refused("amqpd: one", "amqpd: two"), "refused with 2 sentences"),
        (refused(" "), "refused with 0 sentences"),
        (refused(changed=["journal.db"]), "refused, and changed journal.db"),
    ],
)
def test_what_is_not_allowed(outcome: Outcome, reason: str) -> None:
    ruling, reasons = judge(book(), outcome)
    assert ruling == NOT_ALLOWED
    assert any(reason in each for each in reasons), reasons


def test_ends_by_a_signal_are_no_refusal() -> None:
    assert judge(book(), Outcome(exit_code=-11, log=["amqpd: a sentence"])).outcome == NOT_ALLOWED


@pytest.mark.parametrize("damaged", ["audit: spool", "reserve", "amqpd.lock"])
def test_what_no_message_needs_refuses_no_start(damaged: str) -> None:
    assert judge(book(), refused(), damaged).outcome == NOT_ALLOWED


def test_a_count_that_fell_is_found() -> None:
    counted = book(counts={"a": {"a:3": 2}})
    right = seen()
    right.deliveries["a"][0] = Delivered("a:3", 2)
    assert judge(counted, right).outcome == RECOVERED
    assert "wrong delivery count in a: 1 (a 3)" in judge(counted, seen()).reasons


def test_queues_without_an_order_are_not_judged_by_it() -> None:
    unordered = book(unordered=["a"])
    assert judge(unordered, seen(DUE[::-1])).outcome == RECOVERED
    assert judge(unordered, seen([DUE[4]], rows=rows(fenced=("a",), held=4))).outcome == FENCED


def test_definitions_that_are_gone_may_be_said() -> None:
    said = 'time=2026-01-01T00:00:00Z level=warning event="metadata.db is damaged" component=metadata'
    gone = seen(rows=rows(names=("a", "b")), log=[said])
    assert judge(book(), gone).outcome == RECOVERED


def test_bodies_are_of_one_message() -> None:
    bodies = [body_of(f"{origin}:{number}") for origin in "ab" for number in range(60)]
    assert len(set(bodies)) == len(bodies)
    assert min(map(len, bodies)) >= 64


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (seen([]), ""),
        (seen(["a:0", *DUE]), ""),
        (seen(["old:3"]), ""),
        (refused(), ""),
        (seen([*DUE, DUE[0]]), "twice out of a: 1 (a 3)"),
        (seen(["a:99"]), "unexpected in a: 1 (a 99)"),
        (seen(wrong=["the body of a:3"]), "wrong: the body of a:3"),
        (seen(ended=[70]), "ended while serving"),
        (refused("amqpd: one", "amqpd: two"), "refused with 2 sentences"),
    ],
)
def test_a_loss_that_was_accepted_is_a_loss_and_nothing_else(outcome: Outcome, reason: str) -> None:
    reasons = judge_accepted(book(), outcome)
    assert [each for each in reasons if f"with --accept-loss: {reason}" in each] == reasons
    assert bool(reasons) is bool(reason)


@pytest.mark.parametrize(
    ("asked", "places", "numbers"),
    [
        ({}, 0, range(ROUNDS)),
        ({}, 1673, range(1673)),
        ({"first": 850}, 1673, range(850, 1673)),
        ({"first": 850, "rounds": 100}, 1673, range(850, 950)),
        ({"only": 624, "rounds": 100}, 1673, range(624, 625)),
    ],
)
def test_which_rounds_are_played(asked: dict[str, int], places: int, numbers: range) -> None:
    options = Namespace(**{"first": 0, "rounds": None, "only": None, **asked})
    assert numbers_of(options, places) == numbers
