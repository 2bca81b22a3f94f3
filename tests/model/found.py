"""Commands with which long runs of the model found faults, each list as short as it still failed.

What comes in: nothing. What goes out: `FOUND`, by what was wrong.
Not here: how commands are drawn, carried out and shortened (`commands.py`).
"""

from __future__ import annotations

from typing import Any

from tests.model.commands import Command

_AT_LEAST_ONCE = {"dead-letter-strategy": "at-least-once", "overflow": "reject-publish", "dead-letter-exchange": ""}


def _queue(name: str, fanned: bool, **arguments: Any) -> Command:
    found = {key.replace("_", "-"): value for key, value in arguments.items()}
    return "declare", {
        "kind": found.pop("kind"),
        "durable": True,
        "arguments": found,
        "name": name,
        "instead": True,
        "fanned": fanned,
    }


def _publish(to: str, count: int, size: int, **options: Any) -> Command:
    plain = {"number": 0, "persistent": False, "priority": None, "expiration": None, "at_once": True}
    return "publish", plain | {"to": to, "count": count, "size": size} | options


FOUND: dict[str, list[Command]] = {
    "what dies since it came back too often expired too, after a restart": [
        _queue("d", True, kind="quorum", delivery_limit=0, message_ttl=20, **_AT_LEAST_ONCE),
        _publish("fan", 5, 300, persistent=True),
        ("until_the_next_deadline", {}),
        ("consume", {"number": 1, "name": "d", "prefetch": 2, "no_ack": False, "priority": 0}),
        _publish("fan", 2, 100),
        ("restart", {"clean": True}),
        ("later", {"ms": 1000}),
    ],
    "a purge let a byte of what is on disk count as ready": [
        ("small_bounds", {"copies": False}),
        _queue("a", False, kind="quorum", **_AT_LEAST_ONCE),
        _publish("a", 1, 300, persistent=True, priority=0),
        _publish("a", 3, 50, expiration=100, at_once=False),
        _publish("a", 5, 300, priority=1),
        ("disk", {"slow": True}),
        ("commit", {}),
        ("until_the_next_deadline", {}),
        ("purge", {"name": "a"}),
    ],
    "a purge took what had expired and waited to be read": [
        _queue("b", True, kind="quorum", message_ttl=100, overflow="reject-publish-dlx", single_active_consumer=True),
        _queue("c", True, kind="quorum", **_AT_LEAST_ONCE),
        _publish("fan", 1, 300, persistent=True, priority=9, expiration=1000, at_once=False),
        ("commit", {}),
        ("disk", {"slow": True}),
        _publish("fan", 3, 100, persistent=True),
        _publish("b", 5, 50, persistent=True, priority=2, expiration=20),
        ("commit", {}),
        ("set_policy", {"pattern": "^[bc]", "definition": {"dead-letter-exchange": "fan"}}),
        ("until_the_next_deadline", {}),
        ("purge", {"name": "b"}),
    ],
}
