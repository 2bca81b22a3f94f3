"""Figures that processes share: in a file that they map, so that writing one costs the broker nothing.

What comes in and goes out: the longest hold (`watched.py`), the longest wait of a victim and how often it asked.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from struct import Struct

_NUMBER = Struct("<d")


class Figures:
    """Seconds, as floats. Each is written by one process, and set back to 0 by another."""

    def __init__(self, path: str | Path) -> None:
        file = Path(path)
        if not file.exists():
            file.write_bytes(bytes(mmap.PAGESIZE))
        with file.open("r+b") as opened:
            self._map = mmap.mmap(opened.fileno(), mmap.PAGESIZE)

    @property
    def hold_s(self) -> float:
        return self._get(0)

    @hold_s.setter
    def hold_s(self, value: float) -> None:
        self._put(0, value)

    @property
    def wait_s(self) -> float:
        """longest round trip of the victim"""
        return self._get(1)

    @wait_s.setter
    def wait_s(self, value: float) -> None:
        self._put(1, value)

    @property
    def asked(self) -> int:
        return int(self._get(2))

    @asked.setter
    def asked(self, value: int) -> None:
        self._put(2, value)

    @property
    def held(self) -> int:
        """this many held the journal at the last look at the sockets"""
        return int(self._get(3))

    @held.setter
    def held(self, value: int) -> None:
        self._put(3, value)

    def clear(self) -> None:
        self.hold_s = self.wait_s = 0.0
        self.asked = 0

    def _get(self, index: int) -> float:
        return float(_NUMBER.unpack_from(self._map, 8 * index)[0])

    def _put(self, index: int, value: float) -> None:
        _NUMBER.pack_into(self._map, 8 * index, value)
