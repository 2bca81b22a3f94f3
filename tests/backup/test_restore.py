"""Putting a backup back: all of it or nothing, and nothing that was there before is lost."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from amqpd.__main__ import run
from amqpd.backup.manifest import MANIFEST, BackupError, Manifest, digest, parse, read_manifest
from amqpd.backup.progress import Progress
from amqpd.backup.restore import RESTORING, data_in, refuse_unfinished, restore
from amqpd.checking.check import check
from amqpd.datadir.lock import open_data_directory
from amqpd.errors import StartupError

from .conftest import ROWS, Node

Made = tuple[Path, Manifest]


def edit(target: Path, change: Callable[[dict[str, object]], None]) -> None:
    """Its manifest, as an earlier version wrote it, which has no checksum of its own."""
    said = json.loads((target / MANIFEST).read_text())
    del said["sha256"]
    change(said)
    (target / MANIFEST).write_text(json.dumps(said))


def test_a_restored_journal_and_its_metadata_are_as_they_were(
    made: Made, tmp_path: Path, open_node: Callable[[Path], Node]
) -> None:
    target, manifest = made
    new = tmp_path / "new" / "data"
    assert restore(target, new, Progress()) == (manifest, None)
    assert sorted(each.name for each in new.iterdir()) == ["amqpd.lock", "journal.db", "metadata.db"]
    restored = open_node(new)
    assert restored.index == ROWS
    assert restored.numbers() == list(range(1, ROWS + 1))
    restored.commit()


def test_a_check_finds_nothing_wrong_in_what_was_restored(made: Made, tmp_path: Path) -> None:
    """Before the first start, when the metadata have no write-ahead log."""
    target, _ = made
    restore(target, tmp_path / "new", Progress())
    assert [each.line for each in check(tmp_path / "new").report.findings if each.severity == "damage"] == []


@pytest.mark.parametrize("name", ["journal.db", "metadata.db"])
@pytest.mark.parametrize("place", [0, 0.5, 1])
def test_a_flipped_byte_is_found_before_anything_is_restored(
    made: Made, tmp_path: Path, name: str, place: float
) -> None:
    target, _ = made
    data = bytearray((target / name).read_bytes())
    data[int(place * (len(data) - 1))] ^= 0x10
    (target / name).write_bytes(data)
    with pytest.raises(BackupError, match=rf"{name} is not what the backup's manifest says .*nothing was restored"):
        restore(target, tmp_path / "new", Progress())
    assert data_in(tmp_path / "new") == []
    refuse_unfinished(tmp_path / "new")


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"x", lambda _: b""])
def test_a_file_of_another_size_is_refused(made: Made, tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    path = made[0] / "journal.db"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(BackupError, match="is not what the backup's manifest says"):
        restore(made[0], tmp_path / "new", Progress())


def test_a_damage_that_the_checksums_do_not_know_is_found_by_the_check(made: Made, tmp_path: Path) -> None:
    """A backup that was made of a damaged file elsewhere, or whose manifest was mended."""
    path = made[0] / "journal.db"
    data = bytearray(path.read_bytes())
    data[8192 * 3 : 8192 * 4] = bytes(8192)
    path.write_bytes(data)
    edit(made[0], lambda said: said["files"]["journal.db"].update(sha256=digest(path, lambda _: None)))  # type: ignore[index]
    with pytest.raises(BackupError, match=r"journal\.db is damaged"):
        restore(made[0], tmp_path / "new", Progress())
    assert data_in(tmp_path / "new") == []


def test_a_folder_without_manifest_is_no_backup(made: Made, tmp_path: Path) -> None:
    (made[0] / MANIFEST).unlink()
    with pytest.raises(BackupError, match=r"is no complete backup: it has no backup\.json"):
        restore(made[0], tmp_path / "new", Progress())
    assert not (tmp_path / "new").exists()
    with pytest.raises(BackupError, match="is no complete backup"):
        restore(tmp_path / "nowhere", tmp_path / "new", Progress())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda said: said.pop("files"), r"backup\.json is damaged"),
        (lambda said: said["files"].update({"../other": {"nbytes": 1, "sha256": ""}}), r"backup\.json is damaged"),
        (lambda said: said["files"].pop("metadata.db"), r"backup\.json is damaged"),
        (lambda said: said.update(files=[]), r"backup\.json is damaged"),
        (lambda said: said.update(format=2, version="9.0"), r"is of format 2, .*: restore it with amqpd 9\.0"),
    ],
)
def test_a_manifest_that_is_not_understood_is_refused(
    made: Made, tmp_path: Path, change: Callable[[dict[str, object]], None], sentence: str
) -> None:
    edit(made[0], change)
    with pytest.raises(BackupError, match=sentence):
        restore(made[0], tmp_path / "new", Progress())
    assert not (tmp_path / "new").exists()


def test_every_byte_of_the_manifest_is_covered(made: Made) -> None:
    path = made[0] / MANIFEST
    content = path.read_bytes()
    flipped = (
        content[:at] + bytes((octet ^ 1 << bit,)) + content[at + 1 :]
        for at, octet in enumerate(content)
        for bit in range(8)
    )
    for damaged in (*flipped, content[:-1], content + b" ", content * 2, b""):
        with pytest.raises((ValueError, KeyError)):
            parse(damaged, path)
    path.write_bytes(content[:-1])
    with pytest.raises(BackupError, match=r"backup\.json is damaged"):
        read_manifest(made[0])
    assert parse(content, path) == made[1]


def test_a_manifest_of_an_earlier_version_is_restored_and_said_to_have_no_checksum(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(made[0], lambda _: None)
    assert run(["restore", str(made[0]), "--data-dir", str(tmp_path / "new")]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith(f"{made[0] / MANIFEST} has no checksum of its own, as those of earlier versions")
    assert said[1].startswith("restored: ")


@pytest.mark.parametrize(("name", "newer"), [("journal.db", "9999"), ("metadata.db", "metadata_9999")])
def test_a_newer_format_is_refused_before_anything_is_moved(
    made: Made, tmp_path: Path, stopped: Path, name: str, newer: str
) -> None:
    path = made[0] / name
    connection = sqlite3.connect(path)
    connection.execute("UPDATE alembic_version SET version_num = ?", (newer,))
    connection.commit()
    connection.close()

    def mend(said: dict[str, object]) -> None:
        said["files"][name] = {  # type: ignore[index]
            "nbytes": path.stat().st_size,
            "sha256": digest(path, lambda _: None),
        }

    edit(made[0], mend)
    before = data_in(stopped)
    with pytest.raises(BackupError, match=rf"was written by a newer amqpd \(format {newer}"):
        restore(made[0], stopped, Progress(), replace=True)
    assert data_in(stopped) == before


def test_a_directory_with_data_is_refused(made: Made, stopped: Path) -> None:
    before = {name: (stopped / name).read_bytes() for name in data_in(stopped)}
    with pytest.raises(BackupError, match=r"has data \(journal\.db, .*metadata\.db.*--replace"):
        restore(made[0], stopped, Progress())
    assert {name: (stopped / name).read_bytes() for name in data_in(stopped)} == before


def test_what_is_replaced_stands_aside_whole(made: Made, stopped: Path) -> None:
    """Marks and audit incarnations of the other incarnation would speak of a state that is not there any more."""
    (stopped / "journal.mark").write_bytes(b"promised")
    (stopped / "metadata.db.1").write_bytes(b"last good copy")
    (stopped / "audit").mkdir()
    (stopped / "audit" / "incarnations.json").write_text("{}")
    (stopped / "metadata.reserve").write_bytes(bytes(10))
    (stopped / "server.key").write_text("the operator's own")
    replaced = {name: (stopped / name).read_bytes() for name in data_in(stopped) if name != "audit"}
    _, aside = restore(made[0], stopped, Progress(), replace=True)
    assert aside is not None
    assert {each.name: each.read_bytes() for each in aside.iterdir() if each.is_file()} == replaced
    assert (aside / "audit" / "incarnations.json").exists()
    assert sorted(each.name for each in stopped.iterdir() if each != aside) == [
        *("amqpd.lock", "journal.db", "metadata.db", "metadata.reserve", "reserve", "server.key")
    ]
    # And once more: the folder of the first time is left alone.
    _, second = restore(made[0], stopped, Progress(), replace=True)
    assert second is not None
    assert second != aside
    assert (aside / "journal.db").exists()


def test_a_directory_that_a_broker_uses_is_refused(made: Made, tmp_path: Path) -> None:
    with open_data_directory(tmp_path / "used"), pytest.raises(StartupError, match="is in use by another amqpd"):
        restore(made[0], tmp_path / "used", Progress(), replace=True)


@pytest.mark.parametrize("placed", ["metadata.db", "journal.db"])
def test_a_restore_that_was_killed_is_seen_and_done_again(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, placed: str
) -> None:
    new = tmp_path / "new"
    renamed = Path.rename

    def rename(path: Path, target: Path) -> Path:
        if path.name == placed:
            raise KeyboardInterrupt
        return renamed(path, target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(KeyboardInterrupt):
        restore(made[0], new, Progress())
    monkeypatch.undo()
    with pytest.raises(StartupError, match=r"did not end: run amqpd restore again; .*remove the folder .*/restoring"):
        refuse_unfinished(new)
    restore(made[0], new, Progress(), replace=placed == "journal.db")
    refuse_unfinished(new)
    assert not (new / RESTORING).exists()
    assert digest(new / "journal.db", lambda _: None) == made[1].files["journal.db"].sha256


def test_a_full_disk_leaves_nothing_behind(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    usage = shutil.disk_usage(tmp_path)._replace(free=1_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(BackupError, match=r"has 0 MB of free space, and the backup needs \d+ MB"):
        restore(made[0], tmp_path / "new", Progress())
    assert sorted(each.name for each in (tmp_path / "new").iterdir()) == ["amqpd.lock"]
