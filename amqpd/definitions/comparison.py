"""One thing of a file against the one of that name in the broker.

What comes in: records. What goes out: whether they are the same, in which members they differ, what they are called.
Rules: 1. Compared is what a file says of them: ids, owners and types of numbers that JSON does not tell apart are no
difference. 2. A queue without a type is a classic one.
Not here: what follows from a difference (`difference.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amqpd.vocabulary.records import (
    BindingRecord,
    ExchangeRecord,
    Key,
    ParameterRecord,
    PermissionRecord,
    PolicyRecord,
    QueueRecord,
    Record,
    TopicPermissionRecord,
    UserRecord,
    VhostRecord,
)
from amqpd.wire.json_values import json_text, to_json

ABSENT = "none"
PASSWORD = "password"
_USUAL = {"durable": True, "auto_delete": False, "internal": False, "x-queue-type": "classic"}
_FLAGS = ("type", "durable", "auto_delete", "internal")
# A value is shown to this length.
SHOWN_CHARACTERS_MAX = 60


def same(one: Record, other: Record) -> bool:
    # As text, because Python's 1, 1.0 and True are equal.
    return json_text(_members(one)) == json_text(_members(other))


def differences(there: Record, wanted: Record) -> list[tuple[str, str, str]]:
    """What differs: its name, what it is in the broker, what it is in the file."""
    before, after = _members(there), _members(wanted)
    found: list[tuple[str, str, str]] = []
    for name in dict.fromkeys((*before, *after)):
        old, new = before.get(name, ABSENT), after.get(name, ABSENT)
        if json_text(old) == json_text(new):
            continue
        if name == PASSWORD:
            # A password's hash is not shown on a screen.
            found.append((name, "set" if old else ABSENT, ("another" if old else "set") if new else ABSENT))
        else:
            found.append((name, shown(old), shown(new)))
    return found


def binding_identity(record: BindingRecord) -> tuple[str, ...]:
    """Equal for bindings that are one in a file."""
    arguments = json_text(to_json(record.arguments)) if record.arguments else ""
    return (
        record.vhost,
        record.source,
        record.destination_type,
        record.destination,
        record.routing_key,
        arguments,
    )


def durable_at_both_ends(record: BindingRecord, ends: Mapping[Key, ExchangeRecord | QueueRecord]) -> bool | None:
    """None when an end is missing."""
    source = ends.get(("exchange", record.vhost, record.source))
    destination = ends.get((record.destination_type, record.vhost, record.destination))
    return None if source is None or destination is None else source.durable and destination.durable


def thing(record: Record) -> str:
    """What the record is, for a sentence: "queue 'q' in '/'"."""
    match record:
        case VhostRecord():
            return f"virtual host '{record.name}'"
        case UserRecord():
            return f"user '{record.name}'"
        case PermissionRecord():
            return f"permissions of '{record.user}' in '{record.vhost}'"
        case TopicPermissionRecord():
            return f"topic permissions of '{record.user}' on exchange '{record.exchange}' in '{record.vhost}'"
        case PolicyRecord():
            return f"{'operator policy' if record.operator else 'policy'} '{record.name}' in '{record.vhost}'"
        case ParameterRecord():
            where = f" of {record.component} in '{record.vhost}'" if record.vhost else ""
            return f"{'' if record.vhost else 'global '}parameter '{record.name}'{where}"
        case ExchangeRecord():
            return f"exchange '{record.name}' in '{record.vhost}'"
        case QueueRecord():
            return f"queue '{record.name}' in '{record.vhost}'"
        case BindingRecord():
            key = f", key '{record.routing_key}'" if record.routing_key else ""
            arguments = f", arguments {shown(to_json(record.arguments))}" if record.arguments else ""
            end = f"{record.destination_type} '{record.destination}'"
            return f"binding '{record.source}' -> {end} in '{record.vhost}'{key}{arguments}"


def particulars(record: Record) -> str:
    """What there is to say of a thing beside its name, on the line that announces it."""
    members = _members(record)
    match record:
        case UserRecord():
            members[PASSWORD] = "set" if record.password_hash else ABSENT
        case QueueRecord() | ExchangeRecord():
            # What most of them are needs no words.
            for name, usual in _USUAL.items():
                if members.get(name) == usual:
                    del members[name]
        case BindingRecord():
            return ""
    return ", ".join(f"{name} {shown(value)}" for name, value in members.items() if value not in ("", ABSENT, {}, []))


def shown(value: Any) -> str:
    if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        value = " ".join(value)
    text = value if isinstance(value, str) else json_text(value)
    return text if len(text) <= SHOWN_CHARACTERS_MAX else text[: SHOWN_CHARACTERS_MAX - 3] + "..."


def _members(record: Record) -> dict[str, Any]:
    """What a file says of the thing, by words for people; every value is JSON."""
    match record:
        case VhostRecord():
            return {"description": record.description, **to_json(record.metadata)}
        case UserRecord():
            limits = {f"limit {name}": value for name, value in record.limits.items()}
            return {PASSWORD: record.password_hash, "tags": list(record.tags), **limits}
        case PermissionRecord():
            return {"configure": record.configure, "write": record.write, "read": record.read}
        case TopicPermissionRecord():
            return {"write": record.write, "read": record.read}
        case PolicyRecord():
            about = {"pattern": record.pattern, "apply-to": record.apply_to, "priority": record.priority}
            return {**about, "definition": to_json(record.definition)}
        case ParameterRecord():
            return {"value": record.value}
        case ExchangeRecord():
            flags = {"durable": record.durable, "auto_delete": record.auto_delete, "internal": record.internal}
            return {"type": record.type, **flags, **_arguments(record.arguments)}
        case QueueRecord():
            arguments = _arguments({"x-queue-type": "classic", **record.arguments})
            return {"durable": record.durable, "auto_delete": record.auto_delete, **arguments}
        case BindingRecord():
            return {"routing_key": record.routing_key, "arguments": to_json(record.arguments)}


def _arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments may be called as flags are."""
    return {f"'{name}'" if name in _FLAGS else name: to_json(value) for name, value in arguments.items()}
