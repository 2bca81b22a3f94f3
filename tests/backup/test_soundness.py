"""What is not whole gives no backup, and what was changed behind the checksums' back is not restored."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from amqpd.backup.job import Job
from amqpd.backup.manifest import MANIFEST, SUM, BackupError, Manifest, digest
from amqpd.backup.progress import Progress
from amqpd.backup.restore import data_in, restore
from amqpd.storage.files import mark_path
from amqpd.storage.mark import Mark, read_mark
from amqpd.topology.metadata.sqlite.verification import read_journal, write_journal

from .conftest import ROWS

OF_JOURNAL = (
    "UPDATE batch SET last_seq = last_seq + 1 WHERE first_seq = 3",
    "DELETE FROM batch WHERE first_seq = 3",
    "UPDATE source SET idx = idx - 1",
    "UPDATE names SET value = value || 'b'",
    "DELETE FROM names",
)
OF_METADATA = ("UPDATE entries SET value = 'other'", "DELETE FROM entries", "DELETE FROM names")


def mend(target: Path, name: str) -> None:
    """Let the manifest agree with what the file is now; one without a checksum of itself, as of older versions."""
    path = target / name
    said = json.loads((target / MANIFEST).read_text())
    del said[SUM]
    said["files"][name] = {"nbytes": path.stat().st_size, "sha256": digest(path, lambda _: None)}
    (target / MANIFEST).write_text(json.dumps(said))


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def test_a_stopped_node_with_an_older_journal_gives_no_backup(stopped: Path, tmp_path: Path) -> None:
    promise = read_mark(mark_path(stopped / "journal.db"))
    assert promise is not None
    Mark(mark_path(stopped / "journal.db"), promise.identity, ROWS + 5).close()
    with pytest.raises(
        BackupError, match=rf"ends at transaction {ROWS}, and {ROWS + 5} was confirmed: .*a backup would lack that"
    ):
        Job(stopped, tmp_path / "backup", Progress(), running=False).run()
    assert not (tmp_path / "backup").exists()


def test_a_stopped_node_with_older_metadata_gives_no_backup(stopped: Path, tmp_path: Path) -> None:
    mark = stopped / "metadata.mark"
    promise = read_mark(mark)
    assert promise is not None
    Mark(mark, promise.identity, promise.number + 5).close()
    with pytest.raises(BackupError, match=r"metadata\.db ends at revision 1, and 6 was committed: .*would lack that"):
        Job(stopped, tmp_path / "backup", Progress(), running=False).run()
    assert not (tmp_path / "backup").exists()


@pytest.mark.parametrize(("known", "copied"), [(ROWS + 5, ROWS), (ROWS - 5, ROWS - 5)])
def test_the_copy_of_the_metadata_knows_no_more_of_the_journal_than_that_has(
    stopped: Path, tmp_path: Path, known: int, copied: int
) -> None:
    """It is a moment newer: what it had noted in that moment would make a start miss transactions."""
    promise = read_mark(mark_path(stopped / "journal.db"))
    assert promise is not None
    with closing(sqlite3.connect(stopped / "metadata.db", isolation_level=None)) as metadata:
        write_journal(metadata, promise.identity, known)
    Job(stopped, tmp_path / "backup", Progress(), running=False).run()
    path = tmp_path / "backup" / "metadata.db"
    with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as metadata:
        assert read_journal(metadata, path) == (promise.identity, copied)
    restore(tmp_path / "backup", tmp_path / "new", Progress())


def test_files_of_two_nodes_give_no_backup_and_are_not_restored(
    made: tuple[Path, Manifest], stopped: Path, tmp_path: Path
) -> None:
    for path in (stopped / "metadata.db", made[0] / "metadata.db"):
        with closing(sqlite3.connect(path, isolation_level=None)) as metadata:
            write_journal(metadata, "ab" * 16, 1)
            metadata.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with pytest.raises(
        BackupError, match=rf"{stopped}/metadata.db belongs to another journal than {stopped}/journal"
    ):
        Job(stopped, tmp_path / "another", Progress(), running=False).run()
    assert not (tmp_path / "another").exists()
    mend(made[0], "metadata.db")
    with pytest.raises(BackupError, match=rf"{made[0]}/metadata.db belongs to another journal than {made[0]}/jour"):
        restore(made[0], tmp_path / "new", Progress())
    assert data_in(tmp_path / "new") == []


def test_the_manifest_names_the_journal(made: tuple[Path, Manifest], stopped: Path) -> None:
    promise = read_mark(mark_path(stopped / "journal.db"))
    assert promise is not None
    assert made[1].journal == {"format": made[1].journal["format"], "identity": promise.identity, "index": ROWS}


@pytest.mark.parametrize(
    ("name", "statement"),
    [
        *[("metadata.db", each) for each in OF_METADATA],
        *[("journal.db", each) for each in OF_JOURNAL],
    ],
)
def test_a_record_that_was_changed_is_not_restored(
    made: tuple[Path, Manifest], tmp_path: Path, name: str, statement: str
) -> None:
    change(made[0] / name, statement)
    mend(made[0], name)
    with pytest.raises(BackupError, match=r"damaged|does not fit|missing") as caught:
        restore(made[0], tmp_path / "new", Progress())
    assert str(made[0] / name) in str(caught.value)
    assert str(tmp_path / "new") not in str(caught.value)
    assert data_in(tmp_path / "new") == []


def test_a_backup_of_an_older_format_is_restored_for_the_start_to_migrate(
    made: tuple[Path, Manifest], tmp_path: Path
) -> None:
    change(made[0] / "journal.db", "UPDATE alembic_version SET version_num = '0002'")
    mend(made[0], "journal.db")
    restore(made[0], tmp_path / "new", Progress())
    assert data_in(tmp_path / "new") == ["journal.db", "metadata.db"]
