"""The figures of the known shapes: `python -m tests.stalls.measure [NAME...]`.

What comes in: names of shapes, or none for all. What goes out: a line for each: the longest hold in processor time
of the broker's thread (`watched.py`), and the longest wait of a client of a process of its own.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.stalls.rig import rig
from tests.stalls.shapes import SHAPES, environment_of


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.stalls.measure", description="How long known loads hold others up."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of a load; all without any: {', '.join(SHAPES)}")
    names = parser.parse_args().names
    if unknown := set(names) - set(SHAPES):
        parser.error(f"no such load: {', '.join(sorted(unknown))}")
    print(f"{'':45} {'hold ms':>9} {'victim ms':>9} {'asked':>7}")
    for name in names or SHAPES:
        with tempfile.TemporaryDirectory() as directory, rig(Path(directory), environment_of(name)) as made:
            made.figures.clear()
            SHAPES[name](made)
            made.settle()
            figures = made.figures
            print(f"{name:45} {figures.hold_s * 1e3:9.1f} {figures.wait_s * 1e3:9.1f} {figures.asked:7}", flush=True)


if __name__ == "__main__":
    main()
