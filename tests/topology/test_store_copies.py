"""The last good copies of `metadata.db`: when they are made, which is named, and how one is put in place."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest
import trio
import trio.testing

from amqpd.topology.metadata.sqlite import copies
from amqpd.topology.metadata.sqlite import store as store_module
from amqpd.topology.metadata.sqlite.copies import good_copies, restore
from amqpd.topology.metadata.sqlite.store import SqliteStore
from amqpd.topology.metadata.store import PutKey, StoreDamaged
from tests.harness.hanging import Hang
from tests.topology.damage import NAME, contents, file_of, files_of, made, opened, put, refusal

pytestmark = pytest.mark.trio


async def keys(path: Path) -> list[str]:
    return [entry.key for entry in (await opened(path)).entries]


async def changed(path: Path, key: str) -> None:
    """A start of a broker, a change, its end."""
    store = await SqliteStore.open(path)
    await store.keep_copies()
    await store.transact([], [PutKey(key, "")])
    await store.keep_copies()
    await store.aclose()


async def test_the_two_newest_are_kept(tmp_path: Path) -> None:
    path = tmp_path / NAME
    for key in "abc":
        await changed(path, key)
    assert sorted(files_of(path)) == [NAME, f"{NAME}.1", f"{NAME}.2", "metadata.mark"]
    assert [copy.contents.revision for copy in good_copies(path)] == [3, 2]
    assert [copy.path.name for copy in good_copies(path)] == [f"{NAME}.1", f"{NAME}.2"]
    for copy in good_copies(path):
        assert stat.S_IMODE(copy.path.stat().st_mode) == 0o600


async def test_a_copy_has_what_is_in_the_log(tmp_path: Path) -> None:
    path = tmp_path / NAME
    store = await SqliteStore.open(path)
    await store.transact([], [PutKey("a", "1")])
    await store.keep_copies()
    found = await contents(store)
    await store.aclose()
    (tmp_path / "alone").mkdir()
    alone = put(tmp_path / "alone", {NAME: path.with_name(f"{NAME}.1").read_bytes()})
    assert await opened(alone) == found


async def test_what_has_not_changed_is_not_copied_again(tmp_path: Path) -> None:
    path = tmp_path / NAME
    await changed(path, "a")
    before = [(copy.path.stat().st_ino, copy.contents) for copy in good_copies(path)]
    store = await SqliteStore.open(path)
    await store.keep_copies()
    await store.aclose()
    assert [(copy.path.stat().st_ino, copy.contents) for copy in good_copies(path)] == before


async def test_a_damaged_copy_is_replaced_and_takes_no_good_one_s_place(tmp_path: Path) -> None:
    path = tmp_path / NAME
    await changed(path, "a")
    path.with_name(f"{NAME}.1").write_bytes(b"damage")
    older = path.with_name(f"{NAME}.2").read_bytes()
    assert [copy.number for copy in good_copies(path)] == [2]
    store = await SqliteStore.open(path)
    await store.keep_copies()
    await store.aclose()
    assert [copy.contents.revision for copy in good_copies(path)] == [1, 0]
    assert path.with_name(f"{NAME}.2").read_bytes() == older


async def test_commits_go_on_while_a_copy_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / NAME
    store = await SqliteStore.open(path)
    begun = copies._copy

    def copy(*arguments: object) -> None:
        # As another task would; this one holds no turn.
        import trio

        trio.from_thread.run(store.transact, [], [PutKey("meanwhile", "")])
        begun(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(copies, "_copy", copy)
    await store.keep_copies()
    await store.aclose()
    assert await keys(path) == ["meanwhile"]
    assert [each.contents.revision for each in good_copies(path)] == [1]


async def test_a_copy_that_finds_no_space_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / NAME
    store = await SqliteStore.open(path)
    monkeypatch.setattr(copies, "FREE_BYTES_MIN", 1 << 60)
    await store.keep_copies()
    assert good_copies(path) == []
    monkeypatch.undo()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(copies, "sync_file", full)
    await store.keep_copies()
    assert f"{NAME}.new" not in files_of(path)
    assert good_copies(path) == []
    monkeypatch.undo()
    await store.keep_copies()
    assert len(good_copies(path)) == 1
    await store.aclose()


async def test_damage_that_is_found_while_copying_keeps_the_good_copy(tmp_path: Path) -> None:
    path = tmp_path / NAME
    await changed(path, "a")
    good = path.with_name(f"{NAME}.1").read_bytes()
    store = await SqliteStore.open(path)
    file_of(store)._driver.execute("DELETE FROM entries")
    file_of(store)._driver.execute("UPDATE state SET revision = 9")
    await store.keep_copies()
    assert path.with_name(f"{NAME}.1").read_bytes() == good
    assert not path.with_name(f"{NAME}.new").exists()
    await store.aclose()


async def test_damage_names_the_copy_that_is_good(tmp_path: Path) -> None:
    path = put(tmp_path, made().files)
    store = await SqliteStore.open(path)
    await store.keep_copies()
    await store.aclose()
    path.write_bytes(made().files[NAME][:-1])
    sentence = await refusal(path)
    assert f", revision 4, in place (amqpd metadata restore-copy --data-dir {tmp_path})" in sentence
    assert "--accept-loss" not in sentence
    path.with_name(f"{NAME}.1").write_bytes(b"damage")
    assert "there is no good copy" in await refusal(path)


async def test_a_copy_is_put_in_place(tmp_path: Path) -> None:
    path = put(tmp_path, made().files)
    store = await SqliteStore.open(path)
    await store.keep_copies()
    await store.transact([], [PutKey("later", "")])
    await store.aclose()
    path.write_bytes(path.read_bytes()[:-1])
    damaged = path.read_bytes()
    path.with_name(f"{NAME}-wal").write_bytes(b"log")
    with pytest.raises(StoreDamaged):
        await opened(path)
    [copy] = good_copies(path)
    assert restore(path, copy) == [
        f"moved {NAME} to {NAME}.damaged",
        f"moved {NAME}-wal to {NAME}-wal.damaged",
        f"copied {NAME}.1 to {NAME}",
    ]
    assert path.with_name(f"{NAME}.damaged").read_bytes() == damaged
    assert await opened(path) == made().found
    assert len(good_copies(path)) == 1
    # Twice is possible, also with nothing in the place.
    path.unlink()
    assert restore(path, copy) == [f"copied {NAME}.1 to {NAME}"]
    assert await opened(path) == made().found


async def test_copies_of_a_lost_store_do_not_become_the_new_one_s(tmp_path: Path) -> None:
    path = put(tmp_path, made().files)
    store = await SqliteStore.open(path)
    await store.keep_copies()
    await store.aclose()
    copy = path.with_name(f"{NAME}.1").read_bytes()
    os.unlink(path)
    assert await (await SqliteStore.open(path, accept_loss=True)).aclose() is None
    assert path.with_name(f"{NAME}.1.kept").read_bytes() == copy
    assert good_copies(path) == []
    shutil.copy(path.with_name(f"{NAME}.1.kept"), path.with_name(f"{NAME}.1"))
    assert len(good_copies(path)) == 1


@pytest.mark.parametrize("several", [False, True])
async def test_a_copy_has_ended_before_the_file_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, several: bool
) -> None:
    """Unless its disk is one of several, and may never answer."""
    store = await SqliteStore.open(tmp_path / NAME)
    monkeypatch.setattr(store._file, "one_of_several", several)
    hang, ended = Hang(), trio.Event()
    monkeypatch.setattr(store_module, "keep_copy", hang(copies.keep_copy))

    async def copy(scope: trio.CancelScope) -> None:
        with scope:
            await store.keep_copies()
        ended.set()

    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()
        nursery.start_soon(copy, scope)
        await trio.to_thread.run_sync(hang.wait_called)
        scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert ended.is_set() is several
        hang.let_go()
    await store.aclose()
