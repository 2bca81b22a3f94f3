"""Processor time and memory of a broker's processes, and processor time of the whole machine.

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


def machine_busy_s() -> float:
    """Seconds of processor time that all processes of the machine have used, over all cores (what a
    hypervisor took away is counted in): with it a run can tell how much of the machine was not its own."""
    times = psutil.cpu_times()
    names = ("user", "nice", "system", "irq", "softirq", "steal")
    return float(sum(getattr(times, name, 0.0) for name in names))


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
