"""Damage of `metadata.db` and of the files beside it: a refusal in one sentence that changes nothing, or no loss."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest

from amqpd.storage.wal import WalEnd, read_end
from amqpd.topology.metadata.sqlite import promises, sqlite_file
from amqpd.topology.metadata.sqlite.store import SqliteStore
from amqpd.topology.metadata.store import Compacted, DeleteKey, PutKey, StoreDamaged, StoreIncomplete
from tests.topology.damage import FIRST_ID, NAME, contents, file_of, files_of, made, opened, put, refusal, run

pytestmark = pytest.mark.trio
WAL = f"{NAME}-wal"
MARK = "metadata.mark"
PAGE = 4096


def flipped(data: bytes, at: int, bit: int = 0) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


async def test_what_is_whole_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "live").mkdir()
    assert await opened(put(tmp_path, made().files)) == made().found
    assert await opened(put(tmp_path / "live", made().live)) == made().found


# The database


def varint(number: int) -> bytes:
    """As SQLite writes the number of a row."""
    octets = [number & 127]
    while number := number >> 7:
        octets.insert(0, number & 127 | 128)
    return bytes(octets)


RECORDS = {
    "an entry's key": b"topology/queue/%2F/q7/",
    "an entry's value": b'"id":%d,' % (FIRST_ID + 7),
    "a dropped number": varint(FIRST_ID + 1),
    "the identity": made().found.identity.encode(),
    "the name of the journal": b"ab" * 16 + b" 77",
}


@pytest.mark.parametrize("record", RECORDS)
async def test_a_flipped_byte_of_a_record_is_seen(tmp_path: Path, record: str) -> None:
    # Without the history, and without pages that are not used, each record stands there once.
    data = run(run(made().files[NAME], "DELETE FROM history", tmp_path), "VACUUM", tmp_path)
    octets = RECORDS[record]
    assert data.count(octets) == 1
    first = data.index(octets)
    for at in (first, first + len(octets) // 2, first + len(octets) - 1):
        for bit in (0, 5):
            path = put(tmp_path, {NAME: flipped(data, at, bit)})
            await refusal(path)


@pytest.mark.parametrize("state", ["files", "live"])
async def test_a_header_that_keeps_sqlite_from_writing_is_seen_before_anything_is_written(
    tmp_path: Path, state: str
) -> None:
    """It can be read: the journal would begin its incarnation, and the metadata refuse the first note."""
    files = getattr(made(), state)
    path = put(tmp_path, {**files, NAME: flipped(files[NAME], 18, 5)})
    assert "its header is" in await refusal(path)


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        (
            "UPDATE entries SET value = replace(value, ':true', ':null') WHERE key LIKE '%q5/'",
            "the entry 'topology/q",
        ),
        ("UPDATE entries SET revision = revision + 1 WHERE key LIKE '%q5/'", "the entry 'topology/queue/%2F/q5/'"),
        ("UPDATE entries SET checksum = checksum + 1 WHERE key LIKE '%q5/'", "the entry 'topology/queue/%2F/q5/'"),
        (
            "UPDATE entries SET key = 'topology/queue/%2F/q0/' WHERE key LIKE '%q5/'",
            "the entry 'topology/queue/%2F/q0",
        ),
        ("UPDATE entries SET value = CAST(value AS BLOB) WHERE key LIKE '%q5/'", "BLOB|does not fit its checksum"),
        ("UPDATE entries SET value = CAST(x'ff' AS TEXT) WHERE key LIKE '%q5/'", "not UTF-8"),
        ("DELETE FROM entries WHERE key LIKE '%q5/'", "of 10 entries it has 9"),
        ("UPDATE state SET revision = revision - 1", "its state does not fit"),
        ("UPDATE state SET compacted = 1", "its state does not fit"),
        ("UPDATE state SET checksum = NULL", "NULL|its state does not fit"),
        ("DELETE FROM state", "its state does not fit"),
        (
            "UPDATE dropped SET queue_id = 7 WHERE rowid IN (SELECT min(rowid) FROM dropped)",
            "a deleted queue's number",
        ),
        ("UPDATE names SET value = '' WHERE name = 'identity'", "the name 'identity'"),
        ("DELETE FROM names WHERE name = 'identity'", "which one it is"),
        ("UPDATE names SET value = value || '1' WHERE name = 'journal'", "the name 'journal'"),
        ("UPDATE alembic_version SET version_num = NULL", "NULL|its format is None"),
        ("UPDATE alembic_version SET version_num = 'metadata_0003'", "already exists|duplicate column"),
        ("DELETE FROM alembic_version", "already exists"),
        ("DROP TABLE names", "no such table: names"),
    ],
)
async def test_what_sqlite_takes_for_whole_is_seen(tmp_path: Path, statement: str, sentence: str) -> None:
    statement = statement.replace("UPDATE", "UPDATE OR IGNORE") if "= NULL" in statement else statement
    database = tmp_path / "changed.db"
    database.write_bytes(made().files[NAME])
    with sqlite3.connect(database) as changing:
        changing.execute("PRAGMA writable_schema = ON")
        changing.execute("UPDATE sqlite_master SET sql = replace(sql, 'NOT NULL', '')")
        changing.execute("PRAGMA writable_schema = RESET")
        changing.execute(statement)
    changing.close()
    path = put(tmp_path, {NAME: database.read_bytes()})
    database.unlink()
    with pytest.raises(StoreDamaged, match=sentence):
        await opened(path)
    await refusal(path)


async def test_damage_of_the_history_is_a_gap_and_no_damage(tmp_path: Path) -> None:
    """It is there for others to catch up, and they read everything instead."""
    for number, statement in enumerate(
        (
            "UPDATE history SET key = key || 'x' WHERE revision = 3",
            "UPDATE history SET value = NULL WHERE revision = 1 AND position = 4",
            "DELETE FROM history WHERE revision = 1 AND position = 12",
            "DELETE FROM history WHERE revision = 2",
            "DELETE FROM history WHERE revision = 4",
        )
    ):
        directory = tmp_path / str(number)
        directory.mkdir()
        path = put(directory, {NAME: run(made().files[NAME], statement, tmp_path)})
        store = await SqliteStore.open(path)
        assert await contents(store) == made().found
        with pytest.raises(Compacted, match="cannot be read"):
            await anext(store.watch(0))
        watch = store.watch((await store.range("")).revision)
        await store.transact([], [PutKey("after", "")])
        assert (await anext(watch)).operations == (PutKey("after", ""),)
        await store.aclose()


async def test_damaged_history_of_another_process_s_commit_is_a_gap(tmp_path: Path) -> None:
    path = tmp_path / NAME
    here, there = await SqliteStore.open(path, poll_s=3600), await SqliteStore.open(path)
    watch = here.watch(await here.refresh())
    await there.transact([], [PutKey("a", "1"), PutKey("b", "1")])
    file_of(there)._driver.execute("UPDATE history SET value = '2' WHERE key = 'b'")
    await here.refresh()
    with pytest.raises(Compacted):
        await anext(watch)
    assert [entry.value for entry in (await here.range("")).entries] == ["1", "1"]
    await here.aclose()
    await there.aclose()


async def test_an_entry_that_is_damaged_while_it_is_open_is_not_given_out(tmp_path: Path) -> None:
    path = put(tmp_path, made().files)
    store = await SqliteStore.open(path)
    file_of(store)._driver.execute("UPDATE entries SET value = '{}' WHERE key LIKE '%q5/'")
    with pytest.raises(StoreDamaged, match="the entry 'topology/queue/%2F/q5/' does not fit"):
        await store.get("topology/queue/%2F/q5/")
    await store.aclose()


@pytest.mark.parametrize("seed", range(3))
async def test_damage_anywhere_is_seen_or_does_not_matter(tmp_path: Path, seed: int) -> None:
    """Bytes and pages of any file, at random; thousands of rounds of it were tried when this was written."""
    rng = random.Random(seed)
    for number in range(15):
        state = rng.choice([made().files, made().live])
        name = rng.choice(sorted(state))
        data = state[name]
        at = rng.choice([rng.randrange(len(data)), rng.randrange(min(len(data), 200))])
        page = at // PAGE * PAGE
        damaged = rng.choice(
            [
                flipped(data, at, rng.randrange(8)),
                data[:at],
                data[:page] + bytes(len(data[page : page + PAGE])) + data[page + PAGE :],
                data[:page] + rng.randbytes(len(data[page : page + PAGE])) + data[page + PAGE :],
            ]
        )
        directory = tmp_path / str(number)
        directory.mkdir()
        path = put(directory, {**state, name: damaged})
        try:
            assert await opened(path) == made().found, (number, name, at)
        except StoreDamaged:
            for file in directory.iterdir():
                file.unlink()
            await refusal(put(directory, {**state, name: damaged}))


# The log


def frames(data: bytes) -> int:
    return (len(data) - 32) // (24 + PAGE)


async def test_damage_in_the_middle_of_the_log_is_seen(tmp_path: Path) -> None:
    """With what the mark promises, and without it, as after a power cut."""
    log = made().live[WAL]
    damaged = flipped(log, 32 + 24 + 100)
    path = put(tmp_path, {**made().live, WAL: damaged})
    sentence = await refusal(path)
    assert "4 was committed: metadata.db-wal is damaged (frame 1 is" in sentence
    path.with_name(MARK).unlink()
    sentence = await refusal(path)
    assert "lacks what was committed behind the damage of its log" in sentence
    assert "--accept-loss" in sentence


async def test_a_torn_end_of_the_log_is_taken_for_one(tmp_path: Path) -> None:
    """Without a mark that says more: the last transaction was not promised to anybody."""
    files = dict(made().live)
    del files[MARK]
    files[WAL] = files[WAL][:-1000]
    found = await opened(put(tmp_path, files))
    assert {entry.key for entry in found.entries} == {
        *(entry.key for entry in made().found.entries),
        "topology/queue/%2F/q2/",
    }
    assert found.dropped == {FIRST_ID, FIRST_ID + 1}


async def test_the_end_of_the_log_is_promised(tmp_path: Path) -> None:
    path = put(tmp_path, {**made().live, WAL: made().live[WAL][:-1000]})
    assert "ends at revision 3, and 4 was committed: metadata.db-wal is damaged" in await refusal(path)
    path = put(tmp_path, {**made().live, WAL: b""})
    assert "was committed" in await refusal(path)


async def test_the_loss_is_accepted_once(tmp_path: Path) -> None:
    log = made().live[WAL][:-1000]
    path = put(tmp_path, {**made().live, WAL: log})
    store = await SqliteStore.open(path, accept_loss=True)
    assert store.accepted[0].endswith("metadata.db-wal is damaged at its end")
    assert store.accepted[1].endswith("is kept in " + str(path.with_name(f"{WAL}.damaged")))
    assert path.with_name(f"{WAL}.damaged").read_bytes() == log
    assert (await store.dropped_queues()) == {FIRST_ID, FIRST_ID + 1}
    await store.aclose()
    store = await SqliteStore.open(path)
    assert store.accepted == []
    await store.aclose()


async def test_the_log_is_copied_beside_an_earlier_copy(tmp_path: Path) -> None:
    path = put(tmp_path, {**made().live, WAL: made().live[WAL][:-1000], f"{WAL}.damaged": b"earlier"})
    await opened(path, accept_loss=True)
    assert path.with_name(f"{WAL}.damaged").read_bytes() == b"earlier"
    assert path.with_name(f"{WAL}.damaged.2").read_bytes() == made().live[WAL][:-1000]


async def test_accepting_a_loss_does_not_accept_damage(tmp_path: Path) -> None:
    path = put(tmp_path, {NAME: run(made().files[NAME], "DELETE FROM entries WHERE key LIKE '%q5/'", tmp_path)})
    before = files_of(path)
    with pytest.raises(StoreDamaged, match="of 10 entries it has 9"):
        await opened(path, accept_loss=True)
    assert files_of(path) == before


async def test_another_process_opens_it_while_the_log_is_written(tmp_path: Path) -> None:
    """What the first one promised meanwhile does not look like a loss to the second."""
    path = tmp_path / NAME
    here = await SqliteStore.open(path)
    for number in range(5):
        await here.transact([], [PutKey(f"{number}", "")])
        there = await SqliteStore.open(path)
        await there.transact([], [PutKey(f"there {number}", "")])
        await there.aclose()
    assert len((await here.range("")).entries) == 10
    await here.aclose()
    assert len((await opened(path)).entries) == 10


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        ("first other whole", ""),
        ("first other third whole", ""),
        ("first first", "first"),
        ("first other other", "other"),
    ],
)
async def test_a_log_that_others_write_is_damaged_when_two_readings_agree(
    tmp_path: Path, readings: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = iter([WalEnd(1, "" if reading == "whole" else reading) for reading in readings.split()])
    monkeypatch.setattr(promises, "read_end", lambda _: next(ends))
    assert promises.traces_of(tmp_path / NAME).end.damage == expected
    assert next(ends, None) is None


async def test_the_log_is_emptied_when_it_is_quiet(tmp_path: Path) -> None:
    path = tmp_path / NAME
    store = await SqliteStore.open(path)
    await store.transact([], [PutKey("a", "1")])
    await store.transact([], [DeleteKey("a"), PutKey("b", "2")])
    assert read_end(path.with_name(WAL)).frames
    for _ in range(sqlite_file.QUIET_LOOKS):
        store._file.look()
    assert path.with_name(WAL).stat().st_size == 0
    # The database alone has everything now.
    (tmp_path / "other").mkdir()
    alone = put(tmp_path / "other", {NAME: path.read_bytes()})
    assert [entry.key for entry in (await opened(alone)).entries] == ["b"]
    await store.aclose()


async def test_a_log_that_somebody_reads_is_emptied_later(tmp_path: Path) -> None:
    path = tmp_path / NAME
    store = await SqliteStore.open(path)
    await store.transact([], [PutKey("a", "1")])
    with sqlite3.connect(path, isolation_level=None) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM entries").fetchall()
        await store.transact([], [PutKey("b", "1")])
        for _ in range(sqlite_file.QUIET_LOOKS):
            store._file.look()
        assert path.with_name(WAL).stat().st_size
        reader.execute("COMMIT")
        for _ in range(sqlite_file.QUIET_LOOKS):
            store._file.look()
        assert path.with_name(WAL).stat().st_size == 0
    reader.close()
    await store.aclose()


# What is beside it


async def test_an_older_copy_of_the_database_is_seen(tmp_path: Path) -> None:
    path = put(tmp_path, made().files)
    store = await SqliteStore.open(path)
    await store.transact([], [PutKey("later", "")])
    await store.aclose()
    path.write_bytes(made().files[NAME])
    assert "ends at revision 4, and 5 was committed: it is an older copy" in await refusal(path)


async def test_another_broker_s_database_is_seen(tmp_path: Path) -> None:
    await opened(tmp_path / NAME)
    path = put(tmp_path, {MARK: made().files[MARK]})
    assert "one of them was replaced" in await refusal(path)


@pytest.mark.parametrize("beside", [WAL, MARK, f"{NAME}.1", f"{NAME}.2"])
@pytest.mark.parametrize("empty", [False, True])
async def test_a_missing_database_is_not_a_new_one(tmp_path: Path, beside: str, empty: bool) -> None:
    data = {**made().live, f"{NAME}.1": made().files[NAME], f"{NAME}.2": made().files[NAME]}[beside]
    path = put(tmp_path, {beside: data, **({NAME: b""} if empty else {})})
    assert f"is {'empty' if empty else 'missing'}, and there was one: {beside} is beside it" in await refusal(path)
    with pytest.raises(StoreIncomplete):
        await opened(path)
    store = await SqliteStore.open(path, accept_loss=True)
    assert (await store.range("")).entries == []
    assert store.accepted
    await store.transact([], [PutKey("a", "")])
    await store.aclose()
    store = await SqliteStore.open(path)
    assert [entry.key for entry in (await store.range("")).entries] == ["a"]
    assert store.accepted == []
    await store.aclose()
    if beside != MARK:
        assert data in files_of(path).values(), "what is left of it is kept"


async def test_a_damaged_mark_promises_nothing(tmp_path: Path) -> None:
    path = put(tmp_path, {**made().files, MARK: b"damage" * 1000})
    assert await opened(path) == made().found
