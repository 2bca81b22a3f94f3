"""`python -m tests.replication.simulation`: many seeds, on all cores, with progress.

What comes in: how many seeds, from which on, on how many processes; memory or sqlite. What goes out: each seed that
failed, with the command that repeats it; how often what happened; how many seeds a second. Exit status 1 when one
failed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from functools import partial

from tests.replication.simulation.run import outcome

SAID_S = 10.0
"""between two lines of progress"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.replication.simulation", description=__doc__.split(":")[0])
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--disk", choices=("memory", "sqlite"), default="memory")
    given = parser.parse_args()
    counts, failed, began_s = Counter[str](), 0, time.monotonic()
    said_s = began_s
    seeds = range(given.first, given.first + given.seeds)
    with multiprocessing.get_context("spawn").Pool(given.processes) as pool:
        for done, (seed, found, error) in enumerate(pool.imap_unordered(partial(outcome, given.disk), seeds, 4), 1):
            counts += found
            if error:
                failed += 1
                print(f"seed {seed}: {error}", flush=True)
                print(
                    f"    again: python -m tests.replication.simulation --disk {given.disk} --first {seed} --seeds 1"
                )
            now_s = time.monotonic()
            if now_s >= said_s + SAID_S or done == len(seeds):
                said_s = now_s
                rate = done / (now_s - began_s)
                print(f"{done:,} of {len(seeds):,} seeds, {failed} failed, {rate:.1f} a second", flush=True)
    print(*(f"{what}: {times:,}" for what, times in counts.most_common()), sep="\n  ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
