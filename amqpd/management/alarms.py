"""Alarms of this node: the one place that every way out asks, why they are on, and those of an operator's own.

What comes in: a kind of alarm. What goes out: what is on, and which sources say so; for each a sentence, with its
figures and what ends it.
Rules: 1. An operator's alarm stands beside those of the broker: clearing it clears no other. 2. Whatever tells of
alarms (HTTP, metrics, health checks, commands, pages) asks here, or a row of `figures/node_facts.py`, which does.
Not here: when the broker sets alarms by itself (`process/alarms.py`), which connections are blocked
(`session/intake.py`), alarms of the other nodes (`attention/gathering.py`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import structlog

from amqpd.flow.alarms import OPERATOR, Alarm, RefusedAlarm
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
    return on.node.alarms.shortages


def listed(on: Running) -> list[AlarmRow]:
    """By name and source."""
    return rows(on.node.alarms.by_source)


def rows(on: Sequence[Alarm]) -> list[AlarmRow]:
    """Rows of alarms that somebody has looked up."""
    return [{"name": each.kind, "source": each.source, "since": moment(each.since)} for each in on]


def put(on: Running, by: Operator, kind: str) -> bool:
    """Whether it is new. Raises BadArgument."""
    try:
        new = on.node.alarms.set_by_operator(kind, time.time())
    except RefusedAlarm as error:
        raise BadArgument(str(error)) from None
    if new:
        log.warning("alarm set by an operator: publishers wait", alarm=kind, **by.log_fields)
    on.run_effects()
    return new


def clear(on: Running, by: Operator, kind: str) -> Cleared:
    """What nobody set is no error."""
    was_set = on.node.alarms.clear_by_operator(kind)
    if was_set:
        log.info("alarm cleared by an operator", alarm=kind, **by.log_fields)
        on.run_effects()
    still_on = sorted(alarm.source for alarm in on.node.alarms.by_source if alarm.kind == kind)
    return {"was_set": was_set, "still_on": still_on}


def sentences(alarms: Sequence[Alarm], figures: Mapping[str, Any], resident_bytes: int) -> list[str]:
    """`figures` as of `face.BrokerParts`; `resident_bytes`: memory of the process."""
    if not alarms:
        return ["no alarm is on: nobody waits because of one"]
    return [
        f"the {each.kind} alarm is on since {moment(each.since)}: {reason(each, figures, resident_bytes)}"
        for each in alarms
    ]


def reason(alarm: Alarm, figures: Mapping[str, Any], resident_bytes: int) -> str:
    """Why this alarm is on, and what ends it. Arguments as of `sentences`."""
    match alarm:
        case Alarm(source=source) if source == OPERATOR:
            return f"an operator has set it, and `amqpd alarm clear {alarm.kind}` ends it"
        case Alarm(kind="memory"):
            most = figures.get("resident_bytes_max") or 0
            return (
                f"the broker has {_mib(resident_bytes)} of memory, and begins to block publishers at {_mib(most)}; "
                f"it ends when consumers have taken enough, or with a higher memory_high_watermark"
            )
        case Alarm(kind="disk", source="watch"):
            free, least = figures.get("disk_free_bytes") or 0, figures.get("disk_free_bytes_min") or 0
            return f"{_mib(free)} are free where the data directory is, and {_mib(least)} have to be"
        case Alarm(kind="disk"):
            return "a commit found no space on the disk; it ends when one succeeds"
        case Alarm(kind="audit"):
            return "the audit log cannot be written, and audit.on_full says that publishers wait for it"
    return f"{alarm.source} says so"


def _mib(nbytes: int) -> str:
    return f"{nbytes / (1 << 20):,.0f} MiB"
