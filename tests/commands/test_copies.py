"""`amqpd metadata`: the copies are listed, and one is put in the place of what is damaged."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from click.testing import Result

from amqpd.datadir.lock import open_data_directory
from amqpd.errors import StartupError
from amqpd.topology.metadata.sqlite.store import SqliteStore


@pytest.fixture
def copied(data_dir: Path, ok: Callable[..., str]) -> Path:
    """Copy 2 is of before user alice, copy 1 of before bob."""

    async def keep() -> None:
        store = await SqliteStore.open(data_dir / "metadata.db")
        await store.keep_copies()
        await store.aclose()

    for name in ("alice", "bob"):
        trio.run(keep)
        ok("user", "add", name, "secret")
    return data_dir


def users(ok: Callable[..., str]) -> list[str]:
    return [row["name"] for row in json.loads(ok("user", "list", "--json"))]


def test_the_newest_copy_replaces_damage(copied: Path, ok: Callable[..., str], refused: Callable[..., str]) -> None:
    database = copied / "metadata.db"
    damaged = database.read_bytes()[:-1]
    database.write_bytes(damaged)
    assert f"in place (amqpd metadata restore-copy --data-dir {copied})" in refused("user", "list")
    said = ok("metadata", "restore-copy")
    assert said.startswith("moved metadata.db to metadata.db.damaged\ncopied metadata.db.1 to metadata.db\n")
    assert "start the broker" in said
    assert users(ok) == ["alice", "guest"]
    assert (copied / "metadata.db.damaged").read_bytes() == damaged


def test_an_older_copy_can_be_named(copied: Path, ok: Callable[..., str]) -> None:
    ok("metadata", "restore-copy", "--copy", "2")
    assert users(ok) == ["guest"]


def test_copies_are_listed(copied: Path, ok: Callable[..., str], refused: Callable[..., str]) -> None:
    (copied / "metadata.db.1").write_bytes(b"damage")
    rows = json.loads(ok("metadata", "copies", "--json"))
    assert [(row["copy"], row["state"]) for row in rows] == [("metadata.db.1", "damaged"), ("metadata.db.2", "good")]
    assert rows[1]["revision"] == 1
    assert "no good copy metadata.db.1" in refused("metadata", "restore-copy", "--copy", "1")
    ok("metadata", "restore-copy")
    assert users(ok) == ["guest"]


def test_a_broker_that_runs_keeps_its_metadata(copied: Path, run: Callable[..., Result]) -> None:
    before = (copied / "metadata.db").read_bytes()
    with open_data_directory(copied):
        result = run("metadata", "restore-copy")
    assert isinstance(result.exception, StartupError)
    assert "in use by another amqpd" in result.exception.sentence
    assert (copied / "metadata.db").read_bytes() == before


def test_without_a_good_copy_nothing_is_touched(data_dir: Path, refused: Callable[..., str], tmp_path: Path) -> None:
    assert "restore a backup" in refused("metadata", "restore-copy")
    assert (data_dir / "metadata.db").exists()
    assert "does not exist" in refused("metadata", "restore-copy", "--data-dir", str(tmp_path / "none"))
    assert not (tmp_path / "none").exists()


def test_metadata_that_was_lost_is_put_back(copied: Path, ok: Callable[..., str]) -> None:
    for file in copied.iterdir():
        if file.name not in ("metadata.db.1", "metadata.mark"):
            file.unlink() if file.is_file() else shutil.rmtree(file)
    ok("metadata", "restore-copy")
    assert users(ok) == ["alice", "guest"]


def test_a_copy_does_not_take_the_place_of_a_newer_format(copied: Path, refused: Callable[..., str]) -> None:
    with sqlite3.connect(copied / "metadata.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'metadata_0099'")
    connection.close()
    before = (copied / "metadata.db").read_bytes()
    said = refused("metadata", "restore-copy")
    assert "was written by a newer amqpd (format metadata_0099; this one knows" in said
    assert "run that version" in said
    assert (copied / "metadata.db").read_bytes() == before
