"""Alarms: seen, and those of an operator's own set and cleared.

What comes in: a kind of alarm. What goes out: what is on, and which sources say so.
Rules: an operator's alarm stands beside those of the broker: clearing it clears no other.
Not here: when the broker sets alarms by itself (`process/alarms.py`), which connections are blocked
(`session/intake.py`).
"""

from __future__ import annotations

import time
from typing import TypedDict

import structlog

from amqpd.management.connections import moment
from amqpd.management.errors import BadArgument
from amqpd.management.operators import Operator
from amqpd.management.running import Running
from amqpd.node.alarm_board import RefusedAlarm

log = structlog.get_logger(component="operations")


class AlarmRow(TypedDict):
    """An alarm that is on, and which sources say so."""

    name: str
    source: str
    """watch: the broker's look at memory and disk; journal: a commit that found no space; operator"""
    since: str
    """ISO 8601, in UTC"""


class Cleared(TypedDict):
    """What clearing an operator's alarm has come to."""

    was_set: bool
    """by an operator"""
    still_on: list[str]
    """the sources which say that it stays on"""


def listed(on: Running) -> list[AlarmRow]:
    """By name and source."""
    return [{"name": each.kind, "source": each.source, "since": moment(each.since)} for each in on.board.alarms]


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
