"""What a scenario is, what it is told, and what it answers.

What comes in: nothing. What goes out: the value types that the runner, the scenarios and the report share.
Rule: a figure says in which direction it is better, so that ratios can be read without knowing the scenario.
Not here: the scenarios (beside this file), the flow that most of them share (`flow.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Setting:
    """One run: a broker (`url`, and `pid` where it is known), seconds of warm-up and of measuring. `scale`
    multiplies what a scenario counts in messages or connections instead of seconds (for short tests)."""

    url: str
    pid: int | None = None
    warmup_s: float = 1.0
    seconds: float = 5.0
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    value: float
    unit: str
    higher_is_better: bool = True


@dataclass(frozen=True, slots=True)
class Result:
    """`figures` has the main one first. `generator_cpu` is the share of one core by role; `broker_cpu` and
    `broker_rss_mb` are of the broker's processes, `other_cpu` is what neither used: a noisy machine; they are
    None where the broker's pid is not known. `counts` holds what was checked."""

    figures: list[Figure]
    generator_cpu: dict[str, float]
    messages_per_generator_cpu_s: float
    broker_cpu: float | None = None
    messages_per_broker_cpu_s: float | None = None
    broker_rss_mb: float | None = None
    other_cpu: float | None = None
    counts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    summary: str
    run: Callable[[Setting], Result]
    needs_fresh: bool = False
    """A broker process that has done nothing yet: one that has served has freed memory to grow into."""
    only: str = ""
    """the name of the one broker that can do it; others are passed over"""
    takes_long: bool = False
    """minutes each time: only run when it is asked for by its name"""
