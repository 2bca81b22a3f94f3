"""Making a backup: of one moment while the node writes, and nothing that looks whole when it is not."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from amqpd.backup import job as job_module
from amqpd.backup import progress as progress_module
from amqpd.backup.job import Job, TargetFolder
from amqpd.backup.job import open_journal as open_journal_of
from amqpd.backup.manifest import MANIFEST, BackupError, read_manifest
from amqpd.backup.progress import Progress
from amqpd.datadir.lock import open_data_directory
from amqpd.journal.sqlite.checkpoints import LOG_BYTES
from amqpd.storage.files import identity_of, lengthen

from .conftest import ROWS, Node, Stepping

MANY = 20


def publish_much(node: Node) -> None:
    for _ in range(MANY):
        node.commit()


def test_what_is_committed_while_it_is_copied_is_not_in_it(
    node: Node, tmp_path: Path, open_node: Callable[[Path], Node]
) -> None:
    """Without the read transaction SQLite would begin again at each commit, and copy what came later."""
    progress = Stepping(lambda _: publish_much(node))
    manifest = Job(node.data_dir, tmp_path / "backup", progress, running=True).run()
    assert progress.steps >= 4
    assert node.index == ROWS + progress.steps * MANY
    assert manifest.journal["index"] == ROWS
    assert progress.held_log > 0
    copied = open_node(tmp_path / "backup")
    assert copied.numbers() == list(range(1, ROWS + 1))
    assert node.numbers() == list(range(1, node.index + 1))


def test_the_metadata_is_not_older_than_the_journal(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was declared between the two is in the metadata, and just empty in the journal."""
    opened = open_journal_of

    def open_journal(data_dir: Path, *, running: bool) -> sqlite3.Connection:
        snapshot = opened(data_dir, running=running)
        node.put("declared meanwhile")
        node.commit()
        return snapshot

    monkeypatch.setattr(job_module, "open_journal", open_journal)
    manifest = Job(node.data_dir, tmp_path / "backup", Progress(), running=True).run()
    assert manifest.journal["index"] == ROWS
    assert manifest.metadata["revision"] == 2
    with sqlite3.connect(tmp_path / "backup" / "metadata.db") as copied:
        keys = [key for (key,) in copied.execute("SELECT key FROM entries ORDER BY revision")]
    copied.close()
    assert keys == ["first", "declared meanwhile"]


def test_the_write_ahead_log_that_it_kept_is_checkpointed_when_it_ends(node: Node, tmp_path: Path) -> None:
    """By the writer it would be done in one go, with a commit waiting for it."""
    Job(node.data_dir, tmp_path / "backup", Stepping(lambda _: publish_much(node)), running=True).run()
    log = node.data_dir / "journal.db-wal"
    before = log.stat().st_size
    assert before > job_module.LOG_BYTES_LEFT
    node.commit()
    assert log.stat().st_size == before, "the commit should write at the beginning of the log again"


def test_a_log_that_only_has_its_length_is_within_every_bound(node: Node, tmp_path: Path) -> None:
    log = node.data_dir / "journal.db-wal"
    identity = identity_of(log)
    assert identity is not None
    lengthen(log, LOG_BYTES, identity)
    Job(node.data_dir, tmp_path / "backup", Progress(), running=True, log_bytes_max=1_000_000).run()
    assert (tmp_path / "backup" / MANIFEST).exists()


def test_a_log_that_grows_beyond_its_bound_ends_it(node: Node, tmp_path: Path) -> None:
    progress = Stepping(lambda _: publish_much(node))
    bound = (node.data_dir / "journal.db-wal").stat().st_size + 500_000
    with pytest.raises(BackupError, match=r"write-ahead log grew to \d+ MB .*: the backup was given up; .*--log-max"):
        Job(node.data_dir, tmp_path / "backup", progress, running=True, log_bytes_max=bound).run()
    assert not (tmp_path / "backup").exists()
    node.commit()
    assert node.numbers()[-1] == node.index


def test_a_request_to_stop_ends_it_at_the_next_step(node: Node, tmp_path: Path) -> None:
    progress = Stepping(lambda progress: progress.stop("the broker was stopped"))
    with pytest.raises(BackupError, match=r"^the broker was stopped$"):
        Job(node.data_dir, tmp_path / "backup", progress, running=True).run()
    assert progress.steps == 1
    assert not (tmp_path / "backup").exists()


def test_a_rate_is_kept_by_sleeping_in_short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        nonlocal now
        slept.append(seconds)
        now += seconds

    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(time, "sleep", sleep)
    progress = Progress(1_000_000)
    progress.pace(250_000)
    progress.pace(250_000)
    assert now == pytest.approx(100.5)
    assert max(slept) <= progress_module.SLEEP_S_MAX


def test_the_folder_is_private_and_its_manifest_says_what_is_in_it(made: tuple[Path, object]) -> None:
    target, manifest = made
    assert stat.S_IMODE(target.stat().st_mode) == 0o700
    assert {name.name: stat.S_IMODE(name.stat().st_mode) for name in target.iterdir()} == {
        "backup.json": 0o600,
        "journal.db": 0o600,
        "metadata.db": 0o600,
    }
    assert read_manifest(target) == manifest
    said = json.loads((target / MANIFEST).read_text())
    assert said["files"]["journal.db"]["nbytes"] == (target / "journal.db").stat().st_size


def test_a_stopped_nodes_files_stay_as_they_were(node: Node, tmp_path: Path) -> None:
    """Also a log that was not checkpointed: it may be evidence."""
    data_dir = tmp_path / "crashed"
    data_dir.mkdir()
    for _ in range(3):
        node.commit()
    for name in ("journal.db", "journal.db-wal", "metadata.db"):
        (data_dir / name).write_bytes((node.data_dir / name).read_bytes())
    before = {each.name: each.read_bytes() for each in data_dir.iterdir()}
    assert len(before["journal.db-wal"]) > 1_000_000
    with open_data_directory(data_dir):
        manifest = Job(data_dir, tmp_path / "backup", Progress(), running=False).run()
    assert manifest.journal["index"] == ROWS + 3
    after = {each.name: each.read_bytes() for each in data_dir.iterdir()}
    assert {name: after[name] for name in before} == before
    assert "journal.db-shm" not in after


def test_a_damaged_journal_gives_no_backup(stopped: Path, tmp_path: Path) -> None:
    path = stopped / "journal.db"
    data = bytearray(path.read_bytes())
    data[8192 * 3 : 8192 * 4] = bytes(8192)
    path.write_bytes(data)
    with pytest.raises(BackupError, match=r"journal\.db.* is damaged .*keep the older backups"):
        Job(stopped, tmp_path / "backup", Progress(), running=False).run()
    assert not (tmp_path / "backup").exists()


def test_a_folder_that_is_not_empty_is_left_alone(stopped: Path, tmp_path: Path) -> None:
    target = tmp_path / "backup"
    target.mkdir()
    (target / "journal.db.part").write_text("of another time")
    with pytest.raises(BackupError, match=r"is not empty: .*\(a backup that did not end\)"):
        Job(stopped, target, Progress(), running=False).run()
    assert (target / "journal.db.part").read_text() == "of another time"


def test_an_empty_folder_is_used_and_kept_after_a_failure(node: Node, tmp_path: Path) -> None:
    target = tmp_path / "mount point"
    target.mkdir()
    progress = Stepping(lambda progress: progress.stop("enough"))
    with pytest.raises(BackupError, match="enough"):
        Job(node.data_dir, target, progress, running=True).run()
    assert list(target.iterdir()) == []
    Job(node.data_dir, target, Progress(), running=True).run()
    assert (target / MANIFEST).exists()


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("missing/backup", r"there is no folder .*/missing: make it"),
        ("a file", r"is no folder, or is not in one"),
        ("a file/backup", r"is no folder, or is not in one"),
        ("/sys/backup", r"cannot write /sys/backup: .*; make it a folder that user \d+ can write"),
    ],
)
def test_a_target_that_cannot_be_made_is_one_sentence(
    stopped: Path, tmp_path: Path, target: str, sentence: str
) -> None:
    (tmp_path / "a file").touch()
    with pytest.raises(BackupError, match=sentence):
        Job(stopped, tmp_path / target, Progress(), running=False).run()


def test_too_little_space_is_said_before_anything_is_copied(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TargetFolder, "free_bytes", lambda _: 100_000_000)
    with pytest.raises(BackupError, match=r"has 95 MB of free space, and the backup needs \d+ MB: make space"):
        Job(node.data_dir, tmp_path / "backup", Progress(), running=True, keep_free_bytes=100_000_000).run()
    assert not (tmp_path / "backup").exists()
    # What stays free for the node is of its own disk.
    Job(node.data_dir, tmp_path / "backup", Progress(), running=True, keep_free_bytes=1_000_000).run()


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(disk)]
    if os.geteuid() or subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("needs root, to mount a small file system")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_a_disk_that_fills_up_meanwhile_ends_it(node: Node, full_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TargetFolder, "free_bytes", lambda _: 1 << 40)
    with pytest.raises(BackupError, match=r"cannot write .*: no space left; give it more space"):
        Job(node.data_dir, full_disk / "backup", Progress(), running=True).run()
    assert list(full_disk.iterdir()) == []
    node.commit()
