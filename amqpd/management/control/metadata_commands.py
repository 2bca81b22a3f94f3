"""The metadata store of a broker over its control socket: for commands on a node whose definitions no other process
can write (several data directories).

What comes in: the command line's requests (`RunningStore`), and in the broker the same as commands (`handlers`,
`streams`). What goes out: entries, an outcome.
Rules: 1. Keys and values are texts, as the store has them. A long value is sent in pieces. 2. What has a lease lives
in the broker only, and has no value here. 3. A store that refuses is `Unavailable`.
Not here: what is changed (`management/metadata/`), the store (`topology/metadata/store.py`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from amqpd.management.control import socket as control
from amqpd.management.control.answers import Handler, Stream
from amqpd.management.control.arguments import Arguments, required
from amqpd.management.errors import BadArgument, Unavailable
from amqpd.topology.metadata.store import (
    Committed,
    Compare,
    CompareFailed,
    DeleteKey,
    MetadataEntry,
    MetadataStore,
    Operation,
    Outcome,
    PutKey,
    Snapshot,
    StoreBusy,
    StoreFull,
    StoreUnreached,
)

# A busy broker answers between two ticks.
ANSWER_TIMEOUT_S = 60.0
ENTRIES_AT_ONCE = 100
# Of a value in one row: less than a listing leaves out (`answers.VALUE_BYTES_MAX`), however it is escaped.
PIECE_CHARACTERS = 40_000
ENDED = "the broker ended meanwhile: look whether it was done"

Rows = list[dict[str, Any]]


class RunningStore:
    """The metadata store of a running broker, asked over its control socket. It blocks while it waits for the
    broker: a process of its own has nothing else to do."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    def answers(self) -> bool:
        """A broker runs on the directory. Raises Unavailable for one that does not answer."""
        return control.call(self._data_dir, "refresh", timeout_s=ANSWER_TIMEOUT_S) is not None

    async def range(self, prefix: str) -> Snapshot:
        """What the broker's store has. Raises Unavailable."""
        rows = control.rows(self._data_dir, "metadata read", {"prefix": prefix}, ANSWER_TIMEOUT_S)
        if rows is None:
            raise Unavailable(ENDED)
        first, *rest = rows
        entries: list[MetadataEntry] = []
        for row in rest:
            value = row["value"]
            if entries and entries[-1].key == row["key"]:
                value = entries.pop().value + value
            entries.append(MetadataEntry(row["key"], value, row["revision"]))
        return Snapshot(first["revision"], entries)

    async def transact(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> Outcome:
        """One transaction, which the broker's store makes. Raises Unavailable."""
        request = {
            "compares": [[each.key, each.mod_revision] for each in compares],
            "operations": [[each.key, each.value if isinstance(each, PutKey) else None] for each in operations],
        }
        found = control.call(self._data_dir, "metadata transact", request, ANSWER_TIMEOUT_S)
        if found is None:
            raise Unavailable(ENDED)
        return (Committed if found["committed"] else CompareFailed)(found["revision"])


@contextmanager
def store_refusals() -> Iterator[None]:
    """Raises Unavailable for a store that is full or busy, or does not answer."""
    try:
        yield
    except (StoreBusy, StoreFull, StoreUnreached) as error:
        raise Unavailable(str(error)) from error


def handlers(store: MetadataStore) -> Mapping[str, Handler]:
    async def transact(arguments: Arguments) -> dict[str, Any]:
        try:
            compares = [Compare(_text(key), _revision(revision)) for key, revision in arguments["compares"]]
            operations: list[Operation] = [
                DeleteKey(_text(key)) if value is None else PutKey(_text(key), _text(value))
                for key, value in arguments["operations"]
            ]
        except (KeyError, TypeError, ValueError):
            raise BadArgument("compares are pairs of key and revision, operations pairs of key and value") from None
        try:
            with store_refusals():
                outcome = await store.transact(compares, operations)
        except ValueError as error:
            raise BadArgument(str(error)) from None
        return {"committed": isinstance(outcome, Committed), "revision": outcome.revision}

    return {"metadata transact": transact}


def streams(store: MetadataStore) -> Mapping[str, Stream]:
    async def read(arguments: Arguments) -> AsyncGenerator[Rows, None]:
        with store_refusals():
            snapshot = await store.range(required(arguments, "prefix"))
        yield [{"revision": snapshot.revision}]
        entries = iter(snapshot.entries)
        while some := list(islice(entries, ENTRIES_AT_ONCE)):
            yield [row for entry in some for row in _rows(entry)]

    return {"metadata read": read}


def _rows(entry: MetadataEntry) -> Rows:
    if entry.lease:
        return [{"key": entry.key, "revision": entry.mod_revision, "value": ""}]
    pieces = range(0, max(len(entry.value), 1), PIECE_CHARACTERS)
    return [
        {"key": entry.key, "revision": entry.mod_revision, "value": entry.value[at : at + PIECE_CHARACTERS]}
        for at in pieces
    ]


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _revision(value: object) -> int | None:
    if value is not None and type(value) is not int:
        raise TypeError
    return value
