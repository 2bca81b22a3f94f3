"""What only the embedded store can get wrong: its file, other processes, the disk."""

# ruff: noqa: ASYNC240 -- these tests look at the files; nothing else runs meanwhile.
from __future__ import annotations

import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
import trio

from amqpd.topology.metadata.codec import decode_record
from amqpd.topology.metadata.sqlite import sqlite_file
from amqpd.topology.metadata.sqlite.batch import LEASED_BITS, CommitRequest
from amqpd.topology.metadata.sqlite.store import SqliteStore
from amqpd.topology.metadata.store import (
    Committed,
    Compacted,
    Compare,
    DeleteKey,
    MetadataEntry,
    MetadataStoreError,
    MetadataTransaction,
    NewerMetadataFormat,
    PutKey,
    StoreClosed,
    StoreDamaged,
    StoreFull,
)
from amqpd.vocabulary.records import UserRecord
from tests.topology.damage import file_of
from tests.topology.old_formats import make_old

pytestmark = pytest.mark.trio
ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.db"


async def put(store: SqliteStore, key: str, value: str = "", lease: int = 0) -> int:
    outcome = await store.transact([], [PutKey(key, value, lease)])
    assert isinstance(outcome, Committed)
    return outcome.revision


async def keys(store: SqliteStore) -> list[str]:
    return [entry.key for entry in (await store.range("")).entries]


def spawn(program: str, path: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, str(path), *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


async def test_everything_is_there_after_a_restart(path: Path) -> None:
    store = await SqliteStore.open(path)
    revision = await put(store, "a", "é\U0001f600\n")
    await store.aclose()
    assert not path.with_name("metadata.db-wal").exists()
    store = await SqliteStore.open(path)
    assert await store.get("a") == MetadataEntry("a", "é\U0001f600\n", revision)
    assert await store.refresh() == revision
    assert await put(store, "b") > revision
    await store.aclose()


async def test_the_file_is_its_owner_s_only(path: Path) -> None:
    store = await SqliteStore.open(path)
    await put(store, "a")
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    await store.aclose()


@pytest.mark.parametrize("name", ["100% #1?", "a b é"])
async def test_any_directory_name(tmp_path: Path, name: str) -> None:
    directory = tmp_path / name
    directory.mkdir()
    for _ in range(2):
        store = await SqliteStore.open(directory / "metadata.db")
        await put(store, "a")
        await store.aclose()
    assert sorted(file.name for file in directory.iterdir()) == ["metadata.db", "metadata.mark"]
    assert [file.name for file in tmp_path.iterdir()] == [name]


async def test_a_newer_format_is_refused_and_untouched(path: Path) -> None:
    store = await SqliteStore.open(path)
    await put(store, "a")
    await store.aclose()
    with sqlite3.connect(path) as database:
        database.execute("UPDATE alembic_version SET version_num = 'metadata_9999'")
    database.close()
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    with pytest.raises(NewerMetadataFormat, match=r"was written by a newer amqpd \(format metadata_9999"):
        await SqliteStore.open(path)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert sorted(file.name for file in path.parent.iterdir()) == ["metadata.db", "metadata.mark"]


async def test_a_store_from_before_policies_is_taken_over(path: Path) -> None:
    make_old(
        path,
        "metadata_0001",
        {"topology/user/u/": '{"name":"u","password_hash":"h","tags":["t"],"durable":true}', "a": "1"},
    )
    store = await SqliteStore.open(path)
    entry = await store.get("topology/user/u/")
    assert entry is not None
    assert decode_record(entry.key, entry.value) == UserRecord("u", "h", ("t",))
    identity = await store.identity()
    with pytest.raises(Compacted):
        await anext(store.watch(1 << LEASED_BITS))
    await put(store, "b")
    await store.aclose()
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT version_num FROM alembic_version").fetchall() == [("metadata_0004",)]
    database.close()
    store = await SqliteStore.open(path)
    assert await keys(store) == ["a", "b", "topology/user/u/"]
    assert await store.identity() == identity
    await store.aclose()


async def test_a_newer_format_is_seen_in_a_write_ahead_log_too(path: Path) -> None:
    await (await SqliteStore.open(path)).aclose()
    newer = spawn(
        "import os, signal, sqlite3, sys\n"
        "database = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "database.execute(\"UPDATE alembic_version SET version_num = 'metadata_9999'\")\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n",
        path,
    )
    newer.communicate()
    log = path.with_name("metadata.db-wal")
    before = (path.read_bytes(), log.read_bytes())
    assert before[1]
    with pytest.raises(NewerMetadataFormat):
        await SqliteStore.open(path)
    assert (path.read_bytes(), log.read_bytes()) == before


async def test_other_files_and_damage_are_one_sentence(path: Path) -> None:
    path.write_bytes(b"something else entirely, and long enough to have a header " * 100)
    with pytest.raises(StoreDamaged, match=r"metadata\.db is damaged or is not amqpd's metadata"):
        await SqliteStore.open(path)
    path.unlink()
    store = await SqliteStore.open(path)
    await store.transact([], [PutKey(f"key {number}", "x" * 200) for number in range(500)])
    await store.aclose()
    data = bytearray(path.read_bytes())
    data[8192:20480] = bytes(12288)
    path.write_bytes(data)
    with pytest.raises(StoreDamaged, match=r"metadata\.db is damaged"):
        await SqliteStore.open(path)
    with pytest.raises(MetadataStoreError, match="there is no directory"):
        await SqliteStore.open(path.parent / "no" / "metadata.db")
    (path.parent / "directory").mkdir()
    with pytest.raises(MetadataStoreError, match="cannot be"):
        await SqliteStore.open(path.parent / "directory")


async def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()
    store = await SqliteStore.open(path)
    await put(store, "a")
    await store.aclose()


async def test_leased_keys_cost_no_write(path: Path) -> None:
    store = await SqliteStore.open(path)
    lease = await store.grant_lease(10)
    await put(store, "kept")
    files = {file: (file.stat().st_size, file.stat().st_mtime_ns) for file in path.parent.glob("*.db*")}
    for number in range(5):
        await put(store, f"leased {number}", lease=lease)
    await store.transact([Compare("leased 0")], [PutKey("kept", "no")])
    await store.transact([], [DeleteKey("leased 0"), DeleteKey("none")])
    assert await keys(store) == ["kept", *(f"leased {number}" for number in range(1, 5))]
    await store.transact([], [DeleteKey(f"leased {number}") for number in range(1, 5)])
    for file, before in files.items():
        if not file.name.endswith("-shm"):
            assert (file.stat().st_size, file.stat().st_mtime_ns) == before, file
    await store.aclose()


async def test_transactions_that_gathered_share_a_commit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await SqliteStore.open(path)
    commits: list[int] = []
    commit = sqlite_file.SqliteFile.commit

    def counted(file: sqlite_file.SqliteFile, calls: list[CommitRequest]) -> object:
        commits.append(len(calls))
        return commit(file, calls)

    monkeypatch.setattr(sqlite_file.SqliteFile, "commit", counted)
    outcomes: list[object] = []

    async def create(number: int) -> None:
        outcomes.append(await store.transact([Compare("a")], [PutKey("a", str(number))]))

    async with trio.open_nursery() as nursery:
        for number in range(100):
            nursery.start_soon(create, number)
    assert sum(commits) == 100
    assert len(commits) <= 2
    assert sum(isinstance(outcome, Committed) for outcome in outcomes) == 1
    await store.aclose()


async def test_another_store_s_changes_are_noticed_without_being_asked(path: Path) -> None:
    here = await SqliteStore.open(path, poll_s=0.001)
    there = await SqliteStore.open(path)
    watch = here.watch(await here.refresh())
    await put(there, "a", "1")
    with trio.fail_after(120):
        assert (await anext(watch)).operations == (PutKey("a", "1"),)
    await here.aclose()
    await there.aclose()


async def test_the_history_is_bounded_and_a_gap_is_never_silent(path: Path) -> None:
    here = await SqliteStore.open(path, poll_s=3600)
    lease = await here.grant_lease(10)
    await here.transact([], [PutKey("mine", "", lease), PutKey("covered", "", lease)])
    behind = here.watch(await here.refresh())
    there = await SqliteStore.open(path, history_revisions_max=10)
    first = await put(there, "covered")
    for number in range(30):
        await put(there, f"key {number % 3}")
    with sqlite3.connect(path) as database:
        assert 10 <= database.execute("SELECT count(*) FROM history").fetchone()[0] < 20
    database.close()
    late = await SqliteStore.open(path)
    with pytest.raises(Compacted):
        await anext(late.watch(first))
    await late.aclose()
    assert await keys(here) == ["covered", "key 0", "key 1", "key 2", "mine"]
    entry = await here.get("covered")
    assert entry is not None
    assert not entry.lease
    with pytest.raises(Compacted):
        await anext(behind)
    with pytest.raises(Compacted):
        await anext(here.watch(first))
    again = here.watch((await here.range("")).revision)
    await put(here, "after")
    assert (await anext(again)).operations == (PutKey("after", ""),)
    await here.aclose()
    await there.aclose()


async def test_a_full_disk_refuses_and_later_goes_on(path: Path) -> None:
    store = await SqliteStore.open(path)
    await put(store, "a", "1")
    lease = await store.grant_lease(10)
    watch = store.watch(await store.refresh())
    run = file_of(store)._connection.exec_driver_sql
    pages = run("PRAGMA page_count").scalar_one()
    run(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreFull, match="no space on the disk"):
        await store.transact([], [PutKey("big", "x" * 100_000), PutKey("leased", "", lease), DeleteKey("a")])
    assert await keys(store) == ["a"]
    run("PRAGMA max_page_count = 100000")
    revision = await put(store, "b")
    event = await anext(watch)
    assert (event.revision, event.operations) == (revision, (PutKey("b", ""),))
    assert await keys(store) == ["a", "b"]
    await store.aclose()


async def test_after_an_error_nothing_is_tried_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await SqliteStore.open(path)
    watch = store.watch(await put(store, "a"))

    def broken(*_: object) -> None:
        raise sa.exc.OperationalError("COMMIT", None, sqlite3.OperationalError("disk I/O error"))

    errors: list[MetadataStoreError] = []

    async def fail() -> None:
        with pytest.raises(MetadataStoreError, match=r"cannot be read or written \(disk I/O error\)") as caught:
            await put(store, "b")
        errors.append(caught.value)

    with monkeypatch.context() as patched:
        patched.setattr(store._file, "_write", broken)
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(fail)
    assert len(errors) == 3
    for call in (put(store, "c"), store.get("a"), store.refresh(), anext(watch)):
        with pytest.raises(MetadataStoreError, match="disk I/O error"):
            await call
    await store.aclose()
    with pytest.raises(StoreClosed):
        await store.get("a")
    store = await SqliteStore.open(path)
    assert await keys(store) == ["a"]
    await store.aclose()


NEIGHBOUR = """
import sys, trio
from pathlib import Path
from amqpd.topology.metadata.sqlite.store import SqliteStore
from amqpd.topology.metadata.store import PutKey

async def main():
    store = await SqliteStore.open(Path(sys.argv[1]))
    await store.transact([], [PutKey("neighbour's", "")])
    print("open", flush=True)
    sys.stdin.readline()
    await store.aclose()

trio.run(main)
"""


async def test_a_process_that_closes_the_file_leaves_the_log_to_the_others(path: Path) -> None:
    # Its last one takes the log over and removes it. This one was not counted: opening had given up its locks.
    neighbour = spawn(NEIGHBOUR, path)
    assert neighbour.stdout is not None
    assert neighbour.stdout.readline() == "open\n"
    store = await SqliteStore.open(path)
    neighbour.communicate("close\n")
    assert neighbour.returncode == 0
    await put(store, "ours")
    # Without a close, as after a kill: from the log.
    with closing(sqlite3.connect(path)) as other:
        found = other.execute("SELECT key FROM entries ORDER BY key").fetchall()
    assert found == [("neighbour's",), ("ours",)]
    await store.aclose()


CREATOR = """
import sys, trio
from pathlib import Path
from amqpd.topology.metadata.sqlite.store import SqliteStore
from amqpd.topology.metadata.store import Committed, Compare, PutKey

async def main():
    sys.stdin.readline()
    store = await SqliteStore.open(Path(sys.argv[1]))
    lease = await store.grant_lease(10)
    for number in range(30):
        key = f"shared {number}"
        created = await store.transact([Compare(key)], [PutKey(key, sys.argv[2])])
        if isinstance(created, Committed):
            print(number, flush=True)
        await store.transact([], [PutKey(f"own {sys.argv[2]} {number}", ""), PutKey("leased", "", lease)])
    await store.aclose()

trio.run(main)
"""


async def test_processes_that_open_and_write_one_new_file_at_once(path: Path) -> None:
    processes = [spawn(CREATOR, path, str(number)) for number in range(3)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert sorted(int(line) for output in outputs for line in output.split()) == list(range(30))
    store = await SqliteStore.open(path)
    assert len(await keys(store)) == 30 + 3 * 30
    watch = store.watch(0)
    events = [await anext(watch) for _ in range(120)]
    assert len({event.revision for event in events}) == 120
    await store.aclose()


KILLED = """
import os, signal, sys, trio
from pathlib import Path
from amqpd.topology.metadata.sqlite.store import SqliteStore
from amqpd.topology.metadata.store import PutKey

async def main():
    store = await SqliteStore.open(Path(sys.argv[1]))
    lease = await store.grant_lease(10)
    number = 0
    while True:
        await store.transact([], [PutKey(f"{number:06}", ""), PutKey("leased", "", lease)])
        print(f"{number:06}", flush=True)
        number += 1

trio.run(main)
"""


async def test_what_was_committed_survives_a_kill(path: Path) -> None:
    committed: list[str] = []
    for _ in range(2):
        process = spawn(KILLED.replace("number = 0", f"number = {len(committed)}"), path)
        assert process.stdout is not None
        committed += [process.stdout.readline().strip() for _ in range(20)]
        process.send_signal(signal.SIGKILL)
        # Not `communicate`: it would pass over what `readline` has taken from the pipe and not given out yet.
        committed += process.stdout.read().split()
        process.communicate()
        store = await SqliteStore.open(path)
        found = await keys(store)
        # The last one may have been committed and not yet reported.
        assert found[: len(committed)] == committed
        assert len(found) <= len(committed) + 1
        committed = found
        await store.aclose()


async def test_all_of_a_batch_is_judged_against_what_another_process_did(path: Path) -> None:
    here, there = await SqliteStore.open(path), await SqliteStore.open(path)
    await put(there, "a")
    first, second = await here.transact_all(
        [
            MetadataTransaction((Compare("a"),), (PutKey("b", ""),)),
            MetadataTransaction((Compare("b"),), (DeleteKey("a"),)),
        ]
    )
    assert not isinstance(first, Committed)
    assert isinstance(second, Committed)
    assert await keys(there) == []
    await here.aclose()
    await there.aclose()


async def test_the_oldest_tombstones_go_first(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "DROPPED_MAX", 10)
    monkeypatch.setattr(sqlite_file, "DROPPED_CUT_EVERY", 1)
    store = await SqliteStore.open(path)
    for number in range(11):
        # The greatest numbers are the oldest.
        value = json.dumps({"id": 1000 - number})
        await store.transact([], [PutKey(f"topology/queue/{number}/", value)])
        await store.transact([], [DeleteKey(f"topology/queue/{number}/")])
    assert await store.dropped_queues() == set(range(990, 995))
    await store.aclose()


async def test_forgotten_tombstones_leave_the_file(path: Path) -> None:
    """With the next commit, when it is quiet, and at the end; without any commit of their own in between."""

    def rows() -> int:
        with sqlite3.connect(path) as database:
            (count,) = database.execute("SELECT count(*) FROM dropped").fetchone()
        database.close()
        return int(count)

    store = await SqliteStore.open(path)
    for number in range(3):
        await store.transact([], [PutKey(f"topology/queue/{number}/", json.dumps({"id": number}))])
        await store.transact([], [DeleteKey(f"topology/queue/{number}/")])
    await store.forget_dropped([0])
    assert rows() == 3
    await put(store, "a")
    assert rows() == 2
    await store.forget_dropped([1])
    for _ in range(sqlite_file.QUIET_LOOKS):
        assert rows() == 2
        store._file.look()
    assert rows() == 1
    await store.forget_dropped([2])
    await store.aclose()
    assert rows() == 0
