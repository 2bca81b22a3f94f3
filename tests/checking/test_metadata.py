"""Damage to the metadata store is found offline, with the names of its queues where they can be read."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
import trio

from amqpd.__main__ import run
from amqpd.checking.check import check
from amqpd.topology.metadata.codec import encode_key, encode_record
from amqpd.topology.metadata.sqlite.batch import LEASED_BITS
from amqpd.topology.metadata.sqlite.store import SqliteStore
from amqpd.topology.metadata.sqlite.tables import entry_checksum, state_checksum
from amqpd.topology.metadata.store import PutKey
from amqpd.vocabulary.records import QueueRecord, VhostRecord
from tests.checking.conftest import contents, execute

METADATA = "metadata.db"
RECORDS = (VhostRecord("/"), QueueRecord("/", "orders", 1))


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("metadata")

    async def make() -> None:
        store = await SqliteStore.open(directory / METADATA)
        await store.transact([], [PutKey(encode_key(each.key), encode_record(each)) for each in RECORDS])
        assert await store.refresh() >> LEASED_BITS == 1
        await store.aclose()

    trio.run(make)
    return directory


@pytest.fixture
def both(data: Path, stored: Path) -> Path:
    for path in stored.iterdir():
        shutil.copy(path, data)
    return data


def found(directory: Path) -> list[str]:
    before = contents(directory)
    report = check(directory).report
    assert contents(directory) == before
    return [each.line for each in report.findings if each.severity == "damage"]


def test_nothing_is_found_where_nothing_is_wrong(both):
    assert found(both) == []


def test_queues_have_their_names(both):
    execute(both, "UPDATE settled SET idx = 0")
    [line] = found(both)
    assert "messages 3 to 4 of queue 'orders' in virtual host '/' are settled" in line


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE entries SET value = value || ' ' WHERE key LIKE '%orders%'", "orders/' does not fit its checksum"),
        ("UPDATE entries SET revision = 7", "does not fit its checksum"),
        ("DELETE FROM entries WHERE key LIKE '%orders%'", "of 2 entries it has 1, or older ones"),
        ("UPDATE state SET revision = 0", "its state does not fit its checksum"),
        ("UPDATE names SET value = 'x'", "the name 'identity' does not fit its checksum"),
        ("INSERT INTO dropped VALUES (5, 1, 0)", "a deleted queue's number does not fit its checksum"),
        ("UPDATE history SET key = 'x'", "a part of the list of past changes is damaged: no message"),
        ("UPDATE alembic_version SET version_num = 'metadata_0003'", "it says that it is of format 'metadata_0003'"),
        ("DROP TABLE entries", "the entries can be read in part only"),
    ],
)
def test_each_record_that_says_something_else(both, change, said):
    with sqlite3.connect(both / METADATA) as connection:
        connection.execute(change)
    connection.close()
    lines = found(both)
    assert any(said in line for line in lines), lines


def test_whatever_page_is_damaged_it_is_found(both):
    content = (both / METADATA).read_bytes()
    for at in range(0, len(content), 4096):
        (both / METADATA).write_bytes(content[:at] + b"\xa5" * 4096 + content[at + 4096 :])
        assert found(both), f"page at {at}"


def test_a_copy_and_a_mark_that_are_damaged(both):
    (both / "metadata.db.2").write_bytes(b"x" * 4096)
    (both / "metadata.mark").write_bytes(b"x" * 4096)
    assert sorted(line.partition(":")[0] for line in found(both)) == ["metadata.db.2", "metadata.mark"]


def test_messages_of_a_queue_that_is_unknown_are_a_note(both):
    with sqlite3.connect(both / METADATA) as connection:
        key, value, revision = connection.execute(
            "SELECT key, value, revision FROM entries WHERE key LIKE '%orders%'"
        ).fetchone()
        fresh = value.replace('"id":1', '"id":77')
        assert fresh != value
        connection.execute(
            "UPDATE entries SET value = ?, checksum = ? WHERE key = ?",
            (fresh, entry_checksum(key, fresh, revision), key),
        )
        total = connection.execute("SELECT sum(checksum), count(*) FROM entries").fetchone()
        was, compacted = connection.execute("SELECT revision, compacted FROM state").fetchone()
        (identity,) = connection.execute("SELECT value FROM names WHERE name = 'identity'").fetchone()
        checksum = state_checksum(was, compacted, total[1], total[0], identity)
        connection.execute("UPDATE state SET total = ?, checksum = ?", (total[0], checksum))
    connection.close()
    report = check(both).report
    assert [(each.severity, each.kind, each.queue_id) for each in report.findings] == [("note", "orphan", 1)]
    assert "28 messages of queue number 1, which the metadata do not know" in report.findings[0].line


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (METADATA, "format metadata_0099; this one knows metadata_0004"),
        ("journal.db", "format 0099, this one knows up to"),
    ],
)
def test_a_newer_format_is_not_damage_and_is_left_to_its_version(
    both: Path, name: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A copy in its place would give up what came since."""
    shutil.copy(both / METADATA, both / "metadata.db.1")
    with sqlite3.connect(both / name) as connection:
        connection.execute(f"UPDATE alembic_version SET version_num = '{'metadata_' * (name == METADATA)}0099'")
    connection.close()
    before = contents(both)
    assert run(["--data-dir", str(both), "check"]) == 1
    line, summary = capsys.readouterr().out.splitlines()
    assert line.startswith(f"newer format: {name}: it was written by a newer amqpd ({said}")
    assert line.endswith("so it is not looked at; run that version, and its 'amqpd check'")
    assert summary == f"{both}: no damage in what this amqpd knows, 1 file of a newer one"
    assert run(["--data-dir", str(both), "check", "--repair"]) == 1
    assert f"{name}: it was written by a newer amqpd" in capsys.readouterr().err
    assert contents(both) == before


@pytest.mark.parametrize("format_name", ["metadata_00", "metadata_0004x", ""])
def test_what_is_no_name_of_a_format_is_damage(both: Path, format_name: str) -> None:
    with sqlite3.connect(both / METADATA) as connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (format_name,))
    connection.close()
    assert any("it says that it is of format" in line for line in found(both))
