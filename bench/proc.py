"""Processor time and memory of a broker's processes.

What comes in: a process id. What goes out: seconds of processor time and bytes of resident memory, summed
over it and its descendants. Rule: a broker that is reached by its address alone has none of this, and the
report says nothing.
Not here: the generator's own processor time (`clock.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True)
class Usage:
    cpu_s: float
    rss_bytes: int


def usage_of(pid: int | None) -> Usage | None:
    """The sums at this moment; None without a pid or if the process is gone."""
    if pid is None:
        return None
    try:
        root = psutil.Process(pid)
        processes = [root, *root.children(recursive=True)]
    except psutil.Error:
        return None
    cpu_s, rss_bytes = 0.0, 0
    for process in processes:
        try:
            times = process.cpu_times()
            cpu_s += times.user + times.system
            rss_bytes += process.memory_info().rss
        except psutil.Error:
            continue  # a helper process that ended between the two calls
    return Usage(cpu_s, rss_bytes)
