"""Rounds wait for copies under load, and without it when that takes long."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from . import node_faults
from .node_faults import NodeFaults


def waiting(monkeypatch: pytest.MonkeyPatch, loaded_s: float, answers: list[int]) -> int:
    """How often the load was ended; `answers`: how many copies do not count."""
    monkeypatch.setattr(node_faults, "LOADED_S", loaded_s)
    monkeypatch.setattr(node_faults, "BETWEEN_QUESTIONS_S", 0)
    ended = []
    faults = NodeFaults.__new__(NodeFaults)
    rows = ({"members": [{"lives": True, "copies_of_another_disk": each}]} for each in answers)
    faults._cluster = SimpleNamespace(status=lambda: next(rows))  # type: ignore[assignment]
    faults.wait_admitted(lambda: ended.append(True))
    return len(ended)


def test_the_load_ends_when_copies_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    assert waiting(monkeypatch, -1, [1, 0]) == 1


def test_it_goes_on_while_they_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert waiting(monkeypatch, 60, [1, 1, 0]) == 0


def test_that_they_never_come_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_faults, "ADMITTED_DEADLINE_S", -1)
    with pytest.raises(AssertionError, match="copies do not count"):
        waiting(monkeypatch, 60, [1])
