"""The end of a write-ahead log: what SQLite recovers of it, and whether that is all."""

from __future__ import annotations

import shutil
import sqlite3

import pytest

from amqpd.storage import wal
from amqpd.storage.wal import WalEnd, read_end

PAGE = 4096
FRAME = PAGE + 24


@pytest.fixture(params=[1, 3])
def log(tmp_path, request):
    """A database whose log holds `param` transactions of several frames each, and its path."""
    path = tmp_path / "some.db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA page_size = {PAGE}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute("CREATE TABLE t (x)")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for number in range(request.param):
        connection.execute("INSERT INTO t VALUES (?)", (bytes([number + 1]) * 3 * PAGE,))
    copy = tmp_path / "copy.db"
    for end in ("", "-wal"):
        shutil.copy(f"{path}{end}", f"{copy}{end}")
    connection.close()
    return copy.with_name("copy.db-wal"), request.param


def rows(path):
    """How many SQLite recovers."""
    connection = sqlite3.connect(path.with_name("copy.db"))
    try:
        return connection.execute("SELECT count(*) FROM t").fetchone()[0]
    finally:
        connection.close()


def test_a_missing_or_empty_log_has_ended_properly(tmp_path):
    path = tmp_path / "x-wal"
    assert read_end(path) == WalEnd(0)
    for content in (b"", b"\0" * 10, b"\0" * 100_000):
        path.write_bytes(content)
        assert read_end(path) == WalEnd(0)


def test_a_whole_log_is_whole(log):
    path, count = log
    size = path.stat().st_size
    assert read_end(path) == WalEnd((size - 32) // FRAME)
    assert rows(path) == count


def test_each_place_of_damage_is_told_from_a_torn_end(log):
    """Whatever byte is flipped: behind it is another transaction and it is damage; or none is, and it may be torn."""
    path, count = log
    content = path.read_bytes()
    frames = (len(content) - 32) // FRAME
    commits = [at + 1 for at in range(frames) if any(content[32 + at * FRAME + 4 : 32 + at * FRAME + 8])]
    assert len(commits) == count
    for place in [*range(32), *(32 + at * FRAME + byte for at in range(frames) for byte in (*range(24), 24, 2000))]:
        changed = bytearray(content)
        changed[place] ^= 0x40
        path.write_bytes(changed)
        end = read_end(path)
        frame = (place - 32) // FRAME
        if place < 32:
            assert end.damage == "its header is damaged", place
            continue
        assert end.frames == max([at for at in commits if at <= frame], default=0), place
        if 8 <= (place - 32) % FRAME < 16:
            assert end.damage.endswith("is damaged in its header"), place
        elif count > 1 and frame < commits[-2] - 1:
            assert f"frame {frame + 1} is damaged, and" in end.damage, place
        else:
            # Of the last transaction, or the frame that ends the one before it: that may be one torn transaction.
            assert end.torn or end.damage, place
    path.write_bytes(content)


@pytest.mark.parametrize("cut", [1, PAGE, FRAME, FRAME + 1])
def test_a_log_that_is_cut_short_is_torn(log, cut):
    path, count = log
    content = path.read_bytes()
    path.write_bytes(content[:-cut])
    end = read_end(path)
    assert (end.damage, end.torn) == ("", True)
    assert rows(path) == count - 1


@pytest.mark.parametrize("left", [0, 32, 32 + 10, 32 + FRAME, 32 + FRAME + 30])
def test_a_log_that_another_process_cuts_while_it_is_read_ends_there(log, left, monkeypatch):
    path, _ = log
    read_header = wal._read_header

    def read_and_cut(head):
        with path.open("rb+") as file:
            file.truncate(left)
        return read_header(head)

    # The header comes with some of the frames in one read of the file: without a buffer it comes alone.
    open_path = type(path).open
    monkeypatch.setattr(type(path), "open", lambda self, mode: open_path(self, mode, buffering=0))
    monkeypatch.setattr(wal, "_read_header", read_and_cut)
    end = read_end(path)
    assert (end.frames, end.damage) == (0, "")


def test_what_an_older_log_left_behind_a_short_new_one_is_no_damage(tmp_path):
    path = tmp_path / "some.db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute("CREATE TABLE t (x)")
    for _ in range(5):
        connection.execute("INSERT INTO t VALUES (zeroblob(10000))")
    connection.execute("PRAGMA wal_checkpoint(RESTART)")
    connection.execute("INSERT INTO t VALUES (1)")
    end = read_end(path.with_name("some.db-wal"))
    assert (end.damage, end.torn) == ("", False)
    assert 0 < end.frames < 5
    connection.close()
