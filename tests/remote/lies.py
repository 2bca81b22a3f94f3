"""Messages of which some values are others: what a peer might say that is broken, or lies.

What comes in: a message. What goes out: how many places of it can be changed; copies with another value in one.
Rules: 1. Every number, flag and list of every message is found by walking through its parts, so a new field is lied
in, too. 2. A number becomes another one of those that matter somewhere, or one of the message's neighbours; of a list
something is left out, there twice, or in another order. 3. Runs stay as they are: `test_encoding.py` changes their
bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import partial
from typing import Any

from amqpd.kernel import Run

NUMBERS = (0, 1, 2, 3, 5, 1 << 31, (1 << 40) - 1, 1 << 40, 1 << 48, (1 << 62) - 1, 1 << 62, (1 << 63) - 1)

Choose = Callable[[Any], Any]
"""another value in place of this one"""


def others(value: Any) -> list[Any]:
    """In place of one value."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [each for each in (*NUMBERS, value - 1, value + 1, 2 * value) if each >= 0 and each != value]
    if isinstance(value, Enum):
        return [each for each in type(value) if each is not value]
    if isinstance(value, str):
        return ["", "x" * 5000]
    return [value[1:], value[:-1], value + value, value[::-1], ()] if value else []


def places(value: Any) -> int:
    """Where it can be changed."""
    return sum(1 for _ in _changed(value, lambda each: each))


def changed(value: Any, place: int, choose: Choose) -> Any:
    """With what is chosen at one of its places."""
    for at, other in enumerate(_changed(value, choose)):
        if at == place:
            return other
    raise IndexError(place)


def all_lies(value: Any) -> Iterator[Any]:
    """Each other value at each place."""
    for place in range(places(value)):
        found: list[Any] = []

        def note(each: Any, found: list[Any] = found) -> Any:
            found[:] = others(each)
            return each

        changed(value, place, note)
        for other in tuple(found):
            yield changed(value, place, partial(_instead, other))


def _changed(value: Any, choose: Choose) -> Iterator[Any]:
    """Lazily: a copy for each place, in order."""
    if isinstance(value, Run) or value is None:
        return
    if is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            for other in _changed(getattr(value, field.name), choose):
                yield replace(value, **{field.name: other})
    elif hasattr(value, "_fields"):
        for name in value._fields:
            for other in _changed(getattr(value, name), choose):
                yield value._replace(**{name: other})
    else:
        yield choose(value)
        if isinstance(value, tuple):
            for at, each in enumerate(value):
                for other in _changed(each, choose):
                    yield (*value[:at], other, *value[at + 1 :])


def _instead(other: Any, _: Any) -> Any:
    return other
