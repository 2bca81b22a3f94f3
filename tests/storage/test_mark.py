"""The promise survives whatever happens to one of its two places."""

from __future__ import annotations

import pytest

from amqpd.storage.mark import FILE_BYTES, Mark, MarkDamaged, Promise, read_mark

IDENTITY = "00112233445566778899aabbccddeeff"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "some.mark"


def test_the_last_promise_is_read_back_by_a_new_process(path):
    assert read_mark(path) is None
    mark = Mark(path, IDENTITY, 3)
    assert read_mark(path) == Promise(IDENTITY, 3)
    for number in range(4, 10):
        mark.promise(number)
        assert read_mark(path) == Promise(IDENTITY, number)  # without close or sync, as after SIGKILL
    mark.sync()
    mark.close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_place_that_was_half_written_leaves_the_promise_before_it(path):
    mark = Mark(path, IDENTITY, 3)
    mark.promise(4)
    content = bytearray(path.read_bytes())
    (place,) = [at for at in (0, FILE_BYTES // 2) if content[at + 24] == 4]
    content[place + 24] ^= 1
    path.write_bytes(content)
    assert read_mark(path) == Promise(IDENTITY, 3)


def test_a_file_without_a_promise_is_damaged(path):
    Mark(path, IDENTITY, 3).close()
    content = path.read_bytes()
    for damaged in (b"\xff" * FILE_BYTES, content[:20], content[: FILE_BYTES // 2 - 1][::-1], b"\0" * 100 + b"\1"):
        path.write_bytes(damaged)
        with pytest.raises(MarkDamaged, match=r"some\.mark is damaged"):
            read_mark(path)
    path.write_bytes(content[:100])
    assert read_mark(path) == Promise(IDENTITY, 3)
    path.write_bytes(b"\0" * FILE_BYTES)
    assert read_mark(path) is None


def test_two_identities_are_damage(path):
    Mark(path, IDENTITY, 3).close()
    other = path.with_name("other")
    Mark(other, IDENTITY[::-1], 3).close()
    path.write_bytes(path.read_bytes()[: FILE_BYTES // 2] + other.read_bytes()[FILE_BYTES // 2 :])
    with pytest.raises(MarkDamaged):
        read_mark(path)


def test_a_new_mark_replaces_what_was_there(path):
    Mark(path, IDENTITY, 30).close()
    Mark(path, IDENTITY[::-1], 2).close()
    assert read_mark(path) == Promise(IDENTITY[::-1], 2)


def test_a_mark_without_a_map_is_the_same(path):
    mark = Mark(path, IDENTITY, 3, by_calls=True)
    for number in range(4, 10):
        mark.promise(number)
        assert read_mark(path) == Promise(IDENTITY, number)
    mark.sync()
    mark.close()
    mark.close()


def test_no_other_thread_waits_for_a_disk_of_several(path, monkeypatch):
    """Writing to a map of a file system that is frozen waits with the interpreter lock held."""
    mark = Mark(path, IDENTITY, 3, by_calls=True)
    written = []
    monkeypatch.setattr("os.pwrite", lambda descriptor, data, at: written.append((descriptor, at)))
    mark.promise(4)
    assert len(written) == 1
    mark.close()


def test_a_sync_that_fails_is_told(path, monkeypatch):
    mark = Mark(path, IDENTITY, 3)

    def fails(descriptor):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", fails)
        with pytest.raises(OSError, match="Input/output"):
            mark.sync()
    mark.close()
