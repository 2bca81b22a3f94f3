"""What people and programs read of a backup: progress, results, sentences."""

from __future__ import annotations

import io
import json
import sys
import time
from pathlib import Path

import pytest

from amqpd.__main__ import run
from amqpd.backup.manifest import Manifest
from amqpd.commands import backup as command_module
from amqpd.commands.backup import shown
from amqpd.datadir.lock import open_data_directory

COPYING = {"phase": "copying journal.db", "done": 250_000_000, "total": 1_000_000_000, "held_log": 0}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_one_line_changes_and_is_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with shown(False) as show:
        show(COPYING)
        show({**COPYING, "done": 500_000_000, "held_log": 12_000_000})
    assert terminal.getvalue().split("\r\x1b[K") == [
        *("", "copying journal.db  250 of 1,000 MB (25 %)"),
        *("copying journal.db  500 of 1,000 MB (50 %), the journal's log has grown by 12 MB", ""),
    ]


def test_elsewhere_there_is_a_line_for_each_phase_and_one_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    moments = iter([100.0, 101.0, 101.0 + command_module.LINE_EVERY_S, 112.0, 113.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(moments))
    with shown(False) as show:
        for _ in range(4):
            show(COPYING)
        show({**COPYING, "phase": "checking journal.db", "total": 0})
    assert capsys.readouterr().err.splitlines() == [
        "copying journal.db  250 of 1,000 MB (25 %)",
        "copying journal.db  250 of 1,000 MB (25 %)",
        "checking journal.db",
    ]


def test_of_a_stopped_broker_and_back(stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, new = tmp_path / "backup", tmp_path / "new"
    assert run(["--data-dir", str(stopped), "backup", str(target)]) == 0
    assert capsys.readouterr().out.startswith(f"backup complete: {target}, 8.")
    assert run(["--data-dir", str(new), "restore", str(target)]) == 0
    assert capsys.readouterr().out.startswith(f"restored: {new}, 8.")
    assert run(["restore", str(target), "--data-dir", str(new), "--replace", "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["files"].keys() == {"journal.db", "metadata.db"}
    assert said.err == ""


def test_a_relative_target_is_where_the_command_was_given(
    stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["--data-dir", str(stopped), "backup", "copy"]) == 0
    assert (tmp_path / "copy" / "backup.json").exists()


def test_a_directory_without_a_broker_in_it_is_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--data-dir", str(tmp_path / "typo"), "backup", str(tmp_path / "backup")]) == 1
    assert "typo, and it has no journal.db: name the broker's data directory" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_held_by_a_broker_without_its_socket_is_refused(
    stopped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It starts, or it is another command."""
    with open_data_directory(stopped):
        assert run(["--data-dir", str(stopped), "backup", str(tmp_path / "backup")]) == 1
    assert "is in use by another amqpd" in capsys.readouterr().err
    assert not (tmp_path / "backup").exists()


def test_sentences_for_what_is_refused(
    made: tuple[Path, Manifest], stopped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--data-dir", str(stopped), "restore", str(made[0])]) == 1
    assert capsys.readouterr().err.startswith(f"amqpd: {stopped} has data (")
    assert run(["--data-dir", str(stopped), "backup", str(made[0])]) == 1
    assert f"amqpd: {made[0]} is not empty: a backup goes to a new folder" in capsys.readouterr().err
    assert run(["--data-dir", str(stopped), "backup", str(made[0]), "--rate", "0"]) == 2
