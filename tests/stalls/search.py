"""Looks for shapes of load that hold a broker up: `python -m tests.stalls.search --seconds 3600`.

What comes in: a time, or a seed to repeat (`--seed`). What goes out: each shape that held the broker's thread for
longer than HOLD_MAX_S, as a seed and in words; at the end what was generated, and the longest hold.
Rules: 1. What is measured is processor time of the broker's thread (`watched.py`), so a machine that does other
things too changes nothing; what a client waited is printed beside. 2. A shape that found something is repeated on a
fresh broker: what the ones before it left is not blamed on it. 3. The exit code says whether anything was found.
Not here: what a shape may do (`drawn.py`).
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.clients.broker_process import BrokerFailed
from tests.stalls.drawn import Drawn
from tests.stalls.rig import Rig

# What nobody is to wait for another's input, on two processors of today that do nothing else.
HOLD_MAX_S = 0.05
# What shapes leave behind adds up: exchanges, durable queues, history.
SHAPES_A_BROKER = 25
# The memory and disk alarms are not what is looked for.
ENVIRONMENT = {"AMQPD_DISK_FREE_BYTES_MIN": "0"}
# A shape may give its own connection work for hours (dead letters that go round between hundreds of queues). After so
# long it is broken off: what counts is whether others waited.
PATIENCE_S = 20.0


class Search:
    def __init__(self) -> None:
        self.generated: Counter[str] = Counter()
        self.found: list[int] = []
        self.hold_s = 0.0
        self.wait_s = 0.0
        self._rig: Rig | None = None
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._uses = 0

    def look_at(self, seed: int, *, again: bool = True) -> None:
        """One shape; what it took is added."""
        rig = self._fresh() if not again or self._rig is None or self._uses >= SHAPES_A_BROKER else self._rig
        self._uses += 1
        shape = Drawn(seed)
        rig.figures.clear()
        try:
            shape.run(rig)
            rig.settle()
        except TimeoutError:
            self.generated["broken off"] += 1
            # What it left goes on, and is not to be blamed on the next one.
            self._uses = SHAPES_A_BROKER
        except (OSError, BrokerFailed) as error:
            print(f"seed {seed}: {error!r}\n{rig.broker.log[-3000:]}", flush=True)
            self.found.append(seed)
            self._close()
            return
        hold_s, wait_s = rig.figures.hold_s, rig.figures.wait_s
        if again and hold_s > HOLD_MAX_S:
            self.look_at(seed, again=False)
            return
        self.generated += shape.counted
        self.hold_s, self.wait_s = max(self.hold_s, hold_s), max(self.wait_s, wait_s)
        if hold_s > HOLD_MAX_S:
            self.found.append(seed)
            print(f"seed {seed}: {hold_s * 1e3:.0f} ms, a client waited {wait_s * 1e3:.0f} ms", flush=True)
            for act in shape.acts:
                print(f"    {act}", flush=True)

    def _fresh(self) -> Rig:
        self._close()
        self._directory = tempfile.TemporaryDirectory()
        self._rig = Rig(Path(self._directory.name), ENVIRONMENT, PATIENCE_S)
        self._uses = 0
        return self._rig

    def _close(self) -> None:
        if self._rig is not None:
            self._rig.stop()
            self._rig = None
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None

    def end(self) -> None:
        self._close()
        print("generated:")
        for kind, count in sorted(self.generated.items()):
            print(f"    {count:7} {kind}")
        print(
            f"longest hold {self.hold_s * 1e3:.0f} ms of processor time; a client waited {self.wait_s * 1e3:.0f} ms"
        )
        print(f"above {HOLD_MAX_S * 1e3:.0f} ms: {self.found or 'none'}")


def main() -> int:
    parser = argparse.ArgumentParser(description="look for loads that hold a broker up")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, help="this shape only")
    parser.add_argument("--from-seed", type=int, help="the first of many; drawn if it is not given")
    options = parser.parse_args()
    search = Search()
    try:
        if options.seed is not None:
            search.look_at(options.seed, again=False)
        else:
            first = options.from_seed if options.from_seed is not None else random.SystemRandom().randrange(1 << 30)
            until, count = time.monotonic() + options.seconds, 0
            while time.monotonic() < until:
                search.look_at(first + count)
                count += 1
            print(f"{count} shapes, seeds {first} to {first + count - 1}")
    finally:
        search.end()
    return 1 if search.found else 0


if __name__ == "__main__":
    sys.exit(main())
