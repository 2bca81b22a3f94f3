"""What people and programs did to the broker, as it happens.

What comes in: acts, as the audit log records them. What goes out: the last ones.
Rules: 1. What the audit log does not record is not here either (`audit.level`). 2. Only acts: what happened to
messages is in the audit log's files.
Not here: the log itself (`amqpd/audit/`), who may look.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from amqpd.management.figures.recent import Recent
from amqpd.management.running import Running

ACTS_MAX = 1000
CHARACTERS_MAX = 1 << 20

Row = dict[str, Any]


def recent_acts(on: Running) -> Recent[Row]:
    """They gather from now on; who asked for that before gets no more of them. Columns as in the audit log's files,
    `time` in ISO 8601."""
    recent: Recent[Row] = Recent(ACTS_MAX, CHARACTERS_MAX)

    def add(columns: dict[str, Any]) -> None:
        moment = datetime.fromtimestamp(columns["time"] / 1_000_000, UTC)
        row = {**columns, "time": moment.isoformat(timespec="microseconds")}
        recent.add(row, sum(len(str(value)) for value in row.values()))

    on.node.acts.watch(add)
    return recent
