"""How commands read and change the metadata of a broker, whether it runs or not.

What comes in: a data directory, and a plan: from the topology to the changes. What goes out: the changes
committed, and taken over by the broker if one runs there; or one sentence (`click.ClickException`, exit
code 1).
Rules: 1. A command opens the store itself; the running broker is only told to look. 2. A plan that was
overtaken by somebody else's change is made anew, so its errors are about what is really there.
Not here: what the commands are (`users.py`, `vhosts.py`, `policies.py` and so on).
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click
import trio

from amqpd.management import control
from amqpd.topology.metadata.bootstrap import bootstrap
from amqpd.topology.metadata.codec import PREFIX, encode_key
from amqpd.topology.metadata.sqlite.store import SqliteStore
from amqpd.topology.metadata.store import Committed, Compare, MetadataStore, MetadataStoreError
from amqpd.topology.metadata.sync import records_of, transaction_of
from amqpd.topology.state import Topology
from amqpd.vocabulary.escapes import escaped, readable_json
from amqpd.vocabulary.records import (
    Change,
    Delete,
    Key,
    ParameterRecord,
    PermissionRecord,
    Put,
    TopicPermissionRecord,
    UserRecord,
    VhostRecord,
)

FILE_NAME = "metadata.db"
# Somebody else changed the same things in each of so many rounds of a few milliseconds.
ROUNDS_MAX = 20
# A larger plan is cut here, at whatever stands there: a broker applies a transaction in one go, at some 15,000
# changes a second, and does nothing else meanwhile.
CHANGES_A_TRANSACTION = 10_000
# How long the running broker may take to look; it needs milliseconds.
REFRESH_TIMEOUT_S = 60.0
# AMQP 0-9-1 writes names as short strings (4.2.5.3); user names are held to the same.
NAME_BYTES_MAX = 255

OfUser = PermissionRecord | TopicPermissionRecord

T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    """Changes, and the keys that must (still) be there for them to make sense."""

    changes: Sequence[Change]
    requires: Iterable[Key] = field(default=())


def change(data_dir: Path, plan: Callable[[Topology], Plan]) -> None:
    """Commit what the plan says, and have a running broker take it over. The plan raises ClickException
    when the wish makes no sense."""
    _run(data_dir, lambda store: _commit(store, plan))
    _refresh(data_dir)


def sweep(data_dir: Path) -> None:
    """Delete what belongs to a virtual host or a user that is gone: after a deletion, what somebody
    declared or set between our look and our commit. (The running broker has let go by now.)"""
    _run(data_dir, _sweep)
    _refresh(data_dir)


def read(data_dir: Path) -> Topology:
    """What is stored. (Not what lives in a running broker only: exclusive and other transient queues.)"""

    async def load(store: MetadataStore) -> Topology:
        return (await _load(store))[0]

    return _run(data_dir, load)


def found_user(topology: Topology, name: str) -> UserRecord:
    """Raises ClickException."""
    if name not in topology.users:
        raise click.ClickException(f"there is no user '{name}'")
    return topology.users[name]


def found_vhost(topology: Topology, name: str) -> VhostRecord:
    """Raises ClickException."""
    if name not in topology.vhost_records:
        raise click.ClickException(f"there is no virtual host '{name}'")
    return topology.vhost_records[name]


def check_filter(topology: Topology, vhost: str | None, user: str | None = None) -> None:
    """For lists that name one virtual host or user, or none. Raises ClickException."""
    if vhost is not None:
        found_vhost(topology, vhost)
    if user is not None:
        found_user(topology, user)


def data_dir_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The flag that every command has; without it, the data directory of the settings."""

    def resolve(context: click.Context, _: click.Parameter, value: Path | None) -> Path:
        found: Path = value if value is not None else context.obj.data_dir
        return found

    return click.option(
        "--data-dir",
        type=click.Path(path_type=Path),
        metavar="DIR",
        callback=resolve,
        help="The broker's data directory.  [default: as in the settings]",
    )(command)


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--json", "as_json", is_flag=True, help="Print a JSON array of objects, for programs.")(
        command
    )


def show(rows: Sequence[dict[str, Any]], columns: Sequence[str], as_json: bool) -> None:
    """Rows as aligned columns for people, or as JSON."""
    if as_json:
        click.echo(readable_json(rows, 2))
        return
    for line in table(rows, columns):
        click.echo(line)


def table(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> list[str]:
    """A line of headings, and one for each row."""
    cells = [tuple(columns), *(tuple(_shown(row[column]) for column in columns) for row in rows)]
    widths = [max(_width(line[at]) for line in cells) for at in range(len(columns))]
    return [
        "  ".join(cell + " " * (width - _width(cell)) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]


def check_name(kind: str, name: str) -> None:
    """Raises ClickException for a name that no client could use."""
    if not name:
        raise click.ClickException(f"a {kind} needs a name that is not empty")
    if len(name.encode("utf-8", "surrogateescape")) > NAME_BYTES_MAX:
        raise click.ClickException(f"the {kind}'s name is longer than {NAME_BYTES_MAX} bytes")
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
        raise click.ClickException(f"the {kind}'s name has control characters, or is not UTF-8")


def json_value(what: str, text: str) -> Any:
    """What the JSON text says. Raises ClickException."""
    try:
        return json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise click.ClickException(f"the {what} is not JSON: {error}; a text has quotes: '\"text\"'") from error


def json_cell(value: Any, as_json: bool) -> Any:
    """A value of JSON in a row: itself for programs, as text for people."""
    return value if as_json else readable_json(value)


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number in JSON")


async def _commit(store: MetadataStore, plan: Callable[[Topology], Plan]) -> None:
    for _ in range(ROUNDS_MAX):
        topology, revisions = await _load(store)
        planned = plan(topology)
        for first in range(0, len(planned.changes), CHANGES_A_TRANSACTION):
            some = planned.changes[first : first + CHANGES_A_TRANSACTION]
            if not await _transact(store, some, planned.requires, revisions):
                break
        else:
            return
    raise click.ClickException("somebody else is changing the same things all the time: try again")


async def _transact(
    store: MetadataStore, changes: Sequence[Change], requires: Iterable[Key], revisions: dict[str, int]
) -> bool:
    wanted = transaction_of(changes, requires=requires)
    compares = {compare.key: compare for compare in wanted.compares}
    for each in changes:
        if isinstance(each, Put):
            key = encode_key(each.record.key)
            compares[key] = Compare(key, revisions.get(key, 0))
    return isinstance(await store.transact(list(compares.values()), wanted.operations), Committed)


async def _sweep(store: MetadataStore) -> None:
    records = records_of(await store.range(PREFIX))
    vhosts = {record.name for record in records if isinstance(record, VhostRecord)}
    users = {record.name for record in records if isinstance(record, UserRecord)}
    orphans = [
        Delete(record.key)
        for record in records
        if not isinstance(record, VhostRecord | UserRecord)
        and (record.vhost not in vhosts or (isinstance(record, OfUser) and record.user not in users))
        and not (isinstance(record, ParameterRecord) and not record.vhost)
    ]
    if orphans:
        await store.transact([], transaction_of(orphans).operations)


async def _load(store: MetadataStore) -> tuple[Topology, dict[str, int]]:
    snapshot = await store.range(PREFIX)
    topology = Topology()
    topology.apply([Put(record) for record in records_of(snapshot)])
    return topology, {entry.key: entry.mod_revision for entry in snapshot.entries}


@asynccontextmanager
async def _opened(data_dir: Path) -> AsyncIterator[MetadataStore]:
    store = await SqliteStore.open(data_dir / FILE_NAME)
    try:
        await bootstrap(store)
        yield store
    finally:
        await store.aclose()


def _run(data_dir: Path, work: Callable[[MetadataStore], Awaitable[T]]) -> T:
    async def main() -> T:
        async with _opened(data_dir) as store:
            return await work(store)

    if not (data_dir / FILE_NAME).exists():
        missing = "has no metadata.db" if data_dir.is_dir() else "does not exist"
        raise click.ClickException(
            f"data directory {data_dir} {missing}: name the broker's with --data-dir, "
            f"or let the broker make it (amqpd serve --data-dir {data_dir})"
        )
    try:
        return trio.run(main)
    except MetadataStoreError as error:
        raise click.ClickException(str(error)) from error


def _refresh(data_dir: Path) -> None:
    try:
        control.call(data_dir, "refresh", timeout_s=REFRESH_TIMEOUT_S)
    except control.ControlError as error:
        raise click.ClickException(f"it is stored, but the running broker did not take it over: {error}") from error


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return escaped(", ".join(value))
    return escaped(str(value))


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)
