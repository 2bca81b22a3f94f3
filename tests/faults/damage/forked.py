"""A broker of the rounds: forked, since there are thousands of them.

What comes in: the process that forks, a data directory, settings. What goes out: a `BrokerProcess`, and the log of
its last start alone.
Not here: forking (`tests/clients/zygote.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.clients.broker_process import BrokerProcess


class ForkedBroker(BrokerProcess):
    forks = True

    def __init__(self, data_dir: Path, environment: Mapping[str, str]) -> None:
        super().__init__(data_dir, environment=environment)

    def since_start(self) -> list[str]:
        """The lines of the log of this start."""
        with self._news:
            return self._lines[self._start_line :]
