"""Alarms of this node: the one place that every way out asks, and those of an operator's own set and cleared.

What comes in: a kind of alarm. What goes out: what is on, and which sources say so.
Rules: 1. An operator's alarm stands beside those of the broker: clearing it clears no other. 2. Whatever tells of
alarms (HTTP, metrics, health checks, commands, pages) asks here, or a row of `figures/node_facts.py`, which does.
Not here: when the broker sets alarms by itself (`process/alarms.py`), which connections are blocked
(`session/intake.py`), alarms of the other nodes (`attention/gathering.py`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TypedDict

import structlog

from amqpd.flow.alarms import Alarm, RefusedAlarm
from amqpd.management.connections import moment
from amqpd.management.errors import BadArgument
from amqpd.management.operators import Operator
from amqpd.management.running import Running

log = structlog.get_logger(component="operations")


class AlarmRow(TypedDict):
    """An alarm that is on, and which sources say so."""

    name: str
    source: str
    """watch: the broker's look at memory and disk; journal: a commit that found no space; operator"""
    since: str
    """ISO 8601, in UTC"""


class Cleared(TypedDict):
    """The result of clearing an operator's alarm."""

    was_set: bool
    """by an operator"""
    still_on: list[str]
    """the sources which say that it stays on"""


def kinds(on: Running) -> list[str]:
    """The names of the alarms that are on, those of operators and of the audit log included."""
    return sorted({each.kind for each in on.board.alarms})


def listed(on: Running) -> list[AlarmRow]:
    """By name and source."""
    return rows(on.board.alarms)


def rows(on: Sequence[Alarm]) -> list[AlarmRow]:
    """The same of alarms that somebody has looked up."""
    return [{"name": each.kind, "source": each.source, "since": moment(each.since)} for each in on]


def put(on: Running, by: Operator, kind: str) -> bool:
    """Whether it is new. Raises BadArgument."""
    try:
        new = on.board.set_by_operator(kind, time.time())
    except RefusedAlarm as error:
        raise BadArgument(str(error)) from None
    if new:
        log.warning("alarm set by an operator: publishers wait", alarm=kind, **by.said)
    on.settle()
    return new


def clear(on: Running, by: Operator, kind: str) -> Cleared:
    """What nobody set is no error."""
    was_set = on.board.clear_by_operator(kind)
    if was_set:
        log.info("alarm cleared by an operator", alarm=kind, **by.said)
        on.settle()
    still_on = sorted(alarm.source for alarm in on.board.alarms if alarm.kind == kind)
    return {"was_set": was_set, "still_on": still_on}
