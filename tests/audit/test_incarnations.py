"""The file that says which start of the broker this is."""

from __future__ import annotations

from pathlib import Path

import pytest

from amqpd.audit.files import incarnations
from amqpd.audit.files.incarnations import FILE, Incarnation, next_incarnation, write_incarnation
from amqpd.errors import StartupError


def test_the_first_incarnation_has_none_before_it(tmp_path: Path) -> None:
    assert next_incarnation(tmp_path) == Incarnation(1)


@pytest.mark.parametrize("ended", [True, False])
def test_the_next_incarnation_knows_how_the_last_one_ended_and_what_it_left(tmp_path: Path, ended: bool) -> None:
    write_incarnation(tmp_path, 6, ended, {256: [(4, 0), (6, 10)]})
    assert next_incarnation(tmp_path) == Incarnation(7, ended, True, {256: [(4, 0), (6, 10)]})
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_another_boot_of_the_machine_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_incarnation(tmp_path, 1, False, {})
    boot = tmp_path / "boot"
    boot.write_text("another\n")
    monkeypatch.setattr(incarnations, "_BOOT", boot)
    assert not next_incarnation(tmp_path).same_boot


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"incarnation": 1, "ended": true, "boot": "", "eras": []}', "\xff"]
)
def test_a_damaged_file_is_set_aside_and_no_number_comes_again(tmp_path: Path, text: str) -> None:
    spool, hour = tmp_path / "spool", tmp_path / "events" / "date=2026-11-22" / "hour=05"
    for folder in (spool, hour):
        folder.mkdir(parents=True)
    (spool / "a-node-7-2.spool.damaged").touch()
    (hour / "a-node-11-1.parquet").touch()
    for number in (1, 2):
        (tmp_path / FILE).write_bytes(text.encode("latin-1"))
        incarnation = next_incarnation(tmp_path)
        aside = f"{FILE}.damaged" if number == 1 else f"{FILE}.2.damaged"
        assert (incarnation.number, incarnation.orderly, incarnation.eras) == (12, False, {})
        assert incarnation.damage
        assert incarnation.damage["file"] == aside
        assert (tmp_path / aside).read_bytes() == text.encode("latin-1")
        assert not (tmp_path / FILE).exists()


def test_each_flipped_byte_is_noticed(tmp_path: Path) -> None:
    write_incarnation(tmp_path, 6, True, {256: [(4, 0), (6, 10)]})
    right = next_incarnation(tmp_path)
    data = (tmp_path / FILE).read_bytes()
    crc = data.index(b'"crc"')
    for at in range(len(data)):
        (tmp_path / FILE).write_bytes(data[:at] + bytes((data[at] ^ 4,)) + data[at + 1 :])
        incarnation = next_incarnation(tmp_path)
        # Without its name the checksum is not looked for, and everything else is as it was.
        assert incarnation.damage or (incarnation == right and crc < at < crc + 4), at


def test_a_missing_file_and_an_older_copy_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool" / "n-5-1.spool").touch()
    incarnation = next_incarnation(tmp_path)
    assert (incarnation.number, incarnation.damage) == (6, {"file": FILE, "error": "it is missing"})
    write_incarnation(tmp_path, 4, True, {})
    incarnation = next_incarnation(tmp_path)
    assert incarnation.number == 6
    assert incarnation.damage
    assert "older" in incarnation.damage["error"]
    write_incarnation(tmp_path, 5, False, {})
    assert next_incarnation(tmp_path) == Incarnation(6, False)


def test_a_file_of_an_earlier_version_has_no_checksum(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"incarnation": 3, "ended": true, "boot": "", "eras": {"256": [[1, 0]]}}')
    assert next_incarnation(tmp_path) == Incarnation(4, True, False, {256: [(1, 0)]})


def test_what_is_no_file_is_set_aside_too(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    assert next_incarnation(tmp_path).damage == {
        "file": f"{FILE}.damaged",
        "error": "it cannot be read: Is a directory",
    }


def test_a_file_that_may_not_be_read_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuses)
    with pytest.raises(StartupError, match="cannot read") as caught:
        next_incarnation(tmp_path)
    assert "\n" not in str(caught.value)
