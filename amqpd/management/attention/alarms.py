"""Alarms of all nodes of the cluster, for an operator who asks one of them.

What comes in: the rows in which nodes tell of themselves (`figures/node_facts.py`). What goes out: one row for each
alarm and each source of it, with the node on which it blocks publishers.
Rules: 1. A node of an older version tells the names of its alarms only. 2. What a node tells that is no alarm is
passed over, and its names of alarms count.
Not here: the alarms of one node (`management/alarms.py`), sentences about them (`needs.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from amqpd.flow.alarms import OPERATOR
from amqpd.management import alarms
from amqpd.management.errors import NotFound
from amqpd.management.face import BrokerParts
from amqpd.management.operators import Operator

Row = dict[str, Any]


class NodeAlarm(TypedDict):
    """One alarm of one node, as one source of it says."""

    node: str
    name: str
    source: str
    """watch, journal, audit log or operator; empty: a node of an older version does not tell"""
    since: str
    """ISO 8601, in UTC; empty as `source`"""
    since_ms: int | None
    says: str
    """why it is on, and what ends it"""
    blocked: int
    """how many connections of the node it blocks now"""
    clearable: bool
    """an operator has set it, so an operator ends it"""


async def in_cluster(parts: BrokerParts) -> list[NodeAlarm]:
    """Those of this node first; of the others those that answer."""
    return [each for facts in await facts_of_all(parts) for each in of_node(facts)]


async def facts_of_all(parts: BrokerParts) -> list[Row]:
    """What the nodes that answer say of themselves, this one first."""
    told = [] if parts.peers is None else [row for _, row in await parts.peers.rows("node")]
    return [await parts.facts.row(), *told]


def of_node(facts: Mapping[str, Any]) -> list[NodeAlarm]:
    """Of the row of one node."""
    said = facts.get("alarm_rows")
    rows = [each for each in said if _is_alarm(each)] if isinstance(said, list) else []
    told = {row["name"] for row in rows}
    plain = [_plain(str(kind)) for kind in facts["alarms"] if kind not in told]
    return [_of_row(str(facts["name"]), row) for row in [*rows, *plain]]


async def clear(parts: BrokerParts, by: Operator, node: str, kind: str) -> alarms.Cleared:
    """An operator's alarm, at the node that has it. Raises NotFound for no node of the cluster; Unavailable when it
    does not answer."""
    if node == parts.on.node.identity.name:
        return alarms.clear(parts.on, by, kind)
    if parts.peers is None or node not in parts.peers.others():
        raise NotFound(f"there is no node '{node}'")
    answer = await parts.peers.act(node, "clear_alarm", by=by.user or "", name=kind)
    still_on = answer.get("still_on")
    return {
        "was_set": answer.get("was_set") is True,
        "still_on": [str(source) for source in still_on] if isinstance(still_on, list) else [],
    }


def _is_alarm(row: Any) -> bool:
    return (
        isinstance(row, dict)
        and all(isinstance(row.get(name), str) for name in ("name", "source", "since", "says"))
        and all(isinstance(row.get(name), int) for name in ("since_ms", "blocked"))
    )


def _plain(kind: str) -> Row:
    return {"name": kind, "source": "", "since": "", "since_ms": None, "says": "publishers wait", "blocked": 0}


def _of_row(node: str, row: Row) -> NodeAlarm:
    return {
        "node": node,
        "name": row["name"],
        "source": row["source"],
        "since": row["since"],
        "since_ms": row["since_ms"],
        "says": row["says"],
        "blocked": row["blocked"],
        "clearable": row["source"] == OPERATOR,
    }
