"""Connections of clients: listed, and closed by an operator.

What comes in: filters; which connections to close, and why. What goes out: rows; how many were closed.
Rules: 1. Nothing is closed that was not named. 2. Many connections are closed a few at a time, the broker going on in
between. 3. What an operator did is in the log.
Not here: what the rows say (`figures/inventory.py`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import structlog
import trio

from amqpd.management.errors import BadArgument, NotFound
from amqpd.management.figures import inventory
from amqpd.management.operators import Operator
from amqpd.management.running import Running
from amqpd.session.ports import ConnectionBase
from amqpd.vocabulary.states import ConnectionState

# Closing one deletes its exclusive queues and returns what it had not acknowledged: some 50 us each.
CLOSED_AT_ONCE = 200
# RabbitMQ's management interface says "Closed via management plugin".
DEFAULT_REASON = "closed by an operator"

log = structlog.get_logger(component="operations")


def listed(on: Running, filters: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """`vhost` and `user` are filters. Rows as `inventory.connections` gives them; `connected_at` is a moment in ISO
    8601, in UTC."""
    now = time.time()
    for row in inventory.connections(on.node, filters, trio.current_time()):
        row["connected_at"] = moment(now - row.pop("age_s"))
        yield row


@dataclass(frozen=True)
class CloseRequest:
    """The connections that an operator wants closed: one by `which`, else those of a user, in a virtual host, or
    all."""

    which: str | None = None
    """an id, or a name as the log has it"""
    user: str | None = None
    vhost: str | None = None
    everything: bool = False
    reason: str | None = None
    """that the clients are told; None: `DEFAULT_REASON`"""


async def close(on: Running, by: Operator, request: CloseRequest) -> int:
    """How many were closed. Raises NotFound, BadArgument when nothing says which."""
    reason = request.reason or DEFAULT_REASON
    closed = 0
    for at, connection in enumerate(_meant(on, request), 1):
        if connection.state not in (ConnectionState.CLOSING, ConnectionState.LINGERING, ConnectionState.CLOSED):
            closed += 1
            connection.force_close(reason)
        if at % CLOSED_AT_ONCE == 0:
            on.run_effects()
            await trio.lowlevel.checkpoint()
    on.run_effects()
    log.warning("connections closed by an operator", count=closed, reason=reason, **by.log_fields)
    return closed


def moment(posix_s: float) -> str:
    return datetime.fromtimestamp(posix_s, UTC).isoformat(timespec="seconds")


def not_found(which: str) -> NotFound:
    return NotFound(f"there is no connection '{which}': `amqpd connection list` says which there are")


def _meant(on: Running, request: CloseRequest) -> list[ConnectionBase]:
    known, which, user, vhost = on.node.connections, request.which, request.user, request.vhost
    if which is not None:
        found = [known[which]] if which in known else [each for each in known.values() if each.name == which]
        if not found:
            raise not_found(which)
        return found
    if user is None and vhost is None and not request.everything:
        raise BadArgument("say which connections: an id, a user, a virtual host, or all")
    return [each for each in known.values() if user in (None, each.user) and vhost in (None, each.vhost)]
