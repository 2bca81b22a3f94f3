"""Arguments of a command, as JSON has them.

What comes in: the object of a command's arguments. What goes out: texts, flags, numbers.
Rules: what is of another kind is refused with its name.
Not here: what they mean (the commands).
"""

from __future__ import annotations

from typing import Any

from amqpd.management.errors import BadArgument

Arguments = dict[str, Any]

CONDITIONS = ("empty", "backlog", "unused", "used")
"""of many queues those are meant in which no message is, or some; of which nobody consumes, or somebody does"""


def optional(arguments: Arguments, name: str) -> str | None:
    """Raises BadArgument for what is there and no text."""
    value = arguments.get(name)
    if value is not None and not isinstance(value, str):
        raise BadArgument(f"{name} must be a text")
    return value


def required(arguments: Arguments, name: str) -> str:
    """A text that has to be there. Raises BadArgument."""
    value = arguments.get(name)
    if not isinstance(value, str):
        raise BadArgument(f"{name} must be a text")
    return value


def vhost_of(arguments: Arguments) -> str:
    """`/` if nothing is said. Raises BadArgument."""
    return required({"vhost": "/", **arguments}, "vhost")


def flag(arguments: Arguments, name: str, otherwise: bool = False) -> bool:
    """An argument that is true or false. Raises BadArgument."""
    value = arguments.get(name, otherwise)
    if not isinstance(value, bool):
        raise BadArgument(f"{name} must be true or false")
    return value


def table(arguments: Arguments, name: str) -> dict[str, Any]:
    """An object; empty if nothing is said. Raises BadArgument."""
    value = arguments.get(name, {})
    if not isinstance(value, dict):
        raise BadArgument(f"{name} must be an object")
    return value
