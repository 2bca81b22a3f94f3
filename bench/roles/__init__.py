"""What a worker can be told to play: a function of its link and the job's arguments that returns its report.

What comes in: the name of a role. What goes out: the function. Rule: a role says `ready` once it is
connected, begins on `go`, and returns only after its own counts are right.
Not here: which roles make up a scenario (`scenarios/`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.roles.closed import closed
from bench.roles.consume import consume
from bench.roles.control import churn, declare, idle
from bench.roles.expiring import expired_consume, expiring_flow, expiring_publish
from bench.roles.paced import paced_consume, paced_publish
from bench.roles.publish import publish
from bench.roles.relaying import drain, pour, relay
from bench.roles.restarted import restarted_consume

ROLES: dict[str, Callable[..., dict[str, Any]]] = {
    "publish": publish,
    "consume": consume,
    "closed": closed,
    "paced_publish": paced_publish,
    "paced_consume": paced_consume,
    "expiring_publish": expiring_publish,
    "expired_consume": expired_consume,
    "expiring_flow": expiring_flow,
    "restarted_consume": restarted_consume,
    "churn": churn,
    "declare": declare,
    "idle": idle,
    "relay": relay,
    "pour": pour,
    "drain": drain,
}

__all__ = ["ROLES"]
