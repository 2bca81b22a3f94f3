"""All scenarios by name; one file per family, each with its list `SCENARIOS`.

What comes in: names. What goes out: scenarios, in the order of the table. Rule: a name means the same work on
every broker and in every version; change the work, change the name.
Not here: how they are run in turns (`bench/runner.py`).
"""

from __future__ import annotations

from bench.scenarios import (
    backlog,
    closed,
    control,
    expiring,
    fanout,
    memory,
    mixed,
    paced,
    restart,
    routing,
    stream,
)
from bench.scenarios.base import Figure, Result, Scenario, Setting

SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for family in (mixed, stream, closed, paced, fanout, routing, backlog, memory, restart, expiring, control)
    for scenario in family.SCENARIOS
}

__all__ = ["SCENARIOS", "Figure", "Result", "Scenario", "Setting"]
