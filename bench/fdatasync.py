"""What an fdatasync of a disk takes, for figures of durable messages to stand beside.

What comes in: a directory on the disk, how long to look. What goes out: percentiles in milliseconds. Theory: a broker
that promises that a message is on the disk cannot be faster than the disk's own answer; what it takes above that is
its own. Rules: 1. one page appended to a file that already has its length, as a journal does, then an fdatasync, one
after the other; 2. measured in the same run as the scenario, right before it; 3. the file is removed.
Not here: what a commit of amqpd's journal takes (`journal_commit.py`).
"""

from __future__ import annotations

import os
import tempfile

from bench.clock import now, percentiles_ms

PAGE_BYTES = 4096
FILE_BYTES = 4 << 20
SYNCS_MIN = 20


def fdatasync_ms(directory: str | None, seconds: float) -> dict[str, float]:
    """p50, p99 and p99.9 of writing a page and syncing it. Raises OSError if the directory cannot be written to."""
    page = os.urandom(PAGE_BYTES)
    taken: list[float] = []
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        file.write(bytes(FILE_BYTES))
        os.fsync(file.fileno())
        begun = now()
        while len(taken) < SYNCS_MIN or now() - begun < seconds:
            place = len(taken) * PAGE_BYTES % FILE_BYTES
            start = now()
            os.pwrite(file.fileno(), page, place)
            os.fdatasync(file.fileno())
            taken.append(now() - start)
    return percentiles_ms(taken)
