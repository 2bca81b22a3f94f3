"""`python -m tests.remote.simulation`: many seeds, with progress.

What comes in: how many seeds, from which on. What goes out: each seed that failed, with the command that repeats it;
how often what happened, and which kinds of events never did. Exit status 1 when a seed failed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.remote.simulation.run import HAPPENS, outcome

SAID_S = 10.0
"""between two lines of progress"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.remote.simulation", description=__doc__.split(":")[0])
    parser.add_argument("--seeds", type=int, default=1_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--durable", action="store_true", help="with queues of the node in place of plain ones")
    given = parser.parse_args()
    counts, failed, began_s = Counter[str](), 0, time.monotonic()
    said_s = began_s
    for done, seed in enumerate(range(given.first, given.first + given.seeds), 1):
        _, found, error = outcome(seed, given.durable)
        counts += found
        if error:
            failed += 1
            print(f"seed {seed}: {error}", flush=True)
            more = " --durable" if given.durable else ""
            print(f"    again: python -m tests.remote.simulation --first {seed} --seeds 1{more}")
        now_s = time.monotonic()
        if now_s >= said_s + SAID_S or done == given.seeds:
            said_s = now_s
            rate = done / (now_s - began_s)
            print(f"{done:,} of {given.seeds:,} seeds, {failed} failed, {rate:.1f} a second", flush=True)
    print(*(f"{what}: {times:,}" for what, times in counts.most_common()), sep="\n  ")
    never = [what for what in HAPPENS if not counts[what]]
    print(f"never happened: {', '.join(never)}" if never else "every kind of event happened")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
