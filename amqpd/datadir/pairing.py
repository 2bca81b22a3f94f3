"""The journal and the metadata store belong together: each has the other's name, and how far it was.

What comes in: what both files say of themselves and of each other, before either is written to. What goes out: how
they do not fit, a sentence each; what both are to say from now on.
Rules: 1. A file that is missing, older, or another broker's shows in what the other one says. Without that, messages
would wait for unknown queues, or queues be empty that had messages. 2. What was never paired (a new broker,
files of an older format) is paired as it is. 3. Pure: nothing is read or written here.
Not here: what each file promises of itself (`storage/mark.py`), opening them (`opening.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from amqpd.topology.metadata.generations import are_of_one_store, is_earlier

WAY_OUT = "restore a backup of both (amqpd restore), or start once with --accept-loss to go on with what is there"

OLDER = "it is an older copy"

METADATA, METADATA_REVISION = "metadata", "metadata_revision"
"""names in the journal"""


class JournalFacts(NamedTuple):
    """The facts that a journal gives of itself, and of the metadata store beside it (`names`)."""

    path: str
    identity: str
    last: int
    """of its last transaction; 0: it never had one"""
    names: Mapping[str, str]
    log: str = ""
    """what is wrong with its log, the rest of a sentence; then it may have less than it had"""


class MetadataFacts(NamedTuple):
    """The facts that a metadata store gives of itself, and of the journal beside it."""

    path: str
    identity: str
    """empty: there is no file, or none of this format"""
    revision: int
    journal: tuple[str, int] | None
    """identity of the journal that it belongs to, and the index that one had at least"""
    queues: bool
    """it has durable queues"""
    log: str = ""
    """as the journal's"""


def is_older_copy(names: Mapping[str, str], identity: str, revision: int) -> bool:
    """The metadata store, of what the journal has noted of it."""
    named = names.get(METADATA, "")
    return is_earlier(identity, named) or (identity == named and revision < int(names.get(METADATA_REVISION, "0")))


def misfits(journal: JournalFacts, metadata: MetadataFacts) -> list[str]:
    """What is missing, or is not the other's: a sentence each. Empty: they belong together, or may from now on."""
    found = []
    named = journal.names.get(METADATA)
    if metadata.journal is not None and metadata.journal[0] != journal.identity:
        if not journal.last:
            if metadata.queues:
                found.append(f"{journal.path} is missing or new, and {metadata.path} has queues with another journal")
        else:
            found.append(f"{metadata.path} belongs to another journal than {journal.path}: one of them was replaced")
    elif metadata.journal is not None and metadata.journal[1] > journal.last:
        found.append(
            f"{journal.path} ends at transaction {journal.last}, and {metadata.path} knows that it had "
            f"{metadata.journal[1]}: {journal.log or OLDER}"
        )
    if named is None or found:
        return found
    if not metadata.identity:
        found.append(f"{metadata.path} is missing, and {journal.path} beside it has been in use with one")
    elif metadata.identity != named and are_of_one_store(metadata.identity, named):
        found.append(f"{metadata.path} was put back to an older copy, and {journal.path} may know more than it has")
    elif metadata.identity != named:
        found.append(
            f"{journal.path} belongs to another metadata store than {metadata.path}: one of them was replaced"
        )
    elif is_older_copy(journal.names, metadata.identity, metadata.revision):
        found.append(
            f"{metadata.path} is of revision {metadata.revision}, and {journal.path} knows that it had "
            f"{journal.names[METADATA_REVISION]}: {metadata.log or OLDER}"
        )
    return found
