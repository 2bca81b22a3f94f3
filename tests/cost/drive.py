"""`python -m tests.cost.drive LOAD ...`: the loads one after the other, for a program that counts from outside.

What comes in: names of loads. What goes out: for each load a call of `getloadavg` before a short run, between it and
a longer one, and after that: this program's sign for who counts, as nothing else here calls it.
Rules: what is prepared and warmed up comes before the first sign.
Not here: who counts (`instructions.py`).
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import trio

from tests.cost.counting import still
from tests.cost.loads import BY_NAME, Load
from tests.cost.rig import Rig, StillClock, serve

# Valgrind makes of a millisecond fifty: enough to reach the paths that were taken often, and few to count.
WARM_UP = 400


def lengths(name: str) -> tuple[int, int]:
    """How many messages the two runs carry."""
    messages = BY_NAME[name].messages
    return messages // 8, messages // 2


async def drive(name: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        rig = Rig(Path(directory))
        load = Load(rig, BY_NAME[name])
        short, long = lengths(name)

        async def work() -> None:
            await load.run(WARM_UP)
            os.getloadavg()
            await load.run(short)
            os.getloadavg()
            await load.run(long)
            os.getloadavg()

        with still():
            await serve(rig, work)
        load.close()
        rig.close()


if __name__ == "__main__":
    for each in sys.argv[1:]:
        trio.run(drive, each, clock=StillClock())
