"""A disk whose power can be cut: ext4 in a file, on a loop device.

What comes in: a folder; later the process that writes. What goes out: a directory to put data into; after `cut`
it holds what was synced, and no more. Rules: 1. The process is stopped first, all its threads: an fdatasync that
races the shutdown may report success for bytes that are gone then. 2. The file system is shut down without its
log being written (FS_IOC_SHUTDOWN, NOLOGFLUSH), then the process is killed, and the file mounted again. 3. It is
mounted when nobody has the old file system any more: a mount namespace that somebody made meanwhile holds it, and a
mount would give that one, shut down as it is. 4. Needs root; nothing stays mounted after `close`. Writes that tear
are not played: a sector is there or not.
Not here: what is written (`crashes.py`).
"""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

DISK_BYTES = 4 << 30
"""what is never written takes no space; a queue that nobody consumes grows for hundreds of rounds"""
# _IOR('X', 125, __u32), from linux/fs.h of XFS and ext4; 2: do not flush the log.
FS_IOC_SHUTDOWN, NOLOGFLUSH = 0x8004587D, 2
STOP_DEADLINE_S = 60.0
RELEASE_DEADLINE_S = 60.0


class NoPowerDisk(Exception):
    """This machine cannot mount one: the reason."""


class PowerDisk:
    """`path` is where it is mounted."""

    def __init__(self, folder: Path) -> None:
        self.image, self.path = folder / "disk.ext4", folder / "disk"
        self.path.mkdir()
        self._make(DISK_BYTES)
        self._mount()

    def cut(self, pid: int, kill: Callable[[], None]) -> None:
        """Power off and on. `kill` ends the process, which does not run any more then."""
        os.kill(pid, signal.SIGSTOP)
        _wait_stopped(pid)
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, FS_IOC_SHUTDOWN, struct.pack("I", NOLOGFLUSH))
        finally:
            os.close(descriptor)
        kill()
        self._run("umount", str(self.path))
        self._wait_released()
        self._mount()

    def close(self) -> None:
        # Asked of the system: the program may be told to end between a mount and what comes next.
        if self.path.is_mount():
            try:
                self._run("umount", str(self.path))
            except NoPowerDisk:
                # It was told to end while it started a broker, which nobody knows yet, and which ends with it.
                self._run("umount", "--lazy", str(self.path))

    def _make(self, nbytes: int, *options: str) -> None:
        with self.image.open("wb") as file:
            file.truncate(nbytes)
        self._run("mkfs.ext4", "-q", "-F", *options, str(self.image))

    def _mount(self) -> None:
        self._run("mount", "-o", "loop", str(self.image), str(self.path))

    def _wait_released(self) -> None:
        """Until the loop device has let the image go. There is nothing to wait on but to look again."""
        end = time.monotonic() + RELEASE_DEADLINE_S
        while self._run("losetup", "--associated", str(self.image)):
            if time.monotonic() > end:
                raise NoPowerDisk("another mount namespace has the disk too, and does not end")
            time.sleep(0.01)

    def _run(self, *command: str) -> str:
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError as error:
            raise NoPowerDisk(str(error)) from error
        if done.returncode:
            raise NoPowerDisk(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout


def _wait_stopped(pid: int) -> None:
    """Until no thread runs, or is in a call to the disk. There is nothing to wait on but to look again."""
    end = time.monotonic() + STOP_DEADLINE_S
    while time.monotonic() < end:
        states = []
        for task in os.listdir(f"/proc/{pid}/task"):
            # The name stands in brackets, and may hold anything.
            states.append(Path(f"/proc/{pid}/task/{task}/stat").read_text().rpartition(")")[2].split()[0])
        if set(states) <= {"T"}:
            return
        time.sleep(0.001)
    raise AssertionError(f"process {pid} did not stop: {states}")
