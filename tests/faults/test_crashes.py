"""What judges crashes is given fabricated incarnations; and one power cut and one full disk (`python -m
tests.faults.crashes` makes hundreds)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from . import crashes
from .churn import MESSAGES, Passing, contents_wrong
from .crashes import NOT_POSSIBLE, duplicates, run, sessions
from .history import Delivery, History, QueueHistory
from .test_kill import fault_seed

FIRST, SECOND = set(range(MESSAGES)), set(range(MESSAGES, 2 * MESSAGES))


def passing(fate: str, **known: Any) -> Passing:
    return Passing("q", fate, declared=True, **known)


@pytest.mark.parametrize(
    ("record", "came"),
    [
        (passing("kept", attempted=FIRST, confirmed=FIRST), FIRST),
        (passing("kept", attempted=FIRST), {0, 1}),
        (passing("deleted", attempted=FIRST, confirmed=FIRST, asked=True), set()),
        (passing("deleted", attempted=FIRST, confirmed=FIRST, asked=True), FIRST),
        (passing("purged", attempted=FIRST, confirmed=FIRST, asked=True, purged=MESSAGES), set()),
        (passing("purged", attempted=FIRST | SECOND, confirmed=FIRST, asked=True, purged=MESSAGES), FIRST),
        (
            passing(
                "purged", attempted=FIRST | SECOND, confirmed=FIRST | SECOND, asked=True, done=True, purged=MESSAGES
            ),
            SECOND,
        ),
    ],
)
def test_what_may_be_left_of_a_queue(record: Passing, came: set[int]) -> None:
    assert contents_wrong(record, sorted(came)) == []


@pytest.mark.parametrize(
    ("record", "came", "wrong"),
    [
        (passing("kept", attempted=FIRST, confirmed=FIRST), FIRST - {3}, "lost from q: [3] (kept)"),
        (passing("kept", attempted=FIRST), {0, MESSAGES}, f"unexpected in q: [{MESSAGES}]"),
        (passing("deleted", attempted=FIRST, confirmed=FIRST), set(), "lost from q"),
        (
            passing(
                "purged", attempted=FIRST | SECOND, confirmed=FIRST | SECOND, asked=True, done=True, purged=MESSAGES
            ),
            SECOND | {0},
            "purged and back in q",
        ),
        (
            passing("purged", attempted=FIRST | SECOND, confirmed=FIRST | SECOND, asked=True, purged=MESSAGES),
            SECOND - {MESSAGES},
            "lost from q",
        ),
    ],
)
def test_what_may_not_be_left_of_a_queue(record: Passing, came: set[int], wrong: str) -> None:
    assert any(wrong in each for each in contents_wrong(record, sorted(came)))


def test_messages_out_of_order_are_told() -> None:
    assert contents_wrong(passing("kept", attempted=FIRST), [1, 0]) == ["q gave [1, 0]"]


def test_duplicates_are_counted_by_what_explains_them() -> None:
    queue = QueueHistory("q", settle_sent={1})
    flags = [(0, False, 0), (1, False, 0), (2, False, 0), (0, True, 1), (1, False, 1), (2, False, 1), (2, False, 1)]
    queue.deliveries += [Delivery("p", sequence, flag, incarnation) for sequence, flag, incarnation in flags]
    dead_letters = QueueHistory("dead", dead_letters_of="q")
    dead_letters.deliveries += [Delivery("p", 0, False, 0), Delivery("p", 0, False, 1)]
    assert duplicates(History(queues={"q": queue, "dead": dead_letters})) == {
        "message, redelivered": 1,
        "message, not flagged: its ack was on the way in the crash": 1,
        "message, not flagged: its delivery was not on disk in the crash": 1,
        "message, in one incarnation, NOT flagged": 1,
        "dead letter, not flagged: its delivery was not on disk in the crash": 1,
    }


def test_rounds_are_cut_into_sessions() -> None:
    assert sessions("kill", 10) == [("kill", 0, 4), ("kill", 1, 4), ("kill", 2, 2)]
    assert [kind for kind, _, _ in sessions("all", 3)] == ["kill", "power", "eio", "enospc", "full"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["power", "full"])
def test_a_round(only_amqpd: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(crashes, "QUEUES_MAX", 1)
    monkeypatch.setattr(crashes, "CONFIRMS_MAX", 3000)
    done: Counter[str] = Counter()
    seed = fault_seed()
    found = run(kind, seed, 0, 1, done, tmp_path)
    if impossible := [name for name in done if NOT_POSSIBLE in name]:
        pytest.skip(impossible[0])
    assert not found, "\n".join([*found, f"Again with: AMQPD_FAULT_SEED={seed}"])
    assert done[kind] == 1
    assert done["messages confirmed"]
