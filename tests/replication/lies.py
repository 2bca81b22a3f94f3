"""Messages in which one number is another one.

What comes in: a message. What goes out: copies of it, each with one number, or one position, that its sender never
meant, and where in the message it is.
Rules: 1. Every number of every message is found by walking through its parts, so a new field is lied in, too.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from amqpd.peers.entry import Frame, LogEntry, Vote, checksum_of, new_entry
from amqpd.peers.messages import (
    Acknowledgement,
    Answered,
    Ballot,
    Cut,
    Ended,
    Entries,
    Fetched,
    FetchEntries,
    FetchParts,
    Filled,
    Heartbeat,
    Lacked,
    Message,
    OpenedSource,
    Opening,
    OpenReplicaSet,
    Page,
    Query,
    RequestPreVote,
    RequestVote,
    SnapshotPart,
    Voted,
    Would,
)

SOURCE = 5
_entry = new_entry(SOURCE, (2, 9), (1, 4), b"payload")
_state = SnapshotPart(SOURCE, 1, (2, 9), pickle.dumps([]), True, True, (1, 4))
_ballot = Ballot(True, Vote(2, "b", 1), (1, 4), 7, (1, 4))

FROM_LEADER: list[Message] = [
    OpenReplicaSet(1, 1, Opening(8, (OpenedSource(SOURCE, 2, (1, 4), 12345, 0),), 6)),
    Cut(1, 2, Frame(9, 8, (_entry,), 7, 7, (SOURCE,))),
    Lacked(1, 3, (_entry,)),
    Filled(1, 4, _state),
    Heartbeat(1, 5, 6),
    Ended(1, SOURCE, 2),
    RequestPreVote(1, SOURCE),
    RequestVote(1, SOURCE, Vote(2, "b", 1)),
    FetchEntries(1, SOURCE, (1, 4)),
    FetchParts(1, SOURCE, (1, 4)),
    Query(1, "{}"),
]
ANSWERS: list[Message] = [
    Answered(
        1,
        2,
        Acknowledgement(
            9, {SOURCE: (1, 4)}, {SOURCE: Vote(3, "b", 2)}, frozenset({SOURCE}), frozenset({SOURCE}), {SOURCE: (1, 4)}
        ),
    ),
    Would(1, _ballot),
    Voted(1, Vote(2, "a", 1), _ballot),
    Entries(1, (_entry,)),
    Fetched(1, _state),
    Page(1, "{}"),
]

Choose = Callable[[str], list[int]]
"""which numbers a field of this name is to have in place of its own"""


def lies_in(message: Message, choose: Choose) -> Iterator[tuple[str, Message]]:
    """With the path of what is not true."""
    yield from _lies(message, type(message).__name__, choose)


def _lies(value: Any, path: str, choose: Choose) -> Iterator[tuple[str, Any]]:
    if isinstance(value, bool):
        yield f"{path}={not value}", not value
    elif isinstance(value, int):
        name = path.rpartition(".")[2]
        for other in choose(name):
            yield f"{path}={other}", other
    elif isinstance(value, LogEntry):
        for name in ("source", "position", "before"):
            for where, other in _lies(getattr(value, name), f"{path}.{name}", choose):
                lie = replace(value, **{name: other})
                # Its checksum is right: its sender made it so.
                yield where, replace(lie, checksum=_checksum(lie))
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            for where, other in _lies(getattr(value, field.name), f"{path}.{field.name}", choose):
                yield where, replace(value, **{field.name: other})
    elif isinstance(value, dict):
        yield from _of_dict(value, path, choose)
    elif isinstance(value, frozenset):
        for other in choose("source"):
            yield f"{path}={other}", frozenset({other})
    elif hasattr(value, "_fields"):
        for name in value._fields:
            for where, other in _lies(getattr(value, name), f"{path}.{name}", choose):
                yield where, value._replace(**{name: other})
    elif isinstance(value, tuple):
        names = ["epoch", "idx"] if len(value) == 2 and type(value[0]) is int else ["source"] * len(value)
        for at, each in enumerate(value):
            for where, other in _lies(each, f"{path}.{names[at]}", choose):
                yield where, (*value[:at], other, *value[at + 1 :])


def _of_dict(value: dict[int, Any], path: str, choose: Choose) -> Iterator[tuple[str, Any]]:
    for key, item in value.items():
        for other in choose("source"):
            yield f"{path}.key={other}", {other: item}
        for where, changed in _lies(item, f"{path}.value", choose):
            yield where, {key: changed}


def _checksum(entry: LogEntry) -> int:
    try:
        return checksum_of(entry.source, entry.position, entry.before, entry.payload)
    except struct.error:  # numbers that fit into nothing have none
        return 0
