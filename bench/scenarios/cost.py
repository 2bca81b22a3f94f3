"""What a run cost, and who paid: the broker, the generator, or somebody else on the machine.

What comes in: two looks at the machine around the measured time, and the workers' windows. What goes out: a
`Result`. Rules: 1. shares are of one core, so 2.0 is two cores; 2. what neither broker nor generator used is
`other_cpu`: where it is not near zero, the figures of this run are worth less; 3. without the broker's pid
its share is unknown and cannot be told from the others'.
Not here: reading the counters (`bench/proc.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench.clock import now
from bench.proc import Usage, machine_busy_s, usage_of
from bench.scenarios.base import Figure, Result


@dataclass(frozen=True, slots=True)
class Look:
    """The counters at one moment."""

    at: float
    broker: Usage | None
    machine_s: float


def look(pid: int | None) -> Look:
    return Look(now(), usage_of(pid), machine_busy_s())


def per_second(window: dict[str, float], key: str) -> float:
    """`window` is a stopwatch's report; 0 for one that was never reached."""
    return window[key] / window["seconds"] if window["seconds"] else 0.0


def result_of(
    figures: list[Figure],
    windows: dict[str, dict[str, float]],
    messages: float,
    first: Look,
    last: Look,
    counts: dict[str, Any],
) -> Result:
    """`windows` by role, `messages` those of the windows; `first` and `last` look at the same stretch of
    time."""
    seconds = last.at - first.at
    generator_s = sum(window["cpu_s"] for window in windows.values())
    broker_s = other_cpu = rss_mb = None
    if first.broker is not None and last.broker is not None:
        broker_s = last.broker.cpu_s - first.broker.cpu_s
        rss_mb = max(first.broker.rss_bytes, last.broker.rss_bytes) / 1e6
        other_cpu = max(0.0, (last.machine_s - first.machine_s - broker_s - generator_s) / seconds)
    return Result(
        figures,
        {role: per_second(window, "cpu_s") for role, window in windows.items()},
        messages / generator_s if generator_s else 0.0,
        broker_s / seconds if broker_s is not None else None,
        messages / broker_s if broker_s else None,
        rss_mb,
        other_cpu,
        counts,
    )
