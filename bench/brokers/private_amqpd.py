"""An amqpd of our own, from this checkout, with the interpreter that runs the bench.

What comes in: nothing. What goes out: a `PrivateBroker`. Rule: default configuration; only the port and the
data directory are given.
Not here: amqpd at an address (`--url`).
"""

from __future__ import annotations

import os
import sys

from bench.brokers.base import PrivateBroker
from bench.crew import ROOT


class PrivateAmqpd(PrivateBroker):
    name = "amqpd"

    def command(self) -> list[str]:
        data_dir = str(self.directory / "data")
        return [sys.executable, "-m", "amqpd", "serve", "--port", str(self.port), "--data-dir", data_dir]

    def environment(self) -> dict[str, str]:
        return {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
