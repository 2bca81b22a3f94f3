"""Instructions of the processor that a message takes, and allocations, by valgrind's callgrind.

What comes in: names of loads. What goes out: figures per message, and callgrind's profiles of the longer runs.
Rules: 1. One process for several loads: to start Python takes longer than to count. 2. A profile is written at each
sign of `drive.py`; two runs of different length are subtracted. 3. Hashes and addresses are the same in each run.
Not here: counts that need no valgrind (`counting.py`).

Includes what the tests' clients take: a few calls for each buffer, or for each message of the loads closed-1 and -50.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.cost.drive import lengths

SIGNS = 3
SECONDS_MAX = 600
# CPython's allocator for everything but raw memory; which objects come from free lists, it does not see.
ALLOCATORS = frozenset(("_PyObject_Malloc", "_PyObject_Calloc", "_PyObject_Realloc"))


def missing() -> str:
    """Why instructions cannot be counted here; empty when they can."""
    if shutil.which("valgrind") is None:
        return "valgrind is not installed (Debian: apt-get install valgrind)"
    return ""


def instructions(names: Sequence[str], directory: Path) -> dict[str, dict[str, float]]:
    """`instructions` per message of each load, and `allocations` unless Python's symbols are stripped. Leaves the
    profiles in the directory, LOAD.callgrind. Raises RuntimeError with what valgrind said when it fails."""
    out = directory / "profile"
    command = ["valgrind", "--tool=callgrind", "--dump-before=getloadavg", "--compress-strings=no"]
    command += [f"--callgrind-out-file={out}", sys.executable, "-m", "tests.cost.drive", *names]
    root = Path(__file__).parents[2]
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "AMQPD_KERNEL") if name in os.environ}
    environment |= {"PYTHONPATH": str(root), "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    profiles = [directory / f"profile.{number}" for number in range(1, SIGNS * len(names) + 1)]
    if done.returncode or not all(profile.exists() for profile in profiles):
        raise RuntimeError(f"callgrind ended with {done.returncode}:\n{done.stderr[-2000:]}")
    figures = {}
    for at, name in enumerate(names):
        short, long = map(Profile, profiles[SIGNS * at + 1 : SIGNS * at + SIGNS])
        more = lengths(name)[1] - lengths(name)[0]
        figures[name] = {"instructions": (long.instructions - short.instructions) / more}
        if long.allocations:
            figures[name]["allocations"] = (long.allocations - short.allocations) / more
        (directory / f"{name}.callgrind").write_text(long.text)
    return figures


class Profile:
    """One file of callgrind, not compressed. `text` is it without the calls that had begun before: callgrind_annotate
    would think that everything was spent in these."""

    def __init__(self, path: Path) -> None:
        self.instructions = self.allocations = 0
        kept: list[str] = []
        callee = ""
        lines = iter(path.read_text(errors="replace").splitlines())
        for line in lines:
            name, _, value = line.partition("=")
            if name == "cfn":
                callee = value.partition("'")[0]
            elif name == "calls":
                count = int(value.split()[0])
                if not count:
                    next(lines)
                    continue
                if callee in ALLOCATORS:
                    self.allocations += count
            elif line.startswith("summary: "):
                self.instructions = int(line.split()[1])
            kept.append(line)
        if not self.instructions:
            raise RuntimeError(f"{path} has no summary")
        self.text = "\n".join(kept) + "\n"
