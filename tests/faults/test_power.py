"""After a power cut the disk is the one that was synced, not the one that was shut down. Needs root."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import power
from .power import NoPowerDisk, PowerDisk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[PowerDisk]:
    try:
        disk = PowerDisk(tmp_path)
    except NoPowerDisk as reason:
        pytest.skip(str(reason))
    try:
        yield disk
    finally:
        disk.close()


@pytest.fixture
def writer() -> Iterator[subprocess.Popen[bytes]]:
    """Some process that can be stopped."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


@pytest.fixture
def namespace(disk: PowerDisk) -> Iterator[subprocess.Popen[bytes]]:
    """A mount namespace made while the disk is mounted; it ends with its input."""
    command = ["unshare", "--mount", "sh", "-c", "echo made; read word"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        if process.stdout.readline() != b"made\n":
            pytest.skip("needs unshare, and root, to make a mount namespace")
        yield process


def test_a_disk_can_be_written_after_a_cut(disk: PowerDisk, writer: subprocess.Popen[bytes]) -> None:
    disk.cut(writer.pid, writer.kill)
    (disk.path / "file").write_text("written")


def test_a_disk_that_another_namespace_holds_is_not_taken_for_a_mounted_one(
    disk: PowerDisk,
    writer: subprocess.Popen[bytes],
    namespace: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(power, "RELEASE_DEADLINE_S", 0.1)
    with pytest.raises(NoPowerDisk, match="another mount namespace has the disk too"):
        disk.cut(writer.pid, writer.kill)
    assert not disk.path.is_mount()


def test_a_disk_is_mounted_when_the_other_namespace_has_ended(
    disk: PowerDisk, writer: subprocess.Popen[bytes], namespace: subprocess.Popen[bytes]
) -> None:
    assert namespace.stdin is not None
    namespace.stdin.close()
    disk.cut(writer.pid, writer.kill)
    (disk.path / "file").write_text("written")
