"""What a crash of the process, of the disk or of the machine leaves behind."""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from amqpd.journal.sqlite.database import JOURNAL
from tests.harness.slow import slow
from tests.journal.committer import check, nth
from tests.journal.disks import SqliteDrive

ROOT = Path(__file__).parents[2]


def committer(directory: Path, count: int, *before: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*before, sys.executable, "-m", "tests.journal.committer", str(directory), str(count)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def lines_until(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().strip() for _ in range(count)]


def rest_of(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    with process.stdout:
        lines = process.stdout.read().split("\n")
    process.wait()
    return [line for line in lines if line]


def recovered_index(directory: Path) -> int:
    """Recovered twice: the second gives what the first gave."""
    indexes = []
    for _ in range(2):
        disk = SqliteDrive(directory).open()
        recovered = disk.recover()
        disk.close()
        check(recovered)
        indexes.append(recovered.index)
    assert indexes[0] == indexes[1]
    return indexes[0]


@pytest.mark.parametrize("seed", [slow(0), 1, *map(slow, range(2, 6))])
def test_what_commit_has_returned_for_is_there_after_sigkill(tmp_path, seed):
    """Killed between and during commits, and during the recovery after that."""
    acknowledged = 0
    for round_ in range(3):
        process = committer(tmp_path, 10_000)
        wanted = random.Random(seed * 10 + round_).choice([0, 1, 2, 3, 50, 300, 1000])
        lines = lines_until(process, 1 + wanted)
        process.kill()
        lines += rest_of(process)
        acknowledged = max([acknowledged, *(int(line) for line in lines if line.isdigit())])
    assert recovered_index(tmp_path) >= acknowledged > 0


@pytest.mark.parametrize(("every", "beside"), [(30_011, (-1, 0)), slow(3001, (-8193, -1, 0, 1, 24, 25))])
def test_a_wal_cut_anywhere_recovers_to_a_prefix(tmp_path, every, beside):
    disk = SqliteDrive(tmp_path / "data").open()
    disk.recover()
    sizes = []
    wal = tmp_path / "data" / f"{JOURNAL}-wal"
    for index in range(1, 9):
        disk.commit(nth(index))
        sizes.append(wal.stat().st_size)
    shutil.copytree(tmp_path / "data", tmp_path / "image")
    # As after a power cut, which took the mark's last number too.
    (tmp_path / "image" / "journal.mark").unlink()
    disk.close()
    whole = (tmp_path / "image" / wal.name).read_bytes()
    edges = {size + off for size in sizes for off in beside if 0 <= size + off <= len(whole)}
    found = []
    for size in sorted({*range(0, len(whole), every), *edges, len(whole)}):
        cut = tmp_path / "cut"
        shutil.copytree(tmp_path / "image", cut)
        (cut / wal.name).write_bytes(whole[:size])
        index = recovered_index(cut)
        assert index == sum(1 for end in sizes if end <= size), f"cut at {size} of {sizes}"
        found.append(index)
        shutil.rmtree(cut)
    assert set(found) == set(range(9))


@pytest.mark.parametrize(
    ("call", "nth_call"),
    [("sync", 1), slow("sync", 4), slow("sync", 20), slow("pwrite64", 1), ("pwrite64", 4), slow("pwrite64", 99)],
)
def test_an_io_error_stops_the_journal(tmp_path, call, nth_call):
    """The failed commit is not reported, nothing is written after it, and a restart finds all that was reported."""
    try:
        subprocess.run(["strace", "-qq", "-o", "/dev/null", "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"needs strace, and leave to trace: {error}")
    first = committer(tmp_path, 3)
    assert rest_of(first)[-1] == "3"
    # Both names of the sync, as builds of SQLite differ. The first calls belong to recovery: it deletes dead rows.
    calls = "fsync,fdatasync" if call == "sync" else call
    inject = f"inject={calls}:error=EIO:when={nth_call}+"
    process = committer(tmp_path, 50, "strace", "-f", "-qq", "-o", str(tmp_path / "trace"), "-e", inject)
    lines = rest_of(process)
    assert lines[0] == "open"
    assert lines[-2].startswith("failed: ")
    assert "disk I/O error" in lines[-2]
    assert lines[-1].startswith("refused: the journal stopped after a failure")
    acknowledged = max([3, *(int(line) for line in lines if line.isdigit())])
    assert acknowledged < 53
    assert acknowledged > 3 or nth_call < 20, "the last one is in the middle of the commits"
    assert acknowledged <= recovered_index(tmp_path) <= acknowledged + 1


@pytest.fixture
def cuttable(tmp_path: Path) -> Iterator[Path]:
    """A file system whose power can be cut."""
    image, mounted = tmp_path / "image", tmp_path / "mounted"
    mounted.mkdir()
    with image.open("wb") as file:
        file.truncate(64 << 20)
    try:
        subprocess.run(["mkfs.ext4", "-q", image], check=True, capture_output=True)
        subprocess.run(["mount", "-o", "loop", image, mounted], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"needs root, ext4 and loop devices: {error}")
    yield mounted
    subprocess.run(["umount", mounted], check=True)


@pytest.mark.parametrize("commits", [slow(1), 40, slow(300)])
def test_what_commit_has_returned_for_is_there_after_a_power_cut(tmp_path, cuttable, commits):
    """FS_IOC_SHUTDOWN with NOLOGFLUSH: what was not synced is lost, as when the machine loses its power.

    Only what was reported before the cut counts: the call takes some milliseconds, and Linux lets an fdatasync that
    runs beside it return 0 although nothing reaches the disk any more (strace, 3 of 30 runs). When the power
    is really gone nobody is left to be told."""
    process = committer(cuttable / "data", 10_000)
    lines = lines_until(process, 1 + commits)
    directory = os.open(cuttable, os.O_RDONLY)
    try:
        fcntl.ioctl(directory, 0x8004587D, struct.pack("I", 2))
    except OSError as error:
        process.kill()
        pytest.skip(f"this file system cannot be shut down: {error}")
    finally:
        os.close(directory)
    lines += rest_of(process)
    assert lines[-2].startswith("failed: ")
    reported = max(int(line) for line in lines if line.isdigit())
    subprocess.run(["umount", cuttable], check=True)
    subprocess.run(["mount", "-o", "loop", tmp_path / "image", cuttable], check=True)
    assert commits <= recovered_index(cuttable / "data") <= reported + 1
