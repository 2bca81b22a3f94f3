"""Whose file it is, which format it has, and who else has it open: told before anything is touched."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect

from amqpd.journal.errors import JournalInUse, NewerJournalFormat, NotAJournal
from amqpd.journal.records import JournalDamaged
from amqpd.journal.sqlite import database, schema
from amqpd.journal.sqlite.database import JOURNAL
from tests.journal.disks import SqliteDrive, row, transaction


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A journal with one message, closed."""
    disk = SqliteDrive(tmp_path / "data").open()
    disk.recover()
    disk.commit(transaction(1, row(1, 0, 0)))
    disk.close()
    return tmp_path / "data"


def test_a_new_journal_has_the_tables_of_the_schema(data):
    engine = create_engine(f"sqlite:///{data / JOURNAL}")
    found = inspect(engine)
    assert set(found.get_table_names()) == {*schema.metadata.tables, "alembic_version"}
    for table in schema.metadata.tables.values():
        columns = found.get_columns(table.name)
        assert [(each["name"], str(each["type"]), each["nullable"]) for each in columns] == [
            (each.name, str(each.type.compile(engine.dialect)), each.nullable) for each in table.columns
        ]
        key = found.get_pk_constraint(table.name)["constrained_columns"]
        assert key == [each.name for each in table.primary_key]
        assert [(each["name"], each["column_names"]) for each in found.get_indexes(table.name)] == [
            (each.name, [column.name for column in each.columns]) for each in table.indexes
        ]
    engine.dispose()


def test_the_revisions_are_those_of_the_migrations():
    versions = Path(schema.__file__).parent / "migrations" / "versions"
    assert tuple(sorted(path.name.split("_")[0] for path in versions.glob("[0-9]*.py"))) == schema.REVISIONS


def test_pages_and_vacuum_are_as_measured(data):
    connection = sqlite3.connect(data / JOURNAL)
    assert connection.execute("PRAGMA page_size").fetchone() == (schema.PAGE_BYTES,)
    assert connection.execute("PRAGMA auto_vacuum").fetchone() == (2,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_the_writer_syncs_every_commit(disk):
    assert disk._writer.execute("PRAGMA synchronous").fetchone() == (2,)
    assert disk._writer.execute("PRAGMA wal_autocheckpoint").fetchone() == (0,)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        disk._reader.execute("DELETE FROM batch")


def test_a_journal_of_a_newer_amqpd_is_refused_untouched(data):
    connection = sqlite3.connect(data / JOURNAL)
    connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.commit()
    connection.close()
    before = contents(data)
    with pytest.raises(
        NewerJournalFormat, match=r"journal\.db was written by a newer amqpd \(format 9999.* start that version"
    ):
        SqliteDrive(data).open()
    assert contents(data) == before


@pytest.mark.parametrize(
    ("damaged", "said"),
    [("'0' || char(10) || '04'", repr("0\n04")), ("''", "''"), ("x'00'", repr(b"\0")), ("4", "'4'")],
)
def test_a_format_that_no_amqpd_ever_wrote_is_damage_in_one_sentence_and_untouched(data, damaged, said):
    connection = sqlite3.connect(data / JOURNAL)
    connection.execute(f"UPDATE alembic_version SET version_num = {damaged}")
    connection.commit()
    connection.close()
    before = contents(data)
    with pytest.raises(JournalDamaged) as refused:
        SqliteDrive(data).open()
    assert f"journal.db is damaged (its format is {said}); " in str(refused.value)
    assert "\n" not in str(refused.value)
    assert contents(data) == before


@pytest.mark.parametrize("bytes_", [b"", b"hello", b"SQLite format 3", bytes(8192)])
def test_a_file_that_is_no_database_is_refused_untouched(tmp_path, bytes_):
    (tmp_path / JOURNAL).write_bytes(bytes_)
    with pytest.raises(NotAJournal, match=r"is not a journal of amqpd .*give another data directory"):
        SqliteDrive(tmp_path).open()
    assert contents(tmp_path) == {JOURNAL: bytes_}


def test_a_database_of_another_program_is_refused_untouched(tmp_path):
    connection = sqlite3.connect(tmp_path / JOURNAL)
    connection.execute("CREATE TABLE batch (x)")
    connection.close()
    before = contents(tmp_path)
    with pytest.raises(NotAJournal, match="is a database of another program"):
        SqliteDrive(tmp_path).open()
    assert contents(tmp_path) == before


def test_a_wal_without_its_journal_is_refused(data):
    (data / JOURNAL).unlink()
    (data / f"{JOURNAL}-wal").write_bytes(b"x")
    with pytest.raises(JournalDamaged, match="is missing, and"):
        SqliteDrive(data).open()


def test_a_creation_that_was_interrupted_is_begun_again(tmp_path):
    (tmp_path / f"{JOURNAL}.new").write_bytes(b"half")
    (tmp_path / f"{JOURNAL}.new-journal").write_bytes(b"half")
    disk = SqliteDrive(tmp_path).open()
    assert disk.recover().queues == {}
    disk.close()
    assert not (tmp_path / f"{JOURNAL}.new").exists()


def test_a_second_process_is_refused(data):
    disk = SqliteDrive(data).open()
    other = subprocess.run(
        [sys.executable, "-c", "import sys; from pathlib import Path\n"
         "from amqpd.journal.sqlite.disk import SqliteDisk\n"
         "try: SqliteDisk(Path(sys.argv[1]))\nexcept Exception as e: print(type(e).__name__, e)", str(data)],
        capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert other.stdout.startswith(f"{JournalInUse.__name__} another process has ")
    disk.recover()
    disk.commit(transaction(2, row(1, 1, 1)))
    disk.close()


NEXT = """
from alembic import op
revision, down_revision = "9998", "{newest}"
def upgrade():
    op.execute("ALTER TABLE queue ADD COLUMN colour TEXT")
    {end}
"""


@pytest.fixture
def next_amqpd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """From now on this is the next version, with one more format; its migration's file."""
    shutil.copytree(database.MIGRATIONS, tmp_path / "migrations")
    monkeypatch.setattr(database, "MIGRATIONS", tmp_path / "migrations")
    monkeypatch.setattr(database, "REVISIONS", (*schema.REVISIONS, "9998"))
    return tmp_path / "migrations" / "versions" / "9998_next.py"


def test_an_old_format_is_migrated_and_then_too_new_for_the_old_version(data, next_amqpd, monkeypatch):
    next_amqpd.write_text(NEXT.format(newest=schema.REVISIONS[-1], end=""))
    disk = SqliteDrive(data).open()
    assert len(disk.recover().queues[1].rows) == 1
    assert disk._writer.execute("SELECT colour FROM queue").fetchall() == []
    # Also when it never gets to close its files.
    shutil.copytree(data, data.parent / "image")
    disk.close()
    monkeypatch.undo()
    for directory in (data, data.parent / "image"):
        before = contents(directory)
        with pytest.raises(NewerJournalFormat, match=f"format 9998, this one knows up to {schema.REVISIONS[-1]}"):
            SqliteDrive(directory).open()
        assert contents(directory) == before


def test_a_migration_that_fails_changes_nothing(data, next_amqpd, monkeypatch):
    next_amqpd.write_text(NEXT.format(newest=schema.REVISIONS[-1], end="raise RuntimeError('half way')"))
    with pytest.raises(RuntimeError, match="half way"):
        SqliteDrive(data).open()
    monkeypatch.undo()
    disk = SqliteDrive(data).open()
    assert len(disk.recover().queues[1].rows) == 1
    disk.close()
