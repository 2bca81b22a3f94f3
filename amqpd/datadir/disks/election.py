"""Which of the listed directories a start goes on with.

What comes in: what each directory says of itself (`datadir/disk_record.py`), how far its journal is. What goes out:
the list that is in effect; which directories count; the one that has everything; the next list. Or `StartRefused`,
with one sentence.
Rules: 1. The newest list counts, and only directories that it names by their generation, and that are whole. 2. A
majority of that list must be there: then one of them has everything that was ever confirmed. 3. The one that is
furthest, by (incarnation, index, revision), has it (as the most up-to-date log in Raft section 5.4). 4. With
`accept_loss` fewer than a majority are enough. 5. A journal without a record beside directories that have one is of a
node that went on with it alone: nobody but the operator knows which is to be kept. 6. Pure: no I/O.
Not here: reading the directories (`opening.py`), what is done while the node runs (`roster.py`, `repair.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from amqpd.datadir.disk_record import DiskList, Listed, Record
from amqpd.datadir.disks.standing import majority_of

Position = tuple[int, int, int]
"""incarnation, index of the journal's last transaction, revision of the definitions (`one_disk.py`)"""


class StartRefused(Exception):
    """The node must not start. The text is one sentence for the operator."""


@dataclass(slots=True)
class SeenDirectory:
    """One directory of the setting, as it is found."""

    path: str
    record: Record | None = None
    has_journal: bool = False
    unusable: str = ""
    """why it cannot be used; empty: it can"""
    has_record: bool = False
    """the file is there, if it can be read or not"""


@dataclass(slots=True)
class Chosen:
    """The outcome of an election: the newest list of disks, and the directories that count."""

    newest: DiskList | None
    """None: the node has none yet"""
    members: list[int]
    """places in the setting of what counts"""
    promised: int
    """the highest incarnation that was promised"""


def choose(seen: Sequence[SeenDirectory], *, accept_loss: bool) -> Chosen:
    """The list in effect, the directories that count, and the one that has everything. Raises StartRefused."""
    records = [each.record for each in seen if each.record is not None]
    if not records:
        return Chosen(None, [_origin(seen)], 0)
    nodes = {record.list.node for record in records}
    if len(nodes) > 1:
        raise StartRefused(
            f"the data directories {named(each.path for each in seen if each.record)} belong to different nodes: "
            "name those of one node"
        )
    if alone := [each.path for each in seen if has_own_journal(each)]:
        having = "have journals of their own" if alone[1:] else "has a journal of its own"
        others = named(each.path for each in seen if each.record)
        raise StartRefused(f"{named(alone)} {having}, beside {others} of a node: empty it, or name it alone")
    newest = max((record.list for record in records), key=lambda each: each.version)
    members = [at for at, each in enumerate(seen) if is_member(each, newest)]
    enough(seen, newest, members, accept_loss=accept_loss)
    return Chosen(newest, members, max(record.promised for record in records))


def is_member(seen: SeenDirectory, of: DiskList) -> bool:
    record = seen.record
    if seen.unusable or record is None or not record.whole:
        return False
    return any(each.generation == record.generation for each in of.disks)


def has_own_journal(seen: SeenDirectory) -> bool:
    """It was used alone: what the list says of it, or of its path, is older than what it has."""
    return seen.has_journal and seen.record is None and not seen.has_record and not seen.unusable


def enough(seen: Sequence[SeenDirectory], of: DiskList, members: Collection[int], *, accept_loss: bool) -> None:
    """Raises StartRefused unless a majority of the list counts."""
    needed = majority_of(len(of.disks))
    if len(members) >= needed or (accept_loss and members):
        return
    there = {record.generation for at in members if (record := seen[at].record) is not None}
    lacking = [each.path for each in of.disks if each.generation not in there]
    reasons = [f"{each.path}: {each.unusable}" for each in seen if each.unusable]
    why = f" ({'; '.join(reasons)})" if reasons else ""
    way_out = "or start once with --accept-loss to go on with what is there" if members else "or restore a backup"
    raise StartRefused(
        f"{len(members)} of the {len(of.disks)} data directories of this node have its data, {needed} are needed: "
        f"{named(lacking)} {'are' if lacking[1:] else 'is'} missing, empty, unusable or not named with --data-dir"
        f"{why}; bring them back, {way_out}"
    )


def furthest(positions: dict[int, Position]) -> int:
    """The member that has everything; the first one of several."""
    return max(positions, key=lambda at: (positions[at], -at))


def of_last_incarnation(positions: dict[int, Position]) -> list[int]:
    """Members that have been in the one order since the last start: each has the definitions up to some revision."""
    incarnation, *_ = positions[furthest(positions)]
    return [at for at, position in positions.items() if position[0] == incarnation]


def is_inside(seen: SeenDirectory, of: DiskList) -> bool:
    """It had everything when the list was written."""
    record = seen.record
    return record is not None and any(each.inside and each.generation == record.generation for each in of.disks)


def next_list(
    seen: Sequence[SeenDirectory],
    before: DiskList | None,
    node: str,
    version: tuple[int, int],
    inside: Collection[int],
    draw: Callable[[], str],
) -> DiskList:
    """All directories of the setting. One that is away keeps its place in the list by its path."""
    disks = []
    known = {each.path: each.generation for each in before.disks} if before is not None else {}
    taken = {each.record.generation for each in seen if each.record is not None}
    for at, each in enumerate(seen):
        generation = each.record.generation if each.record is not None else known.get(each.path, "")
        if each.record is None and generation in taken:
            generation = ""  # it was moved: another directory of the setting has it
        disks.append(Listed(generation or draw(), each.path, at in inside))
    return DiskList(node, version, tuple(disks))


def not_named(seen: Sequence[SeenDirectory], before: DiskList) -> list[str]:
    """Paths of the list before that are not of the setting. One that was moved is there under another path."""
    taken = {each.record.generation for each in seen if each.record is not None}
    paths = {each.path for each in seen}
    return [each.path for each in before.disks if each.path not in paths and each.generation not in taken]


def _origin(seen: Sequence[SeenDirectory]) -> int:
    """Of a node that has no list yet: the directory that it had alone, or the first one. Raises StartRefused."""
    with_journal = [at for at, each in enumerate(seen) if each.has_journal]
    if len(with_journal) > 1:
        raise StartRefused(
            f"{named(seen[at].path for at in with_journal)} have a journal each, and none says which is the node's: "
            "name one of them, and empty directories beside it"
        )
    usable = [at for at, each in enumerate(seen) if not each.unusable]
    if len(usable) < majority_of(len(seen)):
        reasons = "; ".join(f"{each.path}: {each.unusable}" for each in seen if each.unusable)
        raise StartRefused(f"too few of the data directories can be used ({reasons}): correct that first")
    return with_journal[0] if with_journal else usable[0]


def named(paths: Iterable[str]) -> str:
    """For a sentence; at least one."""
    names = list(paths)
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
