"""A look at `metadata.db` that changes nothing: what it says of itself, before it is opened for writing.

What comes in: its path. What goes out: identity, revision, its journal, whether it has durable queues.
Rules: 1. Damage is not told here: opening the file tells it, with the way out. 2. The file is as it was afterwards.
Not here: checksums of the entries (`verification.py`), what follows (`amqpd.datadir.pairing`).
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from amqpd.storage.files import has_log
from amqpd.storage.moment import connect
from amqpd.topology.metadata.codec import PREFIX
from amqpd.topology.metadata.sqlite.verification import contents_of, read_journal
from amqpd.topology.metadata.store import StoreDamaged

_QUEUES = f"{PREFIX}queue/"
_BEHIND_QUEUES = f"{PREFIX}queue0"  # "0" follows "/"


class Glance(NamedTuple):
    """The facts that a `metadata.db` gives of itself before it is opened for writing."""

    identity: str
    """empty: there is no database, or one of a format that had no identity"""
    revision: int
    journal: tuple[str, int] | None
    """see `MetadataStore.journal`"""
    queues: bool
    """there are durable queues"""


NOTHING = Glance("", 0, None, False)


def glance(path: Path) -> Glance | None:
    """None: it cannot be read."""
    try:
        if not path.exists() or path.stat().st_size == 0:
            return NOTHING
        # Without a log there is none to be made, as SQLite would.
        how = "mode=ro" if has_log(path) else "immutable=1"
        with closing(connect(path, how)) as connection:
            named = connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'names'").fetchone()[0]
            if not named:
                return NOTHING
            contents = contents_of(connection, path)
            queues = connection.execute(
                "SELECT EXISTS (SELECT 1 FROM entries WHERE key > ? AND key < ?)", (_QUEUES, _BEHIND_QUEUES)
            ).fetchone()[0]
            return Glance(contents.identity, contents.revision, read_journal(connection, path), bool(queues))
    except (sqlite3.Error, StoreDamaged, ValueError, OSError):
        return None
