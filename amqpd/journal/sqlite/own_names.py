"""What a journal says of itself, looked up before it is opened.

What comes in: the journal's path. What goes out: its names (`schema.names`), or nothing.
Rules: 1. No byte of the journal and of its log is changed, and no file is made. 2. What the journal has promised is
not judged: a copy of which the end is missing still says whose it is. 3. What is wrong with the file is not told
here: opening it does that.
Not here: whose claim on an identity counts (`amqpd/datadir/only_one.py`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from amqpd.journal.errors import NewerJournalFormat, NotAJournal
from amqpd.journal.records import JournalDamaged
from amqpd.journal.sqlite import checksums, trust
from amqpd.journal.sqlite.database import VFS, check_untouched, connect_to_read
from amqpd.storage.closing import close_unchanged
from amqpd.storage.files import has_log
from amqpd.storage.moment import connect


def own_names(journal: Path) -> dict[str, str]:
    """Of a directory that is locked. Empty: there is no journal, it cannot be read, or it does not say whose it is.
    Blocking."""
    try:
        if not journal.exists():
            return {}
        check_untouched(journal)
        # The file alone had its identity before there was a log, and a torn one may be no continuation of it.
        ways: list[Callable[[Path], dict[str, str]]] = [_with_log] if has_log(journal) else []
    except (OSError, NotAJournal, NewerJournalFormat, JournalDamaged):
        return {}
    for way in (*ways, _alone):
        try:
            return way(journal)
        except (sqlite3.Error, JournalDamaged, *checksums.NOT_AS_WRITTEN):
            continue
    return {}


def _with_log(journal: Path) -> dict[str, str]:
    # Not by one that may not write: SQLite would make a file for the index of the log.
    connection = connect_to_read(journal)
    try:
        return trust.read_names(journal, connection)
    finally:
        close_unchanged(journal, [connection], vfs=VFS)


def _alone(journal: Path) -> dict[str, str]:
    with closing(connect(journal, "immutable=1")) as connection:
        return trust.read_names(journal, connection)
