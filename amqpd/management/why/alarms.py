"""Why publishers wait, in words: the alarms that are on, with their figures and what ends them.

What comes in: alarms, figures. What goes out: a sentence for each source of an alarm.
Rules: an alarm of an operator is ended by an operator, all others by themselves.
Not here: when alarms begin and end (`process/alarms.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from amqpd.flow.alarms import OPERATOR, Alarm
from amqpd.management.connections import moment


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
