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
class Restarted:
    """What a restart took: seconds until the old process was gone; the moment (CLOCK_MONOTONIC) when the new one was
    started, and its id."""

    stop_s: float
    started_at: float
    pid: int


@dataclass(frozen=True, slots=True)
class Setting:
    """One run: a broker (`url`, and `pid` where it is known), seconds of warm-up and of measuring. `scale`
    multiplies what a scenario counts in messages or connections instead of seconds (for short tests)."""

    url: str
    pid: int | None = None
    warmup_s: float = 1.0
    seconds: float = 5.0
    scale: float = 1.0
    work_dir: str | None = None
    """on the disk of the broker's data; None is the temporary directory"""
    restart: Callable[[], Restarted] | None = None
    """ends the broker's process by SIGTERM and starts it again on the same data; for a scenario that `restarts`"""


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    value: float
    unit: str
    higher_is_better: bool = True
    compared: bool = True
    """not where it says something of the machine, or is a difference: it has no ratio to another broker's"""


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
    needs_tls: bool = False
    """it goes to the broker's amqps address; brokers without one are passed over"""
    restarts: bool = False
    """it ends and starts the broker, which therefore is a fresh private one"""
    only: str = ""
    """the product that can do it, as the broker calls itself, in lower case; others are passed over"""
    takes_long: bool = False
    needs_cluster: bool = False
    """only several brokers together can do it (`--cluster`)"""
    """minutes each time: only run when it is asked for by its name"""
