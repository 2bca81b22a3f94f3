"""All scenarios by name; one file per family, each with its list `SCENARIOS`.

What comes in: names. What goes out: scenarios, in the order of the table: first what applications do, messages that
differ and messages one at a time. Rule: a name means the same work on every broker and in every version; change the
work, change the name.
Not here: how they are run in turns (`bench/runner.py`).
"""

from __future__ import annotations

from bench.scenarios import (
    backlog,
    beside,
    closed,
    control,
    durable,
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

APPLICATIONS = (mixed, durable, beside)
OTHERS = (stream, closed, paced, fanout, routing, backlog, memory, restart, expiring, control)
SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario for family in (*APPLICATIONS, *OTHERS) for scenario in family.SCENARIOS
}

__all__ = ["SCENARIOS", "Figure", "Result", "Scenario", "Setting"]
