"""The data directory: private, held by one process, and refused with one sentence."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
import structlog.testing

from amqpd.datadir.lock import LOCK_NAME, open_data_directory
from amqpd.errors import StartupError


def test_it_is_made_with_its_parents_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    with open_data_directory(path) as directory:
        assert directory.path == path
        assert path.stat().st_mode & 0o777 == 0o700
        assert (path / LOCK_NAME).read_text() == f"{os.getpid()}\n"
        assert (path / LOCK_NAME).stat().st_mode & 0o777 == 0o600


def test_a_second_holder_is_told_who_has_it(tmp_path: Path) -> None:
    # flock belongs to the open file, so a second one in this process stands for another process.
    with open_data_directory(tmp_path), pytest.raises(StartupError) as caught:
        open_data_directory(tmp_path)
    assert caught.value.sentence == (
        f"data directory {tmp_path} is in use by another amqpd (process {os.getpid()}): "
        "stop that one, or choose another directory with --data-dir"
    )


def test_closing_lets_the_next_one_in(tmp_path: Path) -> None:
    directory = open_data_directory(tmp_path)
    directory.close()
    directory.close()
    open_data_directory(tmp_path).close()


def test_a_killed_process_leaves_no_lock_behind(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from pathlib import Path; from amqpd.datadir.lock import open_data_directory\n"
            "held = open_data_directory(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()",
            str(tmp_path),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StartupError, match=rf"\(process {holder.pid}\)"):
            open_data_directory(tmp_path)
        holder.kill()
        holder.wait()
    open_data_directory(tmp_path).close()


def test_a_file_in_its_place_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_text("mine")
    with pytest.raises(StartupError, match=f"^cannot use data directory {path}: File exists; make it a directory"):
        open_data_directory(path)
    assert path.read_text() == "mine"


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    """What it leads to would be emptied."""
    other = tmp_path / "other"
    other.write_text("precious")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / LOCK_NAME).symlink_to(other)
    with pytest.raises(StartupError, match="cannot use data directory"):
        open_data_directory(tmp_path / "data")
    assert other.read_text() == "precious"


@pytest.mark.parametrize("text", ["", "123456789012\n", "1\n"])
def test_the_number_of_the_last_holder_is_replaced_as_a_whole(tmp_path: Path, text: str) -> None:
    (tmp_path / LOCK_NAME).write_text(text)
    with open_data_directory(tmp_path):
        assert (tmp_path / LOCK_NAME).read_text() == f"{os.getpid()}\n"


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_full_disk_is_no_reason_not_to_hold_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    """The number in the file is for people."""

    def fails(*_: object) -> int:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr("amqpd.datadir.lock.os.pwrite", fails)
    if error == errno.EIO:
        with pytest.raises(StartupError, match="Input/output error"):
            open_data_directory(tmp_path)
    else:
        with open_data_directory(tmp_path), pytest.raises(StartupError, match=r"in use .* \(process unknown\)"):
            open_data_directory(tmp_path)


@pytest.mark.parametrize(("mode", "told"), [(0o700, False), (0o755, False), (0o770, True), (0o777, True)])
def test_that_others_may_write_the_directory_is_told(tmp_path: Path, mode: int, told: bool) -> None:
    path = tmp_path / "data"
    path.mkdir()
    path.chmod(mode)
    with structlog.testing.capture_logs() as logs, open_data_directory(path):
        assert [entry["event"] for entry in logs] == ["others may write the data directory"] * told


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_unwritable_directory_is_one_sentence(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StartupError, match="Permission denied; make it a directory"):
        open_data_directory(tmp_path)


def test_a_directory_that_cannot_exist_is_one_sentence() -> None:
    # For root too: the kernel's own file system takes no directories.
    with pytest.raises(StartupError, match=r"^cannot use data directory /proc/amqpd: "):
        open_data_directory(Path("/proc/amqpd"))
