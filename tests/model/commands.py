"""Which commands the machine gets: drawn at random, kept as data, cut down when they fail.

What comes in: a seed and a theme. What goes out: a list of commands; what was made, counted; for a failure, the
shortest list that still fails.
Rules: 1. A command is a name and plain arguments that mean something in every state, so any part of a list is a list.
2. A theme says which queues there are and what is frequent: what is rare in all of them together is not in its own.
Not here: what the commands do (`machine.py`).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.model.machine import CLIENTS, FAN, NAMES, Machine
from tests.model.watching import watched

Command = tuple[str, dict[str, Any]]
Draw = Callable[[random.Random], Any]

MISSING, NOBODY = "missing", "nobody"


def one_of(*values: Any) -> Draw:
    return lambda rng: rng.choice(values)


ARGUMENTS: dict[str, Draw] = {
    "message-ttl": one_of(0, 1, 20, 100, 1000),
    "max-length": one_of(0, 1, 2, 3, 5),
    "max-length-bytes": one_of(0, 100, 300, 700),
    "expires": one_of(50, 500, 5000),
    "dead-letter-exchange": one_of("", "", "", FAN, MISSING),
    "dead-letter-routing-key": one_of(*NAMES, *NAMES, NOBODY),
    "overflow": one_of("drop-head", "reject-publish", "reject-publish-dlx"),
    "single-active-consumer": one_of(True),
    # Of classic queues, and of quorum queues.
    "max-priority": one_of(1, 2, 5),
    "delivery-limit": one_of(0, 1, 2),
    "dead-letter-strategy": one_of("at-least-once"),
}
OF_QUORUM = ("delivery-limit", "dead-letter-strategy")
OF_CLASSIC = ("max-priority",)
OF_POLICIES = (
    "message-ttl",
    "max-length",
    "max-length-bytes",
    "dead-letter-exchange",
    "dead-letter-routing-key",
    "overflow",
)

COMMANDS: dict[str, dict[str, Draw]] = {
    "publish": {
        "number": lambda rng: rng.randrange(CLIENTS),
        "to": one_of(*NAMES, *NAMES, FAN),
        "size": one_of(8, 8, 50, 100, 300),
        "count": one_of(1, 1, 2, 3, 5),
        "persistent": one_of(True, True, True, False),
        "priority": one_of(None, None, 0, 1, 2, 9),
        "expiration": one_of(None, None, None, None, 0, 1, 20, 100, 1000),
        "at_once": one_of(True, False),
    },
    "delay": {"to": one_of(*NAMES), "delay_ms": one_of(1, 20, 100, 1000), "size": one_of(8, 100)},
    "consume": {
        "number": lambda rng: rng.randrange(CLIENTS),
        "name": one_of(*NAMES),
        "prefetch": one_of(0, 1, 1, 2, 4),
        "no_ack": one_of(False, False, False, True),
        "priority": one_of(0, 0, 1, -1),
    },
    "cancel": {"which": lambda rng: rng.randrange(100)},
    "get": {
        "number": lambda rng: rng.randrange(CLIENTS),
        "name": one_of(*NAMES),
        "no_ack": one_of(False, False, True),
    },
    "settle": {
        "which": lambda rng: rng.randrange(100),
        "multiple": one_of(True, False),
        "how": one_of("ack", "requeue", "reject"),
    },
    "purge": {"name": one_of(*NAMES)},
    "lose": {"number": lambda rng: rng.randrange(CLIENTS)},
    "later": {"ms": one_of(1, 1, 20, 100, 1000, 6000)},
    "until_the_next_deadline": {},
    "disk": {"slow": one_of(True, False)},
    "page_out": {"name": one_of(*NAMES)},
    "commit": {},
    "set_policy": {"pattern": one_of("", "^a", "^[bc]")},
    "clear_policy": {},
    "restart": {"clean": one_of(True, False)},
    "declare": {"name": one_of(*NAMES), "instead": one_of(True, False, False), "fanned": one_of(True, False)},
}
WEIGHTS = {
    "publish": 30,
    "delay": 2,
    "consume": 8,
    "cancel": 5,
    "get": 8,
    "settle": 20,
    "purge": 2,
    "lose": 2,
    "later": 6,
    "until_the_next_deadline": 6,
    "disk": 6,
    "page_out": 10,
    "commit": 12,
    "set_policy": 3,
    "clear_policy": 2,
    "restart": 2,
    "declare": 3,
}


@dataclass(frozen=True)
class Theme:
    """`often` are arguments of which each queue has some, `seldom` others."""

    name: str
    kinds: tuple[str, ...] = ("classic", "quorum")
    often: tuple[str, ...] = ()
    weights: dict[str, int] = field(default_factory=dict)
    small_bounds: bool = True
    copies: bool = False
    """what expires in any order is copied to disk early; never with a slow disk"""


THEMES = (
    Theme("anything", small_bounds=False),
    Theme("classic", ("classic",), ("message-ttl", "max-length", "dead-letter-exchange", "dead-letter-routing-key")),
    Theme("quorum", ("quorum",), ("delivery-limit", "dead-letter-routing-key", "max-length", "message-ttl")),
    Theme(
        "at least once",
        ("quorum", "quorum", "classic"),
        ("dead-letter-strategy", "dead-letter-routing-key", "message-ttl", "max-length"),
        {"settle": 40, "until_the_next_deadline": 12},
    ),
    Theme("priorities", ("classic",), ("max-priority", "max-priority", "dead-letter-routing-key"), {"settle": 30}),
    Theme(
        "memory and disk",
        ("classic", "quorum"),
        ("dead-letter-routing-key", "max-length-bytes", "message-ttl"),
        {"page_out": 40, "commit": 40, "disk": 12, "until_the_next_deadline": 15},
    ),
    Theme(
        "copies",
        ("classic", "quorum"),
        ("dead-letter-routing-key", "dead-letter-exchange", "max-priority", "message-ttl"),
        {"page_out": 40, "commit": 40, "disk": 0, "until_the_next_deadline": 25, "later": 15, "publish": 50},
        copies=True,
    ),
    Theme(
        "one active consumer",
        ("quorum", "classic"),
        ("single-active-consumer", "single-active-consumer", "delivery-limit"),
        {"consume": 30, "cancel": 10},
    ),
    Theme("refusing", ("classic",), ("overflow", "max-length", "dead-letter-routing-key"), {"consume": 16}),
)


def draw(theme: Theme, rng: random.Random, length: int) -> list[Command]:
    weights = WEIGHTS | theme.weights
    names = rng.choices(list(weights), list(weights.values()), k=length)
    first = [
        ("declare", {**_queue(theme, rng), "name": name, "instead": True, "fanned": rng.random() < 0.5})
        for name in NAMES
    ]
    # As the first command: what takes many messages elsewhere takes a few.
    bounds: list[Command] = [("small_bounds", {"copies": theme.copies})] if theme.small_bounds else []
    return bounds + first + [(name, _arguments(theme, name, rng)) for name in names]


def _arguments(theme: Theme, name: str, rng: random.Random) -> dict[str, Any]:
    arguments = {key: each(rng) for key, each in COMMANDS[name].items()}
    if name == "declare":
        arguments |= _queue(theme, rng)
    elif name == "set_policy":
        keys = rng.sample(OF_POLICIES, rng.randrange(1, 4))
        arguments["definition"] = {key: ARGUMENTS[key](rng) for key in keys}
    return arguments


def _queue(theme: Theme, rng: random.Random) -> dict[str, Any]:
    kind = rng.choice(theme.kinds)
    keys = {key for key in theme.often if rng.random() < 0.6}
    keys |= set(rng.sample(sorted(ARGUMENTS), rng.randrange(3)))
    keys -= set(OF_QUORUM if kind == "classic" else OF_CLASSIC)
    arguments = {key: ARGUMENTS[key](rng) for key in sorted(keys)}
    if "dead-letter-strategy" in arguments:
        arguments["overflow"] = "reject-publish"
    if "dead-letter-routing-key" in arguments or "dead-letter-strategy" in arguments:
        arguments.setdefault("dead-letter-exchange", "")
    durable = kind == "quorum" or rng.random() < 0.8
    return {"kind": kind, "durable": durable, "arguments": arguments}


def run(commands: list[Command], make: Callable[[], Machine] = Machine) -> Counter[str]:
    """Raises AssertionError. What was made, and what came of it."""
    first, arguments = commands[0] if commands else ("", {})
    small_bounds = first == "small_bounds"
    with watched(small_bounds, small_bounds and arguments["copies"]):
        machine = make()
        for name, arguments in commands:
            getattr(machine, name)(**arguments)
            machine.holds()
        machine.drain()
    return machine.model.events


def shortest(
    commands: list[Command], seconds_left: Callable[[], float], make: Callable[[], Machine] = Machine
) -> list[Command]:
    """Fewer commands that fail too: parts are left out as long as that succeeds, and time is left."""
    size = max(1, len(commands) // 2)
    while size and seconds_left() > 0:
        at, fewer = 0, False
        while at < len(commands) and seconds_left() > 0:
            shorter = commands[:at] + commands[at + size :]
            if failure(shorter, make) is not None:
                commands, fewer = shorter, True
            else:
                at += size
        if not fewer or size > 1:
            size = size // 2 if size > 1 else 0 if not fewer else 1
    return commands


def failure(commands: list[Command], make: Callable[[], Machine] = Machine) -> Exception | None:
    try:
        run(commands, make)
    except Exception as error:  # noqa: BLE001  # whatever the node or the model raises
        return error
    return None
