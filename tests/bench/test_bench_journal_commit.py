"""The tables of what a commit costs are made: nothing else runs this program, and it reaches into the disk."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench import journal_commit


def test_each_shape_has_its_line_alone_and_beside_a_busy_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["journal_commit", "--directory", str(tmp_path), "--seconds", "0.01"])
    journal_commit.main()
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("1 row of 200 B ") for line in lines) == 2
    assert len([line for line in lines if line]) == 1 + 2 * (1 + len(journal_commit.SHAPES))
