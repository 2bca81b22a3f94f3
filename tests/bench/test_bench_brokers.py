"""Private brokers end with their context, whatever happens; a fake one stands in for the real ones."""

from __future__ import annotations

import os
import sys

import psutil
import pytest

from bench.brokers.base import PrivateBroker, file_system_of
from bench.errors import BenchError


class Sleeper(PrivateBroker):
    """A shell in front of the real process, as rabbitmq-server has; it never accepts."""

    name = "sleeper"

    def command(self) -> list[str]:
        return ["/bin/sh", "-c", "sleep 600 & echo $! > child; echo starting; wait"]

    def _wait_until_it_accepts(self):
        while not (self.directory / "child").exists() or not (self.directory / "child").read_text().strip():
            os.sched_yield()
        self.child = int((self.directory / "child").read_text())
        raise KeyboardInterrupt


class Failing(PrivateBroker):
    name = "failing"

    def command(self) -> list[str]:
        return [sys.executable, "-c", "print('no such setting'); raise SystemExit(3)"]


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_interrupted_start_leaves_nothing_behind(tmp_path):
    broker = Sleeper(str(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        broker.__enter__()
    assert gone(broker.child)
    assert list(tmp_path.iterdir()) == []


def test_a_broker_that_does_not_start_says_why(tmp_path):
    with pytest.raises(BenchError, match="failing ended with code 3: no such setting"):
        Failing(str(tmp_path)).__enter__()
    assert list(tmp_path.iterdir()) == []


def test_file_system_has_a_name(tmp_path):
    assert file_system_of(str(tmp_path))
