"""The file that says which start of the broker this is."""

from __future__ import annotations

from pathlib import Path

import pytest

from amqpd.audit import lives
from amqpd.audit.lives import FILE, Life, next_life, write_life
from amqpd.errors import StartupError


def test_the_first_life_has_none_before_it(tmp_path: Path) -> None:
    assert next_life(tmp_path) == Life(1)


@pytest.mark.parametrize("ended", [True, False])
def test_the_next_life_knows_how_the_last_one_ended_and_what_it_left(tmp_path: Path, ended: bool) -> None:
    write_life(tmp_path, 6, ended, {256: [(4, 0), (6, 10)]})
    assert next_life(tmp_path) == Life(7, ended, True, {256: [(4, 0), (6, 10)]})
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_another_boot_of_the_machine_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_life(tmp_path, 1, False, {})
    boot = tmp_path / "boot"
    boot.write_text("another\n")
    monkeypatch.setattr(lives, "_BOOT", boot)
    assert not next_life(tmp_path).same_boot


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"life": 1, "ended": true, "boot": "", "eras": []}', "\xff"])
def test_a_damaged_file_is_told_of_in_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_bytes(text.encode("latin-1"))
    with pytest.raises(StartupError, match="is damaged: move the folder") as caught:
        next_life(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_told_of_too(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    with pytest.raises(StartupError, match="cannot read"):
        next_life(tmp_path)
